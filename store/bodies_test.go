package store

import (
	"math/rand/v2"
	"testing"

	"github.com/exeunt/exeunt/object"
)

func TestCacheForgetsWhatIsNotAskedFor(t *testing.T) {
	c := newCache[int](20, func(int) int { return 1 })
	c.keep(0, 100, 0)
	for i := 1; i <= 100; i++ {
		if v, ok := c.get(0); !ok || v != 100 {
			t.Fatalf("an entry in use was forgotten before %d others", i)
		}
		c.keep(i, i, 0)
	}
	if _, ok := c.get(1); ok {
		t.Error("an entry that no reader asked for was kept")
	}
	if len(c.slots) != 20 || len(c.ring) != 20 || c.size != 20 {
		t.Errorf("%d entries in %d places cost %d, want 20", len(c.slots), len(c.ring), c.size)
	}
}

// TestCacheKeepsASetThatFits: repeated lists of a set that fits have no misses, even
// if other bodies pass through the cache.
func TestCacheKeepsASetThatFits(t *testing.T) {
	c := newCache[int](20, func(int) int { return 1 })
	for i := range 18 {
		c.keep(i, i, 0)
	}
	for round := range 50 {
		for i := range 18 {
			if _, ok := c.get(i); !ok {
				t.Fatalf("round %d misses %d", round, i)
			}
		}
		c.keep(1000+2*round, 0, 0)
		c.keep(1001+2*round, 0, 0)
	}
}

// TestCacheAgainstAMap applies random operations to a cache and to a map.
func TestCacheAgainstAMap(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	c := newCache[int](1<<20, func(v int) int { return v%7 + 1 })
	want := map[int]int{}
	for range 10_000 {
		key, value := random.IntN(50), random.IntN(1000)
		switch random.IntN(3) {
		case 0:
			c.set(key, value)
			want[key] = value
		case 1:
			c.drop(key)
			delete(want, key)
		default:
			got, ok := c.get(key)
			if w, there := want[key]; got != w || ok != there {
				t.Fatalf("%d is %d, %v; want %d, %v", key, got, ok, w, there)
			}
		}
		size := 0
		for i, s := range c.ring {
			size += s.value%7 + 1
			if s.at != i || c.slots[s.key] != s {
				t.Fatalf("place %d holds %d, which believes to be at %d", i, s.key, s.at)
			}
		}
		if size != c.size || len(c.ring) != len(want) {
			t.Fatalf("%d entries of cost %d, believed to be %d; want %d entries", len(c.ring), size, c.size, len(want))
		}
	}
}

func TestBodiesAreBounded(t *testing.T) {
	b := newBodies(1 << 20)
	for i := range int64(1000) {
		b.put(i, make([]byte, 10<<10))
	}
	total := 0
	for _, s := range b.slots {
		total += len(s.value)
	}
	if total > 1<<20 {
		t.Errorf("%d bytes are kept", total)
	}
	b.put(5000, make([]byte, 1<<20))
	if b.get(5000) != nil {
		t.Error("a body as large as the cache was kept")
	}
}

// TestHeadReadBeforeACommitIsNotKept forces the interleaving: a reader has the
// old head while a commit happens.
func TestHeadReadBeforeACommitIsNotKept(t *testing.T) {
	h := newHeads()
	key := object.Key{Kind: "configmaps", Namespace: "a", Name: "b"}
	epoch := h.now()
	h.add([]*Event{{Type: Updated, Object: object.Object{Key: key, UID: "u", Revision: 7}}})
	h.keep(key, head{"u", 3}, epoch)
	if got, _ := h.get(key); got.revision != 7 {
		t.Errorf("the head is at %d, want 7", got.revision)
	}
	epoch = h.now()
	h.add([]*Event{{Type: Removed, Object: object.Object{Key: key, UID: "u", Revision: 8}}})
	h.keep(key, head{"u", 7}, epoch)
	if got, ok := h.get(key); ok {
		t.Errorf("a removed object is found at %d", got.revision)
	}
	h.add([]*Event{{Type: Created, Object: object.Object{Key: key, UID: "v", Revision: 9}}})
	h.forget()
	if _, ok := h.get(key); ok {
		t.Error("a head outlived a commit of unknown outcome")
	}
}

// TestHeadOfAnotherReplica: a commit of another replica becomes known after a later one of this
// process, and a read finds one that is not known yet.
func TestHeadOfAnotherReplica(t *testing.T) {
	h := newHeads()
	key := object.Key{Kind: "configmaps", Namespace: "a", Name: "b"}
	h.add([]*Event{{Type: Updated, Object: object.Object{Key: key, UID: "u", Revision: 7}}})
	h.add([]*Event{{Type: Updated, Object: object.Object{Key: key, UID: "u", Revision: 6}}})
	if got, _ := h.get(key); got.revision != 7 {
		t.Errorf("the head is at %d, want 7", got.revision)
	}
	h.keep(key, head{"u", 9}, h.now())
	if got, _ := h.get(key); got.revision != 9 {
		t.Errorf("the head is at %d after a read of 9", got.revision)
	}
}
