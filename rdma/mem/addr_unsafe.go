package mem

import "unsafe"

// addrOf is where a slice starts, for alignment only.
func addrOf(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }
