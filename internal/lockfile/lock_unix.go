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
