package gc

import (
	"context"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

func TestPause(t *testing.T) {
	each(t, func(w *world) {
		other := w.replica()
		ctx := context.Background()
		if paused, err := other.gc.Paused(ctx); err != nil || paused {
			w.Fatalf("paused at first: %v, %v", paused, err)
		}
		if err := w.gc.Pause(ctx, "looking into it"); err != nil {
			w.Fatal(err)
		}
		w.add("a")
		w.add("b", owned("a"))
		w.delete("a", background)
		if r := w.turn(); !r.Paused {
			w.Errorf("a turn while paused: %+v", r)
		}
		w.want("b<a")
		w.wantQueue("a owner_removed") // nothing is forgotten

		other.awaitPause()
		w.restart()
		if r := w.turn(); !r.Paused {
			w.Errorf("a turn after a restart: %+v", r)
		}
		if s, err := w.gc.Status(ctx); err != nil || !s.Paused || s.Reason != "looking into it" || s.Depth != 1 || s.Overdue != 1 {
			w.Errorf("status %+v, %v", s, err)
		}
		if err := w.gc.Resume(ctx); err != nil {
			w.Fatal(err)
		}
		w.drain()
		w.want("")
	})
}

// awaitPause waits until the collector has read the pause.
func (w *world) awaitPause() {
	w.Helper()
	w.await("the other replica has read the pause", func() bool {
		paused, err := w.gc.Paused(context.Background())
		if err != nil {
			w.Fatal(err)
		}
		return paused
	})
}

// TestRun is the loop as a server runs it: it scans once, and a write wakes it. Polling is off.
func TestRun(t *testing.T) {
	dbtest.EachParallel(t, func(t *testing.T, db *sqldb.DB) {
		w := newWorld(t, db, Options{Poll: time.Hour})
		w.add("lost", owned("missing"))
		w.exec(`DELETE FROM gc_object_reviews`)
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- w.gc.Run(ctx) }()
		w.eventually("")
		w.add("a")
		w.add("b", owned("a"))
		w.delete("a", background)
		w.eventually("")
		cancel()
		if err := w.ended(ended); err != nil {
			w.Errorf("run: %v", err)
		}
	})
}

// eventually waits for a state.
func (w *world) eventually(want string) {
	w.Helper()
	w.await("the state is "+want, func() bool { return w.state() == want })
}

// TestAnotherReplicaWrites: a row that one replica enqueues wakes the collectors of
// the others, by notification: polling is off in this test.
func TestAnotherReplicaWrites(t *testing.T) {
	w := newWorld(t, dbtest.OpenDB(t, sqldb.Postgres), Options{Poll: time.Hour})
	other := w.replica()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- other.gc.Run(ctx) }()
	said := 0
	w.await("the other replica to listen", func() bool {
		w.add(fmt.Sprintf("hello%d", said))
		said++
		time.Sleep(5 * time.Millisecond)
		return other.store.Revision() >= w.store.Revision()
	})
	before := w.state()
	for i := range 5 { // the first may be found by a look that was under way
		name := fmt.Sprintf("a%d", i)
		w.add(name)
		w.add(name+"-b", owned(name))
		w.delete(name, background)
		w.eventually(before)
	}
	cancel()
	if err := w.ended(ended); err != nil {
		t.Errorf("run: %v", err)
	}
}

// TestPauseReachesRunningReplicas: the loops of all replicas stop after a pause, and go on after
// its end.
func TestPauseReachesRunningReplicas(t *testing.T) {
	w := newWorld(t, dbtest.OpenDB(t, sqldb.Postgres), Options{Poll: time.Hour})
	other := w.replica()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- other.gc.Run(ctx) }()
	if err := w.gc.Pause(ctx, "a test"); err != nil {
		t.Fatal(err)
	}
	other.awaitPause()
	w.add("a")
	w.add("b", owned("a"))
	w.delete("a", background)
	w.await("the other replica to hear of it", func() bool { // its collector is woken then
		return other.store.Revision() >= w.store.Revision()
	})
	w.want("b<a")
	if err := w.gc.Resume(ctx); err != nil {
		t.Fatal(err)
	}
	w.eventually("")
	cancel()
	if err := w.ended(ended); err != nil {
		t.Errorf("run: %v", err)
	}
}

// TestUnreadable: while a part of the database cannot be read, the collector answers with an error or rightly, and does not say
// that it was paused when it was not.
func TestUnreadable(t *testing.T) {
	t.Parallel()
	w := newArchivingWorld(t, dbtest.OpenDB(t, sqldb.SQLite), Options{})
	w.add("a")
	w.add("b", owned("a"))
	w.add("c", owned("b"))
	w.delete("a", background)
	ctx, cascade := t.Context(), string(w.uids["a"])
	for _, ask := range []func() (any, error){
		func() (any, error) { return w.gc.Status(ctx) },
		func() (any, error) { return Remaining(ctx, w.store.Reader(), w.kinds.Snapshot(), cascade) },
		func() (any, error) { return RemovedOwners(ctx, w.store.Reader(), []types.UID{w.uids["a"]}) },
		func() (any, error) {
			if err := w.gc.Pause(ctx, "why"); err != nil {
				return nil, err
			}
			_, reason, err := ReadPaused(ctx, w.store.Reader())
			if err != nil {
				return err, nil // it said that it was done
			}
			return reason, nil
		},
		func() (any, error) {
			if err := w.gc.Resume(ctx); err != nil {
				return nil, err
			}
			paused, _, err := ReadPaused(ctx, w.store.Reader())
			if err != nil {
				return err, nil
			}
			return paused, nil
		},
	} {
		dbtest.Unreadable(t, w.db, "archive archive_cascades changes gc_admission_reviews gc_object_reviews gc_state objects owners", ask)
	}
}
