package feed

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/exeunt/exeunt/object"
)

// testFeed is a feed without a log. It is for a bubble of synctest.
type testFeed struct {
	*Feed
	t        *testing.T
	newest   int64
	at       sync.Map // when each revision was committed
	watchers sync.WaitGroup
	ctx      context.Context
	stop     context.CancelFunc
}

func newTestFeed(t *testing.T) *testFeed {
	s := &testFeed{Feed: New(Options{MaxEvents: 1 << 20, MaxBytes: 1 << 30}), t: t}
	s.ctx, s.stop = context.WithCancel(t.Context())
	return s
}

// commit adds one change of a kind.
func (s *testFeed) commit(kind, namespace string) {
	s.newest++
	s.at.Store(s.newest, time.Now())
	o := object.Object{Key: object.Key{Kind: kind, Namespace: namespace, Name: fmt.Sprint(s.newest)}, Revision: s.newest}
	if !s.Add([]*Event{{Type: Created, Object: o}}) {
		s.t.Errorf("the feed has a gap before %d", s.newest)
	}
}

// late is how long ago an event was committed.
func (s *testFeed) late(e *Event) time.Duration {
	at, _ := s.at.Load(e.Object.Revision)
	return time.Since(at.(time.Time))
}

// follow calls send with each result of a watcher, which is what a server does for a client.
func (s *testFeed) follow(r Request, send func([]*Event)) {
	w, err := s.Watch(s.ctx, r)
	if err != nil {
		s.t.Fatal(err)
	}
	s.watchers.Go(func() {
		defer w.Close()
		for {
			events, _, err := w.Next(s.ctx)
			if err != nil {
				return
			}
			if len(events) > 0 {
				send(events)
			}
		}
	})
}

// end waits until the watchers have all, and ends them. No lane may have watchers then.
func (s *testFeed) end() {
	synctest.Wait()
	s.stop()
	s.watchers.Wait()
	for i, l := range s.lanes {
		for kind, t := range s.topics {
			if q := &t.lanes[i]; len(q.waiting)+len(q.due)+q.awake > 0 || l.busy[q] {
				s.t.Errorf("lane %d still has watchers of %s: %+v", i, kind, q)
			}
		}
		if l.awake != 0 || len(l.busy) != 0 {
			s.t.Errorf("lane %d: %d watchers are awake, %d deliveries under way", i, l.awake, len(l.busy))
		}
	}
}

// TestGatherTime: a burst of commits hardly waits. While commits go on, few watchers gather for
// a short time; many wake no more often than their share allows; none waits longer than the
// maximum.
func TestGatherTime(t *testing.T) {
	if first := gatherTime(0, 10_000); first > gatherLeast {
		t.Errorf("the second of two commits waits %s", first)
	}
	for n := 1; n < 10_000; n *= 3 {
		var wait time.Duration
		for range 20 {
			next := gatherTime(wait, n)
			if next < wait || next > gatherMost {
				t.Errorf("%d watchers gather for %s after %s", n, next, wait)
			}
			wait = next
		}
		if wakes := float64(n) / wait.Seconds(); wait < gatherMost && wakes > 1/gatherShare.Seconds()+1 {
			t.Errorf("%d watchers wake %.0f times a second: want at most 1/%s", n, wakes, gatherShare)
		}
	}
}

// TestWatchersWaitForNothing: while the writer does not commit during deliveries, and deliveries do not crowd,
// each watcher gets each change at the time of its commit.
func TestWatchersWaitForNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestFeed(t)
		var seen atomic.Int64
		for range 1000 {
			s.follow(Request{Kind: "k"}, func(events []*Event) {
				for _, e := range events {
					seen.Add(1)
					if late := s.late(e); late > 0 {
						t.Errorf("the change at %d comes after %s", e.Object.Revision, late)
					}
				}
			})
		}
		for range 100 {
			synctest.Wait()
			time.Sleep(1000 * wakeShare)
			s.commit("k", "a")
		}
		s.end()
		if seen.Load() != 100*1000 {
			t.Errorf("the watchers saw %d events", seen.Load())
		}
	})
}

