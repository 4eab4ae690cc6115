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

	"github.com/exeunt/exeunt/gc"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/kind/builtin"
	"github.com/exeunt/exeunt/kind/custom"
	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/store"
)

// Unserved is the storage name of a kind whose definition is gone.
const Unserved = "widgets.example.com"

// OnNode is the Rest of a Pod that runs on a node, with 30 seconds of grace.
const OnNode = `,"spec":{"nodeName":"node","terminationGracePeriodSeconds":30}`

// World is a database with a store, and a collector that runs when it is told to.
type World struct {
	T         testing.TB
	DB        *sqldb.DB
	Store     *store.Store
	Kinds     *kind.Registry
	Collector *gc.Collector
	Now       time.Time // of the service under test; the others have the real time
	serial    atomic.Int64
}

// New makes a world on a database. It ends with the test.
func New(t testing.TB, db *sqldb.DB) *World {
	t.Helper()
	w := &World{T: t, DB: db, Now: time.Now()}
	quiet := slog.New(slog.DiscardHandler)
	var err error
	if w.Store, err = store.Open(t.Context(), store.Options{DB: db, Logger: quiet}); err != nil {
		t.Fatal(err)
	}
	w.Kinds = kind.NewRegistry(append(builtin.Kinds(), custom.Definition()))
	if w.Collector, err = gc.New(db, w.Store, w.Kinds, gc.Options{Logger: quiet, Budget: 500, OrphanWait: -1}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Store.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("run store: %v", err)
		}
		_ = w.Store.Close()
	})
	return w
}

// Thing is an object of a test.
type Thing struct {
	Kind, Namespace, Name string
	UID                   types.UID // empty: made up
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
		o.Rest = `,"spec":{"finalizers":["kubernetes"]},"status":{"phase":"Active"}`
	}
	m := metav1.ObjectMeta{
		Name: o.Name, Namespace: o.Namespace, UID: o.UID, CreationTimestamp: metav1.Unix(1000, 0),
		Finalizers: o.Finalizers, OwnerReferences: o.Owners, ManagedFields: o.Managed, Generation: o.Generation,
	}
	if o.Passes != "" {
		m.Annotations = map[string]string{lifecycle.PropagateGrace: o.Passes}
	}
	body, err := object.WithMeta([]byte(`{"metadata":{"name":"x"}`+o.Rest+`}`), m)
	if err != nil {
		w.T.Fatal(err)
	}
	stored, err := w.Store.Create(w.T.Context(), store.CreateRequest{
		Key:  object.Key{Kind: o.Kind, Namespace: o.Namespace, Name: o.Name},
		Meta: m, Body: body, InNamespace: o.Namespace != "",
	})
	if err != nil {
		w.T.Fatalf("create %s %s: %v", o.Kind, o.Name, err)
	}
	return stored
}

// OwnedBy refers to objects, blocking.
func (w *World) OwnedBy(owners ...object.Object) []metav1.OwnerReference {
	var out []metav1.OwnerReference
	for _, o := range owners {
		out = append(out, w.Reference(o.Key, o.UID, true))
	}
	return out
}

// Reference refers to an owner.
func (w *World) Reference(key object.Key, uid types.UID, blocking bool) metav1.OwnerReference {
	name, apiVersion := w.Kinds.Snapshot().Names(key.Kind)
	if key.Kind == Unserved { // the snapshot knows its plural and group only
		apiVersion, name = "example.com/v1", "Widget"
	}
	return metav1.OwnerReference{APIVersion: apiVersion, Kind: name, Name: key.Name, UID: uid, BlockOwnerDeletion: &blocking}
}

// Rules are the deletion rules of a kind.
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

// DeleteGuarded deletes as a person does.
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

// With are the options of a delete with a policy.
func With(policy metav1.DeletionPropagation) metav1.DeleteOptions {
	return metav1.DeleteOptions{PropagationPolicy: &policy}
}

// Collect runs the collector until it has nothing to do.
func (w *World) Collect() {
	w.T.Helper()
	for range 10_000 {
		r, err := w.Collector.RunOne(w.T.Context())
		if err != nil {
			w.T.Fatalf("collect: %v", err)
		}
		if r.Failed > 0 {
			w.T.Fatalf("collect: %d reviews failed", r.Failed)
		}
		if r.Claimed == 0 {
			return
		}
	}
	w.T.Fatal("the collector does not come to rest")
}

// Get reads an object; nil if there is none, or another by that name.
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

// Release does what others have to do: it removes their finalizers, and ends
// grace periods.
func (w *World) Release(key object.Key) {
	w.T.Helper()
	o, err := w.Store.Get(w.T.Context(), key)
	if err != nil {
		w.T.Fatal(err)
	}
	m, err := object.ParseMeta(o.Body)
	if err != nil {
		w.T.Fatal(err)
	}
	if g := m.DeletionGracePeriodSeconds; g != nil && *g > 0 {
		w.Delete(key, metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
		if o, err = w.Store.Get(w.T.Context(), key); object.Is(err, object.NotFound) {
			return
		}
		if m, err = object.ParseMeta(o.Body); err != nil {
			w.T.Fatal(err)
		}
	}
	m.Finalizers = slices.DeleteFunc(m.Finalizers, func(f string) bool {
		return f != metav1.FinalizerOrphanDependents && f != metav1.FinalizerDeleteDependents
	})
	body, err := object.WithMeta(o.Body, m)
	if err != nil {
		w.T.Fatal(err)
	}
	_, err = w.Store.Update(w.T.Context(), store.UpdateRequest{
		Key: key, IfRevision: o.Revision, Meta: m, Body: body, Remove: lifecycle.RemoveNow(body, m, w.Rules(key.Kind)),
	})
	if err != nil {
		w.T.Fatalf("release %s: %v", key, err)
	}
}

// Execute runs a statement in a transaction of its own.
func (w *World) Execute(statement string, args ...any) {
	w.T.Helper()
	var b sqldb.Batch
	b.Exec(statement, args...)
	err := w.DB.Transact(w.T.Context(), func(tx *sqldb.Tx) error { return tx.Send(w.T.Context(), &b) })
	if err != nil {
		w.T.Fatal(err)
	}
}
