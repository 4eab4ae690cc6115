package blobstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/exeunt/exeunt/internal/durable"
)

// Dir is a store in a directory of one machine:
//
//	<dir>/3f/3f9c…
//
// Uploads use the folders in turn. OpenDir makes and syncs all 256, so an upload
// syncs only its file and its folder.
//
// ErrBusy covers the writers of one process. Two processes that share a
// directory and resume the same upload at once are not kept apart.
type Dir struct {
	root     string
	rotation rotation
	syncs    folderSyncs
	writers  claims
}

var (
	_ Store  = (*Dir)(nil)
	_ Walker = (*Dir)(nil)
)

const (
	// Other users of the machine get no access.
	folderMode = 0o700
	fileMode   = 0o600
)

// OpenDir opens a directory as a store, and makes it if its parent exists.
func OpenDir(dir string) (*Dir, error) {
	if dir == "" {
		return nil, errors.New("open blob store: no directory given")
	}
	root, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("open blob store: %w", err)
	}
	if err := makeFolders(root); err != nil {
		return nil, fmt.Errorf("open blob store: %w", err)
	}
	d := &Dir{root: root}
	d.rotation.made.Store(mathrand.Uint64N(folders * filesInARow)) // a random start, so that restarts do not favour the first folder
	return d, nil
}

func makeFolders(root string) error {
	made, err := makeFolder(root)
	if err != nil {
		return err
	}
	if made {
		if err := durable.SyncFolder(filepath.Dir(root)); err != nil {
			return err
		}
	}
	for i := range folders {
		if _, err := makeFolder(filepath.Join(root, folderName(byte(i)))); err != nil {
			return err
		}
	}
	// Sync even when nothing was made: another process may have died before its
	// sync.
	return durable.SyncFolder(root)
}

// makeFolder reports whether it made the folder. A file of that name is an
// error.
func makeFolder(path string) (made bool, err error) {
	err = os.Mkdir(path, folderMode)
	if err == nil {
		return true, nil
	}
	if info, failed := os.Stat(path); failed == nil && info.IsDir() {
		return false, nil
	}
	if errors.Is(err, fs.ErrExist) {
		err = fmt.Errorf("%s is not a directory", path)
	}
	return false, err
}

// file returns the file of a path.
func (d *Dir) file(path string) (string, error) {
	if err := checkPath(path); err != nil {
		return "", err
	}
	return filepath.Join(d.root, path[:2], path[3:]), nil
}

// Open is Store.Open. The reader is an *os.File, so the kernel can send it
// directly (sendfile).
func (d *Dir) Open(_ context.Context, path string, offset int64) (io.ReadCloser, error) {
	name, err := d.file(path)
	if err != nil {
		return nil, fmt.Errorf("open blob: %w", err)
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("open blob: %w", notFound(err))
	}
	if err := seek(f, offset); err != nil {
		return nil, errors.Join(fmt.Errorf("open blob: %w", err), f.Close())
	}
	return f, nil
}

func seek(f *os.File, offset int64) error {
	if offset == 0 {
		return nil
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if offset < 0 || offset > info.Size() {
		return fmt.Errorf("offset %d of %d bytes: %w", offset, info.Size(), ErrRange)
	}
	_, err = f.Seek(offset, io.SeekStart)
	return err
}

// Stat is Store.Stat.
func (d *Dir) Stat(_ context.Context, path string) (int64, error) {
	name, err := d.file(path)
	if err != nil {
		return 0, fmt.Errorf("stat blob: %w", err)
	}
	info, err := os.Stat(name)
	if err != nil {
		return 0, fmt.Errorf("stat blob: %w", notFound(err))
	}
	return info.Size(), nil
}

// Remove is Store.Remove. It syncs the folder even when there was no file: a
// process may have removed the file and died before its sync.
func (d *Dir) Remove(_ context.Context, path string) error {
	name, err := d.file(path)
	if err != nil {
		return fmt.Errorf("remove blob: %w", err)
	}
	if !d.writers.take(path) {
		return fmt.Errorf("remove blob: %w", ErrBusy)
	}
	defer d.writers.free(path)
	if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove blob: %w", err)
	}
	return wrap("remove blob", durable.SyncFolder(filepath.Dir(name)))
}

// Walk is Walker.Walk. It skips files that no store made.
func (d *Dir) Walk(ctx context.Context, fn func(path string, size int64, written time.Time) error) error {
	for i := range folders {
		folder := folderName(byte(i))
		entries, err := os.ReadDir(filepath.Join(d.root, folder))
		if err != nil {
			return fmt.Errorf("walk blobs: %w", err)
		}
		for _, entry := range entries {
			path := folder + "/" + entry.Name()
			if _, err := d.file(path); err != nil {
				continue
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			info, err := entry.Info()
			if errors.Is(err, fs.ErrNotExist) {
				continue // removed meanwhile
			}
			if err != nil {
				return fmt.Errorf("walk blobs: %w", err)
			}
			if err := fn(path, info.Size(), info.ModTime()); err != nil {
				return err
			}
		}
	}
	return nil
}

// notFound turns the operating system's error into ErrNotFound.
func notFound(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return ErrNotFound
	}
	return err
}

