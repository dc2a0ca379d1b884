//go:build linux

package machine

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Placed reports whether the process was started with a policy for its memory, which
// a process inherits: numactl --membind, --preferred, --interleave. It is false where
// the process may not ask for its policy, as in a container. get_mempolicy(2).
func Placed() bool {
	var mode int32 // the kernel writes an int
	_, _, errno := unix.Syscall6(unix.SYS_GET_MEMPOLICY, uintptr(unsafe.Pointer(&mode)), 0, 0, 0, 0, 0)
	return errno == 0 && mode != unix.MPOL_DEFAULT
}
