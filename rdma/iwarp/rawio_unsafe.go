//go:build linux && !race

package iwarp

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A sockReader reads from a socket that does not block and learns in the same
// system call whether there is more: the kernel's TCP_INQ says how many bytes
// are left, and 1 when there are none but the peer has closed. Without it the
// end of a burst would cost one more call, which only says EAGAIN.
//
// The calls bypass the Go scheduler's bookkeeping for system calls that may
// block: on such a socket these do not, and half a microsecond counts here.
// Under the race detector rawio_plain.go stands in, because syscall.Read and
// Write tell the detector that bytes carry order from one end to the other.
type sockReader struct {
	inq bool // TCP_INQ is on
	iov [2]unix.Iovec
	msg unix.Msghdr
	oob [24]byte // one control message with an int: CmsgSpace(4)
}

// enable asks for TCP_INQ; a kernel without it (before 4.18) is fine.
func (r *sockReader) enable(fd int) {
	r.inq = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_INQ, 1) == nil
}

// read fills b, which is not empty. n = 0 with no error is the end of the
// stream. more is false only if a further read would say EAGAIN.
func (r *sockReader) read(fd int, b []byte) (n int, more bool, err error) {
	return r.receive(fd, b, nil)
}

// readTwo reads into a and, once that is full, into b; neither is empty.
func (r *sockReader) readTwo(fd int, a, b []byte) (n int, more bool, err error) {
	return r.receive(fd, a, b)
}

// receive is one recvmsg(2) into a and, behind it, b.
func (r *sockReader) receive(fd int, a, b []byte) (n int, more bool, err error) {
	r.iov[0].Base = unsafe.SliceData(a)
	r.iov[0].SetLen(len(a))
	r.msg = unix.Msghdr{Iov: &r.iov[0], Iovlen: 1}
	if len(b) > 0 {
		r.iov[1].Base = unsafe.SliceData(b)
		r.iov[1].SetLen(len(b))
		r.msg.Iovlen = 2
	}
	if r.inq {
		r.msg.Control = &r.oob[0]
		r.msg.SetControllen(len(r.oob))
	}
	got, _, errno := unix.RawSyscall(unix.SYS_RECVMSG, uintptr(fd), uintptr(unsafe.Pointer(&r.msg)), unix.MSG_DONTWAIT)
	r.iov[0].Base, r.iov[1].Base = nil, nil
	if errno != 0 {
		return 0, false, syscall.Errno(errno)
	}
	return int(got), r.more(), nil
}

// glance is read for a goroutine that looks again soon. It is cheaper, and does not
// learn whether there is more.
func (r *sockReader) glance(fd int, b []byte) (int, error) {
	n, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)),
		unix.MSG_DONTWAIT, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// more looks at the control message of the last read.
func (r *sockReader) more() bool {
	const dataOff = unix.SizeofCmsghdr
	if !r.inq || r.msg.Controllen < dataOff+4 {
		return true
	}
	h := (*unix.Cmsghdr)(unsafe.Pointer(&r.oob[0]))
	if h.Level != unix.SOL_TCP || h.Type != unix.TCP_CM_INQ {
		return true
	}
	return *(*int32)(unsafe.Pointer(&r.oob[dataOff])) != 0
}

// sockWrite writes what the socket takes at once. b is not empty.
func sockWrite(fd int, b []byte) (int, error) {
	n, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)),
		unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
	if errno != 0 {
		return 0, syscall.Errno(errno)
	}
	return int(n), nil
}
