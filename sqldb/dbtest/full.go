package dbtest

import (
	"database/sql"
	"testing"

	"github.com/exeunt/exeunt/sqldb"
)

// Fill leaves no space for an SQLite database, as a full disk does; Empty gives
// it space again.
func Fill(t testing.TB, db *sqldb.DB) {
	t.Helper()
	// Pages that are free, migrations leave some, would be space.
	err := db.Write(t.Context(), func(tx *sql.Tx) error {
		_, err := tx.Exec("PRAGMA incremental_vacuum")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	limit(t, db, "PRAGMA max_page_count = 1") // as many as there are
}

// Empty undoes Fill.
func Empty(t testing.TB, db *sqldb.DB) { limit(t, db, "PRAGMA max_page_count = 4294967294") }

func limit(t testing.TB, db *sqldb.DB, pragma string) {
	t.Helper()
	tx, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback() // the limit is the connection's, not the transaction's
	var b sqldb.Batch
	b.Exec(pragma)
	if err := tx.Send(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
}
