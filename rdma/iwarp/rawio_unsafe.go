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
	iov [aheadPieces]unix.Iovec
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
	r.iov[0].Base = unsafe.SliceData(b)
	r.iov[0].SetLen(len(b))
	return r.receive(fd, 1)
}

// readMany reads into each of the pieces once those before it are full; there are at most
// aheadPieces, and none is empty.
func (r *sockReader) readMany(fd int, pieces [][]byte) (n int, more bool, err error) {
	for i, p := range pieces {
		r.iov[i].Base = unsafe.SliceData(p)
		r.iov[i].SetLen(len(p))
	}
	return r.receive(fd, len(pieces))
}

// receive is one recvmsg(2) into the first pieces of iov.
func (r *sockReader) receive(fd, pieces int) (n int, more bool, err error) {
	r.msg = unix.Msghdr{Iov: &r.iov[0]}
	r.msg.SetIovlen(pieces)
	if r.inq {
		r.msg.Control = &r.oob[0]
		r.msg.SetControllen(len(r.oob))
	}
	got, _, errno := unix.RawSyscall(unix.SYS_RECVMSG, uintptr(fd), uintptr(unsafe.Pointer(&r.msg)), unix.MSG_DONTWAIT)
	clear(r.iov[:pieces])
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

// gathers: see gather.go.
const gathers = true

// A sockWriter writes several pieces in one system call.
type sockWriter struct {
	iov [2*txFrames + 1]unix.Iovec
	msg unix.Msghdr
}

// writeMany writes what the socket takes at once of the pieces, in order.
func (w *sockWriter) writeMany(fd int, pieces [][]byte) (int, error) {
	n := 0
	for _, p := range pieces {
		if len(p) > 0 {
			w.iov[n].Base = unsafe.SliceData(p)
			w.iov[n].SetLen(len(p))
			n++
		}
	}
	w.msg = unix.Msghdr{Iov: &w.iov[0]}
	w.msg.SetIovlen(n)
	sent, _, errno := unix.RawSyscall(unix.SYS_SENDMSG, uintptr(fd), uintptr(unsafe.Pointer(&w.msg)), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	clear(w.iov[:n])
	if errno != 0 {
		return 0, syscall.Errno(errno)
	}
	return int(sent), nil
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
