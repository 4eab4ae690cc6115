package cascades

import (
	"testing"

	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

func TestMain(m *testing.M) { dbtest.MainBoth(m) }

// TestPlans: SQLite reads no table from its beginning for one cascade.
func TestPlans(t *testing.T) {
	dbtest.SearchesOnly(t, map[string]string{
		"countRestored": countRestored, "counted": counted, "countCascade": countCascade, "cascadeDeleting": cascadeDeleting, "sumCascade": sumCascade,
		"cascadeRootArchived": cascadeRootArchived, "cascadeRootDeleting": cascadeRootDeleting, "cascadeFirst": cascadeFirst, "countBelow": countBelow[sqldb.SQLite],
	})
}
