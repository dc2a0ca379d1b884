//go:build unix

package tcp

import (
	"errors"
	"net"
	"syscall"
	"time"
)

// waits tells whether the peer of a socket still waits for this end to speak:
// it has neither closed nor said more. Nothing is read.
func waits(conn *net.TCPConn) bool {
	raw, err := conn.SyscallConn()
	if err != nil || conn.SetReadDeadline(time.Time{}) != nil {
		return false
	}
	waiting := false
	err = raw.Read(func(fd uintptr) bool {
		var b [1]byte
		_, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK)
		waiting = errors.Is(err, syscall.EAGAIN)
		return true
	})
	return err == nil && waiting
}
