package preview

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/gc"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/kind/builtin"
	"github.com/exeunt/exeunt/kind/custom"
	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
	"github.com/exeunt/exeunt/store"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// world is a database with a store, a collector that runs when it is told to,
// and the service under test.
type world struct {
	t         testing.TB
	db        *sqldb.DB
	store     *store.Store
	kinds     *kind.Registry
	collector *gc.Collector
	service   *Service
	now       time.Time     // of the service; the others have the real time
	home      object.Object // the namespace "n", where a test has one
	serial    int
}

func newWorld(t testing.TB, db *sqldb.DB, o Options) *world {
	t.Helper()
	w := &world{t: t, db: db, now: time.Now()}
	quiet := slog.New(slog.DiscardHandler)
	var err error
	if w.store, err = store.Open(t.Context(), store.Options{DB: db, Logger: quiet}); err != nil {
		t.Fatal(err)
	}
	w.kinds = kind.NewRegistry(append(builtin.Kinds(), custom.Definition()))
	if w.collector, err = gc.New(db, w.store, w.kinds, gc.Options{Logger: quiet, Budget: 500, OrphanWait: -1}); err != nil {
		t.Fatal(err)
	}
	if o.Now == nil {
		o.Now = func() time.Time { return w.now }
	}
	if w.service, err = New(db, w.kinds, o); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.store.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("run store: %v", err)
		}
		_ = w.store.Close()
	})
	return w
}

// each runs a test in a world on each engine.
func each(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) { test(t, newWorld(t, db, Options{})) })
}

// thing is an object of a test.
type thing struct {
	kind, namespace, name string
	uid                   types.UID // empty: made up
	finalizers            []string
	owners                []metav1.OwnerReference
	managed               []metav1.ManagedFieldsEntry
	generation            int64
	passes                string // the annotation by which it passes a grace period on
	rest                  string // of the body, behind the metadata: `,"spec":{…}`
}

func (w *world) create(o thing) object.Object {
	w.t.Helper()
	w.serial++
	if o.kind == "" {
		o.kind = "configmaps"
	}
	if o.uid == "" {
		o.uid = types.UID(fmt.Sprintf("uid-%s-%d", o.name, w.serial))
	}
	if o.kind == object.Namespaces && o.rest == "" {
		o.rest = `,"spec":{"finalizers":["kubernetes"]},"status":{"phase":"Active"}`
	}
	m := metav1.ObjectMeta{
		Name: o.name, Namespace: o.namespace, UID: o.uid, CreationTimestamp: metav1.Unix(1000, 0),
		Finalizers: o.finalizers, OwnerReferences: o.owners, ManagedFields: o.managed, Generation: o.generation,
	}
	if o.passes != "" {
		m.Annotations = map[string]string{lifecycle.PropagateGrace: o.passes}
	}
	body, err := object.WithMeta([]byte(`{"metadata":{"name":"x"}`+o.rest+`}`), m)
	if err != nil {
		w.t.Fatal(err)
	}
	stored, err := w.store.Create(w.t.Context(), store.CreateRequest{
		Key:  object.Key{Kind: o.kind, Namespace: o.namespace, Name: o.name},
		Meta: m, Body: body, InNamespace: o.namespace != "",
	})
	if err != nil {
		w.t.Fatalf("create %s %s: %v", o.kind, o.name, err)
	}
	return stored
}

// ownedBy refers to objects, blocking.
func (w *world) ownedBy(owners ...object.Object) []metav1.OwnerReference {
	var out []metav1.OwnerReference
	for _, o := range owners {
		out = append(out, w.reference(o.Key, o.UID, true))
	}
	return out
}

func (w *world) reference(key object.Key, uid types.UID, blocking bool) metav1.OwnerReference {
	ref := w.service.reference(key, uid)
	if key.Kind == unserved { // the service knows its plural and group only
		ref.APIVersion, ref.Kind = "example.com/v1", "Widget"
	}
	return metav1.OwnerReference{APIVersion: ref.APIVersion, Kind: ref.Kind, Name: key.Name, UID: uid, BlockOwnerDeletion: &blocking}
}

func (w *world) rules(kind string) lifecycle.Rules {
	k, _ := w.kinds.Snapshot().Stored(kind)
	if k == nil {
		return lifecycle.Rules{}
	}
	return k.Rules
}

func (w *world) delete(key object.Key, options metav1.DeleteOptions) {
	w.t.Helper()
	_, err := w.store.Delete(w.t.Context(), store.DeleteRequest{Key: key, Options: options, Rules: w.rules(key.Kind)})
	if err != nil {
		w.t.Fatalf("delete %s: %v", key, err)
	}
}

func with(policy metav1.DeletionPropagation) metav1.DeleteOptions {
	return metav1.DeleteOptions{PropagationPolicy: &policy}
}

// collect runs the collector until it has nothing to do.
func (w *world) collect() {
	w.t.Helper()
	for range 10_000 {
		r, err := w.collector.RunOne(w.t.Context())
		if err != nil {
			w.t.Fatalf("collect: %v", err)
		}
		if r.Failed > 0 {
			w.t.Fatalf("collect: %d reviews failed", r.Failed)
		}
		if r.Claimed == 0 {
			return
		}
	}
	w.t.Fatal("the collector does not come to rest")
}

// get reads an object; nil if there is none, or another by that name.
func (w *world) get(key object.Key, uid types.UID) *metav1.ObjectMeta {
	w.t.Helper()
	o, err := w.store.Get(w.t.Context(), key)
	if object.Is(err, object.NotFound) || err == nil && o.UID != uid {
		return nil
	}
	if err != nil {
		w.t.Fatal(err)
	}
	m, err := object.ParseMeta(o.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return &m
}

// release does what others have to do: it removes their finalizers, and ends
// grace periods.
func (w *world) release(key object.Key) {
	w.t.Helper()
	o, err := w.store.Get(w.t.Context(), key)
	if err != nil {
		w.t.Fatal(err)
	}
	m, err := object.ParseMeta(o.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	if g := m.DeletionGracePeriodSeconds; g != nil && *g > 0 {
		w.delete(key, metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
		if o, err = w.store.Get(w.t.Context(), key); object.Is(err, object.NotFound) {
			return
		}
		if m, err = object.ParseMeta(o.Body); err != nil {
			w.t.Fatal(err)
		}
	}
	m.Finalizers = slices.DeleteFunc(m.Finalizers, func(f string) bool {
		return f != metav1.FinalizerOrphanDependents && f != metav1.FinalizerDeleteDependents
	})
	body, err := object.WithMeta(o.Body, m)
	if err != nil {
		w.t.Fatal(err)
	}
	_, err = w.store.Update(w.t.Context(), store.UpdateRequest{
		Key: key, IfRevision: o.Revision, Meta: m, Body: body, Remove: lifecycle.RemoveNow(body, m, w.rules(key.Kind)),
	})
	if err != nil {
		w.t.Fatalf("release %s: %v", key, err)
	}
}

// preview asks for the whole preview of an object.
func (w *world) preview(o object.Object, options metav1.DeleteOptions) v1.DeletionPreviewStatus {
	w.t.Helper()
	status, err := w.service.Preview(w.t.Context(), v1.DeletionPreviewSpec{
		Object:            v1.ObjectReference{UID: o.UID},
		PropagationPolicy: options.PropagationPolicy, GracePeriodSeconds: options.GracePeriodSeconds, Limit: maxLimit,
	})
	if err != nil {
		w.t.Fatalf("preview %s: %v", o.Key, err)
	}
	return status
}
