package collect

import (
	"database/sql"
	"strings"
	"testing"

	"github.com/exeunt/exeunt/registry/internal/statement"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// TestPlanOfLook: a review finds its blobs by the index on digests.
func TestPlanOfLook(t *testing.T) {
	db := dbtest.OpenDB(t, sqldb.SQLite)
	plan := dbtest.Plan(t, db.Engine(), db.Reader(), strings.ReplaceAll(lookBlobsSQLite, "$1", "'1'"))
	if strings.Contains(plan, "SCAN b") || !strings.Contains(plan, "digest") {
		t.Error(plan)
	}
}

// TestPlanOfLinks: the repositories of a blob are found from the blob. With few
// repositories PostgreSQL would prefer to check each of them, and keep that plan
// when there are many.
func TestPlanOfLinks(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		err := db.Transact(t.Context(), func(tx *sqldb.Tx) error {
			var b sqldb.Batch
			b.Exec(statement.InsertNamespace, "r", 0)
			b.Exec(statement.InsertRepository, "r", "r", 0)
			fillRows(db.Engine(), &b, "1-", 500, fillBlobs, fillLinks)
			return tx.Send(t.Context(), &b)
		})
		if err == nil && db.Engine() == sqldb.Postgres {
			_, err = db.Reader().ExecContext(t.Context(), `VACUUM (ANALYZE) repositories, repository_blobs`)
		}
		if err != nil {
			t.Fatal(err)
		}
		err = db.Write(t.Context(), func(tx *sql.Tx) error {
			look, want := strings.ReplaceAll(blobsLinkedSQLite, "$1", "'[1]'"), []string{"(blob_id=?)", "(rowid=?)"}
			if db.Engine() == sqldb.Postgres {
				if _, err := tx.ExecContext(t.Context(), reviewByIndex); err != nil {
					return err
				}
				look = strings.ReplaceAll(blobsLinkedPostgres, "$1", "'{1}'")
				want = []string{"Cond: (blob_id = list.value)", "Cond: (id = l.repository_id)"}
			}
			plan := dbtest.Plan(t, db.Engine(), tx, look)
			for _, step := range want {
				if !strings.Contains(plan, step) {
					t.Errorf("%s is not in\n%s", step, plan)
				}
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
}
