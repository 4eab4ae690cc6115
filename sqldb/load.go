package sqldb

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
)

// ErrNotEmpty: the database has tables.
var ErrNotEmpty = errors.New("the database is not empty")

// Load makes a new database from the files of Copy. finish runs in the last
// transaction, before its commit. database is as for Open; PostgreSQL's must be
// empty, and SQLite's file must not exist. After a failure or a crash PostgreSQL's is
// still empty, and SQLite's file is incomplete: write it under a temporary name.
func Load(ctx context.Context, database string, open func(name string) (io.ReadCloser, error), finish func(*sql.Tx) error) error {
	load := loadSQLite
	if isPostgres(database) {
		load = loadPostgres
	}
	if err := load(ctx, database, open, finish); err != nil {
		return fmt.Errorf("load the database: %w", Advised(err))
	}
	return nil
}

// Empty reports whether a PostgreSQL database has no tables.
func Empty(ctx context.Context, database string) (empty bool, err error) {
	db, err := openPostgres(ctx, database, Limits{})
	if err != nil {
		return false, Advised(err)
	}
	var used bool
	err = db.reader.QueryRowContext(ctx, anyRelation).Scan(&used)
	return !used, errors.Join(err, db.Close())
}

// loadSQLite also migrates: finish sees the schema of this program.
func loadSQLite(ctx context.Context, path string, open func(string) (io.ReadCloser, error), finish func(*sql.Tx) error) error {
	content, err := open(copySQLite)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		_, err = io.Copy(file, content)
		err = errors.Join(err, file.Sync(), file.Close())
	}
	if err := errors.Join(err, content.Close()); err != nil {
		return err
	}
	db, err := Open(ctx, path)
	if err != nil {
		return err
	}
	err = db.Write(ctx, finish)
	if err == nil {
		err = db.Checkpoint(ctx) // the log must not be needed: only the file is renamed
	}
	return errors.Join(err, db.Close())
}

// loadPostgres makes the schema as it was at the time of the copy and fills it, in one
// transaction. Open migrates it further. Triggers do not run for the rows of the
// copy, because what they did is in it.
func loadPostgres(ctx context.Context, database string, open func(string) (io.ReadCloser, error), finish func(*sql.Tx) error) (err error) {
	var index copiedTables
	content, err := open(copyIndex)
	if err != nil {
		return err
	}
	raw, err := io.ReadAll(content) // to its end, where a checksum is compared
	if err := errors.Join(err, content.Close()); err != nil {
		return err
	}
	if err := json.Unmarshal(raw, &index); err != nil {
		return fmt.Errorf("read %s: %w", copyIndex, err)
	}
	db, err := openPostgres(ctx, database, Limits{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	conn, err := db.writer.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after a commit
	if err := makeSchema(ctx, tx, index.Steps); err != nil {
		return err
	}
	if err := fill(ctx, conn, tx, index, open); err != nil {
		return err
	}
	if err := finish(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// makeSchema runs the first migrations, under the lock of migrate, if the database is
// empty.
func makeSchema(ctx context.Context, tx *sql.Tx, steps int) error {
	if _, err := tx.ExecContext(ctx, "SELECT pg_advisory_xact_lock($1)", int64(migrationLock)); err != nil {
		return err
	}
	var used bool
	if err := tx.QueryRowContext(ctx, anyRelation).Scan(&used); err != nil {
		return err
	}
	if used {
		return ErrNotEmpty
	}
	if _, err := tx.ExecContext(ctx, createMigrationsPostgres); err != nil {
		return err
	}
	migrations, err := stepsOf(Postgres, steps)
	if err != nil {
		return err
	}
	for _, step := range migrations {
		if err := apply(ctx, tx, step); err != nil {
			return err
		}
	}
	return nil
}

const anyRelation = `SELECT EXISTS (SELECT 1 FROM pg_class WHERE relnamespace = current_schema()::regnamespace)`

// fill replaces the rows that the migrations have written by those of the copy.
func fill(ctx context.Context, conn *sql.Conn, tx *sql.Tx, index copiedTables, open func(string) (io.ReadCloser, error)) error {
	run := func(statement string, args ...any) error {
		_, err := tx.ExecContext(ctx, statement, args...)
		return err
	}
	for _, table := range index.Tables {
		name := pgx.Identifier{table.Name}.Sanitize()
		if err := errors.Join(run("TRUNCATE "+name+" CASCADE"), run("ALTER TABLE "+name+" DISABLE TRIGGER USER")); err != nil {
			return err
		}
	}
	for _, table := range index.Tables {
		if err := fillTable(ctx, conn, table, open); err != nil {
			return fmt.Errorf("table %s: %w", table.Name, err)
		}
	}
	// A table with rows that wait for a deferred check cannot be altered.
	if err := run("SET CONSTRAINTS ALL IMMEDIATE"); err != nil {
		return err
	}
	for _, table := range index.Tables {
		if err := run("ALTER TABLE " + pgx.Identifier{table.Name}.Sanitize() + " ENABLE TRIGGER USER"); err != nil {
			return err
		}
	}
	for _, c := range index.Sequences {
		if err := run("SELECT setval(pg_get_serial_sequence(quote_ident($1), $2), $3, $4)", c.Table, c.Column, c.Last, c.Used); err != nil {
			return err
		}
	}
	return nil
}

func fillTable(ctx context.Context, conn *sql.Conn, table copiedTable, open func(string) (io.ReadCloser, error)) error {
	content, err := open(table.Name + copySuffix)
	if err != nil {
		return err
	}
	err = conn.Raw(func(driver any) error {
		_, err := driver.(*stdlib.Conn).Conn().PgConn().CopyFrom(ctx, content, "COPY "+table.sql()+" FROM STDIN")
		return err
	})
	return errors.Join(err, content.Close())
}
