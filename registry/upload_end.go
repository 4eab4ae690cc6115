package registry

import (
	"context"
	"encoding"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/exeunt/exeunt/registry/blobstore"
	"github.com/exeunt/exeunt/registry/internal/statement"
	"github.com/exeunt/exeunt/sqldb"
)

// For a request an upload ends in one of three ways: it is saved for the next
// request, it becomes a blob, or it is discarded. All three release it.

// errLost: the lease expired and another request has claimed the upload.
var errLost = errorf(BlobUploadInvalid, "another request has taken this upload over").as(http.StatusConflict)

// save keeps the upload for the next request. It syncs the bytes before it
// writes the row, so the row never records more than is stored.
func (u *upload) save(ctx context.Context) error {
	if err := u.sync(ctx); err != nil {
		return err
	}
	h, ok := u.hash.(encoding.BinaryMarshaler)
	if !ok {
		return fmt.Errorf("save upload: the state of %s cannot be kept", u.algorithm)
	}
	state, err := h.MarshalBinary()
	if err != nil {
		return fmt.Errorf("save upload: %w", err)
	}
	// A client that disconnected will ask how much arrived.
	ctx = context.WithoutCancel(ctx)
	err = u.r.writer.do(ctx, func(tx *sqldb.Tx) error {
		return u.settle(ctx, tx, saveUpload, u.id, u.token, u.writer.Size(), state, u.r.now().UnixMilli(), string(u.algorithm), u.writer.State())
	})
	return u.ended(ctx, "save", err)
}

// finish makes the upload a blob of its repository. It verifies the digest,
// syncs the bytes, and then makes the blob visible and ends the upload in one
// transaction. If the content already exists, its row and path stay, and the
// path of this upload goes to the collector.
func (u *upload) finish(ctx context.Context, want digest.Digest) error {
	got, err := u.digest(ctx, want.Algorithm())
	if err != nil {
		return err
	}
	if got != want {
		return withCleanup(errDigest(got, want), u.discard(ctx))
	}
	if err := u.seal(ctx); err != nil {
		return err
	}
	return u.commitBlob(ctx, want, u.writer.Size(), nil)
}

// commitBlob makes the blob visible and ends the upload, in one transaction. The
// bytes are already stored, except those of a small blob, which the transaction
// stores.
func (u *upload) commitBlob(ctx context.Context, want digest.Digest, size int64, small []byte) error {
	blob, now := newBlob{want, u.writer.Path(), size, small}, u.r.now()
	b := insertContent(u.repo, blob, now)
	if u.fetched {
		bringContent(b, u.r.db.Engine(), u.repo, want, linkMissingLayer)
	}
	err := u.r.writer.do(ctx, func(tx *sqldb.Tx) error {
		if err := tx.Send(ctx, b); err != nil {
			return err
		}
		return u.settle(ctx, tx, deleteUpload, u.id, u.token)
	})
	if err == nil {
		u.r.touched(u.repo.id)
	}
	if overQuota(err) {
		return withCleanup(u.r.explainQuota(ctx, u.name, err), u.discard(ctx))
	}
	return u.ended(ctx, "finish", err)
}

// digest returns the digest of all bytes. It reads them again only when the
// client uses another algorithm than it announced, or than the default.
func (u *upload) digest(ctx context.Context, algorithm digest.Algorithm) (digest.Digest, error) {
	if algorithm != u.algorithm {
		u.algorithm, u.hash = algorithm, algorithm.Hash()
		// Some stores can read only finished uploads.
		if err := u.seal(ctx); err != nil {
			return "", err
		}
		if err := u.rehash(ctx, 0); err != nil {
			return "", fmt.Errorf("hash upload: %w", err)
		}
	}
	return digest.NewDigest(algorithm, u.hash), nil
}

// discard deletes the upload. A trigger queues its bytes for the collector.
func (u *upload) discard(ctx context.Context) error {
	if u.discarded {
		return nil
	}
	ctx = context.WithoutCancel(ctx)
	err := u.r.writer.do(ctx, func(tx *sqldb.Tx) error {
		return u.settle(ctx, tx, deleteUpload, u.id, u.token)
	})
	u.discarded = err == nil
	return u.ended(ctx, "discard", err)
}

