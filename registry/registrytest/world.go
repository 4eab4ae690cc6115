// Package registrytest is the registry of a test at the level of its rows: a
// database, a blob store, and images that are pushed with the statements of the
// registry, so that they take the same locks. It knows neither the requests nor the
// collector: the tests of those bring them.
package registrytest

import (
	"errors"
	"io"
	"testing"

	"github.com/opencontainers/go-digest"

	"github.com/exeunt/exeunt/registry/blobstore"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// World is a registry. Tests name blobs and manifests; their digests are derived
// from the names.
type World struct {
	*testing.T
	dbtest.SQL
	Store *blobstore.Dir

	Repos map[string]int64  // ids by path
	Names map[string]string // by digest
	Paths map[string]string // of blobs, by name: the latest
}

// New makes an empty registry.
func New(t *testing.T, db *sqldb.DB) *World {
	t.Helper()
	store, err := blobstore.OpenDir(Dir(t))
	if err != nil {
		t.Fatal(err)
	}
	return &World{
		T: t, SQL: dbtest.NewSQL(t, db), Store: store,
		Repos: map[string]int64{}, Names: map[string]string{}, Paths: map[string]string{},
	}
}

// DigestOf returns the digest of a name.
func (w *World) DigestOf(name string) string {
	if name == "" {
		return ""
	}
	d := digest.FromString(name).String()
	w.Names[d] = name
	return d
}

// Bytes stores a text and returns its path.
func (w *World) Bytes(text string) string {
	w.Helper()
	upload, err := w.Store.Create(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	_, err = io.WriteString(upload, text)
	if err := errors.Join(err, upload.Sync(), upload.Close()); err != nil {
		w.Fatal(err)
	}
	return upload.Path()
}
