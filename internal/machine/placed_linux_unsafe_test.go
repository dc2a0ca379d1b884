//go:build linux

package machine

import (
	"runtime"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// TestPlaced: a thread with a memory policy, as numactl gives it, is seen to have one.
func TestPlaced(t *testing.T) {
	if Placed() {
		t.Skip("the tests were started with a memory policy")
	}
	got := make(chan any)
	go func() {
		runtime.LockOSThread() // for good: the thread goes with its policy
		node0 := uint64(1)
		if _, _, errno := unix.Syscall(unix.SYS_SET_MEMPOLICY, unix.MPOL_BIND, uintptr(unsafe.Pointer(&node0)), 64); errno != 0 {
			got <- errno
			return
		}
		got <- Placed()
	}()
	switch v := (<-got).(type) {
	case unix.Errno:
		t.Skipf("this process may have no memory policy: %v", v)
	case bool:
		if !v {
			t.Error("a policy was set and is not seen")
		}
	}
}
