package clients

import (
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// directFile makes a file whose writes go past the page cache and return when they are durable.
func directFile(dir, name string) (*os.File, error) {
	return os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_RDWR|os.O_TRUNC|unix.O_DIRECT|unix.O_DSYNC, 0o600)
}

// pace sets the congestion control of a TCP socket.
func pace(fd uintptr, name string) error {
	return unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, name)
}

// aligned is n bytes, whole pages, at the begin of a page.
func aligned(n int) ([]byte, error) {
	return unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
}
