package expiry

import (
	"regexp"
	"testing"

	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// tableScan matches the scan of a table that grows.
var tableScan = regexp.MustCompile(`SCAN (o|c|a|r|objects|changes|archive|archive_cascades|archive_spans)\b`)

// TestPlans: SQLite reads no table from its beginning for a step.
func TestPlans(t *testing.T) {
	db := dbtest.OpenDB(t, sqldb.SQLite)
	argument := regexp.MustCompile(`\$\d+`)
	for name, statement := range map[string]string{
		"uncounted": uncounted, "anyUncounted": anyUncounted, "countSpans": countSpans, "oldestByNamespace": oldestByNamespace, "namespaceBody": namespaceBody,
		"dueCascades": dueCascades, "evictable": evictable, "timesOf": timesOf,
		"markLeaving": markLeaving[sqldb.SQLite], "leavingRows": leavingRows[sqldb.SQLite], "hasLeft": hasLeft[sqldb.SQLite],
	} {
		plan := dbtest.Plan(t, sqldb.SQLite, db.Reader(), argument.ReplaceAllString(statement, "'x'"))
		if tableScan.MatchString(plan) {
			t.Errorf("%s:\n%s", name, plan)
		}
	}
}
