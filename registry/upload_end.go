package registry

import (
	"context"
	"encoding"
	"errors"
	"fmt"
	"net/http"

	"github.com/opencontainers/go-digest"

	"github.com/exeunt/exeunt/registry/blobstore"
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
// transaction. If the content exists already, its row and path stay, and the
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
	err := u.r.writer.do(ctx, func(tx *sqldb.Tx) error {
		if err := tx.Send(ctx, insertContent(u.repo, blob, now)); err != nil {
			return err
		}
		return u.settle(ctx, tx, deleteUpload, u.id, u.token)
	})
	if err == nil {
		u.r.touched(u.repo.id)
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
	held, err := queryOne(ctx, tx, statement, args, &n)
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
