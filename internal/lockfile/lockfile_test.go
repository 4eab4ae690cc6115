package lockfile

import (
	"os"
	"path/filepath"
	"testing"
)

// TestTryLock: a second holder is refused until the first closes its file.
func TestTryLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	open := func() *os.File {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		return f
	}
	try := func(f *os.File) bool {
		locked, err := TryLock(f)
		if err != nil {
			t.Fatal(err)
		}
		return locked
	}
	first, second := open(), open()
	if !try(first) || try(second) {
		t.Fatal("two files hold the lock, or none")
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if !try(second) {
		t.Error("the lock outlived its holder")
	}
}
