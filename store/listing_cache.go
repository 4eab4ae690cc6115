package store

import (
	"cmp"
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/object"
)

// A cachedListing is the last full list of a kind, in one namespace or in all:
// names and revisions, in order. The next such list applies the feed's changes
// to it instead of reading every head again, and takes the bodies from their
// cache. A list in pages does the same: its later pages take their part of the
// listing as long as nothing has changed since the first.
//
// It is correct on every replica. The state at a revision plus all changes since
// is the state now; the feed has all of these changes or reports that it lacks
// some; and the list reads the database's revision first, so it is never older
// than a write that any replica answered before the list began.
type cachedListing struct {
	since    int64 // the entries are the same at all revisions from since to revision
	revision int64
	entries  []entry // in order of (namespace, name); shared, read-only
	bytes    int     // of the bodies, while it is recorded
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

// listingCache keeps listings that are in use.
type listingCache struct {
	*cache[listingKey, *cachedListing]
	begun *cache[listingKey, *cachedListing] // the pages that were read so far, at one revision
}

// newListingCache makes a cache of listings; limit bounds their entries, and those of begun.
func newListingCache(limit int) *listingCache {
	made := func() *cache[listingKey, *cachedListing] {
		c := newCache[listingKey](limit, func(l *cachedListing) int { return len(l.entries) + 1 })
		c.largest = limit
		return c
	}
	return &listingCache{made(), made()}
}

// putPages keeps the first pages of a list until the client asks for the next one.
func (r *listingCache) putPages(key listingKey, pages *cachedListing) {
	r.begun.mu.Lock()
	defer r.begun.mu.Unlock()
	r.begun.set(key, pages)
}

// takePages returns the pages before a position, for the caller alone, or nil.
func (r *listingCache) takePages(key listingKey, revision int64, namespace, name string) *cachedListing {
	r.begun.mu.Lock()
	defer r.begun.mu.Unlock()
	pages, found := r.begun.find(key)
	if !found || pages.revision != revision {
		return nil
	}
	if last := pages.entries[len(pages.entries)-1]; last.namespace != namespace || last.name != name {
		return nil
	}
	r.begun.drop(key)
	return pages
}

// put keeps a listing unless the cache has one at the same or a newer revision.
func (r *listingCache) put(key listingKey, made *cachedListing) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if old, found := r.find(key); !found || old.revision < made.revision {
		r.set(key, made)
	}
}

// cacheKey is the key of the cached listing that answers the request. False: the
// request is neither for a whole kind or namespace at the newest revision, nor for a page of
// one.
func (r *ListRequest) cacheKey() (listingKey, bool) {
	whole := r.Limit == 0 && r.Revision == 0 && r.AfterNamespace == "" && r.AfterName == ""
	page := r.Limit > 0 && r.Match == nil
	return listingKey{r.Kind, r.Namespace}, r.Name == "" && (whole || page)
}

// listFromCache answers a listing from a cached one. False: the database must be
// read, because no cached listing is of the right revision or a body is not cached.
func (s *Store) listFromCache(ctx context.Context, l *Listing) (bool, error) {
	key, ok := l.request.cacheKey()
	if !ok {
		return false, nil
	}
	kept, found := s.listings.get(key)
	if !found {
		return false, nil
	}
	if asked := l.request.Revision; asked == 0 {
		current, _, err := s.revisions(ctx)
		if err != nil {
			return false, err
		}
		if kept = s.advance(key, kept, current); kept == nil {
			return false, nil
		}
		l.revision = kept.revision
	} else {
		if asked > kept.revision {
			kept = s.advance(key, kept, asked)
		}
		if kept == nil || asked < kept.since {
			return false, nil
		}
	}
	entries, left := kept.page(l.afterNamespace, l.afterName, l.request.Limit)
	bodies, ok := s.bodies.getAll(entries)
	if !ok {
		if l.request.Limit == 0 {
			s.listings.forget(key)
		}
		return false, nil
	}
	l.entries, l.entryBodies, l.left = entries, bodies, left
	return true, nil
}

// page returns the entries after a position: limit of them and one more, which tells that the
// list goes on; 0 means all. left is how many come after the limit.
func (c *cachedListing) page(namespace, name string, limit int) (entries []entry, left int) {
	after := &entry{namespace: namespace, name: name}
	at, found := slices.BinarySearchFunc(c.entries, after, func(e entry, to *entry) int { return e.compare(to) })
	if found {
		at++
	}
	entries = c.entries[at:]
	if limit == 0 || len(entries) <= limit {
		return entries, 0
	}
	return entries[:limit+1], len(entries) - limit
}

// advance applies the feed's changes to a cached listing. Nil if the feed has not
// reached revision least, or no longer has the changes.
func (s *Store) advance(key listingKey, from *cachedListing, least int64) *cachedListing {
	c := s.feed.Collect(&WatchRequest{Kind: key.kind, Namespace: key.namespace}, from.revision, maxAdvance)
	if c.Behind {
		s.listings.forget(key)
		return nil
	}
	if c.UpTo < least {
		return nil
	}
	if c.UpTo == from.revision {
		return from
	}
	made := &cachedListing{since: from.since, revision: c.UpTo, entries: apply(from.entries, c.Events)}
	if len(c.Events) > 0 {
		made.since = c.UpTo
	}
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

// startRecording prepares to cache a listing that the database answers. A later page
// continues the recording of the pages before it.
func (l *Listing) startRecording() {
	key, ok := l.request.cacheKey()
	switch {
	case !ok:
	case l.request.AfterNamespace == "" && l.request.AfterName == "":
		l.recording = &cachedListing{}
	default:
		l.recording = l.store.listings.takePages(key, l.revision, l.afterNamespace, l.afterName)
	}
}

// record adds the run that was read from the database to the recording, and
// caches the recording after the last run. A listing that does not fit the
// caches is not recorded.
func (l *Listing) record() {
	if l.recording == nil {
		return
	}
	run, page := l.run, l.request.Limit
	if page > 0 {
		run = run[:min(len(run), page-l.recorded)] // the rest is of the next page
	}
	for i := range run {
		o := &run[i]
		l.recording.entries = append(l.recording.entries, entry{o.Namespace, o.Name, o.UID, o.Revision})
		l.recording.bytes += len(o.Body)
	}
	l.recorded += len(run)
	if len(l.recording.entries) >= l.store.listings.limit || l.recording.bytes > l.store.opts.CacheBytes*9/10 {
		l.recording = nil
		return
	}
	key, _ := l.request.cacheKey()
	l.recording.since, l.recording.revision = l.revision, l.revision
	switch {
	case l.last && len(run) == len(l.run):
		l.store.listings.put(key, l.recording)
	case page > 0 && l.recorded == page:
		l.store.listings.putPages(key, l.recording)
	default:
		return
	}
	l.recording = nil
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
