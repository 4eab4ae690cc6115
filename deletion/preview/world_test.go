package preview

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/exeunt/exeunt/deletion/deletiontest"
	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/kind/kindtest"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

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
	var err error
	if w.service, err = New(w.Store, w.Kinds, o); err != nil {
		t.Fatal(err)
	}
	return w
}

// each runs a test in a world on each engine.
func each(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) { test(t, newWorld(t, db, Options{})) })
}

// preview returns the whole preview of an object.
func (w *world) preview(o object.Object, options metav1.DeleteOptions) v1.DeletionPreviewStatus {
	w.T.Helper()
	client := kindtest.Almighty()
	if w.API != nil {
		client = w.Client()
	}
	status, err := w.service.Preview(w.T.Context(), client, v1.DeletionPreviewSpec{
		Object:            v1.ObjectReference{UID: o.UID},
		PropagationPolicy: options.PropagationPolicy, GracePeriodSeconds: options.GracePeriodSeconds, Limit: maxLimit,
	})
	if err != nil {
		w.T.Fatalf("preview %s: %v", o.Key, err)
	}
	return status
}
