//go:build linux

package memfd

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// hugeAlign is the size of a huge page that the kernel can put together by
// itself; mappings of that size and above begin at a multiple of it, at both
// ends, or their page tables could not use one.
const hugeAlign = 2 << 20

// mapFile maps size bytes of a descriptor from its start, shared, aligned so that
// transparent huge pages can serve it. unmapFile ends the mapping.
func mapFile(fd, size, prot int) ([]byte, error) {
	fail := func(err error) ([]byte, error) {
		return nil, fmt.Errorf("mmap of %d bytes of a memfd: %w", size, err)
	}
	if size < hugeAlign {
		p, err := unix.MmapPtr(fd, 0, nil, uintptr(size), prot, unix.MAP_SHARED)
		if err != nil {
			return fail(err)
		}
		return unsafe.Slice((*byte)(p), size), nil
	}
	// Reserve more than is needed, map over the aligned part, and give back the
	// rest.
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fail(err)
	}
	page := uintptr(unix.Getpagesize())
	unit := max(hugeAlign, uintptr(st.Blksize)) // of huge pages it is their size
	used := (uintptr(size) + page - 1) &^ (page - 1)
	base, err := unix.MmapPtr(-1, 0, nil, used+unit, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return fail(err)
	}
	head := -uintptr(base) & (unit - 1)
	at := unsafe.Add(base, head)
	if _, err := unix.MmapPtr(fd, 0, at, uintptr(size), prot, unix.MAP_SHARED|unix.MAP_FIXED); err != nil {
		_ = unix.MunmapPtr(base, used+unit)
		return fail(err)
	}
	if head > 0 {
		_ = unix.MunmapPtr(base, head)
	}
	_ = unix.MunmapPtr(unsafe.Add(at, used), unit-head)
	return unsafe.Slice((*byte)(at), size), nil
}

// unmapFile ends a mapping of mapFile.
func unmapFile(raw []byte) error {
	return unix.MunmapPtr(unsafe.Pointer(unsafe.SliceData(raw)), uintptr(len(raw)))
}

// addrOf is where a slice starts: what a memfd is found by.
func addrOf(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }
