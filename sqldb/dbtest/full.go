package dbtest

import (
	"database/sql"
	"testing"

	"github.com/exeunt/exeunt/sqldb"
)

// Fill simulates a full disk for an SQLite database, until Empty is called.
func Fill(t testing.TB, db *sqldb.DB) {
	t.Helper()
	// Remove free pages, which migrations leave: they would be space.
	err := db.Write(t.Context(), func(tx *sql.Tx) error {
		_, err := tx.Exec("PRAGMA incremental_vacuum")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	limit(t, db, "PRAGMA max_page_count = 1") // SQLite raises it to the current number
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
