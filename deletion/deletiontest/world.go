// Package deletiontest is the world of the tests of previews and reports: a
// database with a store, and a collector that runs when a test says so.
package deletiontest

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/api"
	"github.com/exeunt/exeunt/gc"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/kind/builtin"
	"github.com/exeunt/exeunt/kind/custom"
	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
	"github.com/exeunt/exeunt/store"
	"github.com/exeunt/exeunt/store/storetest"
)

// Unserved is the storage name of a kind whose definition is gone.
const Unserved = "widgets.example.com"

// OnNode is the Rest of a Pod that runs on a node, with 30 seconds of grace.
const OnNode = `,"spec":{"nodeName":"node","terminationGracePeriodSeconds":30}`

// World is a database with a store, and a collector that runs when a test calls Collect.
type World struct {
	dbtest.SQL
	T         testing.TB
	Store     *store.Store
	Kinds     *kind.Registry
	Collector *gc.Collector
	Now       time.Time // of the service under test; the others have the real time
	API       *api.API  // set by Policed
	serial    atomic.Int64
	clock     dbtest.Clock // the collector's
	policies  policies
}

// New makes a world on a database. It ends with the test.
func New(t testing.TB, db *sqldb.DB) *World {
	t.Helper()
	return NewWith(t, store.Options{DB: db}, gc.Options{Budget: 500, OrphanWait: -1})
}

// NewWith is New with options, and with what must be done before the store runs.
func NewWith(t testing.TB, o store.Options, c gc.Options, prepare ...func(*store.Store)) *World {
	t.Helper()
	w := &World{SQL: dbtest.NewSQL(t, o.DB), T: t, Now: time.Now(), Store: storetest.Run(t, o, prepare...)}
	w.Kinds = kind.NewRegistry(append(builtin.Kinds(), custom.Definition()))
	c.Logger, c.Admission = slog.New(slog.DiscardHandler), judge{w}
	c.Now = w.clock.Now
	var err error
	if w.Collector, err = gc.New(o.DB, w.Store, w.Kinds, c); err != nil {
		t.Fatal(err)
	}
	return w
}

// judge is the admission of the collector's deletes: by the API, once there is one.
type judge struct{ w *World }

func (j judge) SelectsDelete(storage string) bool {
	return j.w.API != nil && j.w.API.SelectsDelete(storage)
}

func (j judge) AdmitDelete(ctx context.Context, o object.Object, options metav1.DeleteOptions, emptying bool) error {
	return j.w.API.AdmitDelete(ctx, o, options, emptying)
}

// Thing is an object of a test.
type Thing struct {
	Kind, Namespace, Name string
	UID                   types.UID // empty means made up
	Finalizers            []string
	Owners                []metav1.OwnerReference
	Managed               []metav1.ManagedFieldsEntry
	Generation            int64
	Passes                string // the annotation by which it passes a grace period on
	Rest                  string // of the body, behind the metadata: `,"spec":{…}`
}

// Create stores an object.
func (w *World) Create(o Thing) object.Object {
	w.T.Helper()
	if o.Kind == "" {
		o.Kind = "configmaps"
	}
	if o.UID == "" {
		o.UID = types.UID(fmt.Sprintf("uid-%s-%d", o.Name, w.serial.Add(1)))
	}
	if o.Kind == object.Namespaces && o.Rest == "" {
		o.Rest = storetest.NamespaceFields
	}
	key := object.Key{Kind: o.Kind, Namespace: o.Namespace, Name: o.Name}
	r := storetest.Object(w.T, key, o.Rest, func(m *metav1.ObjectMeta) {
		m.UID, m.Generation, m.Finalizers, m.OwnerReferences, m.ManagedFields = o.UID, o.Generation, o.Finalizers, o.Owners, o.Managed
		if o.Passes != "" {
			m.Annotations = map[string]string{lifecycle.PropagateGrace: o.Passes}
		}
	})
	r.InNamespace = o.Namespace != ""
	return storetest.Create(w.T, w.Store, r)
}

// OwnedBy returns references that block the deletion of these owners.
func (w *World) OwnedBy(owners ...object.Object) []metav1.OwnerReference {
	var out []metav1.OwnerReference
	for _, o := range owners {
		out = append(out, w.Reference(o.Key, o.UID, true))
	}
	return out
}

