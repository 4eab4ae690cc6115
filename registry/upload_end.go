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

// How an upload ends for a request: it is saved for the next one, it becomes a
// blob, or it is discarded. All three give it free.

// errLost: the lease ended and somebody else has the upload.
var errLost = errorf(BlobUploadInvalid, "another request has taken this upload over").as(http.StatusConflict)

// save keeps the upload for the next request. The order is: bytes synced, then
// the row; so the row never promises more than there is.
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
	// A caller that has gone will ask how much arrived.
	ctx = context.WithoutCancel(ctx)
	err = u.r.writer.do(ctx, func(tx *sqldb.Tx) error {
		return u.settle(ctx, tx, saveUpload, u.id, u.token, u.writer.Size(), state, u.r.now().UnixMilli(), string(u.algorithm), u.writer.State())
	})
	return u.ended(ctx, "save", err)
}

// finish makes the upload a blob of its repository. The order is: the digest is
// verified, the bytes are synced, then one transaction makes the blob visible
// and ends the upload. If the content is there already, that row and its path
// stay, and ours is left to the collector.
func (u *upload) finish(ctx context.Context, want digest.Digest) error {
	got, err := u.digest(ctx, want.Algorithm())
	if err != nil {
		return err
	}
	if got != want {
		return also(errorf(DigestInvalid, "the content has digest %s, not %s", got, want), u.discard(ctx))
	}
	if err := u.seal(ctx); err != nil {
		return err
	}
	return u.enter(ctx, want, u.writer.Size(), nil)
}

// enter makes the blob visible and ends the upload, in one transaction. The
// bytes are stored by now, unless the blob is small and they come with it.
func (u *upload) enter(ctx context.Context, want digest.Digest, size int64, small []byte) (err error) {
	path, now := u.writer.Path(), u.r.now()
	insert := func(tx *sqldb.Tx, repo repository) error {
		var b sqldb.Batch
		b.Exec(insertBlob(u.r.db.Engine()), want.String(), path, size, now.UnixMilli(), small != nil)
		if small != nil {
			b.Exec(insertSmall, want.String(), small, path)
		}
		b.Exec(linkBlob, repo.namespace, repo.id, want.String(), now.UnixMilli())
		if err := tx.Send(ctx, &b); err != nil {
			return err
		}
		return u.settle(ctx, tx, deleteUpload, u.id, u.token)
	}
	if u.rowless {
		u.repo, err = u.r.pushTo(ctx, u.name, func() error { return nil }, insert)
	} else {
		err = u.r.writer.do(ctx, func(tx *sqldb.Tx) error { return insert(tx, u.repo) })
	}
	if err == nil {
		u.r.touched(u.repo.id)
	}
	return u.ended(ctx, "finish", err)
}

// digest is that of all bytes. They are read again only when the client hashes
// with another algorithm than it said, or than most do.
func (u *upload) digest(ctx context.Context, algorithm digest.Algorithm) (digest.Digest, error) {
	if algorithm != u.algorithm {
		u.algorithm, u.hash = algorithm, algorithm.Hash()
		// Not every store can read what is not finished.
		if err := u.seal(ctx); err != nil {
			return "", err
		}
		if err := u.rehash(ctx, 0); err != nil {
			return "", fmt.Errorf("hash upload: %w", err)
		}
	}
	return digest.NewDigest(algorithm, u.hash), nil
}

// discard forgets the upload. A trigger leaves its bytes to the collector.
func (u *upload) discard(ctx context.Context) error {
	if u.rowless || u.discarded {
		return nil
	}
	ctx = context.WithoutCancel(ctx)
	err := u.r.writer.do(ctx, func(tx *sqldb.Tx) error {
		return u.settle(ctx, tx, deleteUpload, u.id, u.token)
	})
	u.discarded = err == nil
	return u.ended(ctx, "discard", err)
}

// sync makes what was written survive. Bytes may be written by it, so the claim
// has to be good; and what has arrived is kept although the caller has gone.
func (u *upload) sync(ctx context.Context) error {
	if !u.dirty {
		return nil
	}
	ctx = context.WithoutCancel(ctx)
	if err := u.renew(ctx); err != nil {
		return err
	}
	if err := u.writer.Sync(); err != nil {
		return u.broken(ctx, "sync", err)
	}
	u.dirty = false
	return nil
}

// seal is sync for the last time: the bytes can be read after it.
func (u *upload) seal(ctx context.Context) error {
	if u.sealed {
		return nil
	}
	if err := u.renew(ctx); err != nil {
		return err
	}
	if err := u.writer.Finish(); err != nil {
		return u.broken(ctx, "finish", err)
	}
	u.sealed, u.dirty = true, false
	return nil
}

// broken is a failure of the blob store. An upload that it cannot go on with is
// forgotten, so that the client begins anew. So is one that there is no space
// for: clients that try again begin another, and what was stored of all those
// would keep the disk full until they count as abandoned.
func (u *upload) broken(ctx context.Context, what string, err error) error {
	switch {
	case errors.Is(err, blobstore.ErrFull):
		return also(fmt.Errorf("%s upload: %w", what, err), u.discard(ctx))
	case errors.Is(err, blobstore.ErrGone):
		u.r.log.Warn("registry: upload lost", "upload", u.id, "error", err)
		return also(errorf(BlobUploadUnknown, "what was stored of this upload is lost: begin again"), u.discard(ctx))
	}
	return fmt.Errorf("%s upload: %w", what, err)
}

// settle changes the row, if there is one, if it is still ours.
func (u *upload) settle(ctx context.Context, tx *sqldb.Tx, statement string, args ...any) error {
	if u.rowless {
		return nil
	}
	var n int64
	ours, err := one(ctx, tx, statement, args, &n)
	if err == nil && !ours {
		return errLost
	}
	return err
}

// ended notes that the row is no longer ours to give free. What failed because
// the repository has been removed meanwhile, with this upload, is no fault.
func (u *upload) ended(ctx context.Context, what string, err error) error {
	if err == nil || errors.Is(err, errLost) {
		u.token = ""
	}
	if err == nil || u.rowless || !u.r.removed(ctx, u.repo) {
		return during(what+" upload", err)
	}
	return errorf(BlobUploadUnknown, "repository %s was deleted, and this upload with it", u.name)
}

// close gives the upload free, whatever has become of it. It is deferred, and
// has nobody to tell: what fails here ends with the lease.
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
		return exec(ctx, tx, releaseUpload, u.id, u.token)
	})
	if err != nil {
		u.r.log.Warn("registry: release upload", "upload", u.id, "error", err)
	}
}
