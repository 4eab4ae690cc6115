package feed

import (
	"runtime"
	"sync"
	"time"
)

// A commit begins a delivery: it wakes the watchers of the kind that wait. Few of them are awake
// at once, and one that has sent its events wakes the next. So a write and its answer never queue
// for a processor behind all watchers. A watcher takes all changes that there are when it wakes.
//
// A delivery begins at once, unless there is something to gain by waiting: if the writer
// committed during the last delivery, because commits are frequent, processors are short or
// clients read slowly, the next one waits until gatherTime after the beginning of the last, so
// that one wake-up, one frame and one system call carry several changes. The same holds after
// crowdLeast deliveries that followed each other within wakeShare for each watcher: then waking them takes
// the processors from the writer, which commits only between deliveries.
//
// If no watcher of a delivery finishes for stallTime, those that are awake lose their places: the
// delivery goes on without them. A watcher that needed longer than stallTime, because its client
// does not read or its work is expensive, is in the slow lane for slowFor. That lane has places
// and deliveries of its own, so prompt watchers wait for slow ones once. Watchers that say that
// they are slow are always there.
const (
	awakePerCPU     = 16 // watchers that are awake at once, for each processor
	slowAwakePerCPU = 2  // the same in the slow lane
	stallTime       = 5 * time.Millisecond
	slowFor         = 10 * time.Second

	gatherLeast = time.Millisecond
	gatherShare = 200 * time.Microsecond
	gatherMost  = 32 * time.Millisecond

	wakeShare  = 40 * time.Microsecond
	crowdLeast = 8
)

// gatherTime is how long after the beginning of a delivery to n watchers, during which the
// writer committed, the next one begins. last is the gatherTime of the delivery itself, 0 if it
// began at once. A burst of commits hardly waits. While commits go on, the time doubles with
// each delivery until all watchers together wake about 1/gatherShare times a second.
func gatherTime(last time.Duration, n int) time.Duration {
	return min(max(2*last, gatherLeast), time.Duration(n)*gatherShare, gatherMost)
}

// lane wakes watchers. A watcher is in one lane while it waits and until it has finished.
type lane struct {
	places int // how many watchers are awake at once

	mu       sync.Mutex // guards all below, and the waiters of this lane
	awake    int        // watchers that have a place
	checking bool       // check will be called
	turns    []*waiters // those with due watchers: each gets one place in turn
	busy     map[*waiters]bool
}

// waiters are the watchers of one kind in a lane. Guarded by the lane's mu.
type waiters struct {
	newest       int64      // revision of the newest change
	waiting, due []*Watcher // due: to be woken by the present delivery
	awake        int        // watchers of the present delivery that have a place
	epoch        int        // when it changes, watchers that are awake lose their places
	finished     bool       // one has finished since the last check
	size         int        // watchers of the present delivery
	began        time.Time
	again        bool          // there was a change since it began
	gathering    bool          // it has ended, and the next one will begin
	gather       time.Duration // see gatherTime
	crowd        int           // deliveries in a row that followed each other closely
}

func newLane(perCPU int) *lane {
	return &lane{places: perCPU * runtime.GOMAXPROCS(0), busy: map[*waiters]bool{}}
}

// changed begins a delivery, or makes one follow the present one.
func (l *lane) changed(q *waiters, revision int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	q.newest = max(q.newest, revision)
	if l.busy[q] {
		q.again = true
		return
	}
	if time.Since(q.began) >= time.Duration(len(q.waiting))*wakeShare {
		q.crowd, q.gather = 0, 0
	} else if q.crowd++; q.crowd > crowdLeast {
		l.busy[q] = true
		l.beginLater(q, len(q.waiting))
		return
	}
	l.begin(q)
}

// beginLater begins the next delivery after the gatherTime of n watchers. It requires mu.
func (l *lane) beginLater(q *waiters, n int) {
	q.gathering, q.gather = true, gatherTime(q.gather, n)
	time.AfterFunc(q.gather-time.Since(q.began), func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.begin(q)
	})
}

// begin requires mu.
func (l *lane) begin(q *waiters) {
	q.waiting, q.due = q.due[:0], q.waiting
	q.size, q.began, q.again, q.gathering = len(q.due), time.Now(), false, false
	l.busy[q] = true
	if q.size > 0 {
		l.turns = append(l.turns, q)
	}
	l.end(q)
	l.wake()
}

// wake gives the free places to due watchers. It requires mu.
func (l *lane) wake() {
	for l.awake < l.places && len(l.turns) > 0 {
		q := l.turns[0]
		l.turns = l.turns[1:]
		if last := len(q.due) - 1; last >= 0 { // not if all have left
			w := q.due[last]
			q.due[last], q.due = nil, q.due[:last]
			w.place = q.epoch
			w.awake = true
			w.ready <- struct{}{}
			l.awake++
			q.awake++
		}
		if len(q.due) > 0 {
			l.turns = append(l.turns, q)
		}
	}
	if l.awake > 0 && !l.checking {
		l.checking = true
		time.AfterFunc(stallTime, l.check)
	}
}

// end ends a delivery if all its watchers have finished. It requires mu.
func (l *lane) end(q *waiters) {
	if len(q.due) > 0 || q.awake > 0 || q.gathering {
		return
	}
	if !q.again {
		delete(l.busy, q)
		return
	}
	l.beginLater(q, q.size)
}

// check takes their places away from the watchers of each delivery in which none has finished
// since the last check.
func (l *lane) check() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for q := range l.busy {
		if !q.finished && q.awake > 0 {
			q.epoch++
			l.awake -= q.awake
			q.awake = 0
			l.end(q)
		}
		q.finished = false
	}
	l.checking = false
	l.wake()
}

// where is the watcher's lane, and its place there.
func (w *Watcher) where() (*lane, *waiters) {
	return w.feed.lanes[w.lane], &w.topic.lanes[w.lane]
}

// join makes the watcher wait for changes after its position. It reports false if there are some
// that no delivery will bring.
func (w *Watcher) join() bool {
	w.lane = 0
	if w.request.Slow || time.Now().Before(w.slowUntil) {
		w.lane = 1
	}
	l, q := w.where()
	l.mu.Lock()
	defer l.mu.Unlock()
	if q.newest > w.pos {
		if !l.busy[q] {
			return false
		}
		q.again = true
	}
	w.index = len(q.waiting)
	q.waiting = append(q.waiting, w)
	return true
}

// leave undoes join. A watcher that was woken meanwhile keeps its place.
func (w *Watcher) leave() {
	l, q := w.where()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, list := range []*[]*Watcher{&q.waiting, &q.due} {
		all := *list
		if w.index >= len(all) || all[w.index] != w {
			continue
		}
		last := len(all) - 1
		all[w.index] = all[last]
		all[w.index].index = w.index
		all[last], *list = nil, all[:last]
		if list == &q.due {
			l.end(q)
		}
		return
	}
	<-w.ready
	w.woken = time.Now()
}

// finish gives the watcher's place, if it has one, to the next watcher.
func (w *Watcher) finish() {
	if !w.awake {
		return
	}
	w.awake = false
	if now := time.Now(); now.Sub(w.woken) > stallTime {
		w.slowUntil = now.Add(slowFor)
	}
	l, q := w.where()
	l.mu.Lock()
	defer l.mu.Unlock()
	if w.place != q.epoch {
		return
	}
	q.finished = true
	q.awake--
	l.awake--
	l.end(q)
	l.wake()
}
