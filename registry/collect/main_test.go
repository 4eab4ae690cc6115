package collect

import (
	"testing"

	"github.com/exeunt/exeunt/sqldb/dbtest"
)

func TestMain(m *testing.M) { dbtest.MainBoth(m) }
