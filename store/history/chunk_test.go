package history

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/exeunt/exeunt/store/feed"
)

// versionsOf makes versions of one object of about a size. Some differ little from the one before, some entirely.
func versionsOf(rng *rand.Rand, n, size int) []Version {
	body := make([]byte, size)
	var all []Version
	for i := range n {
		if rng.IntN(5) == 0 {
			for j := range body {
				body[j] = "abcdefgh"[rng.IntN(8)]
			}
		}
		for range 1 + rng.IntN(3) {
			if len(body) > 0 {
				body[rng.IntN(len(body))] = byte(rng.IntN(256))
			}
		}
		v := Version{Revision: int64(1000 + 3*i), Type: feed.Updated, At: rng.Int64N(1 << 41), Author: fmt.Sprintf("user\nkubectl/v1\npatch\n%x", rng.Uint64())}
		if v.Body = bytes.Clone(body); size == 0 {
			v.Body = nil
		}
		all = append(all, v)
	}
	return all
}

// TestExtend: however versions are added to a row, it has all of them as they are; and a row of one frame, which was written at
// once, gets more.
func TestExtend(t *testing.T) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for _, size := range []int{0, 1, 60, 3_600, 65_400, 66_000, 300_000} {
		for range 10 {
			want := versionsOf(rng, 1+rng.IntN(maxVersions+4), size)
			var row []byte
			for rest := want; len(rest) > 0; {
				n := 1 + rng.IntN(min(len(rest), 3))
				var err error
				if row, _, err = extend(row, rest[:n]); err != nil {
					t.Fatal(err)
				}
				rest = rest[n:]
				got, err := decode(row)
				same := func(a, b Version) bool {
					return a.Revision == b.Revision && a.Type == b.Type && a.At == b.At && a.Author == b.Author && bytes.Equal(a.Body, b.Body)
				}
				if want := want[:len(want)-len(rest)]; err != nil || !slices.EqualFunc(want, got, same) {
					t.Fatalf("%d versions of %d bytes are %d others: %v", len(want), size, len(got), err)
				}
			}
		}
	}
}

// TestDamagedRow: a row that was changed gives an error or other versions, and nothing worse. One that cannot be decompressed is
// never extended: that would replace what a repair may still read.
func TestDamagedRow(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 0))
	var row []byte
	var err error
	for _, v := range versionsOf(rand.New(rand.NewPCG(2, 0)), 4, 3_600) {
		if row, _, err = extend(row, []Version{v}); err != nil {
			t.Fatal(err)
		}
	}
	failed := 0
	for range 2_000 {
		damaged := bytes.Clone(row)
		for range 1 + rng.IntN(3) {
			damaged[rng.IntN(min(len(damaged), 1<<rng.IntN(12)))] = byte(rng.IntN(256))
		}
		if rng.IntN(4) == 0 {
			damaged = damaged[:rng.IntN(len(damaged))]
		}
		_, err := decode(damaged)
		_, _, other := extend(damaged, []Version{{Revision: 1}})
		if err != nil || other != nil {
			failed++
		}
		frame, _, broken := split(damaged)
		if broken == nil {
			_, broken = decoder().DecodeAll(frame, nil)
		}
		if broken != nil && other == nil {
			t.Fatalf("a row was extended that gives: %v", broken)
		}
	}
	if failed < 500 {
		t.Errorf("only %d of 2000 were refused", failed)
	}
}
