package quota_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/exeunt/exeunt/admission/quota"
	"github.com/exeunt/exeunt/gc"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/kind/builtin"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
	"github.com/exeunt/exeunt/store"
	"github.com/exeunt/exeunt/store/storetest"
)

func TestMain(m *testing.M) { dbtest.MainBoth(m) }

// world is a running store with a ledger and a collector. Tests run their reviews.
type world struct {
	*testing.T
	db     *sqldb.DB
	store  *store.Store
	ledger *quota.Ledger
	gc     *gc.Collector
	kinds  *kind.Registry
	stop   func()
}

// start runs a replica on a database.
func start(t *testing.T, db *sqldb.DB, changes ...func(*store.Options)) *world {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	options := store.Options{DB: db, Logger: log, Archive: store.ArchiveOptions{For: time.Hour}}
	for _, change := range changes {
		change(&options)
	}
	w := &world{T: t, db: db, kinds: kind.NewRegistry(builtin.Kinds())}
	w.store, w.stop = storetest.Start(t, options, func(st *store.Store) {
		var err error
		if w.ledger, err = quota.New(db, st, w.kinds, log); err != nil {
			t.Fatal(err)
		}
		if w.gc, err = gc.New(db, st, w.kinds, gc.Options{Logger: log}); err != nil {
			t.Fatal(err)
		}
	})
	return w
}

// each runs a test with a namespace n on each engine.
func each(t *testing.T, test func(w *world)) {
	dbtest.EachParallel(t, func(t *testing.T, db *sqldb.DB) {
		w := start(t, db)
		storetest.Create(t, w.store, storetest.Namespace(t, "n"))
		test(w)
	})
}

func (w *world) request(kind, name, fields string, changes ...func(*metav1.ObjectMeta)) store.CreateRequest {
	w.Helper()
	r := storetest.Object(w, object.Key{Kind: kind, Namespace: "n", Name: name}, fields, changes...)
	r.InNamespace = true
	return r
}

// create creates an object in namespace n. It returns the error.
func (w *world) create(kind, name, fields string, changes ...func(*metav1.ObjectMeta)) error {
	w.Helper()
	_, err := w.store.Create(w.Context(), w.request(kind, name, fields, changes...))
	return err
}

// must creates an object that fits.
func (w *world) must(kind, name, fields string, changes ...func(*metav1.ObjectMeta)) {
	w.Helper()
	if err := w.create(kind, name, fields, changes...); err != nil {
		w.Fatalf("create %s %s: %v", kind, name, err)
	}
}

// refused checks that an object does not fit, and the text.
func (w *world) refused(err error, text string) {
	w.Helper()
	if !object.Is(err, object.Forbidden) || err.Error() != text {
		w.Fatalf("got %v\nwant %s", err, text)
	}
}

// quota creates a quota: the JSON of its spec.
func (w *world) quota(name, spec string) {
	w.Helper()
	w.must("resourcequotas", name, `,"spec":`+spec)
}

func (w *world) delete(kind, name string) {
	w.Helper()
	if _, err := w.store.Delete(w.Context(), store.DeleteRequest{Key: object.Key{Kind: kind, Namespace: "n", Name: name}}); err != nil {
		w.Fatal(err)
	}
}

// replace updates the fields of an object. It returns the error.
func (w *world) replace(kind, name, fields string) error {
	w.Helper()
	o, m := storetest.Get(w, w.store, object.Key{Kind: kind, Namespace: "n", Name: name})
	body, err := object.WithMeta([]byte(`{"metadata":{"name":"x"}`+fields+`}`), m)
	if err != nil {
		w.Fatal(err)
	}
	_, err = w.store.Update(w.Context(), store.UpdateRequest{Key: o.Key, IfRevision: o.Revision, Meta: m, Body: body})
	return err
}

// status reviews until the queue is empty, and returns status.used of a quota as text.
func (w *world) status(name string) string {
	w.Helper()
	w.review()
	o, _ := storetest.Get(w, w.store, object.Key{Kind: "resourcequotas", Namespace: "n", Name: name})
	var q corev1.ResourceQuota
	if err := json.Unmarshal(o.Body, &q); err != nil {
		w.Fatal(err)
	}
	if !equality.Semantic.DeepEqual(q.Status.Hard, q.Spec.Hard) {
		w.Errorf("the status of %s has the limits %v, not %v", name, q.Status.Hard, q.Spec.Hard)
	}
	used := map[string]string{}
	for name, quantity := range q.Status.Used {
		used[string(name)] = quantity.String()
	}
	return fmt.Sprint(used)
}

func (w *world) review() {
	w.Helper()
	deadline := time.Now().Add(dbtest.Patience)
	for {
		if _, err := w.ledger.Engine().RunOne(w.Context()); err != nil {
			w.Fatal(err)
		}
		s, err := w.ledger.Engine().Stats(w.Context())
		if err != nil {
			w.Fatal(err)
		}
		if s.Depth == 0 || s.Due.After(time.Now().Add(time.Second)) {
			return
		}
		if time.Now().After(deadline) {
			w.Fatalf("the queue is not empty: %+v", s)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// collect runs the collector until it has nothing to do.
func (w *world) collect() {
	w.Helper()
	for {
		turn, err := w.gc.RunOne(w.Context())
		if err != nil {
			w.Fatal(err)
		}
		if turn.Claimed == 0 {
			return
		}
	}
}

func (w *world) now() int64 { return time.Now().Unix() }
