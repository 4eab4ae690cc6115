package store

import (
	"sync"
	"sync/atomic"
)

// cache keeps what was asked for lately, up to a limit. When it is full, a hand
// goes round its entries and takes the first that nobody has asked for since it
// last passed. So a set that fits stays, all of it, whatever passes through
// besides.
type cache[K comparable, V any] struct {
	limit int         // of the costs of all entries
	cost  func(V) int // of one entry

	mu    sync.RWMutex
	slots map[K]*slot[K, V] // guarded by mu
	ring  []*slot[K, V]     // the same, in the hand's order; guarded by mu
	hand  int               // in ring; guarded by mu
	size  int               // the costs of all; guarded by mu
	epoch int64             // moves with every change from outside; guarded by mu
}

type slot[K comparable, V any] struct {
	key   K
	value V           // guarded by the cache's mu
	at    int         // in ring; guarded by the cache's mu
	asked atomic.Bool // since the hand passed
}

func newCache[K comparable, V any](limit int, cost func(V) int) *cache[K, V] {
	return &cache[K, V]{limit: limit, cost: cost, slots: map[K]*slot[K, V]{}}
}

func (c *cache[K, V]) get(key K) (value V, ok bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.find(key)
}

// find is for the holder of mu, to read at least.
func (c *cache[K, V]) find(key K) (value V, ok bool) {
	s := c.slots[key]
	if s == nil {
		return value, false
	}
	if !s.asked.Load() { // what many read at once is not written by each of them
		s.asked.Store(true)
	}
	return s.value, true
}

// keep remembers what was read, unless something changed since the epoch: it
// may have been read before the change.
func (c *cache[K, V]) keep(key K, value V, epoch int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.slots[key] == nil && c.epoch == epoch {
		c.set(key, value)
	}
}

// now is the epoch to pass to keep after reading.
func (c *cache[K, V]) now() int64 {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.epoch
}

// set is for the holder of mu. A value that would push out an eighth of the
// others is not worth it.
func (c *cache[K, V]) set(key K, value V) {
	c.drop(key)
	cost := c.cost(value)
	if cost > c.limit/8 {
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

// evict takes one entry out. After one round nobody has been asked for.
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

// drop is for the holder of mu. The last entry takes the place in the ring.
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

// clear is for the holder of mu.
func (c *cache[K, V]) clear() {
	c.slots, c.ring, c.hand, c.size = map[K]*slot[K, V]{}, nil, 0, 0
}
