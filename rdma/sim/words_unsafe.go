package sim

import "unsafe"

// skew is how many bytes b[off] lies behind an 8-byte boundary of memory.
func skew(b []byte, off int) int {
	return (int(uintptr(unsafe.Pointer(unsafe.SliceData(b)))&7) + off) & 7
}
