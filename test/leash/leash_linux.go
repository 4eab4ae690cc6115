// Package leash ties processes to the one that started them.
package leash

import "syscall"

// Leash makes the kernel end a child process when its parent is killed. It returns the
// SysProcAttr of the command.
func Leash() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
