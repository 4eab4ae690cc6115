package blobstore

import (
	"os"
	"syscall"
)

// startWriteback asks the kernel to start writing a part of a file to disk, so
// that the final sync finds most of it done. It is a hint: the sync reports
// errors.
func startWriteback(f *os.File, from, to int64) {
	const write = 2 // SYNC_FILE_RANGE_WRITE
	raw, err := f.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) { _ = syscall.SyncFileRange(int(fd), from, to-from, write) })
}
