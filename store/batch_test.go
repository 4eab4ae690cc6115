package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// faultyTx is a transaction with faults.
type faultyTx struct {
	databaseTx
	onCommit func(ctx context.Context, b *sqldb.Batch) error // instead of the commit, when it returns an error
	onSend   func() error                                    // instead of statements before it
}

func (f *faultyTx) Send(ctx context.Context, b *sqldb.Batch) error {
	if f.onSend != nil {
		if err := f.onSend(); err != nil {
			return err
		}
	}
	return f.databaseTx.Send(ctx, b)
}

func (f *faultyTx) SendAndCommit(ctx context.Context, b *sqldb.Batch) error {
	if f.onCommit != nil {
		if err := f.onCommit(ctx, b); err != nil {
			return err
		}
	}
	return f.databaseTx.SendAndCommit(ctx, b)
}

// faulty is a store whose transactions pass through fault.
func faulty(t *testing.T, db *sqldb.DB, fault func(*faultyTx)) *Store {
	t.Helper()
	s, err := Open(t.Context(), Options{DB: db, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	begin := s.beginTx
	s.beginTx = func(ctx context.Context) (databaseTx, error) {
		tx, err := begin(ctx)
		if err != nil {
			return nil, err
		}
		f := &faultyTx{databaseTx: tx}
		fault(f)
		return f, nil
	}
	return s
}

// start queues operations first and runs the store then, so that they are one
// batch. The errors are in order.
func start(t *testing.T, s *Store, ops ...func() error) []error {
	t.Helper()
	errs := make([]error, len(ops))
	var callers sync.WaitGroup
	for i, op := range ops {
		before := len(s.writer.queue)
		callers.Go(func() { errs[i] = op() })
		dbtest.Await(t, "the operation is queued", func() bool { return len(s.writer.queue) != before })
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	callers.Wait()
	return errs
}

func creating(t *testing.T, s *Store, name string) func() error {
	return func() error {
		_, err := s.Create(t.Context(), newRequest("a", name))
		return err
	}
}

// TestAnyStatementFails: a write of which one statement fails, whichever it is, fails and changes nothing. What was not
// read is not taken for absent: a delete whose dependents or limits are unknown would pass its guard.
func TestAnyStatementFails(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		broken := errors.New("connection lost")
		var sent, failing atomic.Int64
		at := func() error {
			if sent.Add(1) == failing.Load() {
				return broken
			}
			return nil
		}
		s := faulty(t, db, func(f *faultyTx) {
			f.onSend, f.onCommit = at, func(context.Context, *sqldb.Batch) error { return at() }
		})
		owner := newRequest("", "owner")
		dependent := newRequest("a", "dependent", func(m *metav1.ObjectMeta) {
			m.OwnerReferences = []metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "Thing", Name: "owner", UID: owner.Meta.UID}}
		})
		limiting := newRequest("", "limiting", func(m *metav1.ObjectMeta) { m.Annotations = map[string]string{lifecycle.MaxCascade: "1"} })
		limiting.Key.Kind = object.Namespaces
		errs := start(t, s, func() error {
			create(t, s, limiting)
			create(t, s, owner)
			create(t, s, dependent)
			return nil
		})
		if errs[0] != nil {
			t.Fatal(errs[0])
		}
		before, err := s.Get(t.Context(), owner.Key)
		if err != nil {
			t.Fatal(err)
		}
		for failing.Store(1); ; failing.Add(1) {
			sent.Store(0)
			d, err := s.Delete(t.Context(), DeleteRequest{Key: owner.Key, Guarded: true})
			if sent.Load() < failing.Load() {
				if err != nil || failing.Load() < 5 {
					t.Errorf("without a fault, after %d of them: %v, %v", failing.Load()-1, d.Outcome, err)
				}
				break
			}
			if o, _ := s.Get(t.Context(), owner.Key); !errors.Is(err, broken) || o.Revision != before.Revision {
				t.Errorf("statement %d failed: %v, and the owner is at revision %d", failing.Load(), err, o.Revision)
			}
		}
	})
}

func TestCommitFailureFailsTheBatch(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		broken := errors.New("disk on fire")
		var commits atomic.Int64
		s := faulty(t, db, func(f *faultyTx) {
			f.onCommit = func(ctx context.Context, b *sqldb.Batch) error {
				if commits.Add(1) == 1 {
					return broken
				}
				return nil
			}
		})
		// The third was refused because of the first, which never was.
		errs := start(t, s, creating(t, s, "one"), creating(t, s, "two"), creating(t, s, "one"))
		for i, err := range errs {
			if !errors.Is(err, broken) {
				t.Errorf("operation %d: %v", i, err)
			}
		}
		if lines, revision, _ := list(t, s, ListRequest{}); len(lines) != 0 || revision != 1 || s.Revision() != 1 {
			t.Errorf("after a failed commit: %q at %d", lines, revision)
		}
		if o := create(t, s, newRequest("a", "one")); o.Revision != 2 {
			t.Errorf("the next write got revision %d", o.Revision)
		}
	})
}

