package backup

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

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
			needed[blobstore.PathOf(b.Digest)] = true
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
