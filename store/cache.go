package store

import (
	"sync"
	"sync/atomic"
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
