//go:build unix

package durable

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// KeepOwner gives a new file to the owner of its directory: a command that root runs must
// not write files that the server's user cannot read. Other users need no change. It refuses a file that has
// another name: the owner of the directory could make that one a link to files of others.
func KeepOwner(f *os.File) error {
	if os.Geteuid() != 0 {
		return nil
	}
	info, err := os.Stat(filepath.Dir(f.Name()))
	if err != nil {
		return err
	}
	opened, err := f.Stat()
	if err != nil {
		return err
	}
	if named, err := os.Lstat(f.Name()); err != nil || !os.SameFile(opened, named) || linked(opened) {
		return fmt.Errorf("%s is a link to another file: remove it", f.Name())
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); ok {
		return f.Chown(int(owner.Uid), int(owner.Gid))
	}
	return nil
}

// linked reports whether a file has two names.
func linked(info fs.FileInfo) bool {
	s, ok := info.Sys().(*syscall.Stat_t)
	return ok && !info.IsDir() && s.Nlink > 1
}

// KeepOwners gives all that is in a folder to the folder's owner, as KeepOwner does. It follows no
// symbolic links.
func KeepOwners(folder string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	root, err := os.OpenRoot(folder)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }() // nothing was written through it
	info, err := root.Stat(".")
	if err != nil {
		return err
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	return fs.WalkDir(root.FS(), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if info, err := entry.Info(); err != nil {
			return err
		} else if linked(info) {
			return fmt.Errorf("%s is a link to another file: remove it", filepath.Join(folder, path))
		}
		return root.Lchown(path, int(owner.Uid), int(owner.Gid))
	})
}
