//go:build unix

package access

import (
	"os"
	"path/filepath"
	"syscall"
)

// keepOwner gives a new file to the owner of its directory: a command that root runs must
// not write files that the server's user cannot read. Other users need no change.
func keepOwner(f *os.File) error {
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
