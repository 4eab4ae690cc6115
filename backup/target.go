package backup

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"filippo.io/age"
	"github.com/opencontainers/go-digest"

	"github.com/exeunt/exeunt/registry"
	"github.com/exeunt/exeunt/registry/blobstore"
)

// byteStore is what a target needs of a blob store. Directories and buckets have it.
type byteStore interface {
	blobstore.Marked
	blobstore.Walker
	blobstore.Documents
}

// Target holds backups. Create and Prune lock it; it is for one of them at a time.
type Target struct {
	store    byteStore
	location string
	dir      string // empty means a bucket

	identities []age.Identity // of Unlock
}

// OpenTarget opens a directory or s3://BUCKET/PREFIX. It makes a directory only if
// create is set.
func OpenTarget(ctx context.Context, location string, create bool) (*Target, error) {
	t := &Target{location: location}
	if !strings.HasPrefix(location, "s3:") {
		t.dir = location
		if _, err := os.Stat(filepath.Join(location, ".documents")); err != nil && !create {
			return nil, fmt.Errorf("%s has no backups: %w", location, err)
		}
	}
	opened, err := blobstore.Open(ctx, location)
	if err != nil {
		return nil, fmt.Errorf("open the target of backups: %w", err)
	}
	s, ok := opened.(byteStore)
	if !ok {
		return nil, fmt.Errorf("%s cannot hold backups", location)
	}
	mark, err := s.Mark(ctx)
	if err != nil {
		return nil, err
	}
	if mark != "" {
		return nil, fmt.Errorf("%s is the storage of a registry: backups need a place of their own", location)
	}
	t.store = s
	return t, nil
}

// List lists the backups, oldest first.
func (t *Target) List(ctx context.Context) (list []Manifest, err error) {
	documents, err := t.store.ListDocuments(ctx)
	if err != nil {
		return nil, err
	}
	for _, d := range documents {
		if !strings.HasSuffix(d.Name, manifestSuffix) {
			continue
		}
		m, err := t.manifest(ctx, d.Name)
		if errors.Is(err, blobstore.ErrNotFound) {
			continue // pruned meanwhile
		}
		if err != nil {
			return nil, err
		}
		list = append(list, m)
	}
	slices.SortFunc(list, func(a, b Manifest) int { return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.ID, b.ID)) })
	return list, nil
}

func (t *Target) manifest(ctx context.Context, name string) (m Manifest, err error) {
	content, err := t.store.Document(ctx, name)
	if err != nil {
		return m, err
	}
	if err := json.Unmarshal(content, &m); err != nil {
		return m, fmt.Errorf("read %s: %w: %w", name, ErrDamaged, err)
	}
	if m.Format > format {
		return m, fmt.Errorf("%s has format %d, and this program knows format %d: a newer version made it, or %w", name, m.Format, format, ErrDamaged)
	}
	sum, err := m.sum()
	if err != nil {
		return m, err
	}
	if m.Format < 1 || m.ID+manifestSuffix != name || m.SHA256 != sum && (m.Format > 1 || m.SHA256 != "") {
		return m, fmt.Errorf("%s does not match its checksum or its name: %w", name, ErrDamaged)
	}
	return m, nil
}

// Find returns a backup by its id; empty means the newest.
func (t *Target) Find(ctx context.Context, id string) (Manifest, error) {
	list, err := t.List(ctx)
	if err != nil {
		return Manifest{}, err
	}
	if id == "" && len(list) > 0 {
		return list[len(list)-1], nil
	}
	for _, m := range list {
		if m.ID == id {
			return m, nil
		}
	}
	if id == "" {
		return Manifest{}, fmt.Errorf("%s has no backups", t.location)
	}
	return Manifest{}, fmt.Errorf("%s has no backup %s: exeunt backup list %s", t.location, id, t.location)
}

// put writes a manifest: from then on the backup exists.
func (t *Target) put(ctx context.Context, m Manifest) (err error) {
	if m.SHA256, err = m.sum(); err != nil {
		return err
	}
	content, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	return t.store.PutDocument(ctx, m.ID+manifestSuffix, append(content, '\n'))
}

// Prune removes all but the newest backups, and the bytes that only they had.
func (t *Target) Prune(ctx context.Context, keep int) (removed []Manifest, err error) {
	ctx, unlock, err := t.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	list, err := t.List(ctx)
	if err != nil {
		return nil, err
	}
	for _, m := range list[:max(0, len(list)-keep)] {
		// The manifest goes first: a crash leaves bytes without a backup, and not a
		// backup without bytes.
		if err := t.store.RemoveDocument(ctx, m.ID+manifestSuffix); err != nil {
			return removed, err
		}
		removed = append(removed, m)
	}
	_, err = t.sweep(ctx)
	return removed, err
}

