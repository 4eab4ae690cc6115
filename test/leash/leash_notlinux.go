//go:build !linux

// Package leash ties processes to the one that started them.
package leash

import "syscall"

// Leash does nothing where the kernel has no such feature: a killed parent may leave child
// processes behind.
func Leash() *syscall.SysProcAttr {
	return nil
}

// OwnGroup does nothing either: Ctrl-C in a terminal reaches the child processes as well.
func OwnGroup() *syscall.SysProcAttr {
	return nil
}
