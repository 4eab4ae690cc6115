package cascades

import (
	"regexp"
	"testing"

	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// tableScan matches the scan of a table that grows.
var tableScan = regexp.MustCompile(`SCAN (o|c|a|r|objects|changes|archive|archive_cascades|archive_spans)\b`)

// TestPlans: SQLite reads no table from its beginning for one cascade.
func TestPlans(t *testing.T) {
	db := dbtest.OpenDB(t, sqldb.SQLite)
	argument := regexp.MustCompile(`\$\d+`)
	for name, statement := range map[string]string{
		"countRestored": countRestored, "counted": counted, "countCascade": countCascade, "cascadeDeleting": cascadeDeleting, "sumCascade": sumCascade,
		"cascadeRootArchived": cascadeRootArchived, "cascadeRootDeleting": cascadeRootDeleting, "cascadeFirst": cascadeFirst, "countBelow": countBelow[sqldb.SQLite],
	} {
		plan := dbtest.Plan(t, sqldb.SQLite, db.Reader(), argument.ReplaceAllString(statement, "'x'"))
		if tableScan.MatchString(plan) {
			t.Errorf("%s:\n%s", name, plan)
		}
	}
}
