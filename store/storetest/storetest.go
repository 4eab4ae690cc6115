// Package storetest gives tests a running store, and the requests that create objects in it.
//
// It knows no kinds: a test says which fields an object has besides its metadata. Begin
// with Run and Object.
package storetest

import (
	"context"
	"log/slog"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
)

// Run opens a store and runs it until the test ends. Without a Logger the store logs
// nothing.
func Run(t testing.TB, o store.Options, prepare ...func(*store.Store)) *store.Store {
	t.Helper()
	st, _ := Start(t, o, prepare...)
	return st
}

// Start is Run for a test that stops the store itself. The end of the test calls stop,
// too; the second call does nothing. What prepare does is done before the store runs.
func Start(t testing.TB, o store.Options, prepare ...func(*store.Store)) (st *store.Store, stop func()) {
	t.Helper()
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	st, err := store.Open(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range prepare {
		p(st)
	}
	end := Background(t, st.Run)
	stop = sync.OnceFunc(func() {
		end()
		if err := st.Close(); err != nil {
			t.Errorf("close store: %v", err)
		}
	})
	t.Cleanup(stop)
	return st, stop
}

// Background runs a task until the test ends or calls stop, whichever comes first. An error of
// the task fails the test.
func Background(t testing.TB, task func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- task(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// Object returns the request that creates an object, with a new uid and a fixed creation
// time. fields are the members of its body after metadata, each with a comma before it:
// `,"data":{"key":"value"}`. Each change may change the metadata.
func Object(t testing.TB, key object.Key, fields string, changes ...func(*metav1.ObjectMeta)) store.CreateRequest {
	t.Helper()
	m := metav1.ObjectMeta{
		Name: key.Name, Namespace: key.Namespace,
		UID: object.NewUID(), CreationTimestamp: metav1.Unix(1000, 0),
	}
	for _, change := range changes {
		change(&m)
	}
	body, err := object.WithMeta([]byte(`{"metadata":{"name":"x"}`+fields+`}`), m)
	if err != nil {
		t.Fatal(err)
	}
	return store.CreateRequest{Key: key, Meta: m, Body: body}
}

// NamespaceFields are the fields of a Namespace as the API server stores it.
const NamespaceFields = `,"spec":{"finalizers":["kubernetes"]},"status":{"phase":"Active"}`

// Namespace returns the request that creates a Namespace.
func Namespace(t testing.TB, name string, changes ...func(*metav1.ObjectMeta)) store.CreateRequest {
	t.Helper()
	return Object(t, object.Key{Kind: object.Namespaces, Name: name}, NamespaceFields, changes...)
}

// Create creates an object. A failure ends the test.
func Create(t testing.TB, st *store.Store, r store.CreateRequest) object.Object {
	t.Helper()
	o, err := st.Create(t.Context(), r)
	if err != nil {
		t.Fatalf("create %s: %v", r.Key, err)
	}
	return o
}

// Get reads an object that must exist, and its metadata.
func Get(t testing.TB, st *store.Store, key object.Key) (object.Object, metav1.ObjectMeta) {
	t.Helper()
	o, err := st.Get(t.Context(), key)
	if err != nil {
		t.Fatalf("get %s: %v", key, err)
	}
	m, err := object.ParseMeta(o.Body)
	if err != nil {
		t.Fatal(err)
	}
	return o, m
}

// Update changes the metadata of an object as a client does. If the change removes what
// held a DELETING object, the object is removed, by the rules of its kind.
func Update(t testing.TB, st *store.Store, key object.Key, rules lifecycle.Rules, change func(*metav1.ObjectMeta)) {
	t.Helper()
	o, m := Get(t, st, key)
	change(&m)
	body, err := object.WithMeta(o.Body, m)
	if err != nil {
		t.Fatal(err)
	}
	_, err = st.Update(t.Context(), store.UpdateRequest{
		Key: key, IfRevision: o.Revision, Meta: m, Body: body, Remove: lifecycle.RemoveNow(body, m, rules),
	})
	if err != nil {
		t.Fatalf("update %s: %v", key, err)
	}
}
