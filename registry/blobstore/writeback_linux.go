package blobstore

import (
	"os"
	"syscall"
)

// startWriteback has the kernel begin to write a part of a file to the disk, so
// that the sync at the end finds most of it done. It is advice: what becomes of
// it, errors too, is told by the sync.
func startWriteback(f *os.File, from, to int64) {
	const write = 2 // SYNC_FILE_RANGE_WRITE
	raw, err := f.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) { _ = syscall.SyncFileRange(int(fd), from, to-from, write) })
}
