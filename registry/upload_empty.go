package registry

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/opencontainers/go-digest"

	"github.com/exeunt/exeunt/sqldb"
)

// emptyUploads knows the uploads that have begun but have no bytes yet. They have no row: it
// would cost one more commit per blob, and there is nothing to lose or to leave
// behind. The row is written with the first bytes; a small blob sent in one request
// never needs one.
//
// The id of such an upload says all that is known of it, and is signed, so every
// replica knows it, also after a restart. The key is the id of the database, which is
// no secret: the signature lets the registry refuse ids that it has not given out, as the
// specification demands. It protects nothing: a client that can send bytes to an upload
// can also begin one. Where the number of uploads is limited, each has a row.
//
// The process remembers uploads that have ended, so that they do not begin again. Another
// replica accepts bytes for such an id as for a new upload, and checks their digest.
type emptyUploads struct {
	db  *sqldb.DB
	key atomic.Pointer[string] // nil means not read yet

	mu    sync.Mutex
	ended map[string]struct{} // ids; guarded by mu
}

const (
	// emptyFor is how long after its begin an upload may get its first bytes.
	emptyFor = time.Hour
	// endedKept bounds the ids in memory.
	endedKept = 4096
)

// The parts of an id, which is a UUID of version 8: four bytes for the second of its
// begin, six random ones, and the beginning of the signature. The lowest bit of
// algorithmByte is set for sha512.
const (
	signedBytes   = 10
	algorithmByte = 4
)

// newID returns the id of an upload that begins now.
func (f *emptyUploads) newID(ctx context.Context, repository string, algorithm digest.Algorithm, now time.Time) (string, error) {
	var id uuid.UUID
	rand.Read(id[algorithmByte:signedBytes])              // never fails
	binary.BigEndian.PutUint32(id[:], uint32(now.Unix())) // until 2106
	id[6], id[8] = id[6]&0x0f|uuidVersion, id[8]&0x3f|uuidVariant
	id[algorithmByte] &^= 1
	if algorithm == digest.SHA512 {
		id[algorithmByte] |= 1
	}
	signature, err := f.sign(ctx, repository, id)
	copy(id[signedBytes:], signature)
	return id.String(), err
}

const uuidVersion, uuidVariant = 0x80, 0x80

// find returns the algorithm of an upload that may still get its first bytes. Empty:
// there is no such upload.
func (f *emptyUploads) find(ctx context.Context, to Request, now time.Time) (digest.Algorithm, error) {
	id, err := uuid.Parse(to.Upload)
	if err != nil {
		return "", nil // not an id of ours
	}
	begun := time.Unix(int64(binary.BigEndian.Uint32(id[:])), 0)
	if now.Sub(begun).Abs() > emptyFor || f.hasEnded(to.Upload) {
		return "", nil
	}
	signature, err := f.sign(ctx, to.Repository, id)
	switch {
	case err != nil || !hmac.Equal(signature, id[signedBytes:]):
		return "", err
	case id[algorithmByte]&1 == 1:
		return digest.SHA512, nil
	}
	return digest.SHA256, nil
}

// sign returns the last part of an id.
func (f *emptyUploads) sign(ctx context.Context, repository string, id uuid.UUID) ([]byte, error) {
	key := f.key.Load()
	if key == nil {
		read, _, err := dataID(ctx, f.db)
		if err != nil {
			return nil, fmt.Errorf("read the database's id: %w", err)
		}
		key = &read
		f.key.Store(key)
	}
	mac := hmac.New(sha256.New, []byte(*key))
	mac.Write(id[:signedBytes])
	mac.Write([]byte(repository))
	return mac.Sum(nil)[:len(id)-signedBytes], nil
}

// end records that an upload has ended.
func (f *emptyUploads) end(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended == nil || len(f.ended) >= endedKept {
		f.ended = map[string]struct{}{}
	}
	f.ended[id] = struct{}{}
}

func (f *emptyUploads) hasEnded(id string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, ended := f.ended[id]
	return ended
}

// oneProcess reports whether this process serves all requests.
func (r *Registry) oneProcess() bool { return r.db.Engine() == sqldb.SQLite }
