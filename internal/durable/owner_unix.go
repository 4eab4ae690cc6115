//go:build unix

package durable

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// KeepOwner gives a new file to the owner of its directory: a command that root runs must
// not write files that the server's user cannot read. Other users need no change.
func KeepOwner(f *os.File) error {
	if os.Geteuid() != 0 {
		return nil
	}
	info, err := os.Stat(filepath.Dir(f.Name()))
	if err != nil {
		return err
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); ok {
		return f.Chown(int(owner.Uid), int(owner.Gid))
	}
	return nil
}

// KeepOwners gives all that is in a folder to the folder's owner, as KeepOwner does. It follows no
// symbolic links: the owner could point them at files of others.
func KeepOwners(folder string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	root, err := os.OpenRoot(folder)
	if err != nil {
		return err
	}
	defer root.Close()
	info, err := root.Stat(".")
	if err != nil {
		return err
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	return fs.WalkDir(root.FS(), ".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return root.Lchown(path, int(owner.Uid), int(owner.Gid))
	})
}