// Reference returns a reference to an owner.
func (w *World) Reference(key object.Key, uid types.UID, blocking bool) metav1.OwnerReference {
	name, apiVersion := w.Kinds.Snapshot().Names(key.Kind)
	if key.Kind == Unserved { // the snapshot knows its plural and group only
		apiVersion, name = "example.com/v1", "Widget"
	}
	return metav1.OwnerReference{APIVersion: apiVersion, Kind: name, Name: key.Name, UID: uid, BlockOwnerDeletion: &blocking}
}

// Rules returns the deletion rules of a kind.
func (w *World) Rules(kind string) lifecycle.Rules {
	k, _ := w.Kinds.Snapshot().Stored(kind)
	if k == nil {
		return lifecycle.Rules{}
	}
	return k.Rules
}

// Delete deletes an object as a client does.
func (w *World) Delete(key object.Key, options metav1.DeleteOptions) {
	w.T.Helper()
	_, err := w.Store.Delete(w.T.Context(), store.DeleteRequest{Key: key, Options: options, Rules: w.Rules(key.Kind)})
	if err != nil {
		w.T.Fatalf("delete %s: %v", key, err)
	}
}

// DeleteGuarded deletes an object as a client does, on a server with a guard.
func (w *World) DeleteGuarded(key object.Key, options metav1.DeleteOptions, limit int64) object.Object {
	w.T.Helper()
	result, err := w.Store.Delete(w.T.Context(), store.DeleteRequest{
		Key: key, Options: options, Rules: w.Rules(key.Kind), Guarded: true, MaxCascade: limit,
	})
	if err != nil {
		w.T.Fatalf("delete %s: %v", key, err)
	}
	return result.Object
}

// With returns the options of a delete with a policy.
func With(policy metav1.DeletionPropagation) metav1.DeleteOptions {
	return metav1.DeleteOptions{PropagationPolicy: &policy}
}

// Later advances the collector's clock.
func (w *World) Later(d time.Duration) { w.clock.Advance(d) }

// Turn is a turn of each of the collector's queues. claimed is the reviews that were due, ended how
// many of them are not due again.
func (w *World) Turn(ctx context.Context) (claimed, ended int, err error) {
	for i, engine := range w.Collector.Engines() {
		r, err := engine.RunOne(ctx)
		if err == nil && r.Failed > 0 && i == 0 { // in the other queue a policy may refuse a delete
			err = fmt.Errorf("%d reviews failed", r.Failed)
		}
		if err != nil {
			return claimed, ended, err
		}
		claimed, ended = claimed+r.Claimed, ended+r.Done+r.Acted
	}
	return claimed, ended, nil
}

// Collect runs the collector until it is idle, also after its next looks at what policies admit.
func (w *World) Collect() {
	w.T.Helper()
	progress := 0
	for range 10_000 {
		claimed, ended, err := w.Turn(w.T.Context())
		if err != nil {
			w.T.Fatalf("collect: %v", err)
		}
		progress += ended
		if claimed > 0 {
			continue
		}
		if progress == 0 || w.API == nil {
			return
		}
		progress = 0
		w.Later(3 * time.Second)
	}
	w.T.Fatal("the collector does not become idle")
}

// Get reads the metadata of an object; nil if the name has no object, or one with another
// uid.
func (w *World) Get(key object.Key, uid types.UID) *metav1.ObjectMeta {
	w.T.Helper()
	o, err := w.Store.Get(w.T.Context(), key)
	if object.Is(err, object.NotFound) || err == nil && o.UID != uid {
		return nil
	}
	if err != nil {
		w.T.Fatal(err)
	}
	m, err := object.ParseMeta(o.Body)
	if err != nil {
		w.T.Fatal(err)
	}
	return &m
}

// Release does what the controllers of an object do: it removes their finalizers, and
// ends grace periods.
func (w *World) Release(key object.Key) {
	w.T.Helper()
	_, m := storetest.Get(w.T, w.Store, key)
	if g := m.DeletionGracePeriodSeconds; g != nil && *g > 0 {
		w.Delete(key, metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
		if _, err := w.Store.Get(w.T.Context(), key); object.Is(err, object.NotFound) {
			return
		}
	}
	storetest.Update(w.T, w.Store, key, w.Rules(key.Kind), func(m *metav1.ObjectMeta) {
		m.Finalizers = slices.DeleteFunc(m.Finalizers, func(f string) bool {
			return f != metav1.FinalizerOrphanDependents && f != metav1.FinalizerDeleteDependents
		})
	})
}
