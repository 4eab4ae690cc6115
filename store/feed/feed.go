// Package feed keeps the newest changes to objects in memory, in revision order, and brings them to
// watchers. It promises:
//
//   - A watcher gets each of its changes once, in revision order, without gaps.
//   - A slow watcher is never cut off. One that is behind the changes in memory reads the log. Only
//     compaction ends it, with object.Expired.
//   - Who adds changes waits for no watcher.
//
// It has no SQL and knows neither bodies nor kinds: the store adds what was committed, and reads the
// log for it. Begin at [Feed.Watch].
package feed

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"github.com/exeunt/exeunt/internal/task"
	"github.com/exeunt/exeunt/object"
)

// Options are what a Feed needs.
type Options struct {
	// Revision is the newest revision; the feed begins behind it.
	Revision int64
	// MaxEvents and MaxBytes bound the changes in memory.
	MaxEvents, MaxBytes int

	// ReadLog reads the changes in (from, to] that a request selects, in order. It may stop early; upTo
	// is the revision that it reached.
	ReadLog func(ctx context.Context, r *Request, from, to int64) (events []*Event, upTo int64, err error)
	// Compacted reads the revision that the log is compacted to.
	Compacted func(ctx context.Context) (int64, error)
	// Closed ends all watches with ErrClosed when it is closed.
	Closed <-chan struct{}
	Logger *slog.Logger
}

// ErrClosed is the error of watches after the end.
var ErrClosed = errors.New("the store has been closed")

// readTimeout bounds a step through the log: a watch waits no longer than this for a connection.
const readTimeout = 30 * time.Second

// Feed holds the newest changes in memory and wakes watchers when there are more. It is safe for
// concurrent use.
//
// Invariants: every change with a revision in [first, last] is in events, in
// order; each is also in its kind's topic. A watcher that needs a revision
// before first reads the log in the database, and then returns to the feed.
type Feed struct {
	opts Options

	seen    atomic.Int64 // last, to be read without the lock
	removed atomic.Int64
	lanes   [2]*lane // of prompt and of slow watchers

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

// New makes a feed without changes.
func New(o Options) *Feed {
	f := &Feed{
		opts: o, first: o.Revision + 1, last: o.Revision,
		topics: map[string]*topic{}, lanes: [2]*lane{newLane(awakePerCPU), newLane(slowAwakePerCPU)},
	}
	f.seen.Store(o.Revision)
	return f
}

// Revision is the newest revision that watchers can have seen.
func (f *Feed) Revision() int64 { return f.seen.Load() }

// Removed counts the objects that were removed while the feed was there, by any replica. Events, which
// go by the thousand at their time, do not count.
func (f *Feed) Removed() int64 { return f.removed.Load() }

// topic finds or makes a kind's topic. Topics are never removed: kinds are few.
func (f *Feed) topic(kind string) *topic {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.topicLocked(kind)
}

func (f *Feed) topicLocked(kind string) *topic {
	t := f.topics[kind]
	if t == nil {
		t = &topic{}
		f.topics[kind] = t
	}
	return t
}

// Add appends changes in revision order and skips those that the feed has. It
// reports false, and adds nothing, if there is a gap before the first new change.
func (f *Feed) Add(events []*Event) bool {
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
		if e.Type == Removed && e.Object.Kind != object.Events {
			f.removed.Add(1)
		}
	}
	f.evict()
	f.moveTo(events[len(events)-1].Object.Revision)
	go f.deliver(touched, f.last) // the writer answers first
	return true
}

func (f *Feed) push(e *Event, t *topic) {
	f.events = append(f.events, e)
	f.bytes += e.Size()
	t.events = append(t.events, e)
}

// evict drops the oldest changes. Each is also the oldest of its topic.
func (f *Feed) evict() {
	for len(f.events) > f.opts.MaxEvents || f.bytes > f.opts.MaxBytes && len(f.events) > 0 {
		e := f.events[0]
		t := f.topics[e.Object.Kind]
		f.events[0], t.events[0] = nil, nil // frees them before the array is reallocated
		f.events, t.events = f.events[1:], t.events[1:]
		f.bytes -= e.Size()
		f.first = e.Object.Revision + 1
	}
}

func (f *Feed) moveTo(revision int64) {
	f.last = revision
	f.seen.Store(revision)
}

// deliver tells the watchers of some kinds that there may be changes up to a revision.
func (f *Feed) deliver(topics map[*topic]bool, revision int64) {
	for t := range topics {
		for i, l := range f.lanes {
			l.changed(&t.lanes[i], revision)
		}
	}
}

