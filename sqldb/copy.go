package sqldb

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/exeunt/exeunt/sqldb/schema"
)

// querier reads one state of a database.
type querier interface {
	QueryContext(ctx context.Context, statement string, args ...any) (*sql.Rows, error)
}

// eachRow calls visit for each row of a query.
func eachRow(ctx context.Context, q querier, visit func(*sql.Rows) error, statement string, args ...any) (err error) {
	rows, err := q.QueryContext(ctx, statement, args...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		if err := visit(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// Save takes a file of a copy: it reads it to its end.
type Save func(name string, content io.Reader) error

// The files of a copy. On SQLite there is one, a database; on PostgreSQL each
// table is a file in the text format of COPY, and copyIndex comes last.
const (
	copySQLite = "exeunt.db"
	copyIndex  = "tables.json"
	copySuffix = ".copy"
)

// Copy saves one state of the database, while other transactions go on. read, which
// may be nil, sees the same state. staging is a directory for temporary files.
func (db *DB) Copy(ctx context.Context, staging string, save Save, read func(Sender) error) error {
	if read == nil {
		read = func(Sender) error { return nil }
	}
	var err error
	if db.engine == Postgres {
		err = db.copyPostgres(ctx, save, read)
	} else {
		err = db.copySQLite(ctx, staging, save, read)
	}
	if err != nil {
		return fmt.Errorf("copy the database: %w", err)
	}
	return nil
}

// copySQLite lets SQLite write a compact database file from one read transaction.
// Writers go on: the write-ahead log grows meanwhile.
func (db *DB) copySQLite(ctx context.Context, staging string, save Save, read func(Sender) error) (err error) {
	path := filepath.Join(staging, copySQLite)
	// Created here and not by SQLite, with mode 0600.
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close(), os.Remove(path)) }()
	if err := db.vacuumInto(ctx, path); err != nil {
		return err
	}
	made := db.newLiteReaders(path, nil)
	if err := errors.Join(read(made), made.close()); err != nil {
		return err
	}
	return save(copySQLite, file)
}

// vacuumInto lets SQLite write a copy to a path, which does not exist or is empty.
func (db *DB) vacuumInto(ctx context.Context, path string) error {
	// Not a connection of the reader's pool: query_only refuses VACUUM INTO.
	source, err := sql.Open("sqlite", sqliteName(db.path, "rw", "deferred", []string{fmt.Sprintf("busy_timeout(%d)", sqliteBusy.Milliseconds())}))
	if err != nil {
		return err
	}
	_, err = source.ExecContext(ctx, "VACUUM INTO $1", path)
	return errors.Join(err, source.Close())
}

// copiedTables is the content of copyIndex.
type copiedTables struct {
	Steps     int             `json:"steps"` // migrations of the schema
	Tables    []copiedTable   `json:"tables"`
	Sequences []copiedCounter `json:"sequences"`
}

type copiedTable struct {
	Name    string   `json:"name"`
	Columns []string `json:"columns"`
}

// copiedCounter is the counter of an identity column.
type copiedCounter struct {
	Table  string `json:"table"`
	Column string `json:"column"`
	Last   int64  `json:"last"`
	Used   bool   `json:"used"` // false: Last is the next value
}

// copyPostgres copies every table in one transaction. The counters are not part of
// a transaction: they are read after the rows, so they are never behind.
func (db *DB) copyPostgres(ctx context.Context, save Save, read func(Sender) error) (err error) {
	conn, err := db.reader.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	tx, err := conn.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	var index copiedTables
	if err := tx.QueryRowContext(ctx, "SELECT count(*) FROM migrations").Scan(&index.Steps); err != nil {
		return err
	}
	if index.Tables, err = listTables(ctx, tx); err != nil {
		return err
	}
	for _, table := range index.Tables {
		if err := copyTable(ctx, conn, table, save); err != nil {
			return fmt.Errorf("table %s: %w", table.Name, err)
		}
	}
	if err := conn.Raw(func(driver any) error { return read(pgSender{driver.(*stdlib.Conn).Conn()}) }); err != nil {
		return err
	}
	if index.Sequences, err = listCounters(ctx, tx); err != nil {
		return err
	}
	content, err := json.MarshalIndent(index, "", "  ")
	if err != nil {
		return err
	}
	return save(copyIndex, bytes.NewReader(content))
}

// pgSender reads in the transaction of a connection.
type pgSender struct{ conn *pgx.Conn }

// Send implements Sender.
func (s pgSender) Send(ctx context.Context, b *Batch) error {
	return sendPG(ctx, s.conn, &pgx.Batch{}, b)
}

func copyTable(ctx context.Context, conn *sql.Conn, table copiedTable, save Save) error {
	reader, writer := io.Pipe()
	saved := make(chan error, 1)
	go func() {
		err := save(table.Name+copySuffix, reader)
		_ = reader.CloseWithError(errors.Join(errors.New("the copy was not saved"), err)) // always nil
		saved <- err
	}()
	err := conn.Raw(func(driver any) error {
		_, err := driver.(*stdlib.Conn).Conn().PgConn().CopyTo(ctx, writer, "COPY "+table.sql()+" TO STDOUT")
		return err
	})
	_ = writer.CloseWithError(err) // always nil; without an error it is the end of the file
	return errors.Join(<-saved, err)
}

// sql is the table with its columns, quoted.
func (t copiedTable) sql() string {
	columns := ""
	for i, column := range t.Columns {
		if i > 0 {
			columns += ", "
		}
		columns += pgx.Identifier{column}.Sanitize()
	}
	return pgx.Identifier{t.Name}.Sanitize() + " (" + columns + ")"
}

// listTables lists our tables without that of the migrations. A table comes after
// those that its foreign keys refer to, so that a copy can be loaded in this order.
func listTables(ctx context.Context, q querier) (tables []copiedTable, err error) {
	err = eachRow(ctx, q, func(rows *sql.Rows) error {
		var t copiedTable
		var columns []byte
		if err := rows.Scan(&t.Name, &columns); err != nil {
			return err
		}
		err := json.Unmarshal(columns, &t.Columns)
		tables = append(tables, t)
		return err
	}, tablesInOrder)
	return tables, err
}

// tablesInOrder: depth is the longest chain of foreign keys below a table. The schema
// has no cycles of foreign keys, except from a table to itself.
const tablesInOrder = `
WITH RECURSIVE tables AS (
    SELECT c.oid, c.relname FROM pg_class c
    WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r' AND c.relname <> 'migrations'
), depths AS (
    SELECT oid, 0 AS depth FROM tables
    UNION
    SELECT k.conrelid, d.depth + 1 FROM depths d JOIN pg_constraint k ON k.confrelid = d.oid AND k.contype = 'f' AND k.conrelid <> k.confrelid
)
SELECT t.relname, (SELECT json_agg(a.attname ORDER BY a.attnum) FROM pg_attribute a
    WHERE a.attrelid = t.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '')::text
FROM tables t
ORDER BY (SELECT max(d.depth) FROM depths d WHERE d.oid = t.oid), t.relname COLLATE "C"`

const identityColumns = `
SELECT c.relname, a.attname, pg_get_serial_sequence(quote_ident(c.relname), a.attname)
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attidentity <> ''
WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r'
ORDER BY c.relname COLLATE "C", a.attname COLLATE "C"`

func listCounters(ctx context.Context, tx *sql.Tx) (counters []copiedCounter, err error) {
	var names []string // quoted by PostgreSQL
	err = eachRow(ctx, tx, func(rows *sql.Rows) error {
		var c copiedCounter
		var name string
		err := rows.Scan(&c.Table, &c.Column, &name)
		counters, names = append(counters, c), append(names, name)
		return err
	}, identityColumns)
	if err != nil {
		return nil, err
	}
	for i := range counters {
		if err := tx.QueryRowContext(ctx, "SELECT last_value, is_called FROM "+names[i]).Scan(&counters[i].Last, &counters[i].Used); err != nil {
			return nil, err
		}
	}
	return counters, nil
}

// stepsOf returns the first n migrations.
func stepsOf(engine Engine, n int) ([]schema.Migration, error) {
	steps, err := schema.Migrations(string(engine))
	if err != nil {
		return nil, err
	}
	if n > len(steps) {
		return nil, fmt.Errorf("the copy is at step %d, but this program knows only %d steps: a newer version made it, use that version", n, len(steps))
	}
	return steps[:n], nil
}
