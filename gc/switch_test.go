package gc

import (
	"context"
	"testing"
	"time"
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

		// Another replica, within a second.
		deadline := time.Now().Add(time.Second)
		for paused := false; !paused; {
			if time.Now().After(deadline) {
				w.Fatal("the other replica goes on after a second")
			}
			time.Sleep(20 * time.Millisecond)
			var err error
			if paused, err = other.gc.Paused(ctx); err != nil {
				w.Fatal(err)
			}
		}
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

// TestRun is the loop as a server runs it: it scans first, and a write wakes it.
func TestRun(t *testing.T) {
	each(t, func(w *world) {
		w.add("lost", owned("nobody"))
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
		if err := <-ended; err != nil {
			w.Errorf("run: %v", err)
		}
	})
}

// eventually waits for a state; sooner than the queue is looked at unasked.
func (w *world) eventually(want string) {
	w.Helper()
	deadline := time.Now().Add(4 * time.Second)
	for w.state() != want {
		if time.Now().After(deadline) {
			w.Fatalf("state %q, want %q", w.state(), want)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
