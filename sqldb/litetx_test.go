package sqldb

import (
	"context"
	"errors"
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
	const long = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000000) SELECT count(*) FROM n"
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

// TestInterruptedRead: a read ends with its context, and leaves its connection and the prepared
// statements as they were.
func TestInterruptedRead(t *testing.T) {
	db, err := Open(t.Context(), filepath.Join(t.TempDir(), "test.db"))
	if err != nil {
		t.Fatal(err)
	}
	const long = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $1) SELECT count(*) FROM n"
	snapshot, err := db.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for name, from := range map[string]Sender{"Send": db, "Snapshot": snapshot} {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		if _, err := First(ctx, from, []any{new(int64)}, long, int64(1)<<40); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: a read that never ends: %v", name, err)
		}
		cancel()
		var n int64
		if found, err := First(t.Context(), from, []any{&n}, long, 3); !found || err != nil || n != 3 {
			t.Errorf("%s: the next read: %d, %v", name, n, err)
		}
		ctx, cancel = context.WithCancel(t.Context())
		rows := 0
		err := Each(ctx, from, func(Row) error { rows++; cancel(); return nil }, "VALUES (1), (2)")
		if rows != 1 || !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %d rows of a read that ended after the first; %v", name, rows, err)
		}
	}
	snapshot.Close()
	var one int64
	if found, err := db.Row(t.Context(), "SELECT 1", nil, &one); !found || err != nil {
		t.Errorf("a read by key: %v, %v", found, err)
	}
	if n := len(db.reads.idle); n != 2 { // the read by key took one of them, and has given it back
		t.Errorf("%d connections are kept, not those of the two reads", n)
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
	if err := db.Send(t.Context(), &Batch{}); err == nil {
		t.Error("a read of a closed database")
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
