//go:build linux && cgo

package ibv

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// withoutIPCLock runs f on a thread that lacks the capability to lock memory
// without a limit (CAP_IPC_LOCK). The thread ends with it: the kernel lets only those
// credentials write to an RDMA device file that opened it, and putting a
// capability back makes new ones.
func withoutIPCLock(t *testing.T, f func()) {
	t.Helper()
	done := make(chan error)
	go func() {
		defer close(done)
		runtime.LockOSThread()
		hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var caps [2]unix.CapUserData
		if err := unix.Capget(&hdr, &caps[0]); err != nil {
			done <- err
			return
		}
		caps[0].Effective &^= 1 << unix.CAP_IPC_LOCK
		if err := unix.Capset(&hdr, &caps[0]); err != nil {
			done <- err
			return
		}
		f()
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}
