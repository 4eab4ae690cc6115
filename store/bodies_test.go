package store

import (
	"testing"

	"github.com/exeunt/exeunt/object"
)

func TestGenerationsForgetWhatIsNotAskedFor(t *testing.T) {
	g := newGenerations[int](20, func(int) int { return 1 })
	g.keep(0, 100, 0)
	for i := 1; i <= 100; i++ {
		g.keep(i, i, 0)
		if v, ok := g.get(0); !ok || v != 100 {
			t.Fatalf("an entry in use was forgotten after %d others", i)
		}
	}
	if _, ok := g.get(1); ok {
		t.Error("an entry that nobody asked for was kept")
	}
	if n := len(g.young) + len(g.old); n > 22 {
		t.Errorf("%d entries are kept, more than the limit", n)
	}
}

func TestBodiesAreBounded(t *testing.T) {
	b := newBodies(1 << 20)
	for i := range int64(1000) {
		b.put(i, make([]byte, 10<<10))
	}
	total := 0
	for _, m := range []map[int64][]byte{b.young, b.old} {
		for _, body := range m {
			total += len(body)
		}
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
// old head in its hands while a commit passes.
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
