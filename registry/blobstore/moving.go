package blobstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/exeunt/exeunt/internal/lockfile"
)

// Moving is a store whose bytes move from a directory to another store while both serve. New uploads go to the new
// place; bytes are looked for in the old place first, because they leave it only after they have arrived. A path has
// the same bytes in both. docs/spec/moving.md has the interleavings.
//
// The marks of both places say that a move is under way, so neither is taken for the whole store.
type Moving struct {
	from   *Dir
	to     *S3
	copies claims // paths that Move copies, or Remove removes
	lock   *os.File
}

var (
	_ Marked = (*Moving)(nil)
	_ Walker = (*Moving)(nil)
)

// movingFrom separates the two places of a Moving in a location: NEW,from=OLD.
const movingFrom = ",from="

// MovingMark begins the mark of both places, before the id.
const MovingMark = "moving "

// ErrDamaged: the bytes in the old place are not what they should be.
var ErrDamaged = errors.New("the bytes are damaged")

func openMoving(ctx context.Context, to, from string) (*Moving, error) {
	if _, err := os.Stat(from); err != nil { // OpenDir would make it
		return nil, fmt.Errorf("open blob store: the directory to move from: %w", err)
	}
	old, err := OpenDir(from)
	if err != nil {
		return nil, err
	}
	next, err := Open(ctx, to)
	if err != nil {
		return nil, err
	}
	return &Moving{from: old, to: next.(*S3)}, nil
}

// PartSize is that of the new place.
func (m *Moving) PartSize() int64 { return m.to.PartSize() }

// Create is Store.Create.
func (m *Moving) Create(ctx context.Context) (Writer, error) { return m.to.Create(ctx) }

// Resume is Store.Resume. An upload continues in the place that has its bytes.
func (m *Moving) Resume(ctx context.Context, path string, state []byte) (Writer, error) {
	switch _, err := m.from.Stat(ctx, path); {
	case err == nil:
		return m.from.Resume(ctx, path, state)
	case !errors.Is(err, ErrNotFound):
		return nil, err
	}
	return m.to.Resume(ctx, path, state)
}

// Open is Store.Open.
func (m *Moving) Open(ctx context.Context, path string, offset int64) (io.ReadCloser, error) {
	if r, err := m.from.Open(ctx, path, offset); !errors.Is(err, ErrNotFound) {
		return r, err
	}
	return m.to.Open(ctx, path, offset)
}

// Stat is Store.Stat.
func (m *Moving) Stat(ctx context.Context, path string) (int64, error) {
	if size, err := m.from.Stat(ctx, path); !errors.Is(err, ErrNotFound) {
		return size, err
	}
	return m.to.Stat(ctx, path)
}

// Remove is Store.Remove. A path that is being copied is busy: its copy would come back.
func (m *Moving) Remove(ctx context.Context, path string) error {
	if !m.copies.take(path) {
		return fmt.Errorf("remove blob: %w", ErrBusy)
	}
	defer m.copies.free(path)
	if err := m.from.Remove(ctx, path); err != nil {
		return err
	}
	return m.to.Remove(ctx, path)
}

// Walk is Walker.Walk. A path that moves meanwhile may come twice.
func (m *Moving) Walk(ctx context.Context, fn func(path string, size int64, written time.Time) error) error {
	if err := m.from.Walk(ctx, fn); err != nil {
		return err
	}
	return m.to.Walk(ctx, fn)
}

// WalkOld calls fn for each path in the old place.
func (m *Moving) WalkOld(ctx context.Context, fn func(path string) error) error {
	return m.from.Walk(ctx, func(path string, _ int64, _ time.Time) error { return fn(path) })
}

// Mark is Marked.Mark: the id of both places. The new one may have none yet, the old one none if the move has ended.
func (m *Moving) Mark(ctx context.Context) (string, error) {
	from, to, err := m.marks(ctx)
	if err != nil {
		return "", err
	}
	old, next := strings.TrimPrefix(from, MovingMark), strings.TrimPrefix(to, MovingMark)
	switch {
	case to == "":
		used, err := m.to.Used(ctx)
		if err == nil && used {
			err = errors.New("the place to move to has bytes already, and no id: it must be new")
		}
		return old, err
	case from == "" && next == to, old == next:
		return next, nil
	}
	return "", fmt.Errorf("the place to move to has the id %q, and the place to move from %q: %w", next, old, ErrMarked)
}

