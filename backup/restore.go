package backup

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/exeunt/exeunt/internal/durable"
	"github.com/exeunt/exeunt/registry"
	"github.com/exeunt/exeunt/registry/blobstore"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/store"
)

// RestoringFile is in a data directory while a restore fills it. A server does not start
// there, and an interrupted restore can be repeated there.
const RestoringFile = "restoring"

// ErrUsed: the place of a restore is not empty.
var ErrUsed = errors.New("it is not empty: a restore needs a new directory, and with PostgreSQL a new database")

// Restore makes the data of a new server from a backup. Its data directory, database and
// blob storage must be new. progress may be nil. It returns the first revision that the
// restored server can issue.
//
// The file RestoringFile is there from the first byte to the last. The database comes
// after bytes and keys: until then it is empty, or has no name.
func Restore(ctx context.Context, t *Target, m Manifest, s Server, progress func(Progress)) (revision int64, err error) {
	if s.EncryptionConfig != "" {
		return 0, errors.New("the key of Secrets is restored to the data directory")
	}
	s = s.WithDefaults()
	if isURL := strings.Contains(s.Database, "://"); isURL != (m.Engine == string(sqldb.Postgres)) {
		return 0, fmt.Errorf("backup %s is of %s: restore it with --database postgres://… if it is of PostgreSQL, and otherwise to a file", m.ID, m.Engine)
	}
	again, err := prepare(ctx, s)
	if err != nil {
		return 0, err
	}
	if progress == nil {
		progress = func(Progress) {}
	}
	r := &restoration{target: t, manifest: m, server: s, again: again, progress: progress}
	if err := r.blobs(ctx); err != nil {
		return 0, err
	}
	if err := r.keys(ctx); err != nil {
		return 0, err
	}
	progress(Progress{Step: "database"})
	if err := r.database(ctx); err != nil {
		return 0, err
	}
	err = durable.KeepOwners(s.Data)
	if m.StoreID != "" && !strings.Contains(s.Storage, "://") {
		err = errors.Join(err, durable.KeepOwners(s.Storage))
	}
	if err != nil {
		return 0, err
	}
	if err := os.Remove(filepath.Join(s.Data, RestoringFile)); err != nil {
		return 0, err
	}
	return r.revision, durable.SyncFolder(s.Data)
}

// prepare checks that the data directory is new, and marks it. again says that an
// interrupted restore has marked it before.
func prepare(ctx context.Context, s Server) (again bool, err error) {
	url := strings.Contains(s.Database, "://")
	if url {
		if empty, err := sqldb.Empty(ctx, s.Database); err != nil || !empty {
			return false, errors.Join(err, fmt.Errorf("--database: %w", ErrUsed))
		}
	}
	if err := os.MkdirAll(s.Data, 0o700); err != nil {
		return false, err
	}
	mark := filepath.Join(s.Data, RestoringFile)
	if _, err := os.Stat(mark); err == nil {
		return true, nil
	}
	entries, err := os.ReadDir(s.Data)
	if err != nil {
		return false, err
	}
	if len(entries) > 0 {
		return false, fmt.Errorf("%s has %s: %w", s.Data, entries[0].Name(), ErrUsed)
	}
	if !url {
		if _, err := os.Stat(s.Database); err == nil {
			return false, fmt.Errorf("%s exists: %w", s.Database, ErrUsed)
		}
	}
	return false, writeFile(mark, strings.NewReader("exeunt backup restore writes here; no server starts while this file exists\n"))
}

type restoration struct {
	target   *Target
	manifest Manifest
	server   Server
	again    bool // an interrupted restore may have written a part
	progress func(Progress)
	revision int64
}

