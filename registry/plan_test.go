package registry

import (
	"maps"
	"regexp"
	"strings"
	"testing"

	"github.com/exeunt/exeunt/registry/internal/statement"
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
		"findBlob": findBlob, "blobDamaged": blobDamaged, "findBlobDue": findBlobDue, "keepBlob": statement.KeepBlob,
		"insertSmall": statement.InsertSmall, "findSmall": statement.FindSmall, "linkBlob": statement.LinkBlob, "unlinkBlob": statement.UnlinkBlob,
	}
	arguments := strings.NewReplacer("$1", "'1'", "$2", "'2'", "$3", "'3'", "$4", "'4'", "$5", "'5'")
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		all := map[string]string{"shareBlobs": shareBlobsSQLite}
		if db.Engine() == sqldb.Postgres {
			all = map[string]string{"shareBlobs": shareBlobsPostgres}
		}
		maps.Copy(all, statements)
		for name, s := range all {
			plan := dbtest.Plan(t, db.Engine(), db.Reader(), arguments.Replace(s))
			if wholeRepository.MatchString(plan) || wholeTable.MatchString(plan) || !strings.Contains(plan, "digest") && !strings.Contains(plan, "path") {
				t.Errorf("%s:\n%s", name, plan)
			}
		}
	})
}
