//go:build unix

package lockfile

import (
	"errors"
	"os"
	"syscall"
)

// TryLock locks a file, unless another process holds the lock. The kernel releases it
// when the process ends.
func TryLock(f *os.File) (locked bool, err error) {
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}

// Unlock closes a file and releases its lock, also if a child process that is being started has
// the file open until it runs its program.
func Unlock(f *os.File) error {
	return errors.Join(syscall.Flock(int(f.Fd()), syscall.LOCK_UN), f.Close())
}
