// Package leash ties processes to the one that started them.
package leash

import "syscall"

// Leash makes the kernel end a process when the one that started it was killed: it
// is for the command's SysProcAttr.
func Leash() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
