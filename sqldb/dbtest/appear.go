package dbtest

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/exeunt/exeunt/sqldb"
)

// Appear lets a database's user be there, as a process that listens is, until
// the function that it returns is called: then it is gone as one that was killed.
func Appear(t testing.TB, db *sqldb.DB) (leave func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	there, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		_ = db.Listen(ctx, "appear", func(string) { close(there) }) // it ends when it is told to
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

// awaitGone waits until the server has noticed: it gives the lock back when it
// finds that the connection is closed, a moment later.
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