// TestCommitsDuringDeliveries: while the writer commits faster than watchers send, they
// gather. Afterwards the next change comes at once.
func TestCommitsDuringDeliveries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const watchers, commits = 100, 2000
		s := newTestFeed(t)
		var returns, seen, latest atomic.Int64
		for range watchers {
			s.follow(Request{Kind: "k"}, func(events []*Event) {
				returns.Add(1)
				seen.Add(int64(len(events)))
				for _, e := range events {
					late := s.late(e)
					latest.Store(max(latest.Load(), int64(late)))
					if late > 2*gatherMost {
						t.Errorf("the change at %d comes after %s", e.Object.Revision, late)
					}
				}
				time.Sleep(300 * time.Microsecond)
			})
		}
		synctest.Wait()
		for range commits {
			s.commit("k", "a")
			time.Sleep(time.Millisecond / 2)
		}
		if most := int64(2 * time.Second * commits / 2000 / gatherShare); returns.Load() > most {
			t.Errorf("the watchers were woken %d times in %d ms, want at most %d", returns.Load(), commits/2, most)
		}
		time.Sleep(time.Second)
		if seen.Load() != watchers*commits {
			t.Errorf("the watchers saw %d events, want %d", seen.Load(), watchers*commits)
		}
		before := returns.Load()
		s.commit("k", "a")
		synctest.Wait()
		if woken := returns.Load() - before; woken != int64(s.lanes[0].places) {
			t.Errorf("after a second without commits %d watchers are woken at once", woken)
		}
		time.Sleep(time.Second)
		latest.Store(0)
		s.commit("k", "a")
		synctest.Wait()
		s.commit("k", "a")
		time.Sleep(time.Second)
		if late := time.Duration(latest.Load()); late == 0 || late > 5*gatherLeast {
			t.Errorf("after a second without commits, the last of two comes after %s", late)
		}
		s.end()
	})
}

// TestCommitsBetweenDeliveries: a writer that commits often, but never during a delivery, because waking the
// watchers leaves it no processor, makes them gather too. Afterwards the next change comes at once.
func TestCommitsBetweenDeliveries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const watchers, commits = 100, 2000
		s := newTestFeed(t)
		var returns, seen atomic.Int64
		for range watchers {
			s.follow(Request{Kind: "k"}, func(events []*Event) {
				returns.Add(1)
				seen.Add(int64(len(events)))
			})
		}
		for range commits {
			synctest.Wait() // each delivery has ended
			s.commit("k", "a")
			time.Sleep(time.Millisecond)
		}
		if most := int64(2 * commits * time.Millisecond / gatherShare); returns.Load() > most {
			t.Errorf("the watchers were woken %d times in %d ms, want at most %d", returns.Load(), commits, most)
		}
		time.Sleep(time.Second)
		if seen.Load() != watchers*commits {
			t.Errorf("the watchers saw %d events, want %d", seen.Load(), watchers*commits)
		}
		before := seen.Load()
		s.commit("k", "a")
		synctest.Wait()
		if got := seen.Load() - before; got != watchers {
			t.Errorf("after a second without commits %d of %d watchers saw the change at once", got, watchers)
		}
		s.end()
	})
}

// TestFewWatchersAreAwake: whatever the work for an event costs, a commit wakes few watchers
// at once, and the writer waits for none. Watchers that say that they are slow have fewer places,
// and others do not wait for them.
func TestFewWatchersAreAwake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestFeed(t)
		var awake, most [2]atomic.Int64
		var seen atomic.Int64
		for i := range 1500 {
			class := i % 2
			s.follow(Request{Kind: "k", Slow: class == 1}, func(events []*Event) {
				n := awake[class].Add(1)
				for m := most[class].Load(); n > m && !most[class].CompareAndSwap(m, n); m = most[class].Load() {
				}
				time.Sleep(time.Millisecond) // evaluates a selector
				awake[class].Add(-1)
				seen.Add(int64(len(events)))
			})
		}
		synctest.Wait()
		begin := time.Now()
		for range 10 {
			s.commit("k", "a")
		}
		if waited := time.Since(begin); waited > 0 {
			t.Errorf("the writer waits %s", waited)
		}
		for class, l := range s.lanes {
			time.Sleep(time.Second)
			if got := most[class].Load(); got != int64(l.places) {
				t.Errorf("lane %d: %d watchers were awake at once, want %d", class, got, l.places)
			}
		}
		if seen.Load() != 15_000 {
			t.Errorf("the watchers saw %d events", seen.Load())
		}
		s.end()
	})
}

