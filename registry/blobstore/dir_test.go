package blobstore_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/exeunt/exeunt/registry/blobstore"
	"github.com/exeunt/exeunt/registry/blobstore/blobstoretest"
)

func open(t *testing.T, dir string) *blobstore.Dir {
	t.Helper()
	d, err := blobstore.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestDir(t *testing.T) {
	blobstoretest.Run(t, func(t *testing.T) blobstoretest.World {
		dir := filepath.Join(t.TempDir(), "blobs")
		return blobstoretest.World{
			Store:  open(t, dir),
			Reopen: func(t *testing.T) blobstore.Store { return open(t, dir) },
		}
	})
}

func TestOpenDirRefuses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"", file, filepath.Join(file, "below"), filepath.Join(t.TempDir(), "no", "parent")} {
		if d, err := blobstore.OpenDir(dir); err == nil {
			t.Errorf("opened %q: %v", dir, d)
		}
	}
}

func TestDirIsPrivate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "blobs")
	d := open(t, dir)
	w, err := d.Create(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Sync(), w.Close()); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]os.FileMode{dir: 0o700, filepath.Join(dir, w.Path()): 0o600} {
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", path, info, err)
		}
	}
}

// TestRemoveKeepsOffAWriter: the writer's next write would store bytes that the
// database does not know.
func TestRemoveKeepsOffAWriter(t *testing.T) {
	d := open(t, t.TempDir())
	w, err := d.Create(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Remove(t.Context(), w.Path()); !errors.Is(err, blobstore.ErrBusy) {
		t.Errorf("removed under a writer: %v", err)
	}
	if _, err := io.WriteString(w, "late"); err != nil {
		t.Error(err)
	}
	if err := errors.Join(w.Close(), d.Remove(t.Context(), w.Path())); err != nil {
		t.Error(err)
	}
}

func BenchmarkPut(b *testing.B) {
	d, err := blobstore.OpenDir(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	data := make([]byte, 16<<10)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			w, err := d.Create(b.Context())
			if err != nil {
				b.Error(err)
				return
			}
			_, err = w.Write(data)
			if err := errors.Join(err, w.Sync(), w.Close()); err != nil {
				b.Error(err)
			}
		}
	})
}
