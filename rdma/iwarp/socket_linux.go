package iwarp

import (
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// unpaced is the congestion control of connections that stay within the machine,
// where nothing is lost and no link is shared. A congestion control that paces, as
// BBR does where it is the system's default, would set a timer for each burst and
// wake a processor for it. Every kernel has Reno and lets any process choose it.
const unpaced = "reno"

// tuneSocket sets what every connection needs and returns the segment size in
// bytes; within says that the peer is on this machine. TCP_NODELAY is Go's default.
func tuneSocket(raw syscall.RawConn, r *sockReader, userTimeout time.Duration, within bool) (mss int, err error) {
	ctlErr := raw.Control(func(fd uintptr) {
		if err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(userTimeout.Milliseconds())); err != nil {
			err = fmt.Errorf("TCP_USER_TIMEOUT: %w", err)
			return
		}
		if mss, err = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_MAXSEG); err != nil {
			err = fmt.Errorf("TCP_MAXSEG: %w", err)
		}
		r.enable(int(fd))
		if within {
			_ = unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, unpaced)
		}
	})
	if ctlErr != nil {
		return 0, ctlErr
	}
	return mss, err
}

// setLowat sets from how many bytes on the kernel says that a socket is
// readable; it reports whether that can be done. If there are as many already,
// the kernel says so at once (since 4.18).
func setLowat(fd, n int) bool {
	return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVLOWAT, n) == nil
}
