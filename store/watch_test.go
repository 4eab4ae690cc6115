package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

func TestWatchEvents(t *testing.T) {
	each(t, func(t *testing.T, s running) {
		first := create(t, s.Store, newRequest("a", "one"))
		second := change(t, s.Store, first, "new")
		gone := remove(t, s.Store, first.Key)
		other := create(t, s.Store, newRequest("b", "one"))
		last := create(t, s.Store, newRequest("a", "two"))
		want := func(r WatchRequest, want ...string) {
			t.Helper()
			var got []string
			events, upTo, err := watch(t, s.Store, r).Next(t.Context())
			for _, e := range events {
				got = append(got, fmt.Sprintf("%d %s <- %s", e.Type, line(e.Object), e.Previous))
			}
			if diff := cmp.Diff(want, got); diff != "" || err != nil || upTo != last.Revision {
				t.Errorf("watch %+v: up to %d, %v\n%s", r, upTo, err, diff)
			}
		}
		e1 := fmt.Sprintf("1 %s <- ", line(first))
		e2 := fmt.Sprintf("2 %s <- %s", line(second), first.Body)
		e3 := fmt.Sprintf("3 %s <- ", line(gone.Object))
		e4 := fmt.Sprintf("1 %s <- ", line(other))
		e5 := fmt.Sprintf("1 %s <- ", line(last))
		for _, source := range []string{"feed", "log"} {
			want(WatchRequest{}, e1, e2, e3, e4, e5)
			want(WatchRequest{From: first.Revision}, e2, e3, e4, e5)
			want(WatchRequest{Namespace: "a"}, e1, e2, e3, e5)
			want(WatchRequest{Namespace: "a", Name: "one"}, e1, e2, e3)
			want(WatchRequest{Name: "one", From: second.Revision}, e3, e4)
			if t.Failed() {
				t.Fatalf("from the %s", source)
			}
			// Forget the feed: now the same has to come from the log.
			forget(s.feed)
		}
		for _, bad := range []WatchRequest{{}, {Kind: things, From: -1}} {
			_, err := s.Watch(t.Context(), bad)
			wantCode(t, err, object.BadRequest)
		}
	})
}

func TestWatchWaits(t *testing.T) {
	each(t, func(t *testing.T, s running) {
		now := s.Revision()
		future := watch(t, s.Store, WatchRequest{From: now + 1})
		short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		if events, _, err := future.Next(short); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("nothing happened, but: %v, %v", events, err)
		}
		arrived := make(chan []*Event, 1)
		go func() {
			events, _, err := future.Next(t.Context())
			if err != nil {
				t.Error(err)
			}
			arrived <- events
		}()
		create(t, s.Store, newRequest("a", "skipped"))
		create(t, s.Store, newRequest("a", "seen"))
		if events := <-arrived; len(events) != 1 || events[0].Object.Name != "seen" {
			t.Errorf("watch from the future saw %d events", len(events))
		}
	})
}

// TestWatchReportsProgress: a watcher without events still gets the revision of the
// feed, about once a second at most.
func TestWatchReportsProgress(t *testing.T) {
	each(t, func(t *testing.T, s running) {
		w := watch(t, s.Store, WatchRequest{Kind: "quiet", From: s.Revision()})
		const progressEvery = time.Second
		begin := time.Now()
		last := create(t, s.Store, newRequest("a", "one"))
		events, upTo, err := w.Next(t.Context())
		if err != nil || len(events) != 0 || upTo != last.Revision {
			t.Fatalf("got %d events up to %d, %v", len(events), upTo, err)
		}
		if took := time.Since(begin); took < progressEvery/2 {
			t.Errorf("progress after %v already", took)
		}
		short, cancel := context.WithTimeout(t.Context(), progressEvery+progressEvery/2)
		defer cancel()
		if _, upTo, err := w.Next(short); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("nothing moved, but: up to %d, %v", upTo, err)
		}
		later := create(t, s.Store, newRequest("a", "two"))
		if _, upTo, err := w.Next(t.Context()); err != nil || upTo != later.Revision {
			t.Errorf("got up to %d, %v", upTo, err)
		}
	})
}

func TestCloseEndsWatchers(t *testing.T) {
	each(t, func(t *testing.T, s running) {
		w := watch(t, s.Store, WatchRequest{From: s.Revision()})
		ended := make(chan error, 1)
		go func() {
			_, _, err := w.Next(t.Context())
			ended <- err
		}()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if err := <-ended; !errors.Is(err, errClosed) {
			t.Errorf("watcher ended with %v", err)
		}
		if _, err := s.Create(t.Context(), newRequest("a", "one")); !errors.Is(err, errClosed) {
			t.Errorf("create after close: %v", err)
		}
	})
}