// writebackStep is how many bytes are handed to the kernel for writing at a
// time.
const writebackStep = 8 << 20

// dirWriter is an upload to a Dir.
type dirWriter struct {
	dir  *Dir
	path string
	name string // of the file in the file system

	file         *os.File // nil means not created yet, or closed
	unsyncedName bool     // the file's name has not been synced
	size         int64
	begun        int64 // the kernel has started to write the bytes before this offset
	closed       bool
	failed       error // the error of a failed sync
}

// Create is Store.Create.
func (d *Dir) Create(context.Context) (Writer, error) {
	path := newPath(d.rotation.next())
	name, err := d.file(path)
	if err != nil {
		return nil, fmt.Errorf("create blob: %w", err)
	}
	if !d.writers.take(path) {
		return nil, fmt.Errorf("create blob: %w", ErrBusy)
	}
	return &dirWriter{dir: d, path: path, name: name}, nil
}

// Resume is Store.Resume. It needs no state: the file has everything.
func (d *Dir) Resume(_ context.Context, path string, _ []byte) (Writer, error) {
	name, err := d.file(path)
	if err != nil {
		return nil, fmt.Errorf("resume blob: %w", err)
	}
	if !d.writers.take(path) {
		return nil, fmt.Errorf("resume blob: %w", ErrBusy)
	}
	w := &dirWriter{dir: d, path: path, name: name}
	if err := w.reopen(); err != nil {
		d.writers.free(path)
		return nil, fmt.Errorf("resume blob: %w", err)
	}
	return w, nil
}

// reopen opens the stored file. It marks the name for another sync, because the
// previous writer may have died before its own.
func (w *dirWriter) reopen() error {
	f, err := os.OpenFile(w.name, os.O_WRONLY, fileMode)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return errors.Join(err, f.Close())
	}
	w.file, w.unsyncedName, w.size, w.begun = f, true, size, size
	return nil
}

// make creates the file if it does not exist.
func (w *dirWriter) make() error {
	if w.closed {
		return fs.ErrClosed
	}
	if w.file != nil {
		return nil
	}
	f, err := os.OpenFile(w.name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fileMode)
	if err != nil {
		return err
	}
	w.file, w.unsyncedName = f, true
	return nil
}

func (w *dirWriter) Path() string  { return w.path }
func (w *dirWriter) Size() int64   { return w.size }
func (w *dirWriter) State() []byte { return nil }

// Finish is Writer.Finish: a synced file can already be read.
func (w *dirWriter) Finish() error { return w.Sync() }

func (w *dirWriter) Write(p []byte) (int, error) {
	if err := w.make(); err != nil {
		return 0, fmt.Errorf("write blob: %w", full(err))
	}
	n, err := w.file.Write(p)
	w.size += int64(n)
	if err != nil {
		return n, fmt.Errorf("write blob: %w", full(err))
	}
	if w.size-w.begun >= writebackStep {
		startWriteback(w.file, w.begun, w.size)
		w.begun = w.size
	}
	return n, nil
}

// Sync syncs the file first: a name without its bytes would be worse than no
// name. A failed sync may have dropped the bytes, and a later sync would succeed
// all the same. So the upload is lost.
func (w *dirWriter) Sync() error {
	if err := w.make(); err != nil {
		return fmt.Errorf("sync blob: %w", full(err))
	}
	if w.failed == nil {
		w.failed = w.sync()
	}
	if w.failed != nil {
		return fmt.Errorf("sync blob: %w: %w", ErrGone, full(w.failed))
	}
	return nil
}

func (w *dirWriter) sync() error {
	if err := w.file.Sync(); err != nil || !w.unsyncedName {
		return err
	}
	w.unsyncedName = false
	return w.dir.syncs.sync(w.dir.root, folderOf(w.path))
}

func (w *dirWriter) Close() error {
	if w.closed {
		return nil
	}
	w.closed = true
	defer w.dir.writers.free(w.path)
	if w.file == nil {
		return nil
	}
	if err := w.file.Close(); err != nil {
		return fmt.Errorf("close blob: %w", err)
	}
	return nil
}

// full adds ErrFull to the operating system's errors: disk full, quota exceeded,
// file too large.
func full(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG) {
		return fmt.Errorf("%w: %w", ErrFull, err)
	}
	return err
}
