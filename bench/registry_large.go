package bench

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"time"
)

// The names of the steps with large layers.
const (
	pushLarge = "push large layer"
	pullLarge = "pull large layer"
)

// pushLarge streams layers of unique bytes.
func (b *registryBench) pushLarge(ctx context.Context) (*tally, error) {
	t := &tally{inTurn: true}
	for n := range b.largeRounds() {
		layer := newLargeLayer(b.Large, uint64(time.Now().UnixNano())+uint64(n))
		digest, err := layer.digest()
		if err != nil {
			return nil, err
		}
		b.large, b.largeLayers = digest, append(b.largeLayers, digest)
		begin := time.Now()
		err = b.uploadFrom(ctx, layer.open(), layer.size, digest)
		t.count(time.Since(begin), b.Large, err)
		if err := b.yardstick.layer(layer); err != nil {
			return nil, err
		}
	}
	return t, nil
}

func (b *registryBench) pullLarge(ctx context.Context) (*tally, error) {
	t := &tally{inTurn: true}
	for range b.largeRounds() {
		begin := time.Now()
		bytes, err := b.get(ctx, "blobs/"+b.large)
		if err == nil && bytes != b.Large {
			err = fmt.Errorf("pulled %d bytes of %d", bytes, b.Large)
		}
		t.count(time.Since(begin), bytes, err)
		if err := b.yardstick.sendfile(); err != nil {
			return nil, err
		}
	}
	return t, nil
}

func (b *registryBench) largeRounds() int { return max(1, b.Rounds/3) }

// largeLayer is generated while it is sent: one block repeatedly, with a number
// in each copy, which costs no more than a copy.
type largeLayer struct {
	size  int64
	block []byte
}

const largeBlock = 64 << 10

func newLargeLayer(size int64, seed uint64) largeLayer {
	return largeLayer{size: size, block: noise(seed, largeBlock)}
}

func (l largeLayer) open() io.Reader {
	l.block = slices.Clone(l.block) // the reader numbers it
	return &largeReader{largeLayer: l}
}

func (l largeLayer) digest() (string, error) {
	sum, err := digestOf(l.open())
	return "sha256:" + hex.EncodeToString(sum), err
}

type largeReader struct {
	largeLayer
	at   int64
	made []byte // the unread rest of the current block
}

func (r *largeReader) Read(p []byte) (int, error) {
	if r.at >= r.size {
		return 0, io.EOF
	}
	if len(r.made) == 0 {
		binary.LittleEndian.PutUint64(r.block, uint64(r.at))
		r.made = r.block[:min(largeBlock, r.size-r.at)]
	}
	n := copy(p, r.made)
	r.made = r.made[n:]
	r.at += int64(n)
	return n, nil
}

// noise returns bytes that do not compress, the same for the same seed.
func noise(seed uint64, size int) []byte {
	source := rand.New(rand.NewPCG(seed, 1))
	out := make([]byte, 0, size+8)
	for len(out) < size {
		out = binary.LittleEndian.AppendUint64(out, source.Uint64())
	}
	return out[:size]
}
