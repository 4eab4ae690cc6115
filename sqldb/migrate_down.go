package sqldb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"

	"github.com/exeunt/exeunt/sqldb/schema"
)

const (
	deleteMigration = `DELETE FROM migrations WHERE number = $1`
	countPresent    = `SELECT count(*) FROM (` + present + `) AS processes`
)

// Step is a migration, as a database and this program know it.
type Step struct {
	Number int    `json:"number"`
	Name   string `json:"name"`
	Done   bool   `json:"done"`            // the database has it
	Back   bool   `json:"back"`            // there is a way back
	Loses  string `json:"loses,omitempty"` // what the way back loses
}

// Steps lists the migrations. It changes nothing.
func (db *DB) Steps(ctx context.Context) ([]Step, error) {
	steps, err := schema.Migrations(string(db.engine))
	if err != nil {
		return nil, err
	}
	done, err := db.doneSteps(ctx, steps)
	if err != nil {
		return nil, err
	}
	list := make([]Step, len(steps))
	for i, s := range steps {
		list[i] = Step{Number: s.Number, Name: s.Name, Done: i < done, Back: s.Down != "", Loses: s.Loses}
	}
	return list, nil
}

// doneSteps counts the steps that the database has. An empty database has none.
func (db *DB) doneSteps(ctx context.Context, steps []schema.Migration) (int, error) {
	tx, err := db.reader.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return 0, err
	}
	defer func() { _ = tx.Rollback() }() // it only reads
	found := `SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'migrations'`
	if db.engine == Postgres {
		found = `SELECT count(*) FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relname = 'migrations'`
	}
	var n int
	if err := tx.QueryRowContext(ctx, found).Scan(&n); err != nil || n == 0 {
		return 0, err
	}
	left, err := pending(ctx, tx, steps)
	return len(steps) - len(left), err
}

// Up runs the steps up to one; 0: all.
func (db *DB) Up(ctx context.Context, to int) error {
	steps, err := db.Steps(ctx)
	if err != nil {
		return err
	}
	if to < 0 || to > len(steps) {
		return fmt.Errorf("there is no step %d: this program knows %d", to, len(steps))
	}
	for _, s := range steps {
		if to != 0 && s.Number > to && s.Done {
			return fmt.Errorf("the database has step %d: the way back is exeunt migrate down", s.Number)
		}
	}
	return db.migrate(ctx, to)
}

// Errors of Down.
var (
	ErrNoWayBack = errors.New("there is no way back: restore a backup")
	ErrLoss      = errors.New("the way back loses data")
	ErrRunning   = errors.New("a server uses the database: stop all replicas")
)

// Down goes back to a step, one transaction for each. It loses data only if lose is set,
// and otherwise stops before the first step that would. On PostgreSQL it refuses while a
// server runs; of an SQLite file the caller holds the lock.
func (db *DB) Down(ctx context.Context, to int, lose bool) error {
	steps, err := schema.Migrations(string(db.engine))
	if err != nil {
		return err
	}
	done, err := db.doneSteps(ctx, steps)
	if err != nil {
		return err
	}
	if to < 0 || to >= done {
		return fmt.Errorf("the database is at step %d: --to must be lower", done)
	}
	for i := done; i > to; i-- {
		if steps[i-1].Down == "" {
			return fmt.Errorf("step %d (%s): %w", i, steps[i-1].Name, ErrNoWayBack)
		}
	}
	if db.engine == SQLite {
		if err := db.copyFile(ctx, done); err != nil {
			return fmt.Errorf("copy the file before the migration: %w", err)
		}
	}
	for i := done; i > to; i-- {
		if err := db.stepDown(ctx, steps[i-1], lose); err != nil {
			return fmt.Errorf("step %d (%s): %w", i, steps[i-1].Name, err)
		}
	}
	return nil
}

func (db *DB) stepDown(ctx context.Context, step schema.Migration, lose bool) error {
	return db.Write(ctx, func(tx *sql.Tx) error {
		if db.engine == Postgres {
			// A server that starts now waits for the lock, and migrates up again.
			if _, err := tx.ExecContext(ctx, "SELECT pg_advisory_xact_lock($1)", int64(migrationLock)); err != nil {
				return err
			}
			var running int
			if err := tx.QueryRowContext(ctx, countPresent, int64(presence)).Scan(&running); err != nil {
				return err
			}
			if running > 0 {
				return ErrRunning
			}
		}
		if step.Loss != "" && !lose {
			var n int64
			if err := tx.QueryRowContext(ctx, step.Loss).Scan(&n); err != nil {
				return err
			}
			if n > 0 {
				return fmt.Errorf("%w: %s (%d); --lose-data does it", ErrLoss, step.Loses, n)
			}
		}
		if _, err := tx.ExecContext(ctx, step.Down); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, deleteMigration, step.Number)
		return err
	})
}

// copyBefore copies an SQLite file that pending steps would change.
func (db *DB) copyBefore(ctx context.Context, steps []schema.Migration) error {
	done, err := db.doneSteps(ctx, steps)
	if err != nil || done == 0 || done == len(steps) {
		return err
	}
	return db.copyFile(ctx, done)
}

// copyFile copies an SQLite file to FILE.step-N, and replaces an older copy of that name.
// The copy gets its name when it is complete and durable.
func (db *DB) copyFile(ctx context.Context, step int) (err error) {
	name := fmt.Sprintf("%s.step-%d", db.path, step)
	partial := name + ".partial"
	if err := os.Remove(partial); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	file, err := os.OpenFile(partial, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600) // SQLite would take another mode
	if err != nil {
		return err
	}
	err = db.vacuumInto(ctx, partial)
	if err == nil {
		err = file.Sync()
	}
	if err := errors.Join(err, file.Close()); err != nil {
		return errors.Join(err, os.Remove(partial))
	}
	return os.Rename(partial, name)
}