// churn creates, updates and removes objects from several goroutines, each with
// names of its own.
func churn(t *testing.T, s *Store, prefix string, writers, steps int) {
	t.Helper()
	var running sync.WaitGroup
	for n := range writers {
		random := rand.New(rand.NewPCG(uint64(n), 3))
		running.Go(func() {
			live := map[string]object.Object{}
			for range steps {
				name := fmt.Sprintf("%s-%d-%d", prefix, n, random.IntN(5))
				o, exists := live[name]
				switch {
				case !exists:
					live[name] = create(t, s, newRequest("a", name))
				case random.IntN(3) > 0:
					live[name] = change(t, s, o, fmt.Sprint(random.Int()))
				default:
					remove(t, s, o.Key)
					delete(live, name)
				}
			}
		})
	}
	running.Wait()
}

// check compares a replay with the list of the same revision.
func (r *replay) check(s *Store) {
	r.t.Helper()
	lines, _, _ := list(r.t, s, ListRequest{})
	if len(lines) != len(r.objects) {
		r.t.Errorf("replay has %d objects, list %d", len(r.objects), len(lines))
	}
	listed := map[string]bool{}
	for _, l := range lines {
		listed[l] = true
	}
	for _, o := range r.objects {
		if !listed[line(o)] {
			r.t.Errorf("replay has %s, list has not", line(o))
		}
	}
}

// TestReplay is the basic property: a watcher that starts at 0, while clients
// write, ends with exactly the final list; fast or slow, from memory or from the
// log.
func TestReplay(t *testing.T) {
	for _, ring := range []struct {
		name          string
		events, bytes int
	}{{"everything in the ring", 0, 0}, {"hardly anything in the ring", 3, 0}, {"few bytes in the ring", 0, 2000}} {
		t.Run(ring.name, func(t *testing.T) {
			dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
				s := run(t, Options{DB: db, RingEvents: ring.events, RingBytes: ring.bytes})
				var final atomic.Int64
				final.Store(1 << 60)
				var watchers sync.WaitGroup
				replays := make([]*replay, 6)
				for i := range replays {
					r, w := newReplay(t, 0), watch(t, s.Store, WatchRequest{})
					replays[i] = r
					watchers.Go(func() {
						for upTo := int64(0); upTo < final.Load(); {
							events, to, err := w.Next(t.Context())
							if err != nil {
								t.Errorf("watcher %d: %v", i, err)
								return
							}
							for _, e := range events {
								r.apply(e)
							}
							upTo = to
							time.Sleep(time.Duration(i) * 5 * time.Millisecond) // some are slow
						}
					})
				}
				churn(t, s.Store, "w", 6, 60)
				final.Store(s.Revision())
				create(t, s.Store, newRequest("a", "last")) // wakes who has seen all
				watchers.Wait()
				for _, r := range replays {
					if r.last <= final.Load() {
						r.follow(watch(t, s.Store, WatchRequest{From: max(r.last, final.Load())}), final.Load()+1)
					}
					r.check(s.Store)
				}
			})
		})
	}
}

func TestReplayAcrossReopening(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		r := newReplay(t, 0)
		for round := range 3 {
			s := run(t, Options{DB: db})
			w := watch(t, s.Store, WatchRequest{From: r.last})
			churn(t, s.Store, fmt.Sprint("round", round), 3, 20)
			half := r.last + (s.Revision()-r.last)/2
			r.follow(w, half) // may leave some to the next round
			s.stop()
		}
		s := run(t, Options{DB: db})
		r.follow(watch(t, s.Store, WatchRequest{From: r.last}), s.Revision())
		r.check(s.Store)
	})
}

func TestCached(t *testing.T) {
	var e Event
	var calls atomic.Int64
	var running sync.WaitGroup
	for range 50 {
		running.Go(func() {
			for _, key := range []any{"a", 1, struct{ v int }{2}} {
				value := e.Cached(key, func() []byte {
					calls.Add(1)
					return fmt.Append(nil, key)
				})
				if string(value) != fmt.Sprint(key) {
					t.Errorf("%v is %s", key, value)
				}
			}
		})
	}
	running.Wait()
	if calls.Load() != 3 {
		t.Errorf("made %d times", calls.Load())
	}
	if n := testing.AllocsPerRun(100, func() { e.Cached("a", nil) }); n != 0 {
		t.Errorf("%v allocations when cached", n)
	}
}
