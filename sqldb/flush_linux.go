package sqldb

import (
	"os"
	"syscall"
)

// syncData syncs the content of a file, and of its metadata only what is needed
// to read it: a log that is written over again need not wait for the journal of
// the file system.
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
