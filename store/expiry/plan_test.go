package expiry

import (
	"testing"

	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

func TestMain(m *testing.M) { dbtest.MainBoth(m) }

// TestPlans: SQLite reads no table from its beginning for a step.
func TestPlans(t *testing.T) {
	dbtest.SearchesOnly(t, map[string]string{
		"uncounted": uncounted, "anyUncounted": anyUncounted, "countSpans": countSpans, "oldestByNamespace": oldestByNamespace, "namespaceBody": namespaceBody,
		"dueCascades": dueCascades, "evictable": evictable, "timesOf": timesOf,
		"markLeaving": markLeaving[sqldb.SQLite], "leavingRows": leavingRows[sqldb.SQLite], "hasLeft": hasLeft[sqldb.SQLite],
	})
}
