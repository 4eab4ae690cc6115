package sqldb

import (
	"math/rand/v2"
	"testing"

	"modernc.org/libc"
)

// TestBlocks: blocks keep what is written to them while others come and go, and
// never overlap; what SQLite asks about them is true.
func TestBlocks(t *testing.T) {
	tls := libc.NewTLS()
	defer tls.Close()
	type block struct {
		at   uintptr
		size int32
		mark byte
	}
	random := rand.New(rand.NewPCG(1, 2))
	size := func() int32 { return 1 + random.Int32N(1<<(1+random.IntN(largestBlock+1))) }
	fill := func(b block) {
		for i := range b.size {
			*at[byte](b.at + uintptr(i)) = b.mark
		}
	}
	check := func(b block, upTo int32) {
		t.Helper()
		if got := blockSize(tls, b.at); got < b.size {
			t.Fatalf("a block for %d bytes has %d", b.size, got)
		}
		for i := range min(b.size, upTo) {
			if got := *at[byte](b.at + uintptr(i)); got != b.mark {
				t.Fatalf("byte %d of %d is %d, not %d", i, b.size, got, b.mark)
			}
		}
	}
	var live []block
	for n := range 4000 {
		i := random.IntN(len(live) + 1)
		switch {
		case i == len(live) || len(live) < 20:
			b := block{size: size(), mark: byte(n)}
			b.at = blockMalloc(tls, b.size)
			if rounded := blockRoundup(tls, b.size); rounded < b.size || blockSize(tls, b.at) > rounded {
				t.Fatalf("%d bytes are rounded to %d, and get %d", b.size, rounded, blockSize(tls, b.at))
			}
			fill(b)
			live = append(live, b)
		case n%3 == 0:
			b := block{size: size(), mark: live[i].mark}
			b.at = blockRealloc(tls, live[i].at, b.size)
			check(b, live[i].size)
			fill(b)
			live[i] = b
		default:
			check(live[i], live[i].size)
			blockFree(tls, live[i].at)
			live[i] = live[len(live)-1]
			live = live[:len(live)-1]
		}
	}
	for _, b := range live {
		check(b, b.size)
		blockFree(tls, b.at)
	}
	kept.Lock()
	defer kept.Unlock()
	for log, blocks := range kept.blocks {
		if most := mostKept(log); len(blocks) > most || log == 0 && len(blocks) > 0 {
			t.Errorf("%d blocks of %d bytes are kept, more than %d", len(blocks), 1<<log, most)
		}
	}
}
