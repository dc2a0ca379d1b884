//go:build linux && cgo

package ibv

import "unsafe"

// addrOf is the address of b's memory, which is mapped and does not move.
func addrOf(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }
