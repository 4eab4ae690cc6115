package sqldb_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// openWithin opens a new database of PostgreSQL with limits.
func openWithin(t *testing.T, limits sqldb.Limits) (*sqldb.DB, string) {
	t.Helper()
	url := dbtest.Open(t, sqldb.Postgres)
	db, err := sqldb.OpenWithin(t.Context(), url, limits)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db, url
}

func wantCode(t *testing.T, what string, err error, code string) {
	t.Helper()
	var answer *pgconn.PgError
	if !errors.As(err, &answer) || answer.Code != code || !sqldb.Unreachable(err) {
		t.Errorf("%s: %v; want code %s, and a retry", what, err, code)
	}
}

// TestLimits: PostgreSQL ends a long statement of the readers and of the writers, and a
// long wait for a lock. Each is counted.
func TestLimits(t *testing.T) {
	db, _ := openWithin(t, sqldb.Limits{Statement: time.Second, Lock: 100 * time.Millisecond})
	ctx := t.Context()
	_, err := db.Reader().ExecContext(ctx, "SELECT pg_sleep(60)")
	wantCode(t, "a long read", err, "57014")
	err = db.Transact(ctx, func(tx *sqldb.Tx) error { return tx.Exec(ctx, "SELECT pg_sleep(60)") })
	wantCode(t, "a long statement of a writer", err, "57014")

	err = db.Transact(ctx, func(tx *sqldb.Tx) error {
		if err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock(4711)"); err != nil {
			t.Fatal(err)
		}
		inner := db.Transact(ctx, func(other *sqldb.Tx) error { return other.Exec(ctx, "SELECT pg_advisory_xact_lock(4711)") })
		wantCode(t, "a long wait for a lock", inner, "55P03")
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if statement, lock, idle := db.Timeouts(); statement != 2 || lock != 1 || idle != 0 {
		t.Errorf("counted %d statements, %d locks, %d idle transactions", statement, lock, idle)
	}
}

// TestIdleTransaction: PostgreSQL ends a transaction that sends nothing, and the next one
// works.
func TestIdleTransaction(t *testing.T) {
	db, _ := openWithin(t, sqldb.Limits{IdleTransaction: 200 * time.Millisecond})
	ctx := t.Context()
	idle, err := db.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer idle.Rollback()
	if err := idle.Exec(ctx, "SELECT 1"); err != nil {
		t.Fatal(err)
	}
	awaitNone(t, db, "idle in transaction")
	after := idle.Exec(ctx, "SELECT 1")
	if !sqldb.Unreachable(after) {
		t.Errorf("after the end of an idle transaction: %v; want an error that means a retry", after)
	}
	idle.Rollback()
	if err := db.Transact(ctx, func(tx *sqldb.Tx) error { return tx.Exec(ctx, "SELECT 1") }); err != nil {
		t.Errorf("the next transaction: %v", err)
	}
	if _, _, ended := db.Timeouts(); ended != 1 {
		t.Errorf("counted %d idle transactions; the one that ended got: %v", ended, after)
	}
}

// awaitNone waits until no connection to the database is in a state.
func awaitNone(t *testing.T, db *sqldb.DB, state string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		var n int
		err := db.Reader().QueryRowContext(ctx, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state = $1", state).Scan(&n)
		if err != nil {
			t.Fatalf("connections %s: %v", state, err)
		}
		if n == 0 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// TestLimitsSpareMigrations: a replica that waits for the migrations of another one has no
// limit, and afterwards all connections have limits. A parameter in the URL wins.
func TestLimitsSpareMigrations(t *testing.T) {
	limits := sqldb.Limits{Statement: 300 * time.Millisecond, Lock: 100 * time.Millisecond}
	first, url := openWithin(t, sqldb.Limits{})
	ctx := t.Context()
	held, err := first.Reader().Conn(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	const lock = 0x657865756e74 // of the migrations
	if _, err := held.ExecContext(ctx, "SELECT pg_advisory_lock($1)", int64(lock)); err != nil {
		t.Fatal(err)
	}
	type opened struct {
		db  *sqldb.DB
		err error
	}
	done := make(chan opened, 1)
	go func() {
		db, err := sqldb.OpenWithin(ctx, url+"&lock_timeout=7777", limits)
		done <- opened{db, err}
	}()
	select {
	case o := <-done:
		t.Fatalf("a replica did not wait for the migrations of another one: %v", o.err)
	case <-time.After(2 * limits.Statement):
	}
	if _, err := held.ExecContext(ctx, "SELECT pg_advisory_unlock($1)", int64(lock)); err != nil {
		t.Fatal(err)
	}
	o := <-done
	if o.err != nil {
		t.Fatal(o.err)
	}
	defer o.db.Close()
	var in, at string
	err = o.db.Reader().QueryRowContext(ctx, "SELECT current_setting('statement_timeout'), current_setting('lock_timeout')").Scan(&in, &at)
	if err != nil || in != "300ms" || !strings.HasPrefix(at, "7777") {
		t.Errorf("statement_timeout %s, lock_timeout %s: %v", in, at, err)
	}
	err = o.db.Transact(ctx, func(tx *sqldb.Tx) error { return tx.Exec(ctx, "SELECT pg_sleep(60)") })
	wantCode(t, "a long statement after the migrations", err, "57014")
}