// TestStalledWatchers: watchers whose clients stop reading, or read slowly, hold up the others
// once, and not those of other kinds. They lose nothing themselves.
func TestStalledWatchers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const stalled, prompt = 500, 100
		s := newTestFeed(t)
		var mu sync.Mutex
		var latest time.Duration // guarded by mu
		observe := func(events []*Event) {
			mu.Lock()
			defer mu.Unlock()
			for _, e := range events {
				latest = max(latest, s.late(e))
			}
		}
		takeLatest := func() (d time.Duration) {
			mu.Lock()
			defer mu.Unlock()
			d, latest = latest, 0
			return d
		}
		reads := make(chan struct{})
		var lost atomic.Int64
		for i := range stalled {
			lost.Add(20)
			s.follow(Request{Kind: "k"}, func(events []*Event) {
				if i%2 == 0 {
					<-reads
				}
				time.Sleep(2 * stallTime)
				lost.Add(-int64(len(events)))
			})
		}
		for range prompt {
			s.follow(Request{Kind: "k"}, observe)
		}
		s.follow(Request{Kind: "other"}, func(events []*Event) {
			for _, e := range events {
				if late := s.late(e); late > 2*stallTime {
					t.Errorf("a watcher of another kind waits %s", late)
				}
			}
		})
		synctest.Wait()
		s.commit("k", "a")
		s.commit("other", "a")
		time.Sleep(time.Second)
		chunks := (stalled+prompt)/s.lanes[0].places + 1
		if late := takeLatest(); late > time.Duration(chunks)*2*stallTime {
			t.Errorf("the first event comes after %s", late)
		}
		for range 19 {
			s.commit("k", "a")
			time.Sleep(slowFor / 25)
		}
		if late := takeLatest(); late > 0 {
			t.Errorf("a later event comes after %s", late)
		}
		close(reads)
		time.Sleep(10 * time.Second)
		if lost.Load() != 0 {
			t.Errorf("the stalled watchers lack %d events", lost.Load())
		}
		s.end()
	})
}

// TestDeliveries: random watchers of random kinds, some slow, some with contexts that end
// while they wait, get each of their changes once and in order, whenever the writer commits.
func TestDeliveries(t *testing.T) {
	for seed := range uint64(300) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 5))
			s := newTestFeed(t)
			for _, l := range s.lanes {
				l.places = 1 + random.IntN(4)
			}
			kinds, namespaces := []string{"k", "l"}, []string{"a", "b", ""}
			type follower struct {
				request Request
				got     []string
			}
			var all []*follower
			for i := range 1 + random.IntN(20) {
				f := &follower{request: Request{Kind: kinds[random.IntN(2)], Namespace: namespaces[random.IntN(3)], Slow: random.IntN(4) == 0}}
				all = append(all, f)
				w, err := s.Watch(s.ctx, f.request)
				if err != nil {
					t.Fatal(err)
				}
				own := rand.New(rand.NewPCG(seed, uint64(i)))
				patience := 20 * time.Millisecond
				if own.IntN(2) == 0 {
					patience = time.Hour // nothing but a delivery wakes it
				}
				s.watchers.Go(func() {
					defer w.Close()
					for s.ctx.Err() == nil {
						ctx, cancel := context.WithTimeout(s.ctx, time.Duration(own.Int64N(int64(patience))))
						events, _, err := w.Next(ctx)
						cancel()
						if err != nil && !errors.Is(err, context.DeadlineExceeded) && s.ctx.Err() == nil {
							t.Errorf("seed %d: %v", seed, err)
						}
						for _, e := range events {
							f.got = append(f.got, e.Object.Name)
						}
						if own.IntN(3) == 0 {
							time.Sleep(time.Duration(own.IntN(15_000)) * time.Microsecond)
						}
					}
				})
			}
			type change struct{ kind, namespace, name string }
			var changes []change
			for range 50 {
				c := change{kind: kinds[random.IntN(2)], namespace: namespaces[random.IntN(2)], name: fmt.Sprint(s.newest + 1)}
				changes = append(changes, c)
				s.commit(c.kind, c.namespace)
				time.Sleep(time.Duration(random.IntN(3)*random.IntN(4000)) * time.Microsecond)
			}
			time.Sleep(progressEvery / 2) // before a watcher looks by itself
			s.end()
			for _, f := range all {
				var want []string
				for _, c := range changes {
					if c.kind == f.request.Kind && (f.request.Namespace == "" || c.namespace == f.request.Namespace) {
						want = append(want, c.name)
					}
				}
				if fmt.Sprint(f.got) != fmt.Sprint(want) {
					t.Errorf("seed %d: the watcher of %+v got %v, want %v", seed, f.request, f.got, want)
				}
			}
		})
	}
}
