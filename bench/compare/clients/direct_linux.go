package clients

import (
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// directFile makes a file whose writes go past the page cache and, if each, return when they are
// durable.
func directFile(dir, name string, each bool) (*os.File, error) {
	flags := os.O_CREATE | os.O_RDWR | os.O_TRUNC | unix.O_DIRECT
	if each {
		flags |= unix.O_DSYNC
	}
	return os.OpenFile(filepath.Join(dir, name), flags, 0o600)
}

// pace sets the congestion control of a TCP socket.
func pace(fd uintptr, name string) error {
	return unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, name)
}

// aligned is n bytes, whole pages, at the begin of a page.
func aligned(n int) ([]byte, error) {
	return unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
}
