// Package backup copies a database, the bytes that it names, and the keys of its server
// to a target, while the server works, and makes a new server from such a copy. It
// promises that a backup is listed only if it is whole, and that a restored database
// issues no resource version a second time. It does not know what tables and objects
// mean: store and registry prepare their own tables of a restored database.
//
// A target is a blob store of its own, a directory or a bucket. The bytes of a blob are
// there once, at a path made from its digest, whichever backups need them. The files of
// a backup (database, keys, list of blobs) have paths of their own. A backup exists when
// its manifest does: it is written last, whole, and removed first. Bytes that no
// manifest names are rests of an interrupted backup, and the next one removes them.
//
// Begin with [Create] and [Restore]. docs/spec/backup.md has every race and its answer.
package backup

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/exeunt/exeunt/registry"
)

// Server says where the data of a server is. Zero values have a default.
type Server struct {
	// Data is the data directory.
	Data string
	// Database is a postgres:// URL, or the path of an SQLite file. Default exeunt.db in
	// Data.
	Database string
	// Storage is where the registry stores bytes. Default blobs in Data.
	Storage string
	// EncryptionConfig is the file with the keys of Secrets. Default encryption.yaml in
	// Data.
	EncryptionConfig string
}

// WithDefaults fills in the defaults.
func (s Server) WithDefaults() Server {
	s.Database = cmp.Or(s.Database, filepath.Join(s.Data, "exeunt.db"))
	s.Storage = cmp.Or(s.Storage, filepath.Join(s.Data, "blobs"))
	s.EncryptionConfig = cmp.Or(s.EncryptionConfig, filepath.Join(s.Data, encryptionFile))
	return s
}

// Manifest describes a backup.
type Manifest struct {
	Format    int       `json:"format"`
	ID        string    `json:"id"`
	Created   time.Time `json:"created"` // every write that was acknowledged before is in the backup
	Version   string    `json:"version"` // of the program that made it
	Engine    string    `json:"engine"`
	Files     []File    `json:"files"`
	Blobs     int       `json:"blobs"`
	BlobBytes int64     `json:"blobBytes"`
	// StoreID is the id that database and blob store share; empty means that there is no blob store.
	StoreID string `json:"storeId,omitempty"`
	// Recipients of age can read an encrypted backup. Empty if it is not encrypted.
	Recipients []string `json:"recipients,omitempty"`
	// SHA256 is the checksum of the manifest without this field. Format 1 has none.
	SHA256 string `json:"sha256,omitempty"`
}

// sum returns the checksum of a manifest.
func (m Manifest) sum() (string, error) {
	m.SHA256 = ""
	content, err := json.Marshal(m)
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:]), err
}

// File is a file of one backup.
type File struct {
	Name   string `json:"name"`
	Path   string `json:"path"` // in the target
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

const (
	format = 2
	// manifestSuffix follows the id in the names of manifests.
	manifestSuffix = ".manifest.json"

	// The names of files in a backup.
	databaseFolder = "database/"
	keyFolder      = "keys/"
	blobList       = "blobs.json"
)

// Size is how many bytes the backup has, with the blobs that it shares.
func (m Manifest) Size() int64 {
	size := m.BlobBytes
	for _, f := range m.Files {
		size += f.Size
	}
	return size
}

func (m Manifest) file(name string) (File, error) {
	i := slices.IndexFunc(m.Files, func(f File) bool { return f.Name == name })
	if i < 0 {
		return File{}, fmt.Errorf("backup %s has no file %s: %w", m.ID, name, ErrDamaged)
	}
	return m.Files[i], nil
}

// newID makes the id of a backup: its time, and a random part that is long enough for
// backups that begin in the same second.
func newID(now time.Time) string {
	return now.UTC().Format("20060102T150405Z") + "-" + strings.ToLower(rand.Text()[:8])
}

// Progress is how far an operation is.
type Progress struct {
	Step  string `json:"step"` // what is done now
	Done  int64  `json:"done,omitempty"`
	Total int64  `json:"total,omitempty"` // blobs
	Bytes int64  `json:"bytes,omitempty"` // that were copied or read
}

// save writes a new file to the target, for the recipients.
func (t *Target) save(ctx context.Context, name string, content io.Reader, recipients []string) (file File, err error) {
	w, err := t.store.Create(ctx)
	if err != nil {
		return File{}, err
	}
	hash := sha256.New()
	err = copyEncrypted(ctx, io.MultiWriter(w, hash), content, recipients)
	if err == nil {
		err = w.Finish()
	}
	file = File{Name: name, Path: w.Path(), Size: w.Size(), SHA256: hex.EncodeToString(hash.Sum(nil))}
	if err = errors.Join(err, w.Close()); err != nil {
		return file, fmt.Errorf("write %s: %w", name, err)
	}
	return file, nil
}

func copyEncrypted(ctx context.Context, to io.Writer, content io.Reader, recipients []string) error {
	out, err := encrypt(to, recipients)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, withContext(ctx, content)); err != nil {
		return err
	}
	return out.Close()
}

// read reads the content of a file of a backup.
func (t *Target) read(ctx context.Context, m Manifest, f File) (io.ReadCloser, error) {
	content, err := t.open(ctx, f)
	if err != nil {
		return nil, err
	}
	return t.decrypt(m, content)
}

// open reads a file as it is stored. At its end it compares size and checksum.
func (t *Target) open(ctx context.Context, f File) (io.ReadCloser, error) {
	content, err := t.store.Open(ctx, f.Path, 0)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", f.Name, err)
	}
	return &checked{ReadCloser: content, name: f.Name, hash: sha256.New(), want: f.SHA256, left: f.Size}, nil
}

// blobs reads the list of the blobs of a backup.
func (t *Target) blobs(ctx context.Context, m Manifest) (list []registry.StoredBlob, err error) {
	file, err := m.file(blobList)
	if err != nil {
		return nil, err
	}
	content, err := t.open(ctx, file)
	if err != nil {
		return nil, err
	}
	raw, err := io.ReadAll(content)
	if err := errors.Join(err, content.Close()); err != nil {
		return nil, err
	}
	if err := json.NewDecoder(bytes.NewReader(raw)).Decode(&list); err != nil {
		return nil, fmt.Errorf("read %s: %w", blobList, err)
	}
	return list, nil
}
