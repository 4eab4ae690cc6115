// Package testprogram has what "exeunt envtest" needs besides the server: links to this program under
// the names that controller-runtime's envtest starts, an etcd that stores nothing, and a kubectl
// that runs another. It knows nothing of the server and its flags.
package testprogram

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
)

// Link makes a folder in which the names are this program.
func Link(dir string, names ...string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := link(self, filepath.Join(dir, name)); err != nil {
			return fmt.Errorf("make %s: %w", name, err)
		}
	}
	return nil
}

// link makes path a link to this program, or a copy where links are not allowed. It
// replaces an older one in one step, because suites may run meanwhile.
func link(self, path string) error {
	if runtime.GOOS == "windows" {
		path += ".exe"
	}
	if target, err := os.Readlink(path); err == nil && target == self {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	next := fmt.Sprintf("%s.%d", path, os.Getpid())
	_ = os.Remove(next) // of an attempt that broke off
	if err := os.Symlink(self, next); err != nil {
		if err := copyProgram(self, next); err != nil {
			return err
		}
	}
	return os.Rename(next, path)
}

func copyProgram(from, to string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
