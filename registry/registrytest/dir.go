package registrytest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// dirs are directories that earlier tests have left empty. Making the 256 folders of
// a blobstore.Dir, and removing them again, takes longer than most tests.
var dirs struct {
	sync.Mutex
	root string // of all of them; empty means that there is none yet
	made int
	free []string
}

// Dir returns a directory without blobs for the time of a test, for
// blobstore.OpenDir. The package needs a TestMain that calls dbtest.Main, which
// removes it.
func Dir(t testing.TB) string {
	t.Helper()
	dir, err := takeDir()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := empty(dir); err != nil {
			return // a test has damaged it: it is removed with the others
		}
		dirs.Lock()
		defer dirs.Unlock()
		dirs.free = append(dirs.free, dir)
	})
	return dir
}

func takeDir() (string, error) {
	dirs.Lock()
	defer dirs.Unlock()
	if n := len(dirs.free); n > 0 {
		dir := dirs.free[n-1]
		dirs.free = dirs.free[:n-1]
		return dir, nil
	}
	if dirs.root == "" {
		root, err := os.MkdirTemp("", "exeunt-blobs-")
		if err != nil {
			return "", err
		}
		dirs.root = root
		dbtest.AtExit(func() error { return os.RemoveAll(root) })
	}
	dirs.made++
	return filepath.Join(dirs.root, fmt.Sprint(dirs.made)), nil
}

// empty removes the files in a directory and its folders.
func empty(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil // no store was opened
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		switch {
		case err != nil:
			return err
		case !e.IsDir():
			err = os.Remove(path)
		default:
			var files []os.DirEntry
			files, err = os.ReadDir(path)
			for _, f := range files {
				err = errors.Join(err, os.Remove(filepath.Join(path, f.Name())))
			}
		}
	}
	return err
}
