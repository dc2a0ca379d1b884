package main

import "unsafe"

// address is where b starts, which is how the verbs name memory. b is mapped
// memory, not Go's, so it stays there.
func address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }
