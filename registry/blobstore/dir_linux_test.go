package blobstore_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/exeunt/exeunt/registry/blobstore"
)

// TestFullDisk writes to /dev/full, where the kernel reports a full disk.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	d := open(t, dir)
	w, err := d.Create(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/dev/full", filepath.Join(dir, w.Path())); err != nil {
		t.Fatal(err)
	}
	if w, err = d.Resume(t.Context(), w.Path(), nil); err != nil {
		t.Fatal(err)
	}
	if n, err := io.WriteString(w, strings.Repeat("x", 1000)); !errors.Is(err, blobstore.ErrFull) || n != 0 || w.Size() != 0 {
		t.Errorf("wrote %d bytes to a full disk, size %d: %v", n, w.Size(), err)
	}
	if err := errors.Join(w.Close(), d.Remove(t.Context(), w.Path())); err != nil {
		t.Error(err)
	}
}
