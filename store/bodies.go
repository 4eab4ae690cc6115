package store

import (
	"sync"

	"github.com/exeunt/exeunt/object"
)

// generations is a cache that forgets what is not asked for: when the young
// generation is full it becomes the old one, and what of it is not asked for
// until the next change goes.
type generations[K comparable, V any] struct {
	half int         // what a generation may hold
	cost func(V) int // of one entry

	mu         sync.RWMutex
	young, old map[K]V // guarded by mu
	size       int     // of young; guarded by mu
	epoch      int64   // moves with every change from outside; guarded by mu
}

func newGenerations[K comparable, V any](limit int, cost func(V) int) *generations[K, V] {
	return &generations[K, V]{half: limit / 2, cost: cost, young: map[K]V{}}
}

func (g *generations[K, V]) get(key K) (V, bool) {
	g.mu.RLock()
	value, young := g.young[key]
	ok := young
	if !young {
		value, ok = g.old[key]
	}
	epoch := g.epoch
	g.mu.RUnlock()
	if ok && !young {
		g.keep(key, value, epoch)
	}
	return value, ok
}

// keep remembers what was read, unless something changed since the epoch: it
// may have been read before the change.
func (g *generations[K, V]) keep(key K, value V, epoch int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, ok := g.young[key]; !ok && g.epoch == epoch {
		g.set(key, value)
	}
}

// now is the epoch to pass to keep after reading.
func (g *generations[K, V]) now() int64 {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.epoch
}

// set is for the holder of mu.
func (g *generations[K, V]) set(key K, value V) {
	cost := g.cost(value)
	if cost > g.half/8 {
		return
	}
	g.young[key] = value
	g.size += cost
	if g.size > g.half {
		g.old, g.young, g.size = g.young, make(map[K]V, len(g.young)), 0
	}
}

// bodies keeps recently used bodies by revision. What was stored at a revision
// never changes, so an entry is right for ever, on every replica: the database
// says at which revision an object is, and the cache saves reading what it was
// there.
type bodies struct {
	*generations[int64, []byte]
}

func newBodies(limit int) *bodies {
	cost := func(body []byte) int { return len(body) + 64 } // and about what an entry takes
	return &bodies{newGenerations[int64](limit, cost)}
}

// get returns nil for a body that it does not have.
func (b *bodies) get(revision int64) []byte {
	body, _ := b.generations.get(revision)
	return body
}

// getAll returns the bodies of all entries, or false if it lacks one.
func (b *bodies) getAll(entries []entry) ([][]byte, bool) {
	found := make([][]byte, len(entries))
	var old []int
	b.mu.RLock()
	for i := range entries {
		body, ok := b.young[entries[i].revision]
		if !ok {
			if body, ok = b.old[entries[i].revision]; !ok {
				b.mu.RUnlock()
				return nil, false
			}
			old = append(old, i)
		}
		found[i] = body
	}
	b.mu.RUnlock()
	for _, i := range old {
		b.put(entries[i].revision, found[i]) // asked for: young again
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
	*generations[object.Key, head]
}

// headsKept is how many heads are kept, about 150 bytes each.
const headsKept = 40_000

func newHeads() *heads {
	return &heads{newGenerations[object.Key](headsKept, func(head) int { return 1 })}
}

func (h *heads) add(events []*Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.epoch++
	for _, e := range events {
		key := e.Object.Key
		delete(h.old, key)
		if e.Type == Removed {
			delete(h.young, key)
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
	h.young, h.old, h.size = map[object.Key]head{}, nil, 0
}
