//go:build !linux

// Package leash ties processes to the one that started them.
package leash

import "syscall"

// Leash does nothing where the kernel offers no such bond: who is killed may
// leave processes behind.
func Leash() *syscall.SysProcAttr {
	return nil
}
