//go:build unix && !linux

package lab

import "syscall"

// dieWithParent exists on Linux only. Elsewhere a guest notices that the host's
// end of its serial port is gone, and powers off.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
