package registry

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/exeunt/exeunt/registry/internal/statement"
	"github.com/exeunt/exeunt/sqldb"
)

// smallBlobs is the default maximum size of a blob in the database.
//
// Configs, signatures, charts and most artifacts are small. As a file or an S3
// object such a blob costs more than its bytes: create, sync, name, sync again,
// and later unlink. In the database one transaction writes the bytes and the
// row, so there is no order between them to get wrong, and deleting the row
// deletes the bytes.
const smallBlobs = 64 << 10

// smallBody reports whether the body of a request can be a whole small blob. Its
// length must be known, because none of it has been read yet.
func (r *Registry) smallBody(req *http.Request) bool {
	return req.ContentLength > 0 && req.ContentLength <= r.small && req.Header.Get("Content-Range") == ""
}

// putSmall stores a small blob that has arrived in one request and has the digest want: it
// writes row, bytes and link in one transaction, which also finds or makes the
// repository. Nothing is stored before it, and nothing has to be cleaned up after a
// failure.
//
// The row gets a path of the blob store, as every blob does, but nothing is stored
// there. If the content exists already, its row stays, and its bytes stay where they
// are.
func (r *Registry) putSmall(ctx context.Context, w http.ResponseWriter, to Request, want digest.Digest, content []byte) error {
	path, err := r.newPath(ctx)
	if err != nil {
		return err
	}
	blob, now := newBlob{want, path, int64(len(content)), content}, r.now()
	repo, err := r.pushTo(ctx, to, func() error { return nil }, func(tx *sqldb.Tx, repo repository) error {
		return tx.SendLast(ctx, insertContent(repo, blob, now))
	})
	if err != nil {
		return wrapInternal("finish upload", err)
	}
	r.touched(repo.id)
	created(w, Request{Kind: BlobGet, Repository: to.Repository, Digest: want}, want)
	return nil
}

// readSmall reads a small blob. The content is valid until done is called. A partial
// body is not kept: sending it again costs less than storing it.
func readSmall(req *http.Request) (content []byte, done func(), err error) {
	content, done = smallBuffer(req.ContentLength)
	if _, err = io.ReadFull(req.Body, content); err != nil {
		done()
		return nil, nil, truncated(fmt.Errorf("%w: %w", errTruncated, err))
	}
	return content, done, nil
}

func errDigest(got, want digest.Digest) *Error {
	return errorf(DigestInvalid, "the content has digest %s, not %s", got, want)
}

// newPath returns a path of the blob store at which nothing is stored.
func (r *Registry) newPath(ctx context.Context) (string, error) {
	writer, err := r.blobs.Create(ctx)
	if err != nil {
		return "", fmt.Errorf("begin upload: %w", err)
	}
	return writer.Path(), writer.Close()
}

// newBlob is a blob to write.
type newBlob struct {
	digest digest.Digest
	path   string
	size   int64
	small  []byte // the bytes of a small blob; nil means that they are in the blob store, at path
}

// insertContent writes a blob and links it to a repository.
func insertContent(repo repository, blob newBlob, now time.Time) *sqldb.Batch {
	b := &sqldb.Batch{}
	b.Exec(statement.InsertBlob, blob.digest.String(), blob.path, blob.size, now.UnixMilli(), blob.small != nil)
	if blob.small != nil {
		b.Exec(statement.InsertSmall, blob.digest.String(), blob.small, blob.path)
	}
	b.Exec(statement.LinkBlob, repo.namespace, repo.id, blob.digest.String(), now.UnixMilli())
	return b
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

// publishSmall is chunk and publish for a small blob of an upload that has a row.
// The path of the upload becomes that of the blob, so the trigger that queues the
// paths of ended uploads for the unlinker does nothing.
func (u *upload) publishSmall(ctx context.Context, w http.ResponseWriter, req *http.Request, want digest.Digest) error {
	content, done, err := readSmall(req)
	if err != nil {
		return err
	}
	defer done()
	if got := want.Algorithm().FromBytes(content); got != want {
		return withCleanup(errDigest(got, want), u.discard(ctx))
	}
	if err := u.commitBlob(ctx, want, req.ContentLength, content); err != nil {
		return err
	}
	created(w, Request{Kind: BlobGet, Repository: u.name, Digest: want}, want)
	return nil
}
