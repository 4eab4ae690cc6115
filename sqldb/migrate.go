package sqldb

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"

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

// migrate runs the steps up to one; 0 means all.
func (db *DB) migrate(ctx context.Context, to int) error {
	if db.copied {
		return nil
	}
	steps, err := schema.Migrations(string(db.engine))
	if err != nil {
		return err
	}
	made := false
	if db.engine == SQLite && to == 0 {
		made, err = db.create(ctx, steps)
	}
	if to != 0 {
		steps = steps[:to]
	}
	switch {
	case made || err != nil:
	case db.engine == Postgres:
		err = db.migratePostgres(ctx, steps)
	default:
		err = db.migrateSQLite(ctx, steps)
	}
	if err != nil {
		return fmt.Errorf("migrate database%s: %w", db.named(), err)
	}
	if made && db.noSync {
		db.keepTemplate(ctx)
	}
	return nil
}

// create makes the current schema at once, if an SQLite file is empty.
func (db *DB) create(ctx context.Context, steps []schema.Migration) (made bool, err error) {
	err = db.Write(ctx, func(tx *sql.Tx) error {
		if err := tx.QueryRowContext(ctx, "SELECT NOT EXISTS (SELECT 1 FROM sqlite_schema)").Scan(&made); err != nil || !made {
			return err
		}
		if _, err := tx.ExecContext(ctx, schema.SQLite); err != nil {
			return fmt.Errorf("make the schema: %w", err)
		}
		for _, step := range steps {
			if err := note(ctx, tx, step); err != nil {
				return err
			}
		}
		return nil
	})
	return made, err
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

// firstVersioned is the first step whose name is followed by the version of the program that ran it, for the message of an
// older program. Programs that know only earlier steps compare the names of those.
const firstVersioned = 21

func apply(ctx context.Context, tx *sql.Tx, step schema.Migration) error {
	// Without arguments both drivers run all the statements of a script.
	if _, err := tx.ExecContext(ctx, step.SQL); err != nil {
		return fmt.Errorf("step %d (%s): %w", step.Number, step.Name, err)
	}
	return note(ctx, tx, step)
}

// note writes that a step has run.
func note(ctx context.Context, tx *sql.Tx, step schema.Migration) error {
	name := step.Name
	if info, ok := debug.ReadBuildInfo(); ok && step.Number >= firstVersioned {
		name += "@" + info.Main.Version
	}
	if _, err := tx.ExecContext(ctx, insertMigration, step.Number, name); err != nil {
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
	done, newer := 0, error(nil)
	err := eachRow(ctx, tx, func(rows *sql.Rows) error {
		var number int
		var name string
		if err := rows.Scan(&number, &name); err != nil {
			return err
		}
		name, version, _ := strings.Cut(name, "@")
		if number == unfinished {
			return ErrUnfinished
		}
		if number > len(steps) { // the last one counts
			newer = fmt.Errorf("the database is at step %d (%s), but this program knows only %d steps: a newer version has used it: "+
				"install exeunt %s, go back with its exeunt migrate down, or use a backup", number, name, len(steps), cmp.Or(version, "of that version"))
			return nil
		}
		if number == oldNumber && name == oldName {
			return errors.New("a version from before the first release made this database, and there is no migration from those versions: " +
				"start with a new database, or use the version that made it")
		}
		if number != done+1 || steps[done].Name != name {
			return fmt.Errorf("the database has step %d (%s) where this program has step %d (%s): it belongs to something else",
				number, name, done+1, steps[done].Name)
		}
		done++
		return nil
	}, listMigrations)
	return steps[done:], cmp.Or(err, newer)
}

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
	tx, err := db.beginRead(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { _ = tx.Rollback() }() // it only reads
	var n int
	if err := tx.QueryRowContext(ctx, hasMigrations[db.engine]).Scan(&n); err != nil || n == 0 {
		return 0, err
	}
	left, err := pending(ctx, tx, steps)
	return len(steps) - len(left), err
}

// hasMigrations counts the tables of migrations.
var hasMigrations = map[Engine]string{
	SQLite:   `SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'migrations'`,
	Postgres: `SELECT count(*) FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relname = 'migrations'`,
}

// Up runs the steps up to one; 0 means all.
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
	// A copy of another opener of the file in this process may be under way: each has a name of its own.
	ours := fmt.Sprintf("%s.%d-", filepath.Base(name), os.Getpid())
	if err := removePartial(name, ours); err != nil {
		return err
	}
	file, err := os.CreateTemp(filepath.Dir(name), ours+"*.partial") // SQLite would take another mode
	if err != nil {
		return err
	}
	partial := file.Name()
	err = db.vacuumInto(ctx, partial)
	if err == nil {
		err = file.Sync()
	}
	if err := errors.Join(err, file.Close()); err != nil {
		return errors.Join(err, os.Remove(partial))
	}
	return os.Rename(partial, name)
}

// removePartial removes the copies that a kill has left. Those of this process begin with ours.
func removePartial(name, ours string) error {
	entries, err := os.ReadDir(filepath.Dir(name))
	for _, e := range entries {
		base := e.Name()
		if err == nil && strings.HasPrefix(base, filepath.Base(name)+".") && strings.HasSuffix(base, ".partial") && !strings.HasPrefix(base, ours) {
			err = os.Remove(filepath.Join(filepath.Dir(name), base))
		}
	}
	return err
}
