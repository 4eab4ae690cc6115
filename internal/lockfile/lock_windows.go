package lockfile

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// TryLock locks a file, unless another process holds the lock. The kernel releases it
// when the process ends.
func TryLock(f *os.File) (locked bool, err error) {
	const flags = windows.LOCKFILE_EXCLUSIVE_LOCK | windows.LOCKFILE_FAIL_IMMEDIATELY
	err = windows.LockFileEx(windows.Handle(f.Fd()), flags, 0, 1, 0, &windows.Overlapped{})
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return false, nil
	}
	return err == nil, err
}

// Unlock closes a file and releases its lock.
func Unlock(f *os.File) error { return f.Close() }
