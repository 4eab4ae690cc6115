package sqldb

import (
	"os"
	"syscall"
)

// syncData syncs the content of a file and only the metadata that is needed to
// read it: rewriting a log in place then does not wait for the file system's
// journal.
func syncData(f *os.File) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		for {
			if failed = syscall.Fdatasync(int(fd)); failed != syscall.EINTR {
				return
			}
		}
	})
	if err != nil {
		return err
	}
	return os.NewSyscallError("fdatasync", failed)
}
