//go:build race || !linux

package iwarp

import "syscall"

// A sockReader for the race detector, and for systems without TCP_INQ; see
// rawio_unsafe.go.
type sockReader struct{}

func (r *sockReader) enable(int) {}

func (r *sockReader) read(fd int, b []byte) (n int, more bool, err error) {
	n, err = syscall.Read(fd, b)
	return max(n, 0), true, err
}

// readTwo fills a alone.
func (r *sockReader) readTwo(fd int, a, _ []byte) (n int, more bool, err error) {
	return r.read(fd, a)
}

func (r *sockReader) glance(fd int, b []byte) (int, error) {
	n, err := syscall.Read(fd, b)
	return max(n, 0), err
}

func sockWrite(fd int, b []byte) (int, error) {
	n, err := syscall.Write(fd, b)
	return max(n, 0), err
}
