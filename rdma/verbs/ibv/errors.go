package ibv

import (
	"errors"
	"fmt"
	"syscall"
)

var (
	// ErrUnavailable: RDMA cannot be used in this process, whatever the
	// arguments: rdma-core is not installed, this program was built without
	// it, the kernel has no RDMA, or it refuses this user. The error that wraps it
	// (a *LoadError or a *CallError) says which, and what to do.
	ErrUnavailable = errors.New("ibv: RDMA is not available")

	// ErrClosed: the object was closed, before the call or while it waited.
	ErrClosed = errors.New("ibv: closed")

	// ErrNoSuchDevice: Open was given a name that no device has.
	ErrNoSuchDevice = errors.New("ibv: no such device")
)

// A CallError says that a call into rdma-core failed. It wraps its Errno, so
// that errors.Is(err, syscall.EBUSY) works.
type CallError struct {
	Call  string // "ibv_reg_mr"
	Errno syscall.Errno
	Hint  string // what usually causes it and what to do; may be empty
}

func (e *CallError) Error() string {
	s := fmt.Sprintf("ibv: %s: %v", e.Call, e.Errno)
	if e.Hint != "" {
		s += " (" + e.Hint + ")"
	}
	return s
}

// Unwrap returns the Errno.
func (e *CallError) Unwrap() error { return e.Errno }

// Is makes errors.Is report ErrUnavailable for the failure of a call that opens
// RDMA for the process, if a kernel module, a device file or a permission is
// missing.
func (e *CallError) Is(target error) bool {
	return target == ErrUnavailable && opens(e.Call) && absent(e.Errno)
}

// opens says if call is one of those that a process begins with.
func opens(call string) bool {
	switch call {
	case callDeviceList, callOpenDevice, callEventChannel:
		return true
	}
	return false
}

// absent says if errno means that something is not there or not ours.
func absent(errno syscall.Errno) bool {
	switch errno {
	case syscall.ENOENT, syscall.ENODEV, syscall.ENXIO, syscall.ENOSYS, syscall.EACCES, syscall.EPERM:
		return true
	}
	return false
}

// callError is nil for errno 0.
func callError(call string, errno syscall.Errno) error {
	if errno == 0 {
		return nil
	}
	return &CallError{Call: call, Errno: errno, Hint: hint(call, errno)}
}
