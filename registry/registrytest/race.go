package registrytest

import (
	"time"

	"github.com/exeunt/exeunt/sqldb"
)

// Begin starts something that must wait for a lock, and returns when it waits. The
// channel gets its result.
func (w *World) Begin(fn func() error) <-chan error {
	w.Helper()
	done := make(chan error, 1)
	go func() { done <- fn() }()
	if !w.Waiting() {
		w.Error("it did not wait for the other transaction")
	}
	return done
}

// Waiting returns when a transaction waits for a lock, or reports that none does.
// PostgreSQL only.
func (w *World) Waiting() bool {
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		var n int
		_, err := w.DB.Row(w.Context(), `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`, nil, &n)
		if err != nil {
			w.Error(err)
			return false
		}
		if n > 0 {
			return true
		}
	}
	return false
}

// Open begins a transaction, and returns the function that commits it.
func (w *World) Open(fn func(tx *sqldb.Tx) error) (commit func()) {
	w.Helper()
	tx, err := w.DB.Begin(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(tx.Rollback) // no effect after a commit
	if err := fn(tx); err != nil {
		w.Fatal(err)
	}
	return func() {
		if err := tx.Commit(w.Context()); err != nil {
			w.Error(err)
		}
	}
}
