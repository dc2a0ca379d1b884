package verbs

import "unsafe"

// addrOf is where a slice starts: the address of registered memory as a device
// is told it. The memory lies outside the Go heap and does not move.
func addrOf(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }
