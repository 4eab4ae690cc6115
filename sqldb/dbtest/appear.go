package dbtest

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/exeunt/exeunt/sqldb"
)

// Appear simulates a live process that uses the database, until leave is called.
// After that the process counts as killed.
func Appear(t testing.TB, db *sqldb.DB) (leave func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	there, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		_ = db.Listen(ctx, "appear", func(string) { close(there) }) // ends with ctx
	}()
	end := func() {
		cancel()
		<-gone
	}
	t.Cleanup(end)
	if db.Engine() != sqldb.Postgres {
		return end
	}
	select {
	case <-there:
	case <-gone:
		t.Fatal("listening ended early")
	}
	id, _, _ := strings.Cut(db.Token(), ".")
	return func() {
		t.Helper()
		end()
		awaitGone(t, db, id)
	}
}

// awaitGone waits until the server has released the lock: it does so a moment after
// the connection is closed.
func awaitGone(t testing.TB, db *sqldb.DB, id string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	const held = `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 2 AND objid::text = $1`
	for n := 1; n > 0; {
		if _, err := db.Row(ctx, held, []any{id}, &n); err != nil {
			t.Fatalf("wait until a process is gone: %v", err)
		}
	}
}
