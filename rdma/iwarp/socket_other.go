//go:build !linux

package iwarp

import (
	"syscall"
	"time"
)

// tuneSocket sets nothing on this system's sockets: keepalive finds a dead peer, and
// FPDUs fit into the segments of an Ethernet.
func tuneSocket(syscall.RawConn, *sockReader, time.Duration, bool) (mss int, err error) {
	return 1460, nil
}

// setLowat cannot raise the mark here: the kernel wakes the reader also while another
// goroutine looks.
func setLowat(int, int) bool { return false }
