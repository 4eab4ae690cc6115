package sqldb_test

import (
	"testing"

	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// TestUnsyncedEnds: only the transactions that ask for it commit on PostgreSQL without waiting
// for the disk and for a standby.
func TestUnsyncedEnds(t *testing.T) {
	db := dbtest.OpenSynced(t)
	level := func(tx *sqldb.Tx, err error) (value string) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback() // does nothing after a commit
		var b sqldb.Batch
		b.Query(func(row sqldb.Row) error { return row.Scan(&value) }, "SELECT current_setting('synchronous_commit')")
		if err := tx.Send(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		return value
	}
	for range 2 { // the connection is used again
		if got := level(db.Begin(t.Context(), sqldb.Unsynced)); got != "off" {
			t.Errorf("synchronous_commit is %s, want off", got)
		}
		if got := level(db.Begin(t.Context())); got != "on" {
			t.Errorf("synchronous_commit is %s, want on", got)
		}
	}
}
