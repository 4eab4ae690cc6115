package registry

import (
	"fmt"
	"maps"
	"regexp"
	"strings"
	"testing"

	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// wholeRepository is a look into an index by the repository alone, wholeTable one
// without an index.
var (
	wholeRepository = regexp.MustCompile(`(?m)\(repository_id=\?\)|\(repository_id = [^()]*\)$`)
	wholeTable      = regexp.MustCompile(`SCAN (b|d|l|r|q|blobs|blob_digests|repository_blobs|repositories)\b|Seq Scan`)
)

// TestPlans: what is asked of a blob for every push and pull does not depend on
// how many blobs there are, or are in the repository. Planners that know nothing
// of a table like to read all that a repository has.
func TestPlans(t *testing.T) {
	statements := map[string]string{
		"findBlob": findBlob, "blobDamaged": blobDamaged, "findBlobDue": findBlobDue, "keepBlob": keepBlob,
		"insertSmall": insertSmall, "findSmall": findSmall, "linkBlob": linkBlob, "unlinkBlob": unlinkBlob,
		"verifyLayer": verifyLayer, "verifyBlobAgain": verifyBlobAgain,
	}
	arguments := strings.NewReplacer("$1", "'1'", "$2", "'2'", "$3", "'3'", "$4", "'4'", "$5", "'5'")
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		explain, all := "EXPLAIN QUERY PLAN ", map[string]string{
			"shareBlobs": shareBlobsSQLite, "lookBlobs": lookBlobsSQLite, "insertBlob": insertBlobSQLite,
		}
		if db.Engine() == sqldb.Postgres {
			explain, all = "EXPLAIN ", map[string]string{"shareBlobs": shareBlobsPostgres}
		}
		maps.Copy(all, statements)
		for name, s := range all {
			plan := planOf(t, db, explain+arguments.Replace(s))
			if wholeRepository.MatchString(plan) || wholeTable.MatchString(plan) || !strings.Contains(plan, "digest") && !strings.Contains(plan, "path") {
				t.Errorf("%s:\n%s", name, plan)
			}
		}
	})
}

// planOf is what an engine says of a statement, one line for each step.
func planOf(t *testing.T, db *sqldb.DB, statement string) string {
	t.Helper()
	rows, err := db.Reader().QueryContext(t.Context(), statement)
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
		row := make([]any, len(columns)) // the last is the text
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
