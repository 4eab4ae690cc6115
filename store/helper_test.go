package store

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

func TestMain(m *testing.M) { dbtest.MainBoth(m) }

const things = "things.example.com"

// resealStep is how many bodies one step of seal.Database.Reseal takes.
const resealStep = 64

var uids atomic.Int64

// running is a running store and the means to stop it early.
type running struct {
	*Store
	stop func()
}

// run opens and runs a store until the test ends, or stop is called.
func run(t testing.TB, o Options) running {
	t.Helper()
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	s, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	stop := sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("run: %v", err)
		}
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	t.Cleanup(stop)
	return running{s, stop}
}

// each runs a test with a running store on each engine.
func each(t *testing.T, test func(t *testing.T, s running)) {
	t.Helper()
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) { test(t, run(t, Options{DB: db})) })
}

// newRequest is a create of a thing. Change its Meta with the functions.
func newRequest(namespace, name string, change ...func(*metav1.ObjectMeta)) CreateRequest {
	m := metav1.ObjectMeta{
		Name: name, Namespace: namespace,
		UID:               types.UID(fmt.Sprintf("uid-%d", uids.Add(1))),
		CreationTimestamp: metav1.Unix(1000, 0),
	}
	for _, f := range change {
		f(&m)
	}
	key := object.Key{Kind: things, Namespace: namespace, Name: name}
	return CreateRequest{Key: key, Meta: m, Body: bodyOf(m, "")}
}

// bodyOf is a stored body with this metadata and a value.
func bodyOf(m metav1.ObjectMeta, value string) []byte {
	body, err := object.WithMeta(fmt.Appendf(nil, `{"metadata":{"name":"x"},"value":%q}`, value), m)
	if err != nil {
		panic(err)
	}
	return body
}

func finalizers(names ...string) func(*metav1.ObjectMeta) {
	return func(m *metav1.ObjectMeta) { m.Finalizers = names }
}

func create(t testing.TB, s *Store, r CreateRequest) object.Object {
	t.Helper()
	o, err := s.Create(t.Context(), r)
	if err != nil {
		t.Fatalf("create %s: %v", r.Key, err)
	}
	return o
}

func createNamespace(t testing.TB, s *Store, name string, change ...func(*metav1.ObjectMeta)) object.Object {
	t.Helper()
	r := newRequest("", name, change...)
	r.Key.Kind = object.Namespaces
	return create(t, s, r)
}

// change updates the value of an object that has just been read or written.
func change(t testing.TB, s *Store, o object.Object, value string) object.Object {
	t.Helper()
	m, err := object.ParseMeta(o.Body)
	if err != nil {
		t.Fatal(err)
	}
	o, err = s.Update(t.Context(), UpdateRequest{Key: o.Key, IfRevision: o.Revision, Meta: m, Body: bodyOf(m, value)})
	if err != nil {
		t.Fatalf("update %s: %v", o.Key, err)
	}
	return o
}

func remove(t testing.TB, s *Store, key object.Key) DeleteResult {
	t.Helper()
	d, err := s.Delete(t.Context(), DeleteRequest{Key: key})
	if err != nil {
		t.Fatalf("delete %s: %v", key, err)
	}
	if d.Outcome != lifecycle.Remove {
		t.Fatalf("delete %s: outcome %v", key, d.Outcome)
	}
	return d
}

func wantCode(t testing.TB, err error, code object.Code) {
	t.Helper()
	if !object.Is(err, code) {
		t.Errorf("got error %v, want code %d", err, code)
	}
}

// list reads a whole listing as "namespace/name@revision=body", and whether
// there is more.
func list(t testing.TB, s *Store, r ListRequest) (lines []string, revision int64, more bool) {
	t.Helper()
	if r.Kind == "" {
		r.Kind = things
	}
	l, err := s.List(t.Context(), r)
	if err != nil {
		t.Fatalf("list: %v", err)
	}
	for l.Next() {
		lines = append(lines, line(l.Object()))
	}
	if err := l.Err(); err != nil {
		t.Fatalf("list: %v", err)
	}
	return lines, l.Revision(), l.More()
}

func line(o object.Object) string {
	return fmt.Sprintf("%s/%s@%d %s=%s", o.Namespace, o.Name, o.Revision, o.UID, o.Body)
}

// names reduces lines of list to "namespace/name".
func names(lines []string) string {
	short := make([]string, len(lines))
	for i, l := range lines {
		short[i], _, _ = strings.Cut(l, "@")
	}
	return strings.Join(short, " ")
}

// replay applies events to a state, and checks that they fit it.
type replay struct {
	t       testing.TB
	objects map[object.Key]object.Object
	last    int64
}

func newReplay(t testing.TB, from int64) *replay {
	return &replay{t: t, objects: map[object.Key]object.Object{}, last: from}
}

func (r *replay) apply(e *Event) {
	r.t.Helper()
	o := e.Object
	if o.Revision <= r.last {
		r.t.Fatalf("event %d after event %d", o.Revision, r.last)
	}
	r.last = o.Revision
	before, existed := r.objects[o.Key]
	switch e.Type {
	case Created:
		if existed {
			r.t.Fatalf("%d: created %s, which exists", o.Revision, o.Key)
		}
		r.objects[o.Key] = o
	case Updated:
		if !existed || before.UID != o.UID || !bytes.Equal(before.Body, e.Previous) {
			r.t.Fatalf("%d: update of %s does not follow %d", o.Revision, o.Key, before.Revision)
		}
		r.objects[o.Key] = o
	case Removed:
		if !existed || before.UID != o.UID || !bytes.Equal(before.Body, o.Body) {
			r.t.Fatalf("%d: removal of %s does not follow %d", o.Revision, o.Key, before.Revision)
		}
		delete(r.objects, o.Key)
	default:
		r.t.Fatalf("%d: event type %d", o.Revision, e.Type)
	}
}

// follow applies what a watcher delivers until it has delivered a revision.
func (r *replay) follow(w *Watcher, until int64) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), 30*time.Second)
	defer cancel()
	for r.last < until {
		events, upTo, err := w.Next(ctx)
		if err != nil {
			r.t.Fatalf("watch at %d of %d: %v", r.last, until, err)
		}
		for _, e := range events {
			r.apply(e)
		}
		if upTo < r.last {
			r.t.Fatalf("upTo %d after event %d", upTo, r.last)
		}
		if upTo >= until {
			return
		}
	}
}

func watch(t testing.TB, s *Store, r WatchRequest) *Watcher {
	t.Helper()
	if r.Kind == "" {
		r.Kind = things
	}
	w, err := s.Watch(t.Context(), r)
	if err != nil {
		t.Fatalf("watch: %v", err)
	}
	t.Cleanup(w.Close)
	return w
}
