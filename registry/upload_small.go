package registry

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"

	"github.com/opencontainers/go-digest"
)

// smallBlobs is the default maximum size of a blob in the database.
//
// Configs, signatures, charts and most artifacts are small. As a file or an S3
// object such a blob costs more than its bytes: create, sync, name, sync again,
// and later unlink. In the database one transaction writes the bytes and the
// row, so there is no order between them to get wrong, and deleting the row
// deletes the bytes.
const smallBlobs = 64 << 10

// smallBody says whether the body of a request can be a whole small blob. Its
// length must be known, because none of it has been read yet.
func (r *Registry) smallBody(req *http.Request) bool {
	return req.ContentLength > 0 && req.ContentLength <= r.small && req.Header.Get("Content-Range") == ""
}

// putSmall is an upload in one request. It needs no row, and finds its
// repository in the transaction that makes it a blob.
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

// smallBuffers pools the buffers of small blobs, which would be two fifths of
// the garbage of a push.
var smallBuffers = sync.Pool{New: func() any { return new([smallBlobs]byte) }}

// smallBuffer returns a buffer that is valid until done is called.
func smallBuffer(size int64) (buffer []byte, done func()) {
	if size > smallBlobs {
		return make([]byte, size), func() {}
	}
	b := smallBuffers.Get().(*[smallBlobs]byte)
	return b[:size], func() { smallBuffers.Put(b) }
}

// publishSmall is chunk and publish for a small blob. A partial body is not
// kept: sending it again costs less than storing it.
//
// The blob has the upload's path, where nothing is stored. So the trigger that
// queues the paths of ended uploads for the unlinker does nothing. If the
// content exists already, its row stays, and its bytes stay where they are.
func (u *upload) publishSmall(ctx context.Context, w http.ResponseWriter, req *http.Request, want digest.Digest) error {
	content, done := smallBuffer(req.ContentLength)
	defer done()
	if _, err := io.ReadFull(req.Body, content); err != nil {
		return truncated(fmt.Errorf("%w: %w", errTruncated, err))
	}
	if got := want.Algorithm().FromBytes(content); got != want {
		return withCleanup(errorf(DigestInvalid, "the content has digest %s, not %s", got, want), u.discard(ctx))
	}
	if err := u.commitBlob(ctx, want, req.ContentLength, content); err != nil {
		return err
	}
	created(w, Request{Kind: BlobGet, Repository: u.name, Digest: want}, want)
	return nil
}