// Skip moves the feed to a revision, its own or a newer one, without the changes up to it:
// watchers read those from the log.
func (f *Feed) Skip(revision int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if revision < f.last {
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

// Keep repeats work until ctx ends, and then returns nil. Work brings something up to date and then follows the changes
// after the revision that it is given, so that it sees every change in one of the two ways. Keep logs its error, and waits a
// second before the next try; it does not wait if the feed went on without the work.
func (f *Feed) Keep(ctx context.Context, log *slog.Logger, failed string, work func(from int64) error) error {
	for ctx.Err() == nil {
		err := work(f.Revision())
		if err == nil || ctx.Err() != nil || object.Is(err, object.Expired) {
			continue
		}
		log.Warn(failed+"; the next try is in a second", "error", err)
		task.Sleep(ctx, time.Second)
	}
	return nil
}

// Begin is the first revision that the feed has. An empty feed returns the next
// revision.
func (f *Feed) Begin() int64 {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.first
}

// Fill inserts older changes, all those in (from, upTo], before the feed's first.
// It does nothing if the feed no longer begins at upTo+1.
func (f *Feed) Fill(from, upTo int64, events []*Event) {
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

// Since returns the changes after a revision. It returns none if the feed does not have all of
// them any more.
func (f *Feed) Since(revision int64) []*Event {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if revision+1 < f.first {
		return nil
	}
	return slices.Clone(f.events[after(f.events, revision):])
}

// after is the index of the first change after a revision.
func after(events []*Event, revision int64) int {
	return sort.Search(len(events), func(i int) bool { return events[i].Object.Revision > revision })
}

// Collection is the result of Collect.
type Collection struct {
	Events []*Event
	UpTo   int64 // every match up to here is in Events
	Behind bool  // the feed lacks changes after from: read the log up to UpTo
}

// Collect returns the matching changes after revision from, at most limit.
func (f *Feed) Collect(r *Request, from int64, limit int) Collection {
	return f.collect(f.topic(r.Kind), r, from, limit)
}

func (f *Feed) collect(t *topic, r *Request, from int64, limit int) Collection {
	f.mu.RLock()
	defer f.mu.RUnlock()
	c := Collection{UpTo: f.last}
	if from+1 < f.first && from < f.last {
		c.Behind = true
		return c
	}
	for _, e := range t.events[after(t.events, from):] {
		if !r.matches(&e.Object.Key) {
			continue
		}
		if len(c.Events) == limit {
			c.UpTo = c.Events[limit-1].Object.Revision
			break
		}
		c.Events = append(c.Events, e)
	}
	c.UpTo = max(c.UpTo, from)
	return c
}

// Expired is the error of a read or a watch from a revision that was compacted.
func Expired(asked, compacted int64) error {
	return object.Errorf(object.Expired, "too old resource version: %d (%d)", asked, compacted)
}

// EventType says what happened to an object. The values are stored.
type EventType int

// The types of events.
const (
	Created EventType = iota + 1
	Updated
	Removed
)

// Event is one change to one object. Events are shared by all watchers and
// must not be changed.
type Event struct {
	Type EventType
	// Object is the state after the change. For Removed it is the last body,
	// at the revision of the removal.
	Object object.Object
	// Previous is the body before an update.
	Previous []byte

	Unreadable error // a body could not be unsealed; set once

	cache atomic.Pointer[cached] // linked list; entries are added at the head and never removed
	mu    sync.Mutex             // held while make runs
}

type cached struct {
	key   any
	value []byte
	next  *cached
}

// Cached returns the cached value for key, and calls make once to create it.
// Encoders use it to encode an event once for all watchers. key must be
// comparable; make must not call Cached.
func (e *Event) Cached(key any, make func() []byte) []byte {
	if c := e.find(key); c != nil {
		return c.value
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if c := e.find(key); c != nil {
		return c.value
	}
	c := &cached{key: key, value: make(), next: e.cache.Load()}
	e.cache.Store(c)
	return c.value
}

func (e *Event) find(key any) *cached {
	for c := e.cache.Load(); c != nil; c = c.next {
		if c.key == key {
			return c
		}
	}
	return nil
}

// Size is about the bytes that the event takes in memory, with one cached frame.
func (e *Event) Size() int {
	return 2*len(e.Object.Body) + len(e.Previous) + 512
}
