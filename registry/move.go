package registry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/exeunt/exeunt/registry/blobstore"
	"github.com/exeunt/exeunt/sqldb"
)

// findOld finds what needs a path. One statement, because the end of an upload moves its path from one table to the
// other.
const findOld = `
SELECT EXISTS (SELECT 1 FROM blob_uploads u WHERE u.path = $1),
    coalesce((SELECT b.digest FROM blobs b WHERE b.path = $1 AND NOT b.damaged), '')`

// moveEvery is how often the mover looks whether the uploads in the old place have ended, and repeats what failed.
const moveEvery = time.Minute

// Mover moves the bytes of the registry to another place, while it serves. It promises that every blob can be read
// at each moment, that a copy is compared with its digest before the original goes, and that any process continues
// after a crash. It stores nothing: what is in the old place is what is left.
type Mover struct {
	db    *sqldb.DB
	blobs *blobstore.Moving
	id    string // of both places
	log   *slog.Logger
	left  atomic.Int64
	ended atomic.Bool
}

// NewMover begins a move, after BindBlobStore.
func NewMover(ctx context.Context, db *sqldb.DB, blobs *blobstore.Moving, log *slog.Logger) (*Mover, error) {
	id, _, err := dataID(ctx, db)
	if err != nil {
		return nil, fmt.Errorf("read the database's id: %w", err)
	}
	m := &Mover{db: db, blobs: blobs, id: id, log: log}
	ended, err := blobs.Begin(ctx, id)
	m.ended.Store(ended)
	return m, err
}

// Left returns how many files the last round has left, and whether the move has ended.
func (m *Mover) Left() (files int64, ended bool) { return m.left.Load(), m.ended.Load() }

// Run moves until all is moved, or the context ends.
func (m *Mover) Run(ctx context.Context) {
	for !m.ended.Load() {
		moved, err := m.RunOne(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			m.log.Error("moving the bytes of the registry failed; the next try is in "+moveEvery.String(), "moved", moved, "left", m.left.Load(), "error", err)
		case !m.ended.Load():
			m.log.Info("moved bytes of the registry; uploads that began before it are left", "moved", moved, "left", m.left.Load())
		}
		if !m.ended.Load() && !sleep(ctx, moveEvery) {
			return
		}
	}
	m.log.Info("the bytes of the registry are all in the new place: take \",from=…\" out of registry-storage; the old directory may be removed")
}

func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// RunOne moves what can be moved, and ends the move if nothing is left. One blob that fails does not stop the others.
func (m *Mover) RunOne(ctx context.Context) (moved int64, err error) {
	var left int64
	if err := m.blobs.WalkOld(ctx, func(string) error { left++; return nil }); err != nil {
		return 0, err
	}
	m.left.Store(left)
	var failed error
	err = m.blobs.WalkOld(ctx, func(path string) error {
		done, stays, err := m.one(ctx, path)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, blobstore.ErrUnavailable) || errors.Is(err, blobstore.ErrFull) || errors.Is(err, blobstore.ErrOverloaded):
			return err // the others would fail as well
		case err != nil || stays:
			failed = errors.Join(failed, err)
			return nil
		case done:
			moved++
		}
		m.left.Add(-1)
		return nil
	})
	if err = errors.Join(err, failed); err != nil || m.left.Load() > 0 {
		return moved, err
	}
	if err := m.blobs.End(ctx, m.id); err != nil {
		return moved, err
	}
	m.ended.Store(true)
	return moved, nil
}

// one moves the bytes of a path. stays: an upload needs them in the old place. If nothing needs them, they are left to
// the collector.
func (m *Mover) one(ctx context.Context, path string) (moved, stays bool, err error) {
	var want digest.Digest
	moved, err = m.blobs.Move(ctx, path, func() (bool, error) {
		if _, err := m.db.Row(ctx, findOld, []any{path}, &stays, &want); err != nil {
			return false, fmt.Errorf("find what needs a path: %w", err)
		}
		return !stays && want != "", nil
	}, func(r io.Reader) error {
		verifier := want.Verifier()
		if _, err := io.Copy(verifier, r); err != nil {
			return err
		}
		if !verifier.Verified() {
			return fmt.Errorf("the bytes do not have the digest %s", want)
		}
		return nil
	})
	switch {
	case errors.Is(err, blobstore.ErrDamaged):
		err = fmt.Errorf("blob %s: %w: exeunt registry verify --repair marks it, and then it is left behind", want, err)
	case err != nil:
		err = fmt.Errorf("blob %s (path %s): %w", want, path, err)
	}
	return moved, stays, err
}

// Close lets another process move.
func (m *Mover) Close() error { return m.blobs.Close() }
