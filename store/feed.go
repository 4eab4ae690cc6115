package store

import (
	"slices"
	"sort"
	"sync"
	"sync/atomic"
)

// feed holds the newest changes in memory and wakes watchers when there are more.
//
// Invariants: every change with a revision in [first, last] is in events, in
// order; each is also in its kind's topic. A watcher that needs a revision
// before first reads the log in the database, and then returns to the feed.
type feed struct {
	maxEvents, maxBytes int

	seen  atomic.Int64 // last, to be read without the lock
	lanes [2]*lane     // of prompt and of slow watchers

	mu          sync.RWMutex // guards all below
	first, last int64
	events      []*Event
	bytes       int
	topics      map[string]*topic
}

// topic is one kind's part of the feed.
type topic struct {
	events []*Event // guarded by the feed's mu
	lanes  [2]waiters
}

func newFeed(revision int64, maxEvents, maxBytes int) *feed {
	f := &feed{
		maxEvents: maxEvents, maxBytes: maxBytes,
		first: revision + 1, last: revision,
		topics: map[string]*topic{}, lanes: [2]*lane{newLane(awakePerCPU), newLane(slowAwakePerCPU)},
	}
	f.seen.Store(revision)
	return f
}

func (f *feed) revision() int64 { return f.seen.Load() }

// topic finds or makes a kind's topic. Topics are never removed: kinds are few.
func (f *feed) topic(kind string) *topic {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.topicLocked(kind)
}

func (f *feed) topicLocked(kind string) *topic {
	t := f.topics[kind]
	if t == nil {
		t = &topic{}
		f.topics[kind] = t
	}
	return t
}

// add appends changes in revision order and skips those that the feed has. It
// reports false, and adds nothing, if there is a gap before the first new change.
func (f *feed) add(events []*Event) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for len(events) > 0 && events[0].Object.Revision <= f.last {
		events = events[1:]
	}
	if len(events) == 0 {
		return true
	}
	if events[0].Object.Revision != f.last+1 {
		return false
	}
	touched := make(map[*topic]bool, 4)
	for _, e := range events {
		t := f.topicLocked(e.Object.Kind)
		f.push(e, t)
		touched[t] = true
	}
	f.evict()
	f.moveTo(events[len(events)-1].Object.Revision)
	go f.deliver(touched, f.last) // the writer answers first
	return true
}

func (f *feed) push(e *Event, t *topic) {
	f.events = append(f.events, e)
	f.bytes += e.size()
	t.events = append(t.events, e)
}

// evict drops the oldest changes. Each is also the oldest of its topic.
func (f *feed) evict() {
	for len(f.events) > f.maxEvents || f.bytes > f.maxBytes && len(f.events) > 0 {
		e := f.events[0]
		t := f.topics[e.Object.Kind]
		f.events[0], t.events[0] = nil, nil // frees them before the array is reallocated
		f.events, t.events = f.events[1:], t.events[1:]
		f.bytes -= e.size()
		f.first = e.Object.Revision + 1
	}
}

func (f *feed) moveTo(revision int64) {
	f.last = revision
	f.seen.Store(revision)
}

// deliver tells the watchers of some kinds that there may be changes up to a revision.
func (f *feed) deliver(topics map[*topic]bool, revision int64) {
	for t := range topics {
		for i, l := range f.lanes {
			l.changed(&t.lanes[i], revision)
		}
	}
}

// skip moves the feed to a revision without the changes up to it: watchers read
// those from the log.
func (f *feed) skip(revision int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if revision <= f.last {
		return
	}
	f.events, f.bytes, f.first = nil, 0, revision+1
	f.moveTo(revision)
	all := make(map[*topic]bool, len(f.topics))
	for _, t := range f.topics {
		t.events = nil
		all[t] = true
	}
	go f.deliver(all, revision)
}

// begin is the first revision that the feed has. An empty feed returns the next
// revision.
func (f *feed) begin() int64 {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.first
}

// fill inserts older changes, all those in (from, upTo], before the feed's first.
// It does nothing if the feed no longer begins at upTo+1.
func (f *feed) fill(from, upTo int64, events []*Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.first != upTo+1 {
		return
	}
	newer := f.events
	f.events, f.bytes, f.first = nil, 0, from+1
	for _, t := range f.topics {
		t.events = nil
	}
	for _, e := range slices.Concat(events, newer) {
		f.push(e, f.topicLocked(e.Object.Kind))
	}
	f.evict()
}

// collection is the result of collect.
type collection struct {
	events []*Event
	upTo   int64 // every match up to here is in events
	behind bool  // the feed lacks changes after from: read the log up to upTo
}

// collect returns the matching changes after revision from, at most limit.
func (f *feed) collect(t *topic, r *WatchRequest, from int64, limit int) collection {
	f.mu.RLock()
	defer f.mu.RUnlock()
	c := collection{upTo: f.last}
	if from+1 < f.first && from < f.last {
		c.behind = true
		return c
	}
	start := sort.Search(len(t.events), func(i int) bool { return t.events[i].Object.Revision > from })
	for _, e := range t.events[start:] {
		if !r.matches(&e.Object.Key) {
			continue
		}
		if len(c.events) == limit {
			c.upTo = c.events[limit-1].Object.Revision
			break
		}
		c.events = append(c.events, e)
	}
	c.upTo = max(c.upTo, from)
	return c
}
