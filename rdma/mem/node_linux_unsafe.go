//go:build linux

package mem

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxNode is the highest NUMA node that the kernel can have.
const maxNode = 1023

// preferNode makes the kernel take pages of raw from a NUMA node as long as it
// has some. mbind(2), MPOL_PREFERRED, of which x/sys has the numbers alone.
func preferNode(raw []byte, node int) error {
	if node < 0 || node > maxNode {
		return fmt.Errorf("%w: NUMA node %d: want 0 to %d", ErrNotSupported, node, maxNode)
	}
	const wordBits = 8 * int(unsafe.Sizeof(uintptr(0)))
	var mask [(maxNode + 1) / wordBits]uintptr
	mask[node/wordBits] |= 1 << (node % wordBits)
	// The kernel takes one bit less than the caller gives.
	_, _, errno := unix.Syscall6(unix.SYS_MBIND, uintptr(unsafe.Pointer(unsafe.SliceData(raw))), uintptr(len(raw)),
		unix.MPOL_PREFERRED, uintptr(unsafe.Pointer(&mask)), maxNode+2, 0)
	why := errno.Error()
	switch errno {
	case 0:
		return nil
	case unix.ENOSYS:
		if node == 0 {
			return nil // a kernel without NUMA has one node
		}
	case unix.EINVAL:
		why = "there is no such node with memory, or none that this process may use (cpuset)"
	case unix.EPERM:
		why = "this process may not say where memory is to come from (in a container: CAP_SYS_NICE, or a seccomp profile with mbind)"
	case unix.ENOMEM:
		return fmt.Errorf("%w: mbind of %d bytes to NUMA node %d: %w", ErrNoMemory, len(raw), node, errno)
	}
	return fmt.Errorf("%w: mbind of %d bytes to NUMA node %d: %s", ErrNotSupported, len(raw), node, why)
}
