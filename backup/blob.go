package backup

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/opencontainers/go-digest"

	"github.com/exeunt/exeunt/registry"
	"github.com/exeunt/exeunt/registry/blobstore"
)

// known lists the digests of the blobs that whole backups have: their bytes were synced.
func (t *Target) known(ctx context.Context) (map[string]bool, error) {
	list, err := t.List(ctx)
	if err != nil {
		return nil, err
	}
	known := map[string]bool{}
	for _, m := range list {
		blobs, err := t.blobs(ctx, m)
		if err != nil {
			return nil, fmt.Errorf("backup %s: %w", m.ID, err)
		}
		for _, b := range blobs {
			known[b.Digest] = true
		}
	}
	return known, nil
}

// copyBlob copies the bytes of a blob to the target, unless they are there. known says
// that a whole backup has them, and then their size is enough. Otherwise an interrupted
// backup may have left any part of them: they are read, and copied again if they differ.
func (t *Target) copyBlob(ctx context.Context, source blobstore.Store, b registry.StoredBlob, known bool) (copied bool, err error) {
	path := blobstore.PathOf(b.Digest)
	size, err := t.store.Stat(ctx, path)
	switch {
	case errors.Is(err, blobstore.ErrNotFound):
	case err != nil:
		return false, err
	case size == b.Size && known:
		return false, nil
	case size == b.Size && t.matches(ctx, b):
		return false, t.sync(ctx, path)
	}
	if err := t.store.Remove(ctx, path); err != nil {
		return false, err
	}
	content, err := openBlob(ctx, source, b.Path, b)
	if errors.Is(err, blobstore.ErrNotFound) {
		return false, fmt.Errorf("its bytes are missing; exeunt registry verify --repair says which images lost them: %w", err)
	}
	if err != nil {
		return false, err
	}
	return true, errors.Join(write(ctx, t.store, path, content), content.Close())
}

// write writes new bytes at a path.
func write(ctx context.Context, to blobstore.Store, path string, content io.Reader) error {
	w, err := to.Resume(ctx, path, nil)
	if err != nil {
		return err
	}
	_, err = io.Copy(w, withContext(ctx, content))
	if err == nil {
		err = w.Finish()
	}
	return errors.Join(err, w.Close())
}

// sync makes bytes durable that an interrupted backup has written. In a bucket they are:
// an object appears when it is whole.
func (t *Target) sync(ctx context.Context, path string) error {
	if t.dir == "" {
		return nil
	}
	w, err := t.store.Resume(ctx, path, nil)
	if err != nil {
		return err
	}
	return errors.Join(w.Finish(), w.Close())
}

// openBlob reads a blob and compares it with its digest.
func openBlob(ctx context.Context, from blobstore.Store, path string, b registry.StoredBlob) (io.ReadCloser, error) {
	d, err := digest.Parse(b.Digest)
	if err != nil {
		return nil, err
	}
	content, err := from.Open(ctx, path, 0)
	if err != nil {
		return nil, err
	}
	return &checked{ReadCloser: content, name: "blob " + b.Digest, hash: d.Algorithm().Hash(), want: d.Encoded(), left: b.Size}, nil
}

// matches reports whether the target has exactly the bytes of a blob.
func (t *Target) matches(ctx context.Context, b registry.StoredBlob) bool {
	content, err := openBlob(ctx, t.store, blobstore.PathOf(b.Digest), b)
	if err != nil {
		return false
	}
	_, err = io.Copy(io.Discard, withContext(ctx, content))
	return errors.Join(err, content.Close()) == nil
}