// sweep removes the bytes that no backup needs. The target is locked.
func (t *Target) sweep(ctx context.Context) (bytes int64, err error) {
	list, err := t.List(ctx)
	if err != nil {
		return 0, err
	}
	needed := map[string]bool{}
	for _, m := range list {
		for _, f := range m.Files {
			needed[f.Path] = true
		}
		blobs, err := t.blobs(ctx, m)
		if err != nil {
			return 0, fmt.Errorf("backup %s: %w", m.ID, err)
		}
		for _, b := range blobs {
			needed[blobPath(m.Recipients, b.Digest)] = true
		}
	}
	var rests []string
	err = t.store.Walk(ctx, func(path string, size int64, _ time.Time) error {
		if !needed[path] {
			rests = append(rests, path)
			bytes += size
		}
		return nil
	})
	for _, path := range rests {
		if err == nil {
			err = t.store.Remove(ctx, path)
		}
	}
	if err != nil {
		return 0, fmt.Errorf("remove bytes that no backup needs: %w", err)
	}
	return bytes, nil
}

// ErrDamaged: bytes of a backup are missing, or do not match their checksum.
var ErrDamaged = errors.New("the backup is damaged")

// checked reads content and reports ErrDamaged, in place of the end, if its size or
// checksum is wrong.
type checked struct {
	io.ReadCloser
	name string
	hash hash.Hash
	want string // in hex
	left int64  // bytes until the end
}

func (c *checked) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	c.hash.Write(p[:n])
	c.left -= int64(n)
	if c.left < 0 {
		return n, fmt.Errorf("%s is too long: %w", c.name, ErrDamaged)
	}
	if errors.Is(err, io.EOF) {
		if c.left > 0 {
			return n, fmt.Errorf("%s is %d bytes too short: %w", c.name, c.left, ErrDamaged)
		}
		if hex.EncodeToString(c.hash.Sum(nil)) != c.want {
			return n, fmt.Errorf("%s does not match its checksum: %w", c.name, ErrDamaged)
		}
	}
	return n, err
}

// withContext ends a copy when the context does.
func withContext(ctx context.Context, r io.Reader) io.Reader { return contextReader{ctx, r} }

type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (c contextReader) Read(p []byte) (int, error) {
	if c.ctx.Err() != nil {
		return 0, context.Cause(c.ctx)
	}
	return c.r.Read(p)
}

// known lists the digests of the blobs that whole backups for the recipients have: their bytes were synced.
func (t *Target) known(ctx context.Context, recipients []string) (map[string]bool, error) {
	list, err := t.List(ctx)
	if err != nil {
		return nil, err
	}
	known := map[string]bool{}
	for _, m := range list {
		if blobPath(m.Recipients, "") != blobPath(recipients, "") {
			continue
		}
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
func (t *Target) copyBlob(ctx context.Context, source blobstore.Store, b registry.StoredBlob, recipients []string, known bool) (copied bool, err error) {
	path := blobPath(recipients, b.Digest)
	size, err := t.store.Stat(ctx, path)
	switch {
	case errors.Is(err, blobstore.ErrNotFound):
	case err != nil:
		return false, err
	case known && (size == b.Size || len(recipients) > 0):
		return false, nil
	case size == b.Size && len(recipients) == 0 && t.matches(ctx, b):
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
	return true, errors.Join(write(ctx, t.store, path, content, recipients), content.Close())
}

// write writes new bytes at a path, for the recipients.
func write(ctx context.Context, to blobstore.Store, path string, content io.Reader, recipients []string) error {
	w, err := to.Resume(ctx, path, nil)
	if err != nil {
		return err
	}
	if err = copyEncrypted(ctx, w, content, recipients); err == nil {
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

// openBlob reads a blob of a backup and compares it with its digest.
func (t *Target) openBlob(ctx context.Context, m Manifest, b registry.StoredBlob) (io.ReadCloser, error) {
	content, err := t.store.Open(ctx, blobPath(m.Recipients, b.Digest), 0)
	if err != nil {
		return nil, err
	}
	if content, err = t.decrypt(m, content); err != nil {
		return nil, err
	}
	return checkedBlob(b, content)
}

// openBlob reads a blob and compares it with its digest.
func openBlob(ctx context.Context, from blobstore.Store, path string, b registry.StoredBlob) (io.ReadCloser, error) {
	content, err := from.Open(ctx, path, 0)
	if err != nil {
		return nil, err
	}
	return checkedBlob(b, content)
}

func checkedBlob(b registry.StoredBlob, content io.ReadCloser) (io.ReadCloser, error) {
	d, err := digest.Parse(b.Digest)
	if err != nil {
		return nil, errors.Join(err, content.Close())
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
