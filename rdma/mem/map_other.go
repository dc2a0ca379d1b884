//go:build !linux

package mem

import (
	"fmt"
	"os"
)

func pageSize() int { return os.Getpagesize() }

func hugePageSize() (int, error) {
	return 0, fmt.Errorf("%w: huge pages are for Linux; use kind mmap", ErrNotSupported)
}

// mapPages takes page-aligned memory from the Go heap. Only pure Go fabrics
// exist outside Linux, they run in this process, and Go's collector does not
// move objects: all they need is memory that stays put while it is referenced.
func mapPages(size int, _ Options) ([]byte, error) {
	page := pageSize()
	raw := heapBytes(size + page)
	skip := (page - int(addrOf(raw)%uintptr(page))) % page
	return raw[skip : skip+size : skip+size], nil
}

// collapse: there are no transparent huge pages here.
func collapse([]byte) bool { return false }

// unmapPages leaves the memory to the collector.
func unmapPages([]byte) error { return nil }

// mapShared: only Linux has memfds.
func mapShared(int, Options) ([]byte, error) { return nil, ErrNotSupported }

func takenOf([]byte) (int64, bool) { return 0, false }

func filledFrom([]byte, int64) (int64, int64, bool) { return 0, 0, false }

func unmapShared([]byte) error { return ErrNotSupported }

func adoptShared(int) ([]byte, error) { return nil, ErrNotSupported }

func leaveShared([]byte) error { return nil }

func descriptorOf([]byte) int { return -1 }
