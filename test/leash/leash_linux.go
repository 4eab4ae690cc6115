// Package leash ties processes to the one that started them.
package leash

import "syscall"

// Leash makes the kernel end a child process when its parent is killed. It returns the
// SysProcAttr of the command.
func Leash() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// OwnGroup is Leash for a process in a process group of its own: Ctrl-C in a terminal reaches
// only the parent, which ends the child in order.
func OwnGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
