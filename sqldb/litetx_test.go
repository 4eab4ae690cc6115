package sqldb

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"
)

// TestWaited counts the transactions that had to wait for the writer.
func TestWaited(t *testing.T) {
	db, err := Open(t.Context(), filepath.Join(t.TempDir(), "test.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	before := db.Waited()
	tx, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if n := db.Waited() - before; n != 0 {
		t.Errorf("%d transactions waited; want none, because no other was open", n)
	}
	done := make(chan error)
	go func() { done <- db.Transact(context.WithoutCancel(t.Context()), func(*Tx) error { return nil }) }()
	for db.Waited() == before {
		time.Sleep(time.Millisecond)
	}
	if err := errors.Join(tx.Commit(t.Context()), <-done); err != nil {
		t.Error(err)
	}
	if n := db.Waited() - before; n != 1 {
		t.Errorf("%d waited, not one", n)
	}
}

// TestCloseAfterAnInterruption: the pool drops a connection whose statement was
// interrupted, like a vacuum when the server stops. The prepared statements of that
// connection are not closed a second time, which would read freed memory.
func TestCloseAfterAnInterruption(t *testing.T) {
	db, err := Open(t.Context(), filepath.Join(t.TempDir(), "test.db"))
	if err != nil {
		t.Fatal(err)
	}
	tx, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(db.lite.stmts) == 0 {
		t.Fatal("no statements are kept: the test is void")
	}
	// The statement may not have begun when its timeout ends, and an interruption just before
	// its begin has no effect: retry with a longer timeout.
	const long = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10000000) SELECT count(*) FROM n"
	for limit := time.Millisecond; writerConn(t, db) == db.lite.conn; limit *= 2 {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		_, err := db.writer.ExecContext(ctx, long)
		cancel()
		if err == nil && limit > time.Minute {
			t.Fatal("a long statement is not interrupted")
		}
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}

// TestCloseEndsPrepares: once the database is closed, no statement is being prepared. A
// connection that is opened for one would write files into a directory that may be gone.
func TestCloseEndsPrepares(t *testing.T) {
	db, err := Open(t.Context(), filepath.Join(t.TempDir(), "test.db"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		db.prepareLater(fmt.Sprintf("SELECT %d", i))
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
	db.prepareLater("SELECT 100")
	db.mu.Lock()
	defer db.mu.Unlock()
	if n := len(db.preparing); n != 0 {
		t.Errorf("%d statements are being prepared", n)
	}
}

// writerConn returns the connection that the pool has now.
func writerConn(t *testing.T, db *DB) (conn any) {
	t.Helper()
	c, err := db.writer.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(c.Raw(func(driverConn any) error { conn = driverConn; return nil }), c.Close()); err != nil {
		t.Fatal(err)
	}
	return conn
}