// TestCommitOfUnknownOutcome: the commit succeeds, but the writer gets an error.
// Watchers still get the written changes.
func TestCommitOfUnknownOutcome(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		var commits atomic.Int64
		s := faulty(t, db, func(f *faultyTx) {
			f.onCommit = func(ctx context.Context, b *sqldb.Batch) error {
				if commits.Add(1) > 1 {
					return nil
				}
				return errors.Join(io.ErrUnexpectedEOF, f.databaseTx.SendAndCommit(ctx, b))
			}
		})
		w := watch(t, s, WatchRequest{From: 1})
		if errs := start(t, s, creating(t, s, "one")); errs[0] == nil || Unavailable(errs[0]) {
			t.Errorf("callers would make the write again: %v", errs[0])
		}
		events, _, err := w.Next(t.Context())
		if err != nil || len(events) != 1 || events[0].Object.Name != "one" {
			t.Errorf("watched %+v, %v", events, err)
		}
		create(t, s, newRequest("a", "two"))
		r := newReplay(t, 0)
		r.follow(watch(t, s, WatchRequest{}), 3)
		r.check(s)
	})
}

// TestRefusedStatementFailsOneOperation: the database refuses the uid of one
// operation; the others of its batch are done.
func TestRefusedStatementFailsOneOperation(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		transactions := 0
		s := faulty(t, db, func(*faultyTx) { transactions++ })
		twin := newRequest("a", "twin")
		second := newRequest("a", "second twin")
		second.Meta.UID = twin.Meta.UID
		errs := start(t, s,
			creating(t, s, "one"),
			func() error { _, err := s.Create(t.Context(), twin); return err },
			func() error { _, err := s.Create(t.Context(), second); return err },
			creating(t, s, "two"))
		for i, err := range errs {
			if failed := err != nil; failed != (i == 2) {
				t.Errorf("operation %d: %v", i, err)
			}
		}
		if transactions != 1+len(errs) {
			t.Errorf("%d transactions, want one of all operations and one of each", transactions)
		}
		if lines, revision, _ := list(t, s, ListRequest{}); names(lines) != "a/one a/twin a/two" || revision != 4 {
			t.Errorf("got %q at %d", names(lines), revision)
		}
	})
}

func TestPanicFailsOneOperation(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		s := faulty(t, db, func(*faultyTx) {})
		rules := lifecycle.Rules{Graceful: func([]byte, *int64) (int64, bool) { panic("bad rule") }}
		key := object.Key{Kind: things, Namespace: "a", Name: "one"}
		errs := start(t, s, creating(t, s, "one"),
			func() error { _, err := s.Delete(t.Context(), DeleteRequest{Key: key, Rules: rules}); return err },
			creating(t, s, "two"))
		if errs[0] != nil || errs[1] == nil || !strings.Contains(errs[1].Error(), "bad rule") || errs[2] != nil {
			t.Errorf("errors: %v", errs)
		}
		remove(t, s, key)
	})
}

// TestPanicInTheWriterAnswersAll: after a panic in the batch code every waiting
// client has an answer, no transaction is open, and the writer works.
func TestPanicInTheWriterAnswersAll(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		var once sync.Once
		s := faulty(t, db, func(f *faultyTx) {
			f.onCommit = func(context.Context, *sqldb.Batch) error { once.Do(func() { panic("bad writer") }); return nil }
		})
		for i, err := range start(t, s, creating(t, s, "one"), creating(t, s, "two")) {
			if err == nil || !strings.Contains(err.Error(), "bad writer") {
				t.Errorf("operation %d: %v", i, err)
			}
		}
		create(t, s, newRequest("a", "one"))
	})
}

func TestAbandonedWriteIsSkipped(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		s := faulty(t, db, func(*faultyTx) {})
		ctx, cancel := context.WithCancel(t.Context())
		left := make(chan error, 1)
		errs := start(t, s,
			func() error {
				go func() {
					_, err := s.Create(ctx, newRequest("a", "left"))
					left <- err
				}()
				for len(s.writer.queue) == 0 {
					time.Sleep(time.Millisecond)
				}
				cancel()
				return <-left
			},
			creating(t, s, "stayed"))
		if !errors.Is(errs[0], context.Canceled) || errs[1] != nil {
			t.Errorf("errors: %v", errs)
		}
		if lines, _, _ := list(t, s, ListRequest{}); names(lines) != "a/stayed" {
			t.Errorf("got %q", names(lines))
		}
	})
}

