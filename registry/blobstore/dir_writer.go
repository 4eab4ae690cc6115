package blobstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

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
