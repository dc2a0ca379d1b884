package iwarp

import "unsafe"

// wordSkew is how many bytes region[off] lies behind an 8-byte boundary of
// memory.
func wordSkew(region []byte, off uint64) uint64 {
	return (uint64(uintptr(unsafe.Pointer(unsafe.SliceData(region)))) + off) & 7
}
