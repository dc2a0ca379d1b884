package layout

import "unsafe"

// testMem is zeroed memory that begins on a page, as slabs do.
func testMem(n int) []byte {
	words := make([]uint64, (n+PageSize)/wordSize+1)
	b := unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), len(words)*wordSize)
	skip := -int(uintptr(unsafe.Pointer(&b[0]))) & (PageSize - 1)
	return b[skip : skip+n : skip+n]
}
