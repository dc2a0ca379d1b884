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

// readMany reads into each of the pieces once those before it are full, a call for each.
func (r *sockReader) readMany(fd int, pieces [][]byte) (n int, more bool, err error) {
	for _, p := range pieces {
		k, err := syscall.Read(fd, p)
		switch {
		case err != nil && n > 0:
			return n, true, nil // the next call says it again
		case err != nil:
			return 0, true, err
		}
		if n += k; k < len(p) {
			break
		}
	}
	return n, true, nil
}

func (r *sockReader) glance(fd int, b []byte) (int, error) {
	n, err := syscall.Read(fd, b)
	return max(n, 0), err
}

// gathers: the race detector would take the write of a region for a race with those that
// change it.
const gathers = false

type sockWriter struct{}

func (w *sockWriter) writeMany(int, [][]byte) (int, error) { return 0, syscall.ENOSYS }

func sockWrite(fd int, b []byte) (int, error) {
	n, err := syscall.Write(fd, b)
	return max(n, 0), err
}
