package store

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
)

// cache keeps recently used entries, up to a limit (the CLOCK algorithm). When it
// is full, a hand goes round the entries and evicts the first one that was not
// read since the hand last passed. So a working set that fits stays in the cache
// during a scan of other entries.
type cache[K comparable, V any] struct {
	limit   int         // on the sum of costs
	largest int         // cost of an entry that is kept
	cost    func(V) int // of one entry

	mu    sync.RWMutex
	slots map[K]*slot[K, V] // guarded by mu
	ring  []*slot[K, V]     // the slots in the hand's order; guarded by mu
	hand  int               // in ring; guarded by mu
	size  int               // sum of costs; guarded by mu
	epoch int64             // grows with every committed change; guarded by mu
}

type slot[K comparable, V any] struct {
	key   K
	value V           // guarded by the cache's mu
	at    int         // in ring; guarded by the cache's mu
	asked atomic.Bool // was read since the hand passed
}

// newCache makes a cache that keeps no entry larger than an eighth of the limit.
func newCache[K comparable, V any](limit int, cost func(V) int) *cache[K, V] {
	return &cache[K, V]{limit: limit, largest: limit / 8, cost: cost, slots: map[K]*slot[K, V]{}}
}

func (c *cache[K, V]) get(key K) (value V, ok bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.find(key)
}

// find is get for a caller that holds mu, at least for reading.
func (c *cache[K, V]) find(key K) (value V, ok bool) {
	s := c.slots[key]
	if s == nil {
		return value, false
	}
	if !s.asked.Load() { // avoids writes to a shared cache line
		s.asked.Store(true)
	}
	return s.value, true
}

// keep adds a value that was read from the database, unless something changed
// since the epoch: the value may be older than the change.
func (c *cache[K, V]) keep(key K, value V, epoch int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.slots[key] == nil && c.epoch == epoch {
		c.set(key, value)
	}
}

// now is the current epoch: take it before reading, and pass it to keep.
func (c *cache[K, V]) now() int64 {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.epoch
}

// set adds or replaces an entry. The caller holds mu.
func (c *cache[K, V]) set(key K, value V) {
	c.drop(key)
	cost := c.cost(value)
	if cost > c.largest {
		return
	}
	for c.size+cost > c.limit {
		c.evict()
	}
	s := &slot[K, V]{key: key, value: value, at: len(c.ring)}
	c.slots[key] = s
	c.ring = append(c.ring, s)
	c.size += cost
}

// evict removes one entry. It ends: the first round clears every asked flag. The
// caller holds mu.
func (c *cache[K, V]) evict() {
	for {
		if c.hand >= len(c.ring) {
			c.hand = 0
		}
		s := c.ring[c.hand]
		if s.asked.Swap(false) {
			c.hand++
			continue
		}
		c.drop(s.key)
		return
	}
}

// drop removes an entry. The caller holds mu. The last entry of the ring takes its
// place.
func (c *cache[K, V]) drop(key K) {
	s := c.slots[key]
	if s == nil {
		return
	}
	delete(c.slots, key)
	c.size -= c.cost(s.value)
	last := len(c.ring) - 1
	c.ring[s.at] = c.ring[last]
	c.ring[s.at].at = s.at
	c.ring[last] = nil
	c.ring = c.ring[:last]
}

// forget removes an entry.
func (c *cache[K, V]) forget(key K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop(key)
}

// clear removes all entries. The caller holds mu.
func (c *cache[K, V]) clear() {
	c.slots, c.ring, c.hand, c.size = map[K]*slot[K, V]{}, nil, 0, 0
}

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

const (
	// headQueries is how many queries of a headReader run at once. One more would be smaller, and
	// cost PostgreSQL as much.
	headQueries = 2
	// headsAtOnce bounds the heads of one query.
	headsAtOnce = 128
	// headPatience is how long a request waits for a shared query. Both may hang, on connections
	// that are cut off, while others work.
	headPatience = time.Second
)

// headReader reads the heads of objects on PostgreSQL for concurrent requests: those that
// arrive while queries run share the next one. A query begins after its requests, so each
// sees every write that was answered before. A request that comes alone does not wait.
type headReader struct {
	db *sqldb.DB

	mu      sync.Mutex
	waiting []*headRead // guarded by mu
	running int         // queries; guarded by mu
}

// headRead is one request. The fields below done belong to the reader until done is closed.
type headRead struct {
	key  object.Key
	done chan struct{}

	head  head
	found bool
	err   error
}

// get reads the head of an object, if it exists.
func (r *headReader) get(ctx context.Context, key object.Key) (h head, found bool, err error) {
	op := &headRead{key: key, done: make(chan struct{})}
	r.mu.Lock()
	r.waiting = append(r.waiting, op)
	if r.running < headQueries {
		r.running++
		go r.run()
	}
	r.mu.Unlock()
	patience := time.NewTimer(headPatience)
	defer patience.Stop()
	select {
	case <-op.done:
		return op.head, op.found, op.err
	case <-ctx.Done():
		return head{}, false, ctx.Err()
	case <-patience.C:
		return readHead(ctx, r.db, key)
	}
}

// readHead reads one head by a query of its own.
func readHead(ctx context.Context, db *sqldb.DB, key object.Key) (h head, found bool, err error) {
	found, err = db.Row(ctx, getHead, []any{key.Kind, key.Namespace, key.Name}, &h.uid, &h.revision)
	return h, found, err
}

// run reads until no request waits.
func (r *headReader) run() {
	for {
		r.mu.Lock()
		n := min(len(r.waiting), headsAtOnce)
		if n == 0 {
			r.running--
			r.mu.Unlock()
			return
		}
		batch := r.waiting[:n:n]
		r.waiting = r.waiting[n:]
		r.mu.Unlock()
		err := r.read(batch)
		for _, op := range batch {
			op.err = err
			close(op.done)
		}
	}
}

// read fills in the heads. The requests may have ended meanwhile, so it has a time limit of its own.
func (r *headReader) read(batch []*headRead) error {
	ctx, cancel := context.WithTimeout(context.Background(), readTimeout)
	defer cancel()
	if len(batch) == 1 {
		op := batch[0]
		var err error
		op.head, op.found, err = readHead(ctx, r.db, op.key)
		return err
	}
	kinds, namespaces, names := make([]string, len(batch)), make([]string, len(batch)), make([]string, len(batch))
	for i, op := range batch {
		kinds[i], namespaces[i], names[i] = op.key.Kind, op.key.Namespace, op.key.Name
	}
	return sqldb.Each(ctx, r.db, func(row sqldb.Row) error {
		var at int64
		var h head
		if err := row.Scan(&at, &h.uid, &h.revision); err != nil {
			return err
		}
		if at < 1 || at > int64(len(batch)) {
			return fmt.Errorf("the answer has the request %d of %d", at, len(batch))
		}
		op := batch[at-1]
		op.head, op.found = h, true
		return nil
	}, getHeads, kinds, namespaces, names)
}

// getHeads is getHead for several objects. The lateral join leaves PostgreSQL no other plan than
// the index.
const getHeads = `
SELECT q.n, o.uid, o.revision FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY AS q (kind, namespace, name, n)
CROSS JOIN LATERAL (
    SELECT uid, revision FROM objects WHERE kind = q.kind AND namespace = q.namespace AND name = q.name OFFSET 0
) AS o`
