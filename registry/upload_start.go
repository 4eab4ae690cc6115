package registry

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/opencontainers/go-digest"

	"github.com/exeunt/exeunt/sqldb"
)

// uploadStart begins an upload. With mount it first tries to link an existing
// blob, with digest it takes the whole blob from the body.
func (r *Registry) uploadStart(w http.ResponseWriter, req *http.Request, to Request) error {
	ctx, query := req.Context(), req.URL.Query()
	if query.Has("mount") {
		mounted, err := r.mount(ctx, to, query.Get("from"), query.Get("mount"))
		if err != nil {
			return err
		}
		if mounted != "" {
			created(w, Request{Kind: BlobGet, Repository: to.Repository, Digest: mounted}, mounted)
			return nil
		}
	}
	limited, err := r.checkUploads(ctx, to.Repository)
	if err != nil {
		return err
	}
	if query.Has("digest") {
		want, err := parseDigest(query.Get("digest"))
		if err != nil {
			return err
		}
		return r.uploadWhole(w, req, to, want)
	}
	algorithm := digest.Canonical
	if query.Has("digest-algorithm") {
		if algorithm = digest.Algorithm(query.Get("digest-algorithm")); !Supported(algorithm) {
			return errorf(DigestInvalid, "digest algorithm %q is not supported: want sha256 or sha512", algorithm)
		}
	}
	to.Upload, err = r.start(ctx, to, algorithm, limited)
	if err != nil {
		return err
	}
	if r.chunkMin > 0 {
		w.Header().Set("OCI-Chunk-Min-Length", strconv.FormatInt(r.chunkMin, 10))
	}
	describe(w, Request{Kind: UploadStatus, Repository: to.Repository, Upload: to.Upload}, 0)
	w.WriteHeader(http.StatusAccepted)
	return nil
}

// start begins an upload that later requests write to, and returns its id. A counted one
// has a row from the beginning.
func (r *Registry) start(ctx context.Context, to Request, algorithm digest.Algorithm, counted bool) (string, error) {
	if !counted {
		if _, err := r.ensure(ctx, to); err != nil {
			return "", err
		}
		return r.empty.newID(ctx, to.Repository, algorithm, r.now())
	}
	to.Upload = uuid.NewString()
	u, err := r.begin(ctx, to, algorithm, false)
	if err != nil {
		return "", err
	}
	u.close(ctx)
	return to.Upload, nil
}

// uploadWhole is an upload in one request. After a failure there is nothing to
// resume.
func (r *Registry) uploadWhole(w http.ResponseWriter, req *http.Request, to Request, want digest.Digest) error {
	ctx := req.Context()
	to.Upload = uuid.NewString()
	if r.smallBody(req) {
		content, done, err := readSmall(req)
		if err != nil {
			return err
		}
		defer done()
		if got := want.Algorithm().FromBytes(content); got != want {
			return errDigest(got, want)
		}
		return r.putSmall(ctx, w, to, want, content)
	}
	u, err := r.begin(ctx, to, want.Algorithm(), true)
	if err != nil {
		return err
	}
	defer u.close(ctx)
	if err := u.append(ctx, req.Body); err != nil {
		return withCleanup(truncated(err), u.discard(ctx))
	}
	if err := to.permitted(); err != nil {
		return withCleanup(err, u.discard(ctx))
	}
	return u.publish(ctx, w, want)
}

// publish finishes the upload and sends the blob's location.
func (u *upload) publish(ctx context.Context, w http.ResponseWriter, want digest.Digest) error {
	if err := u.finish(ctx, want); err != nil {
		return err
	}
	created(w, Request{Kind: BlobGet, Repository: u.name, Digest: want}, want)
	return nil
}

// created sends the location of new content. Locations have no host: the client
// knows one that works for it.
func created(w http.ResponseWriter, at Request, d digest.Digest) {
	w.Header().Set("Location", at.Path())
	w.Header().Set("Docker-Content-Digest", d.String())
	w.WriteHeader(http.StatusCreated)
}

// describe sends the location and the size of the upload.
func (u *upload) describe(w http.ResponseWriter) {
	describe(w, Request{Kind: UploadStatus, Repository: u.name, Upload: u.id}, u.writer.Size())
}

func describe(w http.ResponseWriter, at Request, size int64) {
	w.Header().Set("Location", at.Path())
	w.Header().Set("Docker-Upload-UUID", at.Upload)
	// The header cannot express "no bytes": clients read 0-0 as that.
	w.Header().Set("Range", "0-"+strconv.FormatInt(max(size-1, 0), 10))
}

// truncated turns errTruncated into an error for the client.
func truncated(err error) error {
	if errors.Is(err, errTruncated) {
		return errorf(SizeInvalid, "the body ended before the length that was announced")
	}
	return err
}

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
