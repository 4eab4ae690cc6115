//go:build unix

package lockfile

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestUnlock: an unlocked file has no holder, also while a copy of its descriptor is open, as in a
// child process before it runs its program.
func TestUnlock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	var files [2]*os.File
	for i := range files {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		files[i] = f
	}
	defer files[1].Close()
	if locked, err := TryLock(files[0]); err != nil || !locked {
		t.Fatalf("locked %v, %v", locked, err)
	}
	inherited, err := syscall.Dup(int(files[0].Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Close(inherited) }()
	if err := Unlock(files[0]); err != nil {
		t.Fatal(err)
	}
	if locked, err := TryLock(files[1]); err != nil || !locked {
		t.Errorf("the lock outlived its holder: locked %v, %v", locked, err)
	}
}
