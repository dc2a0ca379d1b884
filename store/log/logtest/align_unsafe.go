package logtest

import "unsafe"

// address is where a buffer begins in memory: direct access wants it aligned.
func address(p []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(p))) }
