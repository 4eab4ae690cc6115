package registry

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"regexp"
	"strings"
	"testing"

	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// wholeRepository matches an index scan by the repository alone, wholeTable a
// scan without an index.
var (
	wholeRepository = regexp.MustCompile(`(?m)\(repository_id=\?\)|\(repository_id = [^()]*\)$`)
	wholeTable      = regexp.MustCompile(`SCAN (b|l|r|q|blobs|repository_blobs|repositories)\b|Seq Scan`)
)

// TestPlans: the cost of the blob queries of a push or pull does not depend on
// the number of blobs, in total or in the repository. Without statistics,
// planners prefer to read all blobs of a repository.
func TestPlans(t *testing.T) {
	statements := map[string]string{
		"findBlob": findBlob, "blobDamaged": blobDamaged, "findBlobDue": findBlobDue, "keepBlob": keepBlob,
		"insertSmall": insertSmall, "findSmall": findSmall, "linkBlob": linkBlob, "unlinkBlob": unlinkBlob,
		"verifyLayer": verifyLayer, "verifyBlobAgain": verifyBlobAgain,
	}
	arguments := strings.NewReplacer("$1", "'1'", "$2", "'2'", "$3", "'3'", "$4", "'4'", "$5", "'5'")
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		explain, all := "EXPLAIN QUERY PLAN ", map[string]string{
			"shareBlobs": shareBlobsSQLite, "lookBlobs": lookBlobsSQLite,
		}
		if db.Engine() == sqldb.Postgres {
			explain, all = "EXPLAIN ", map[string]string{"shareBlobs": shareBlobsPostgres}
		}
		maps.Copy(all, statements)
		for name, s := range all {
			plan := planOf(t, db.Reader(), explain+arguments.Replace(s))
			if wholeRepository.MatchString(plan) || wholeTable.MatchString(plan) || !strings.Contains(plan, "digest") && !strings.Contains(plan, "path") {
				t.Errorf("%s:\n%s", name, plan)
			}
		}
	})
}

// TestPlanOfLinks: the repositories of a blob are found from the blob. With few
// repositories PostgreSQL would prefer to check each of them, and keep that plan
// when there are many.
func TestPlanOfLinks(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		err := db.Transact(t.Context(), func(tx *sqldb.Tx) error {
			var b sqldb.Batch
			b.Exec(insertNamespace, "r", 0)
			b.Exec(insertRepository, "r", "r", 0)
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
			explain, statement, want := "EXPLAIN QUERY PLAN ", strings.ReplaceAll(blobsLinkedSQLite, "$1", "'[1]'"), []string{"(blob_id=?)", "(rowid=?)"}
			if db.Engine() == sqldb.Postgres {
				if _, err := tx.ExecContext(t.Context(), reviewByIndex); err != nil {
					return err
				}
				explain, statement = "EXPLAIN ", strings.ReplaceAll(blobsLinkedPostgres, "$1", "'{1}'")
				want = []string{"Cond: (blob_id = list.value)", "Cond: (id = l.repository_id)"}
			}
			plan := planOf(t, tx, explain+statement)
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

// querier is a pool or a transaction.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// planOf returns an engine's plan of a statement, one line per step.
func planOf(t *testing.T, db querier, statement string) string {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), statement)
	if err != nil {
		t.Fatalf("%v\n%s", err, statement)
	}
	defer func() { _ = rows.Close() }()
	columns, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for rows.Next() {
		row := make([]any, len(columns)) // the last column is the text
		for i := range row {
			row[i] = new(any)
		}
		if err := rows.Scan(row...); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, fmt.Sprint(*row[len(row)-1].(*any)))
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return strings.Join(lines, "\n")
}