// blobs copies the bytes to the paths that the database names.
func (r *restoration) blobs(ctx context.Context) error {
	if r.manifest.StoreID == "" {
		return nil // the server has never had a registry
	}
	blobs, err := r.target.blobs(ctx, r.manifest)
	if err != nil {
		return err
	}
	to, err := r.openStorage(ctx)
	if err != nil {
		return fmt.Errorf("--registry-storage %s: %w", r.server.Storage, err)
	}
	done := make(chan int64)
	group, working := errgroup.WithContext(ctx)
	group.SetLimit(copiers + 1)
	group.Go(func() error {
		p := Progress{Step: "blobs", Total: int64(len(blobs))}
		for range blobs {
			r.progress(p)
			select {
			case <-working.Done():
				return nil
			case size := <-done:
				p.Done++
				p.Bytes += size
			}
		}
		return nil
	})
	for _, b := range blobs {
		group.Go(func() error {
			if err := r.blob(working, to, b); err != nil {
				return fmt.Errorf("blob %s: %w", b.Digest, err)
			}
			select {
			case <-working.Done():
			case done <- b.Size:
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return to.SetMark(ctx, r.manifest.StoreID, r.again)
}

// openStorage opens the blob storage of the new server and checks that it is new.
func (r *restoration) openStorage(ctx context.Context) (blobstore.Marked, error) {
	opened, err := blobstore.Open(ctx, r.server.Storage)
	if err != nil {
		return nil, err
	}
	to, ok := opened.(blobstore.Marked)
	if _, moves := opened.(*blobstore.Moving); moves {
		return nil, errors.New("a restore needs one place, and none to move from")
	}
	if !ok {
		return nil, errors.New("this kind of storage cannot have an id")
	}
	mark, err := to.Mark(ctx)
	if err != nil {
		return nil, err
	}
	used, err := to.Used(ctx)
	if err != nil {
		return nil, err
	}
	if mark != "" && !(r.again && mark == r.manifest.StoreID) || used && !r.again {
		return nil, ErrUsed
	}
	return to, nil
}

func (r *restoration) blob(ctx context.Context, to blobstore.Store, b registry.StoredBlob) error {
	if r.again { // an interrupted restore may have left a part
		if err := to.Remove(ctx, b.Path); err != nil {
			return err
		}
	}
	content, err := r.target.openBlob(ctx, r.manifest, b)
	if err != nil {
		return err
	}
	return errors.Join(write(ctx, to, b.Path, content, nil), content.Close())
}

func (r *restoration) keys(ctx context.Context) error {
	for _, f := range r.manifest.Files {
		name, ok := strings.CutPrefix(f.Name, keyFolder)
		if !ok {
			continue
		}
		if !isKey(name) || !filepath.IsLocal(name) {
			return fmt.Errorf("the manifest has a file %q: %w", f.Name, ErrDamaged)
		}
		path := filepath.Join(r.server.Data, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
		content, err := r.target.read(ctx, r.manifest, f)
		if err != nil {
			return err
		}
		if err := errors.Join(writeFile(path, content), content.Close()); err != nil {
			return err
		}
	}
	return nil
}

func (r *restoration) database(ctx context.Context) (err error) {
	var read File // the last one
	open := func(name string) (_ io.ReadCloser, err error) {
		if read, err = r.manifest.file(databaseFolder + name); err != nil {
			return nil, err
		}
		return r.target.read(ctx, r.manifest, read)
	}
	defer func() {
		if err == nil {
			return
		}
		// The database may refuse damaged rows before their checksum is compared, at the end
		// of the file, and returns its errors as texts.
		if content, e := r.target.open(ctx, read); e == nil {
			_, e = io.Copy(io.Discard, content)
			err = errors.Join(err, e, content.Close())
		}
	}()
	finish := func(tx *sql.Tx) (err error) {
		if r.revision, err = store.Restored(ctx, tx); err != nil {
			return err
		}
		if err := registry.ForgetUploads(ctx, tx); err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, markRestored, r.manifest.ID, r.manifest.Created.UnixMilli(), time.Now().UnixMilli())
		return err
	}
	if r.manifest.Engine == string(sqldb.Postgres) {
		err := sqldb.Load(ctx, r.server.Database, open, finish)
		if errors.Is(err, sqldb.ErrNotEmpty) {
			err = fmt.Errorf("--database: %w", errors.Join(ErrUsed, err))
		}
		return err
	}
	temporary := r.server.Database + "." + RestoringFile
	for _, suffix := range []string{"", "-wal", "-shm"} { // of an interrupted restore
		if err := os.Remove(temporary + suffix); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	if err := sqldb.Load(ctx, temporary, open, finish); err != nil {
		return err
	}
	f, err := os.Open(temporary)
	if err != nil {
		return err
	}
	if err := errors.Join(durable.KeepOwner(f), f.Close(), os.Rename(temporary, r.server.Database)); err != nil {
		return err
	}
	return durable.SyncFolder(filepath.Dir(r.server.Database))
}

// writeFile writes a file that only its owner can read.
func writeFile(path string, content io.Reader) error {
	_ = os.Remove(path) // of an interrupted restore
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, content)
	return errors.Join(err, f.Sync(), f.Close())
}

// Verify checks that a backup has all its bytes. It calls found for each that is missing
// or damaged. quick compares sizes, and reads only the list of blobs.
func (t *Target) Verify(ctx context.Context, m Manifest, quick bool, found func(error), progress func(Progress)) error {
	if len(m.Recipients) > 0 && !quick && len(t.identities) == 0 {
		return fmt.Errorf("backup %s is encrypted: --quick compares sizes, and --identity FILE reads it", m.ID)
	}
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
			size := b.Size
			if len(m.Recipients) > 0 {
				size = encryptedSize
			}
			err := v.check(ctx, "blob "+b.Digest, blobPath(m.Recipients, b.Digest), size, func() (io.ReadCloser, error) { return t.openBlob(ctx, m, b) })
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

// encryptedSize: the size is not that of the content.
const encryptedSize = -1

// check reports bytes that are missing or damaged. It fails if they cannot be read.
func (v *verification) check(ctx context.Context, name, path string, size int64, open func() (io.ReadCloser, error)) error {
	actual, err := v.target.store.Stat(ctx, path)
	if err == nil && actual != size && size != encryptedSize {
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
