//go:build race

package iwarp

import "syscall"

// A sockReader as the race detector wants it; see rawio_unsafe.go.
type sockReader struct{}

func (r *sockReader) enable(int) {}

func (r *sockReader) read(fd int, b []byte) (n int, more bool, err error) {
	n, err = syscall.Read(fd, b)
	return max(n, 0), true, err
}

func sockWrite(fd int, b []byte) (int, error) {
	n, err := syscall.Write(fd, b)
	return max(n, 0), err
}
