package store

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/object"
)

// A cachedListing is the last full list of a kind, in one namespace or in all:
// names and revisions, in order. The next such list applies the feed's changes
// to it instead of reading every head again, and takes the bodies from their
// cache.
//
// It is correct on every replica. The state at a revision plus all changes since
// is the state now; the feed has all of these changes or reports that it lacks
// some; and the list reads the database's revision first, so it is never older
// than a write that any replica answered before the list began.
type cachedListing struct {
	revision int64
	entries  []entry // in order of (namespace, name); shared, read-only
	used     int64   // listingCache.clock at the last get; guarded by listingCache.mu
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
	// maxCachedEntries limits the entries of all cached listings together, at
	// about 130 bytes each.
	maxCachedEntries = 50_000
	// maxAdvance is how many changes are applied to a cached listing. With more
	// changes, the heads are read again.
	maxAdvance = 2_048
)

type listingKey struct{ kind, namespace string }

// listingCache keeps the most recently used listings.
type listingCache struct {
	limit int // entries of all together

	mu    sync.Mutex
	kept  map[listingKey]*cachedListing // guarded by mu
	total int                           // entries of kept; guarded by mu
	clock int64                         // counts requests; guarded by mu
}

func newListingCache(limit int) *listingCache {
	return &listingCache{limit: limit, kept: map[listingKey]*cachedListing{}}
}

func (r *listingCache) get(key listingKey) *cachedListing {
	r.mu.Lock()
	defer r.mu.Unlock()
	found := r.kept[key]
	if found != nil {
		r.clock++
		found.used = r.clock
	}
	return found
}

// put keeps a listing unless the cache has one at the same or a newer revision.
// It evicts the least recently used listings.
func (r *listingCache) put(key listingKey, made *cachedListing) {
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
		var oldest listingKey
		least := r.clock + 1
		for k, kept := range r.kept {
			if kept.used < least {
				oldest, least = k, kept.used
			}
		}
		r.drop(oldest)
	}
}

func (r *listingCache) forget(key listingKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drop(key)
}

// drop removes a listing. The caller holds mu.
func (r *listingCache) drop(key listingKey) {
	if old := r.kept[key]; old != nil {
		r.total -= len(old.entries)
		delete(r.kept, key)
	}
}

// cacheKey is the key of the cached listing that answers the request. False: the
// request is not for a whole kind or namespace at the newest revision.
func (r *ListRequest) cacheKey() (listingKey, bool) {
	whole := r.Name == "" && r.Limit == 0 && r.Revision == 0 && r.AfterNamespace == "" && r.AfterName == ""
	return listingKey{r.Kind, r.Namespace}, whole
}

// listFromCache answers a listing from a cached one. False: the database must be
// read, because no cached listing is new enough or a body is not cached.
func (s *Store) listFromCache(ctx context.Context, l *Listing) (bool, error) {
	key, ok := l.request.cacheKey()
	if !ok {
		return false, nil
	}
	kept := s.listings.get(key)
	if kept == nil {
		return false, nil
	}
	current, _, err := s.revisions(ctx)
	if err != nil {
		return false, err
	}
	kept = s.advance(key, kept, current)
	if kept == nil {
		return false, nil
	}
	bodies, ok := s.bodies.getAll(kept.entries)
	if !ok {
		s.listings.forget(key)
		return false, nil
	}
	l.revision, l.entries, l.entryBodies = kept.revision, kept.entries, bodies
	return true, nil
}

// advance applies the feed's changes to a cached listing. Nil: the feed has not
// reached revision least, or no longer has the changes.
func (s *Store) advance(key listingKey, from *cachedListing, least int64) *cachedListing {
	c := s.feed.collect(s.feed.topic(key.kind), &WatchRequest{Kind: key.kind, Namespace: key.namespace}, from.revision, maxAdvance)
	if c.behind {
		s.listings.forget(key)
		return nil
	}
	if c.upTo < least {
		return nil
	}
	if c.upTo == from.revision {
		return from
	}
	made := &cachedListing{revision: c.upTo, entries: apply(from.entries, c.events)}
	s.listings.put(key, made)
	return made
}

// apply returns the entries after the changes.
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

// record adds the run that was read from the database to the recording, and
// caches the recording after the last run. A listing that does not fit the
// caches is not recorded.
func (l *Listing) record() {
	if l.recording == nil {
		return
	}
	for i := range l.run {
		o := &l.run[i]
		l.recording.entries = append(l.recording.entries, entry{o.Namespace, o.Name, o.UID, o.Revision})
		l.recordedBytes += len(o.Body)
	}
	if len(l.recording.entries) > l.store.listings.limit || l.recordedBytes > l.store.opts.CacheBytes*9/10 {
		l.recording = nil
		return
	}
	if l.last {
		key, _ := l.request.cacheKey()
		l.recording.revision = l.revision
		l.store.listings.put(key, l.recording)
		l.recording = nil
	}
}

// readEntries makes the next run from the cached listing.
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
