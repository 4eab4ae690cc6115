package verify

import (
	"strings"
	"testing"

	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

func TestMain(m *testing.M) { dbtest.MainBoth(m) }

// TestPlans: the cost of a second look at a blob does not depend on the number of
// blobs.
func TestPlans(t *testing.T) {
	arguments := strings.NewReplacer("$1", "'1'", "$2", "'2'")
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		for _, s := range []string{findDigest, findBlob} {
			plan := dbtest.Plan(t, db.Engine(), db.Reader(), arguments.Replace(s))
			if strings.Contains(plan, "SCAN") || strings.Contains(plan, "Seq Scan") || !strings.Contains(plan, "digest") && !strings.Contains(plan, "path") {
				t.Errorf("%s:\n%s", s, plan)
			}
		}
	})
}
