package harness

import "syscall"

// leash makes the kernel end a server process whose test binary was killed.
func leash() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