// sync makes the written bytes durable. It may write bytes, so it renews the
// claim first. It keeps what has arrived even when the client has disconnected.
func (u *upload) sync(ctx context.Context) error {
	if !u.dirty {
		return nil
	}
	ctx = context.WithoutCancel(ctx)
	if err := u.renew(ctx); err != nil {
		return err
	}
	if err := u.writer.Sync(); err != nil {
		return u.storeFailed(ctx, "sync", err)
	}
	u.dirty = false
	return nil
}

// seal is the last sync: after it the bytes can be read.
func (u *upload) seal(ctx context.Context) error {
	if u.sealed {
		return nil
	}
	if err := u.renew(ctx); err != nil {
		return err
	}
	if err := u.writer.Finish(); err != nil {
		return u.storeFailed(ctx, "finish", err)
	}
	u.sealed, u.dirty = true, false
	return nil
}

// storeFailed handles a failure of the blob store. It discards an upload that the
// store cannot continue, so that the client starts again. It also discards one
// when the store is full: a client that retries starts another upload, and the
// stored parts of all of them would keep the disk full until they are abandoned.
func (u *upload) storeFailed(ctx context.Context, what string, err error) error {
	switch {
	case errors.Is(err, blobstore.ErrFull):
		return withCleanup(fmt.Errorf("%s upload: %w", what, err), u.discard(ctx))
	case errors.Is(err, blobstore.ErrGone):
		u.r.log.Warn("registry: upload lost", "upload", u.id, "error", err)
		return withCleanup(errorf(BlobUploadUnknown, "the stored part of this upload is lost: start the upload again"), u.discard(ctx))
	}
	return fmt.Errorf("%s upload: %w", what, err)
}

// settle changes the row, if this request still holds it.
func (u *upload) settle(ctx context.Context, tx *sqldb.Tx, statement string, args ...any) error {
	var n int64
	held, err := sqldb.First(ctx, tx, []any{&n}, statement, args...)
	if err == nil && !held {
		return errLost
	}
	return err
}

// ended records that this request need not release the row any more. If the
// repository was removed meanwhile, and this upload with it, the error is one
// for the client.
func (u *upload) ended(ctx context.Context, what string, err error) error {
	if err == nil || errors.Is(err, errLost) {
		u.token = ""
	}
	if err == nil && what != "save" {
		u.r.empty.end(u.id)
	}
	if err == nil || !u.r.removed(ctx, u.repo) {
		return wrapInternal(what+" upload", err)
	}
	return errorf(BlobUploadUnknown, "repository %s was deleted, and this upload with it", u.name)
}

// close releases the upload after success or failure. It is deferred and only
// logs: if it fails, the lease expires.
func (u *upload) close(ctx context.Context) {
	if err := u.writer.Close(); err != nil {
		u.r.log.Warn("registry: close upload", "upload", u.id, "error", err)
	}
	u.release(ctx)
}

func (u *upload) release(ctx context.Context) {
	if u.token == "" {
		return
	}
	ctx = context.WithoutCancel(ctx)
	err := u.r.writer.do(ctx, func(tx *sqldb.Tx) error {
		return tx.Exec(ctx, releaseUpload, u.id, u.token)
	})
	if err != nil {
		u.r.log.Warn("registry: release upload", "upload", u.id, "error", err)
	}
}

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
// there. If the content already exists, its row stays, and its bytes stay where they
// are.
func (r *Registry) putSmall(ctx context.Context, w http.ResponseWriter, to Request, want digest.Digest, content []byte) error {
	err := r.storeSmall(ctx, to, want, content)
	if err == nil {
		created(w, Request{Kind: BlobGet, Repository: to.Repository, Digest: want}, want)
	}
	return err
}

func (r *Registry) storeSmall(ctx context.Context, to Request, want digest.Digest, content []byte) error {
	path, err := r.newPath(ctx)
	if err != nil {
		return err
	}
	blob, now := newBlob{want, path, int64(len(content)), content}, r.now()
	repo, err := r.pushTo(ctx, to, func() error { return nil }, func(tx *sqldb.Tx, repo repository) error {
		b := insertContent(repo, blob, now)
		if to.fetched {
			bringContent(b, r.db.Engine(), repo, want, linkMissingLayer)
		}
		return tx.SendLast(ctx, b)
	})
	if err != nil {
		return wrapInternal("finish upload", r.explainQuota(ctx, to.Repository, err))
	}
	r.touched(repo.id)
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
