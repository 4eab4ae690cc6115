package registry

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"

	"github.com/opencontainers/go-digest"
)

// smallBlobs is up to what size a blob lives in the database, by default.
//
// Configurations, signatures, charts and most artifacts are small. A file, or
// an object in S3, costs such a blob more than its bytes: to be made, synced,
// named and synced again, and one day unlinked. In the database its bytes and
// its row are one transaction, so there is no order between them to get wrong,
// and whoever deletes the row has deleted the bytes.
const smallBlobs = 64 << 10

// smallBody says whether the body of a request can be all of a small blob. The
// length must be known before: nothing of it has been read when this is decided.
func (r *Registry) smallBody(req *http.Request) bool {
	return req.ContentLength > 0 && req.ContentLength <= r.small && req.Header.Get("Content-Range") == ""
}

// putSmall is an upload of which this request is all. It needs no row, and finds
// its repository in the transaction that makes it a blob.
func (r *Registry) putSmall(w http.ResponseWriter, req *http.Request, to Request, want digest.Digest) error {
	ctx := req.Context()
	u, err := r.prepare(ctx, to, want.Algorithm())
	if err != nil {
		return err
	}
	defer u.close(ctx)
	u.rowless = true
	return u.publishSmall(ctx, w, req, want)
}

// smallBuffers are for the bytes of small blobs, which would be two fifths of
// the garbage of a push.
var smallBuffers = sync.Pool{New: func() any { return new([smallBlobs]byte) }}

// smallBuffer is a buffer that is good until done is called.
func smallBuffer(size int64) (buffer []byte, done func()) {
	if size > smallBlobs {
		return make([]byte, size), func() {}
	}
	b := smallBuffers.Get().(*[smallBlobs]byte)
	return b[:size], func() { smallBuffers.Put(b) }
}

// publishSmall is chunk and publish for a small blob. What breaks off is not
// kept: sending it again costs less than remembering it.
//
// The blob has the upload's path, at which nothing is stored: so the trigger
// that leaves the paths of ended uploads to the unlinker has nothing to do. If
// the content is there already, its row stays, and with it where its bytes are.
func (u *upload) publishSmall(ctx context.Context, w http.ResponseWriter, req *http.Request, want digest.Digest) error {
	content, done := smallBuffer(req.ContentLength)
	defer done()
	if _, err := io.ReadFull(req.Body, content); err != nil {
		return truncated(fmt.Errorf("%w: %w", errTruncated, err))
	}
	if got := want.Algorithm().FromBytes(content); got != want {
		return also(errorf(DigestInvalid, "the content has digest %s, not %s", got, want), u.discard(ctx))
	}
	if err := u.enter(ctx, want, req.ContentLength, content); err != nil {
		return err
	}
	created(w, Request{Kind: BlobGet, Repository: u.name, Digest: want}, want)
	return nil
}
