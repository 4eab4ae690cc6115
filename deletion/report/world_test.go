package report

import (
	"testing"
	"time"

	"github.com/exeunt/exeunt/deletion/deletiontest"
	"github.com/exeunt/exeunt/deletion/preview"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

func TestMain(m *testing.M) { dbtest.MainBoth(m) }

// world is a database with the service under test.
type world struct {
	*deletiontest.World
	service *Service
	home    object.Object // the namespace "n", where a test has one
}

type thing = deletiontest.Thing

func newWorld(t testing.TB, db *sqldb.DB, o Options) *world {
	t.Helper()
	w := &world{World: deletiontest.New(t, db)}
	if o.Now == nil {
		o.Now = func() time.Time { return w.Now }
	}
	previews, err := preview.New(w.Store, w.Kinds, preview.Options{Now: o.Now})
	if err != nil {
		t.Fatal(err)
	}
	if w.service, err = New(w.Store, w.Kinds, previews, o); err != nil {
		t.Fatal(err)
	}
	return w
}

// each runs a test in a world on each engine.
func each(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) { test(t, newWorld(t, db, Options{})) })
}
