package log

import "unsafe"

// aligned returns n bytes that begin at a multiple of block, a power of two: a direct write
// is made of such. The garbage collector does not move what it has given out, so they stay
// where they are. It takes up to a block more than n.
func aligned(n, block int) []byte {
	b := make([]byte, n+block-1)
	skip := 0
	if rest := address(b) & uintptr(block-1); rest != 0 {
		skip = block - int(rest)
	}
	return b[skip : skip+n : skip+n]
}

// isAligned reports whether b begins at a multiple of block and is a multiple of it long. No
// bytes at all begin nowhere: Go does not move the address of a slice that has no room.
func isAligned(b []byte, block int) bool {
	return len(b) == 0 || (address(b)|uintptr(len(b)))&uintptr(block-1) == 0
}

// address is where b begins.
func address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }
