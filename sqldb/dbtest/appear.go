package dbtest

import (
	"context"
	"testing"

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
	leave = func() {
		cancel()
		<-gone
	}
	t.Cleanup(leave)
	if db.Engine() != sqldb.Postgres {
		return leave
	}
	select {
	case <-there:
	case <-gone:
		t.Fatal("listening ended early")
	}
	return leave
}
