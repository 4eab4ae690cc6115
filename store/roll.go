package store

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/object"
)

// A roll is who was there when a kind was last listed in full, in a namespace
// or in all: names and revisions, in order. The next such list brings the roll
// up to the present with the feed's changes instead of reading every head
// again, and takes the bodies from their cache.
//
// It is right on every replica. The state at a revision and all changes since
// are the state now; the feed has either all of them or says that it has not;
// and the database is asked for its revision first, so that a list is never
// older than a write that was answered anywhere before it began.
type roll struct {
	revision int64
	entries  []entry // in order of (namespace, name); shared, never changed
	used     int64   // when it was last asked for; guarded by rolls.mu
}

type entry struct {
	namespace, name string
	uid             types.UID
	revision        int64
}

func (e *entry) compare(to *entry) int {
	return cmp.Or(cmp.Compare(e.namespace, to.namespace), cmp.Compare(e.name, to.name))
}

const (
	// rollEntries is how many entries all rolls have together, at about 130
	// bytes each.
	rollEntries = 50_000
	// rollAdvance is how many changes a roll is brought forward by. Past that
	// the heads are read again.
	rollAdvance = 2_048
)

type rollKey struct{ kind, namespace string }

// rolls keeps the rolls that were asked for last.
type rolls struct {
	limit int // entries of all together

	mu    sync.Mutex
	kept  map[rollKey]*roll // guarded by mu
	total int               // entries of kept; guarded by mu
	clock int64             // counts requests; guarded by mu
}

func newRolls(limit int) *rolls {
	return &rolls{limit: limit, kept: map[rollKey]*roll{}}
}

func (r *rolls) get(key rollKey) *roll {
	r.mu.Lock()
	defer r.mu.Unlock()
	found := r.kept[key]
	if found != nil {
		r.clock++
		found.used = r.clock
	}
	return found
}

// put keeps a roll unless there is a newer one, and forgets those that were
// not asked for the longest.
func (r *rolls) put(key rollKey, made *roll) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if old := r.kept[key]; old != nil && old.revision >= made.revision {
		return
	}
	r.drop(key)
	r.clock++
	made.used = r.clock
	r.kept[key] = made
	r.total += len(made.entries)
	for r.total > r.limit {
		var oldest rollKey
		least := r.clock + 1
		for k, kept := range r.kept {
			if kept.used < least {
				oldest, least = k, kept.used
			}
		}
		r.drop(oldest)
	}
}

func (r *rolls) forget(key rollKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drop(key)
}

// drop is for the holder of mu.
func (r *rolls) drop(key rollKey) {
	if old := r.kept[key]; old != nil {
		r.total -= len(old.entries)
		delete(r.kept, key)
	}
}

// rolled says which roll a request can be answered from, or can make.
func (r *ListRequest) rolled() (rollKey, bool) {
	whole := r.Name == "" && r.Limit == 0 && r.Revision == 0 && r.AfterNamespace == "" && r.AfterName == ""
	return rollKey{r.Kind, r.Namespace}, whole
}

// callRoll answers a listing from a roll. False: there is none that is new
// enough, or a body has to be read; the database is to be asked.
func (s *Store) callRoll(ctx context.Context, l *Listing) (bool, error) {
	key, ok := l.request.rolled()
	if !ok {
		return false, nil
	}
	kept := s.rolls.get(key)
	if kept == nil {
		return false, nil
	}
	current, _, err := s.revisions(ctx)
	if err != nil {
		return false, err
	}
	kept = s.forward(key, kept, current)
	if kept == nil {
		return false, nil
	}
	bodies, ok := s.bodies.getAll(kept.entries)
	if !ok {
		s.rolls.forget(key)
		return false, nil
	}
	l.revision, l.entries, l.entryBodies = kept.revision, kept.entries, bodies
	return true, nil
}

// forward brings a roll to the feed's present, which must be at least at a
// revision. Nil: that is not possible.
func (s *Store) forward(key rollKey, from *roll, least int64) *roll {
	c := s.feed.collect(s.feed.topic(key.kind), &WatchRequest{Kind: key.kind, Namespace: key.namespace}, from.revision, rollAdvance)
	if c.behind {
		s.rolls.forget(key)
		return nil
	}
	if c.upTo < least {
		return nil
	}
	if c.upTo == from.revision {
		return from
	}
	made := &roll{revision: c.upTo, entries: apply(from.entries, c.events)}
	s.rolls.put(key, made)
	return made
}

// apply is the entries after the changes.
func apply(entries []entry, events []*Event) []entry {
	if len(events) == 0 {
		return entries
	}
	changed := make([]entry, 0, len(events)) // revision 0: removed
	for _, e := range events {
		o := &e.Object
		c := entry{namespace: o.Namespace, name: o.Name, uid: o.UID, revision: o.Revision}
		if e.Type == Removed {
			c.revision = 0
		}
		changed = append(changed, c)
	}
	// Stable: of several changes to one object the last one counts.
	slices.SortStableFunc(changed, func(a, b entry) int { return a.compare(&b) })
	out := make([]entry, 0, len(entries)+len(changed))
	for i := range changed {
		c := &changed[i]
		if i+1 < len(changed) && c.compare(&changed[i+1]) == 0 {
			continue
		}
		at, found := slices.BinarySearchFunc(entries, c, func(e entry, c *entry) int { return e.compare(c) })
		out = append(out, entries[:at]...)
		if found {
			at++
		}
		entries = entries[at:]
		if c.revision != 0 {
			out = append(out, *c)
		}
	}
	return append(out, entries...)
}

// record adds what was read from the database to the roll that is being made.
// A listing that does not fit the caches is not worth a roll.
func (l *Listing) record() {
	if l.making == nil {
		return
	}
	for i := range l.run {
		o := &l.run[i]
		l.making.entries = append(l.making.entries, entry{o.Namespace, o.Name, o.UID, o.Revision})
		l.makingBytes += len(o.Body)
	}
	if len(l.making.entries) > l.store.rolls.limit || l.makingBytes > l.store.opts.CacheBytes*9/10 {
		l.making = nil
		return
	}
	if l.last {
		key, _ := l.request.rolled()
		l.making.revision = l.revision
		l.store.rolls.put(key, l.making)
		l.making = nil
	}
}

// readEntries makes the next run from the roll.
func (l *Listing) readEntries() {
	n := min(runLength, len(l.entries))
	l.run, l.at = l.run[:0], 0
	for i := range l.entries[:n] {
		e := &l.entries[i]
		l.run = append(l.run, object.Object{
			Key: object.Key{Kind: l.request.Kind, Namespace: e.namespace, Name: e.name},
			UID: e.uid, Revision: e.revision, Body: l.entryBodies[i],
		})
	}
	l.entries, l.entryBodies = l.entries[n:], l.entryBodies[n:]
	l.last = len(l.entries) == 0
}
