package store

import "github.com/exeunt/exeunt/object"

// bodies keeps recently used bodies by revision. What was stored at a revision
// never changes, so an entry is right for ever, on every replica: the database
// says at which revision an object is, and the cache saves reading what it was
// there.
type bodies struct {
	*cache[int64, []byte]
}

func newBodies(limit int) *bodies {
	cost := func(body []byte) int { return len(body) + 128 } // and about what an entry takes
	return &bodies{newCache[int64](limit, cost)}
}

// get returns nil for a body that it does not have.
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

// head is where an object is found.
type head struct {
	uid      string
	revision int64
}

// heads keeps the heads of objects that were read or written lately. It is
// right only in the one process that writes the database, which on SQLite is
// this one: every commit passes add before its callers are answered, so a read
// that begins after a write was answered sees it. On PostgreSQL other replicas
// write, and there are no heads.
//
// A head that was read from the database while a commit passed may be the one
// before it; keep refuses it then.
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
		if e.Type == Removed {
			h.drop(key)
			continue
		}
		h.set(key, head{string(e.Object.UID), e.Object.Revision})
	}
}

// forget drops everything: a commit may have happened that add was not told of.
func (h *heads) forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.epoch++
	h.clear()
}
