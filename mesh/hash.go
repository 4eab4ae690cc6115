package mesh

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"strings"
	"sync/atomic"

	"golang.org/x/crypto/argon2"
)

// The cost of a hash: OWASP's recommendation for Argon2id. A stored hash names
// its own cost, so these can be raised at any time.
const (
	hashTime    = 2
	hashMemory  = 19 * 1024 // KiB
	hashThreads = 1
	hashLength  = 32
	saltLength  = 16

	// maxWaiting bounds the requests that wait for a slot; further requests get
	// errBusy.
	maxWaiting = 64
)

// hasher hashes and checks secrets, a few concurrently, which bounds the memory
// of a flood of tokens.
type hasher struct {
	slots   chan struct{}
	waiting atomic.Int64
	memory  uint32 // KiB per hash
	decoy   string // a stored hash that matches no secret; set once
	derive  derive // argon2.IDKey; tests count its calls
}

// derive has the signature of argon2.IDKey.
type derive func(secret, salt []byte, time, memory uint32, threads uint8, length uint32) []byte

func newHasher(slots int, memory uint32) *hasher {
	h := &hasher{slots: make(chan struct{}, slots), memory: memory, derive: argon2.IDKey}
	key, salt := make([]byte, hashLength), make([]byte, saltLength)
	_, _ = rand.Read(key) // never fails
	_, _ = rand.Read(salt)
	h.decoy = h.encode(salt, key)
	return h
}

// acquire waits for a slot. Error: errBusy, or ctx's.
func (h *hasher) acquire(ctx context.Context) (done func(), err error) {
	if h.waiting.Add(1) > maxWaiting {
		h.waiting.Add(-1)
		return nil, errBusy
	}
	defer h.waiting.Add(-1)
	select {
	case h.slots <- struct{}{}:
		return func() { <-h.slots }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// hash returns the stored form of a secret.
func (h *hasher) hash(ctx context.Context, secret string) (string, error) {
	done, err := h.acquire(ctx)
	if err != nil {
		return "", err
	}
	defer done()
	salt := make([]byte, saltLength)
	_, _ = rand.Read(salt) // never fails
	return h.encode(salt, h.derive([]byte(secret), salt, hashTime, h.memory, hashThreads, hashLength)), nil
}

// matches reports whether a secret matches its hash. An empty hash matches
// nothing, and takes as long.
func (h *hasher) matches(ctx context.Context, encoded, secret string) (bool, error) {
	done, err := h.acquire(ctx)
	if err != nil {
		return false, err
	}
	defer done()
	known := encoded != ""
	if !known {
		encoded = h.decoy
	}
	p, err := decodeHash(encoded)
	if err != nil {
		return false, err
	}
	got := h.derive([]byte(secret), p.salt, p.time, p.memory, p.threads, uint32(len(p.key)))
	return subtle.ConstantTimeCompare(got, p.key) == 1 && known, nil
}

// encode writes a hash in the standard text form of Argon2.
func (h *hasher) encode(salt, key []byte) string {
	e := base64.RawStdEncoding.EncodeToString
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s", argon2.Version, h.memory, hashTime, hashThreads, e(salt), e(key))
}

type hashParts struct {
	time, memory uint32
	threads      uint8
	salt, key    []byte
}

// decodeHash parses a stored hash. It refuses costs beyond ours, so that a
// client with write access to the database cannot exhaust the server.
func decodeHash(encoded string) (hashParts, error) {
	var p hashParts
	var version int
	parts := strings.Split(encoded, "$")
	if len(parts) != 6 || parts[0] != "" || parts[1] != "argon2id" {
		return p, fmt.Errorf("read hash: not an Argon2id hash")
	}
	if _, err := fmt.Sscanf(parts[2], "v=%d", &version); err != nil || version != argon2.Version {
		return p, fmt.Errorf("read hash: version %q", parts[2])
	}
	if _, err := fmt.Sscanf(parts[3], "m=%d,t=%d,p=%d", &p.memory, &p.time, &p.threads); err != nil {
		return p, fmt.Errorf("read hash: cost %q: %w", parts[3], err)
	}
	if p.memory < 8 || p.memory > 64*1024 || p.time < 1 || p.time > 16 || p.threads < 1 || p.threads > 4 {
		return p, fmt.Errorf("read hash: cost %q is out of bounds", parts[3])
	}
	var err error
	if p.salt, err = base64.RawStdEncoding.DecodeString(parts[4]); err != nil || len(p.salt) < 8 {
		return p, fmt.Errorf("read hash: bad salt")
	}
	if p.key, err = base64.RawStdEncoding.DecodeString(parts[5]); err != nil || len(p.key) < 16 || len(p.key) > 64 {
		return p, fmt.Errorf("read hash: bad key")
	}
	return p, nil
}

// digest is the stored form of a node's own secret. That secret has 256 random
// bits, so a fast hash is enough, and heartbeats are frequent.
func digest(secret string) []byte {
	sum := sha256.Sum256([]byte(secret))
	return sum[:]
}

// sameDigest compares in constant time.
func sameDigest(stored []byte, secret string) bool {
	return subtle.ConstantTimeCompare(stored, digest(secret)) == 1
}