// TestBatchSeesItself: operations of one batch follow each other as if each had
// been committed before the next.
func TestBatchSeesItself(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		var transactions atomic.Int64
		s := faulty(t, db, func(*faultyTx) { transactions.Add(1) })
		key := object.Key{Kind: things, Namespace: "a", Name: "one"}
		ns := object.Key{Kind: object.Namespaces, Name: "a"}
		inNamespace := func() error {
			r := newRequest("a", "one")
			r.InNamespace = true
			_, err := s.Create(t.Context(), r)
			return err
		}
		deleting := func(key object.Key) func() error {
			return func() error { _, err := s.Delete(t.Context(), DeleteRequest{Key: key}); return err }
		}
		body := newRequest("a", "one").Body
		errs := start(t, s,
			inNamespace, // no namespace yet
			func() error {
				r := newRequest("", "a")
				r.Key = ns
				_, err := s.Create(t.Context(), r)
				return err
			},
			inNamespace,
			inNamespace, // exists
			func() error { // revision 3 is what the batch gave the object
				_, err := s.Update(t.Context(), UpdateRequest{Key: key, IfRevision: 3, Body: body})
				return err
			},
			deleting(key),
			deleting(key), // gone
			deleting(ns),
			inNamespace, // no namespace any more
		)
		want := []object.Code{object.NoNamespace, 0, 0, object.AlreadyExists, 0, 0, object.NotFound, 0, object.NoNamespace}
		for i, err := range errs {
			if want[i] == 0 && err != nil || want[i] != 0 && !object.Is(err, want[i]) {
				t.Errorf("operation %d: %v", i, err)
			}
		}
		if transactions.Load() != 1 {
			t.Errorf("%d transactions", transactions.Load())
		}
		r := newReplay(t, 1)
		r.follow(watch(t, s, WatchRequest{From: 1}), 6)
		r.check(s)
		if n := fmt.Sprint(len(r.objects), s.Revision()); n != "0 6" {
			t.Errorf("objects and revision: %s", n)
		}
	})
}

// TestDeletesOfOneBatch: each delete of a batch sees the result of the one before, as
// if they had run in separate batches.
func TestDeletesOfOneBatch(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		s := faulty(t, db, func(*faultyTx) {})
		r := newRequest("a", "one", finalizers("example.com/f"))
		rules := lifecycle.Rules{Graceful: func(_ []byte, requested *int64) (int64, bool) { return *requested, true }}
		var results [5]DeleteResult
		deleting := func(i int, grace int64) func() error {
			return func() (err error) {
				results[i], err = s.Delete(t.Context(), DeleteRequest{Key: r.Key, Rules: rules, Options: metav1.DeleteOptions{GracePeriodSeconds: &grace}})
				return err
			}
		}
		errs := start(t, s,
			func() error { _, err := s.Create(t.Context(), r); return err },
			deleting(0, 30),
			deleting(1, 60), // no later than it was
			deleting(2, 5),  // sooner
			deleting(3, 0),  // now, but for the finalizer
			deleting(4, 0),
		)
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		wantGrace := []int64{30, 30, 5, 0, 0}
		wantOutcome := []lifecycle.Outcome{lifecycle.Mark, lifecycle.Unchanged, lifecycle.Mark, lifecycle.Mark, lifecycle.Unchanged}
		for i, result := range results {
			m, err := object.ParseMeta(result.Object.Body)
			if err != nil || m.DeletionGracePeriodSeconds == nil || *m.DeletionGracePeriodSeconds != wantGrace[i] || result.Outcome != wantOutcome[i] {
				t.Errorf("delete %d: %v, %v, %s", i, result.Outcome, err, result.Object.Body)
			}
		}
		if s.Revision() != 5 {
			t.Errorf("the revision is %d: deletes that change nothing wrote", s.Revision())
		}
	})
}

// TestWritesComeBetweenJobs: writes that waited for one job run before the next job,
// even if that job is already queued.
func TestWritesComeBetweenJobs(t *testing.T) {
	w := newWriter(slog.New(slog.DiscardHandler), func(context.Context, []*operation) error { return errors.New("no database") })
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { w.run(ctx); close(ended) }()
	for range 20 { // by chance it would be right half of the time
		begun, release := make(chan struct{}), make(chan struct{})
		var order []string // written by the writer's goroutine only
		var callers sync.WaitGroup
		callers.Go(func() {
			_ = w.do(ctx, func() error { close(begun); <-release; return nil })
		})
		<-begun
		op := &operation{key: object.Key{Kind: things, Name: "x"}}
		callers.Go(func() { _ = w.submit(ctx, op) })
		callers.Go(func() {
			_ = w.do(ctx, func() error {
				if op.answered() {
					order = append(order, "write")
				}
				order = append(order, "job")
				return nil
			})
		})
		for len(w.queue) == 0 {
			time.Sleep(time.Millisecond)
		}
		close(release)
		callers.Wait()
		if got := strings.Join(order, " "); got != "write job" {
			t.Fatalf("order: %s, want the write before the next job", got)
		}
	}
	cancel()
	<-ended
}

