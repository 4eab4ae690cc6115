//go:build !linux

package harness

import "syscall"

// leash does nothing where the kernel offers no such bond: a killed test
// binary may leave its servers behind.
func leash() *syscall.SysProcAttr {
	return nil
}
