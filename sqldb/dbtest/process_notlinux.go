//go:build !linux

package dbtest

import (
	"errors"
	"os"
	"syscall"
)

// unprivileged returns the attributes to start PostgreSQL with, which refuses to
// run as root.
func unprivileged(string) (*syscall.SysProcAttr, error) {
	if os.Geteuid() == 0 {
		return nil, errors.New("root cannot run PostgreSQL: run the tests as another user")
	}
	return &syscall.SysProcAttr{}, nil
}
