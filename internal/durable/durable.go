// Package durable writes files that survive a crash of the machine.
package durable

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
)

// WriteFile replaces a file, with mode 0600: a reader sees the old or the new content, also after a
// power cut. The new file is at path.new until it is whole; change, if not nil, may change its owner.
func WriteFile(path string, data []byte, change func(*os.File) error) error {
	_ = os.Remove(path + ".new")                                                 // of a write that broke off
	f, err := os.OpenFile(path+".new", os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600) // it follows no link
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil && change != nil {
		err = change(f)
	}
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		return err
	}
	return SyncFolder(filepath.Dir(path))
}

// SyncFolder makes the names in a folder survive a power cut. Windows keeps them by itself.
func SyncFolder(path string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