// TestMixedBatch: creates, updates and deletes of different objects that are one batch are
// written by type. Answers, events and the database agree on the revisions.
func TestMixedBatch(t *testing.T) {
	each(t, func(t *testing.T, s running) {
		const n = 2 * minSet
		var existing []object.Object
		for i := range 2 * n {
			existing = append(existing, create(t, s.Store, newRequest("a", fmt.Sprint("old-", i))))
		}
		from := s.Revision()
		var created, updated [n]object.Object
		var ops []func() error
		for i := range n {
			ops = append(ops, func() (err error) {
				created[i], err = s.Create(t.Context(), newRequest("a", fmt.Sprint("new-", i)))
				return err
			}, func() error {
				_, err := s.Delete(t.Context(), DeleteRequest{Key: existing[i].Key})
				return err
			}, func() (err error) {
				o := existing[n+i]
				updated[i], err = s.Update(t.Context(), UpdateRequest{Key: o.Key, IfRevision: o.Revision, Body: append(o.Body, ' ')})
				return err
			})
		}
		if err := errors.Join(inOneBatch(t, s.Store, ops)...); err != nil {
			t.Fatal(err)
		}
		events, _, err := watch(t, s.Store, WatchRequest{From: from}).Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		types := ""
		for _, e := range events {
			types += fmt.Sprint(e.Type)
		}
		if want := strings.Repeat(fmt.Sprint(Created), n) + strings.Repeat(fmt.Sprint(Updated), n) + strings.Repeat(fmt.Sprint(Removed), n); types != want {
			t.Errorf("got the events %s, want %s", types, want)
		}
		r := newReplay(t, 0)
		r.follow(watch(t, s.Store, WatchRequest{From: 1}), s.Revision())
		r.check(s.Store)
		for _, o := range slices.Concat(created[:], updated[:]) {
			if got := r.objects[o.Key]; got.Revision != o.Revision || got.UID != o.UID {
				t.Errorf("%s was answered with revision %d, and its event has %d", o.Key, o.Revision, got.Revision)
			}
		}
	})
}

// TestIndependent: what was decided by the effect of another operation keeps its order.
func TestIndependent(t *testing.T) {
	key := func(name string) object.Key { return object.Key{Kind: things, Name: name} }
	ops := []*operation{{key: key("a")}, {key: key("b"), needs: []object.Key{key("ns")}}, {key: key("c")}, {key: key("d")}}
	effects := func() (list []*effect) {
		for _, op := range ops {
			list = append(list, &effect{Type: Updated, key: op.key})
		}
		return list
	}
	if !independent(&view{}, ops, effects()) {
		t.Error("different objects do not count as independent")
	}
	twice := effects()
	twice[2].key = twice[0].key
	needed := effects()
	needed[3].key = key("ns")
	restores := effects()
	restores[1].restores.Row = 1
	for what, list := range map[string][]*effect{"one object twice": twice, "an object that another needs": needed, "a restore": restores, "few": effects()[:minSet-1]} {
		if independent(&view{}, ops, list) {
			t.Errorf("%s: they count as independent", what)
		}
	}
	if independent(&view{parents: map[string]bool{}}, ops, effects()) {
		t.Error("a delete that asks for dependents counts as independent")
	}
	if independent(&view{limits: struct{ Limiter }{}}, ops, effects()) {
		t.Error("a create that may need what a delete gives back counts as independent")
	}
}

// inOneBatch runs operations as one batch: they are queued while a job keeps the writer busy.
func inOneBatch(t *testing.T, s *Store, ops []func() error) []error {
	t.Helper()
	queued, held := make(chan struct{}), make(chan error, 1)
	busy := make(chan struct{})
	go func() {
		held <- s.writer.do(t.Context(), func() error { close(busy); <-queued; return nil })
	}()
	<-busy
	errs := make([]error, len(ops))
	var callers sync.WaitGroup
	for i, op := range ops {
		callers.Go(func() { errs[i] = op() })
	}
	dbtest.Await(t, "all operations are queued", func() bool { return len(s.writer.queue) >= len(ops) })
	close(queued)
	callers.Wait()
	return append(errs, <-held)
}
