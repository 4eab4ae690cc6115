package sqldb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/exeunt/exeunt/sqldb/schema"
)

// The table of the migrations that have run.
const (
	createMigrationsSQLite   = `CREATE TABLE IF NOT EXISTS migrations (number INTEGER PRIMARY KEY, name TEXT NOT NULL) STRICT`
	createMigrationsPostgres = `CREATE TABLE IF NOT EXISTS migrations (number integer PRIMARY KEY, name text NOT NULL)`
	listMigrations           = `SELECT number, name FROM migrations ORDER BY number`
	insertMigration          = `INSERT INTO migrations (number, name) VALUES ($1, $2)`
)

// migrationLock is the advisory lock that replicas take to migrate one at a
// time: "exeunt" in ASCII.
const migrationLock = 0x657865756e74

// migrate runs the steps up to one; 0: all.
func (db *DB) migrate(ctx context.Context, to int) error {
	steps, err := schema.Migrations(string(db.engine))
	if err != nil {
		return err
	}
	if to != 0 {
		steps = steps[:to]
	}
	if db.engine == Postgres {
		err = db.migratePostgres(ctx, steps)
	} else {
		err = db.migrateSQLite(ctx, steps)
	}
	if err != nil {
		return fmt.Errorf("migrate database%s: %w", db.named(), err)
	}
	return nil
}

// migrateSQLite needs no lock: its transactions are immediate, and each reads again
// which steps have run.
func (db *DB) migrateSQLite(ctx context.Context, steps []schema.Migration) error {
	if _, err := db.writer.ExecContext(ctx, createMigrationsSQLite); err != nil {
		return err
	}
	if err := db.copyBefore(ctx, steps); err != nil {
		return fmt.Errorf("copy the file before the migration: %w", err)
	}
	return db.runSteps(ctx, steps)
}

// migratePostgres holds the advisory lock on one connection while the steps run,
// so that the lock ends with the connection.
func (db *DB) migratePostgres(ctx context.Context, steps []schema.Migration) error {
	conn, err := db.writePool.Acquire(ctx)
	if err != nil {
		return err
	}
	// The wait for another replica has no limit. So this connection does not return to
	// the pool.
	defer func() {
		_ = conn.Conn().Close(context.WithoutCancel(ctx))
		conn.Release()
	}()
	if _, err := conn.Exec(ctx, noLimits); err != nil {
		return err
	}
	if _, err := conn.Exec(ctx, "SELECT pg_advisory_lock($1)", int64(migrationLock)); err != nil {
		return err
	}
	if _, err := conn.Exec(ctx, createMigrationsPostgres); err != nil {
		return err
	}
	return db.runSteps(ctx, steps)
}

// runSteps runs the pending steps, each in its own transaction.
func (db *DB) runSteps(ctx context.Context, steps []schema.Migration) error {
	for {
		left := 0
		err := db.Write(ctx, func(tx *sql.Tx) error {
			if db.engine == Postgres {
				if _, err := tx.ExecContext(ctx, noLimitsHere); err != nil {
					return err
				}
			}
			todo, err := pending(ctx, tx, steps)
			if err != nil || len(todo) == 0 {
				return err
			}
			left = len(todo) - 1
			return apply(ctx, tx, todo[0])
		})
		if err != nil || left == 0 {
			return err
		}
	}
}

func apply(ctx context.Context, tx *sql.Tx, step schema.Migration) error {
	// Without arguments both drivers run all the statements of a script.
	if _, err := tx.ExecContext(ctx, step.SQL); err != nil {
		return fmt.Errorf("step %d (%s): %w", step.Number, step.Name, err)
	}
	if _, err := tx.ExecContext(ctx, insertMigration, step.Number, step.Name); err != nil {
		return fmt.Errorf("step %d (%s): %w", step.Number, step.Name, err)
	}
	return nil
}

// Versions before the first release had other steps: the second was "collect",
// which is the third step now. No migration leads from those databases to these.
const (
	oldNumber = 2
	oldName   = "collect"
)

// pending returns the steps that have not run. It fails if the database has steps
// that this program does not know.
func pending(ctx context.Context, tx *sql.Tx, steps []schema.Migration) ([]schema.Migration, error) {
	rows, err := tx.QueryContext(ctx, listMigrations)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	done := 0
	for rows.Next() {
		var number int
		var name string
		if err := rows.Scan(&number, &name); err != nil {
			return nil, err
		}
		if number > len(steps) {
			return nil, fmt.Errorf("the database is at step %d (%s), but this program knows only %d steps: a newer version has used it, use that version, go back with its exeunt migrate down, or use a backup",
				number, name, len(steps))
		}
		if number == oldNumber && name == oldName {
			return nil, errors.New("a version from before the first release made this database, and there is no migration from those versions: " +
				"start with a new database, or use the version that made it")
		}
		if number != done+1 || steps[done].Name != name {
			return nil, fmt.Errorf("the database has step %d (%s) where this program has step %d (%s): it belongs to something else",
				number, name, done+1, steps[done].Name)
		}
		done++
	}
	return steps[done:], rows.Err()
}
