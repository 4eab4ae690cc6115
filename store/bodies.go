package store

import "github.com/exeunt/exeunt/object"

// bodies caches recently used bodies by revision. The body at a revision never
// changes, so an entry never becomes stale, on any replica: the database says at
// which revision an object is, and the cache saves reading the body.
type bodies struct {
	*cache[int64, []byte]
}

func newBodies(limit int) *bodies {
	cost := func(body []byte) int { return len(body) + 128 } // 128: about the size of an entry
	return &bodies{newCache[int64](limit, cost)}
}

// get returns nil if the body is not cached.
func (b *bodies) get(revision int64) []byte {
	body, _ := b.cache.get(revision)
	return body
}

// getAll returns the bodies of all entries, or false if it lacks one.
func (b *bodies) getAll(entries []entry) ([][]byte, bool) {
	found := make([][]byte, len(entries))
	b.mu.RLock()
	defer b.mu.RUnlock()
	for i := range entries {
		body, ok := b.find(entries[i].revision)
		if !ok {
			return nil, false
		}
		found[i] = body
	}
	return found, true
}

// put keeps a body, which must not be changed afterwards.
func (b *bodies) put(revision int64, body []byte) { b.keep(revision, body, 0) }

// add keeps the bodies of changes.
func (b *bodies) add(events []*Event) {
	for _, e := range events {
		if e.Type != Removed {
			b.put(e.Object.Revision, e.Object.Body)
		}
	}
}

// head is the uid and the newest revision of an object.
type head struct {
	uid      string
	revision int64
}

// heads caches the heads of recently read or written objects. Where one process writes the
// database, as on SQLite, they are the newest: every commit calls add before its clients
// are answered, so a read that begins after the answer sees the write. On PostgreSQL
// other replicas write too, and a head may be old: see Recent.
//
// A head that is read from the database during a commit may be older than that
// commit; keep refuses it.
type heads struct {
	*cache[object.Key, head]
}

// headsKept is how many heads are kept, about 150 bytes each.
const headsKept = 40_000

func newHeads() *heads {
	return &heads{newCache[object.Key](headsKept, func(head) int { return 1 })}
}

func (h *heads) add(events []*Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.epoch++
	for _, e := range events {
		key := e.Object.Key
		if known := h.slots[key]; known != nil && known.value.revision > e.Object.Revision {
			continue // another replica's commit, which was read after a later one of this process
		}
		if e.Type == Removed {
			h.drop(key)
			continue
		}
		h.set(key, head{string(e.Object.UID), e.Object.Revision})
	}
}

// keep is the cache's, and also replaces an older head: a replica has one until the follower reads
// the change.
func (h *heads) keep(key object.Key, value head, epoch int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if known := h.slots[key]; known == nil && h.epoch == epoch || known != nil && known.value.revision < value.revision {
		h.set(key, value)
	}
}

// forget drops everything: after a commit with an unknown outcome, or when changes were skipped.
func (h *heads) forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.epoch++
	h.clear()
}
