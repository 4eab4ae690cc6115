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
	"time"
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
		if err := syncFolder(filepath.Dir(root)); err != nil {
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
	return syncFolder(root)
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

// syncFolder makes the names in a folder survive a power cut.
func syncFolder(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
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
	if err := syncFolder(filepath.Dir(name)); err != nil {
		return fmt.Errorf("remove blob: %w", err)
	}
	return nil
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