func (m *Moving) marks(ctx context.Context) (from, to string, err error) {
	from, err = m.from.Mark(ctx)
	if err == nil {
		to, err = m.to.Mark(ctx)
	}
	return from, to, err
}

// SetMark is Marked.SetMark. Before Begin the old place is the store.
func (m *Moving) SetMark(ctx context.Context, id string, replace bool) error {
	return m.from.SetMark(ctx, id, replace)
}

// Used is Marked.Used.
func (m *Moving) Used(ctx context.Context) (bool, error) {
	used, err := m.from.Used(ctx)
	if err != nil || used {
		return used, err
	}
	return m.to.Used(ctx)
}

// Begin marks both places, the old one first: from now on no server takes one of them for the whole store. It reports
// whether the move has ended before. One process moves at a time: a second one is refused.
func (m *Moving) Begin(ctx context.Context, id string) (ended bool, err error) {
	from, to, err := m.marks(ctx)
	if err != nil || to == id && from != id {
		return err == nil, err
	}
	file, err := os.OpenFile(filepath.Join(m.from.root, ".exeunt-moving"), os.O_CREATE|os.O_RDWR, fileMode)
	if err != nil {
		return false, fmt.Errorf("move the blob store: %w", err)
	}
	if locked, err := lockfile.TryLock(file); err != nil || !locked {
		return false, errors.Join(errors.New("move the blob store: another server moves it: only one may serve the registry meanwhile"), err, file.Close())
	}
	m.lock = file
	if err := m.from.SetMark(ctx, MovingMark+id, true); err != nil {
		return false, err
	}
	return false, m.to.SetMark(ctx, MovingMark+id, to == MovingMark+id || to == id)
}

// End makes the new place the whole store. Nothing that is needed may be left in the old one, whose mark stays.
func (m *Moving) End(ctx context.Context, id string) error {
	if err := m.to.SetMark(ctx, id, true); err != nil {
		return err
	}
	return m.Close()
}

// Close lets another process move.
func (m *Moving) Close() error {
	if m.lock == nil {
		return nil
	}
	file := m.lock
	m.lock = nil
	return lockfile.Unlock(file)
}

// Move copies the bytes at a path to the new place, and removes them from the old one when check has read the copy
// and found it right. current is asked first: false means that nothing needs the path, and nothing is done. After
// a crash it begins again. ErrDamaged: check refused the bytes in the old place too; they stay there.
func (m *Moving) Move(ctx context.Context, path string, current func() (bool, error), check func(io.Reader) error) (moved bool, err error) {
	if !m.copies.take(path) {
		return false, nil // it is being removed
	}
	defer m.copies.free(path)
	if needed, err := current(); err != nil || !needed {
		return false, err
	}
	if err := m.to.Remove(ctx, path); err != nil { // what an attempt before has left
		return false, err
	}
	if err := m.copy(ctx, path); err != nil {
		return false, err
	}
	if err := checked(ctx, m.to, path, check); err != nil {
		if checked(ctx, m.from, path, check) == nil {
			return false, fmt.Errorf("read back what was copied: %w", err)
		}
		return false, errors.Join(ErrDamaged, err, m.to.Remove(ctx, path))
	}
	return true, m.from.Remove(ctx, path)
}

func (m *Moving) copy(ctx context.Context, path string) (err error) {
	source, err := m.from.Open(ctx, path, 0)
	if err != nil {
		return err
	}
	defer source.Close()
	w, err := m.to.Resume(ctx, path, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	if _, err := io.Copy(w, readerOf(ctx, source)); err != nil {
		return err
	}
	return w.Finish()
}

func checked(ctx context.Context, s Store, path string, check func(io.Reader) error) error {
	r, err := s.Open(ctx, path, 0)
	if err != nil {
		return err
	}
	return errors.Join(check(readerOf(ctx, r)), r.Close())
}

// readerOf ends a copy when its context ends.
func readerOf(ctx context.Context, r io.Reader) io.Reader { return contextReader{ctx, r} }

type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (c contextReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}
