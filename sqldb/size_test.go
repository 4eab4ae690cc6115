package sqldb_test

import (
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"testing"

	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// TestSize: a database grows with what is stored.
func TestSize(t *testing.T) {
	t.Parallel()
	dbtest.EachParallel(t, func(t *testing.T, db *sqldb.DB) {
		before, err := db.Size(t.Context())
		if err != nil || before <= 0 {
			t.Fatalf("size %d, %v", before, err)
		}
		if err := db.Write(t.Context(), func(tx *sql.Tx) error {
			_, err := tx.ExecContext(t.Context(), "CREATE TABLE large (t TEXT)")
			for range 40 { // 4 MB that cannot be compressed away: a vacuum gives less back
				text := make([]byte, 50_000)
				_, _ = rand.Read(text)
				if err == nil {
					_, err = tx.ExecContext(t.Context(), "INSERT INTO large VALUES ($1)", hex.EncodeToString(text))
				}
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if after, err := db.Size(t.Context()); err != nil || after <= before {
			t.Errorf("size %d after %d, %v", after, before, err)
		}
	})
}
