package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/exeunt/exeunt/registry/blobstore"
)

// Verify checks that a backup has all its bytes. It calls found for each that is missing
// or damaged. quick compares sizes, and reads only the list of blobs.
func (t *Target) Verify(ctx context.Context, m Manifest, quick bool, found func(error), progress func(Progress)) error {
	v := &verification{target: t, quick: quick, found: found, progress: progress}
	for _, f := range m.Files {
		if err := v.check(ctx, f.Name, f.Path, f.Size, func() (io.ReadCloser, error) { return t.open(ctx, f) }); err != nil {
			return err
		}
	}
	blobs, err := t.blobs(ctx, m)
	if errors.Is(err, ErrDamaged) || errors.Is(err, blobstore.ErrNotFound) {
		return nil // reported above, and without the list there is nothing to check
	}
	if err != nil {
		return err
	}
	v.total = int64(len(blobs))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(copiers)
	for _, b := range blobs {
		group.Go(func() error {
			path := blobstore.PathOf(b.Digest)
			err := v.check(ctx, "blob "+b.Digest, path, b.Size, func() (io.ReadCloser, error) { return openBlob(ctx, t.store, path, b) })
			v.count()
			return err
		})
	}
	return group.Wait()
}

type verification struct {
	target   *Target
	quick    bool
	found    func(error)
	progress func(Progress)
	total    int64

	mu   sync.Mutex
	done int64 // guarded by mu; found and progress are called under it
}

// check reports bytes that are missing or damaged. It fails if they cannot be read.
func (v *verification) check(ctx context.Context, name, path string, size int64, open func() (io.ReadCloser, error)) error {
	actual, err := v.target.store.Stat(ctx, path)
	if err == nil && actual != size {
		err = fmt.Errorf("%s has %d bytes, not %d: %w", name, actual, size, ErrDamaged)
	}
	if err == nil && !v.quick {
		var content io.ReadCloser
		if content, err = open(); err == nil {
			_, err = io.Copy(io.Discard, withContext(ctx, content))
			err = errors.Join(err, content.Close())
		}
	}
	if errors.Is(err, blobstore.ErrNotFound) {
		err = fmt.Errorf("%s is missing: %w", name, ErrDamaged)
	}
	if !errors.Is(err, ErrDamaged) {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.found(err)
	return nil
}

func (v *verification) count() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.done++
	if v.progress != nil {
		v.progress(Progress{Step: "verify", Done: v.done, Total: v.total})
	}
}
