package gc

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/review"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/store"
)

// Each test forces one interleaving of docs/spec/deletion.md.

// interrupted is one turn of the collector in which something happens after the
// reviews were claimed and before they begin.
func (w *world) interrupted(between func()) review.Result {
	w.Helper()
	var once sync.Once
	return w.turnThrough(func(ctx context.Context, fn func(*store.Tx) error) error {
		once.Do(between)
		return w.store.Transact(ctx, fn)
	})
}

// turnThrough is one turn with another transactor.
func (w *world) turnThrough(transact review.Transactor[*store.Tx]) review.Result {
	w.Helper()
	e, err := review.New(w.db, queue, w.gc, transact, review.Options{Now: w.clock.Now, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		w.Fatal(err)
	}
	r, err := e.RunOne(context.Background())
	if err != nil {
		w.Fatal(err)
	}
	return r
}

func TestOwnerSwitchedAtTheLastMoment(t *testing.T) {
	both(t, func(w *world) {
		w.add("a")
		w.add("b")
		w.add("c", owned("a"))
		w.delete("a", background)
		w.interrupted(func() {
			w.update("c", func(_ *world, m *metav1.ObjectMeta) { m.OwnerReferences = nil }, owned("b"))
		})
		w.drain()
		w.want("b c<b")
	})
}

// TestOwnerSwitchedBack: from a solid owner to one that is gone.
func TestOwnerSwitchedBack(t *testing.T) {
	both(t, func(w *world) {
		w.add("a")
		w.add("b")
		w.add("c", owned("b"))
		w.add("d", owned("a"))
		w.delete("a", background)
		w.interrupted(func() {
			w.update("c", func(_ *world, m *metav1.ObjectMeta) { m.OwnerReferences = nil }, owned("a"))
		})
		w.drain()
		w.want("b")
	})
}

func TestDependentCreatedWhileOwnerGoes(t *testing.T) {
	both(t, func(w *world) {
		w.add("a")
		w.add("early", owned("a"))
		w.delete("a", background)
		if r := w.interrupted(func() { w.add("late", owned("a")) }); r.Left != 1 {
			w.Errorf("the claim was kept although the trigger took it away: %+v", r)
		}
		w.wantQueue("a owner_removed")
		w.drain()
		w.want("")
		w.add("latest", owned("a")) // after the review
		w.drain()
		w.want("")
	})
}

// TestAdoptionAgainstOrphaning: a controller that has not seen the deletion
// takes a dependent back. The finalizer waits for it, and so the dependent
// lives.
func TestAdoptionAgainstOrphaning(t *testing.T) {
	both(t, func(w *world) {
		w.addBody("a", `,"status":{"observedGeneration":1}`)
		w.add("b", owned("a"))
		w.add("c")
		w.delete("a", orphan)
		w.drain()
		w.update("c", owned("a")) // adopted, late
		w.drain()
		w.want("a!(orphan) b<a c<a")
		w.observe("a", 2)
		w.drain()
		w.want("b c")
	})
}

// TestAdoptionDuringOrphaning: the adoption lands between claim and review.
func TestAdoptionDuringOrphaning(t *testing.T) {
	both(t, func(w *world) {
		w.add("a")
		w.add("b", owned("a"))
		w.add("c")
		w.delete("a", orphan)
		w.interrupted(func() { w.update("c", owned("a")) })
		w.drain()
		w.want("b c")
	})
}

func TestBlockerAddedAtTheLastMoment(t *testing.T) {
	both(t, func(w *world) {
		w.add("a")
		w.delete("a", foreground)
		w.interrupted(func() { w.add("b", owned("a^"), finalizers(held)) })
		w.drain()
		w.want("a!(foregroundDeletion) b!(" + held + ")<a")
		w.update("b", finalizers())
		w.drain()
		w.want("")
	})
}

func TestSecondDeleteDuringReview(t *testing.T) {
	both(t, func(w *world) {
		w.add("a")
		w.add("b", owned("a^"))
		w.delete("a", foreground)
		w.interrupted(func() { w.delete("a", orphan) })
		w.drain()
		w.want("b")
	})
}

func TestOwnerRecreatedDuringReview(t *testing.T) {
	both(t, func(w *world) {
		w.add("a")
		w.add("b", owned("a"))
		w.delete("a", background)
		w.interrupted(func() { w.add("a") })
		w.drain()
		w.want("a")
	})
}

// TestLastFinalizerDuringReview: the dependent loses its last finalizer and is removed
// before the review.
func TestLastFinalizerDuringReview(t *testing.T) {
	both(t, func(w *world) {
		w.add("a")
		w.add("b", owned("a^"), finalizers(held))
		w.add("c", owned("b"))
		w.delete("b", background)
		w.delete("a", foreground)
		w.interrupted(func() { w.update("b", finalizers()) })
		w.drain()
		w.want("")
	})
}

// TestTwoReplicas: a replica does not review rows that another has claimed.
func TestTwoReplicas(t *testing.T) {
	both(t, func(w *world) {
		other := w.replica()
		w.add("a")
		w.add("b", owned("a"))
		w.delete("a", background)
		w.interrupted(func() {
			if r := other.turn(); r.Claimed != 0 {
				w.Errorf("the other replica claimed it too: %+v", r)
			}
			other.add("c")
			other.add("d", owned("c"))
			other.delete("c", background)
			if r := other.turn(); r.Claimed != 1 {
				w.Errorf("the other replica did not go on: %+v", r)
			}
		})
		w.want("")
		w.wantQueue("")
	})
}

// TestLeaseEndsDuringReview: a replica whose lease expired during a review, and whose
// row another replica has claimed, changes nothing.
func TestLeaseEndsDuringReview(t *testing.T) {
	both(t, func(w *world) {
		other := w.replica()
		w.add("a")
		w.add("b", owned("a"))
		w.delete("a", background)
		var revision int64
		r := w.interrupted(func() {
			w.clock.Advance(2 * time.Minute)
			other.drain()
			revision = other.store.Revision()
		})
		if r.Left != 1 || r.Acted != 0 {
			w.Errorf("the slow replica acted: %+v", r)
		}
		w.want("")
		if changes := w.changes(); changes[len(changes)-1].revision != revision {
			w.Errorf("something was written after revision %d", revision)
		}
	})
}

// TestCrashBetweenActAndSettle: both are one transaction, so neither happened.
func TestCrashBetweenActAndSettle(t *testing.T) {
	both(t, func(w *world) {
		w.add("a")
		w.add("b", owned("a"))
		w.delete("a", background)
		crash := errors.New("crash")
		w.turnThrough(func(ctx context.Context, fn func(*store.Tx) error) error {
			return w.store.Transact(ctx, func(tx *store.Tx) error { return errors.Join(fn(tx), crash) })
		})
		w.want("b<a")
		w.clock.Advance(time.Hour)
		w.restart()
		w.drain()
		w.want("")
	})
}

// TestCreateInTerminatingNamespace: an object created before the deletion is deleted
// with the namespace; a later create is refused.
func TestCreateInTerminatingNamespace(t *testing.T) {
	both(t, func(w *world) {
		w.addNamespace("n")
		w.delete("namespaces:/n", background)
		w.interrupted(func() { w.add("a", finalizers(held)) }) // as if committed just before
		w.drain()
		w.want("a!(" + held + ") namespaces:/n!")
		m := metav1.ObjectMeta{Name: "b", Namespace: "n", UID: "uid-b"}
		_, err := w.store.Create(context.Background(), store.CreateRequest{
			Key: keyOf("b"), Meta: m, Body: []byte(`{"metadata":{"name":"b"}}`), InNamespace: true,
		})
		if !object.Is(err, object.Terminating) {
			w.Errorf("create: %v", err)
		}
		w.update("a", finalizers())
		w.drain()
		w.want("")
	})
}

// TestPauseDuringReview: running reviews finish, and no other begins.
func TestPauseDuringReview(t *testing.T) {
	both(t, func(w *world) {
		w.add("a")
		w.add("b", owned("a"))
		w.delete("a", background)
		w.interrupted(func() {
			if err := w.gc.Pause(context.Background(), ""); err != nil {
				w.Error(err)
			}
		})
		w.want("")
		w.add("c", owned("missing"))
		if r := w.turn(); !r.Paused {
			w.Errorf("a turn after the pause: %+v", r)
		}
	})
}

// TestPoisonedObject: an object that cannot be parsed does not stop other reviews, and its row has the error.
func TestPoisonedObject(t *testing.T) {
	both(t, func(w *world) {
		for _, name := range []string{"a", "b", "c"} {
			w.add(name)
			w.add(name+"1", owned(name))
			w.delete(name, background)
		}
		w.exec(`UPDATE changes SET body = $1 WHERE name = 'b1'`, []byte(`broken`))
		if r, err := w.gc.RunOne(context.Background()); err != nil || r.Failed != 1 || r.Done != 2 {
			w.Fatalf("turn: %+v, %v", r, err)
		}
		s, err := w.gc.Status(context.Background())
		if err != nil || s.Failing != 1 || len(s.Failures) != 1 || s.Failures[0].Error == "" || s.Failures[0].Attempts != 1 {
			w.Errorf("status %+v, %v", s, err)
		}
		w.exec(`UPDATE changes SET body = $1 WHERE name = 'b1'`,
			[]byte(`{"metadata":{"name":"b1","ownerReferences":[{"uid":"`+string(w.uids["b"])+`"}]}}`))
		w.clock.Advance(time.Hour)
		w.drain()
		w.want("")
	})
}

// TestKilledWithClaims: the collector of a process that was killed has claimed
// reviews. On SQLite the next process has them at once; on PostgreSQL another
// replica may be at work, and the lease has to end.
func TestKilledWithClaims(t *testing.T) {
	both(t, func(w *world) {
		w.add("a")
		w.add("b", owned("a"))
		w.delete("a", background)
		w.claim()
		w.restart()
		if w.db.Engine() == sqldb.Postgres {
			if r := w.turn(); r.Claimed != 0 {
				w.Errorf("another replica's claims were taken: %+v", r)
			}
			w.clock.Advance(time.Hour)
		}
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- w.gc.Run(ctx) }()
		w.eventually("")
		cancel()
		if err := w.ended(ended); err != nil {
			w.Errorf("run: %v", err)
		}
	})
}
