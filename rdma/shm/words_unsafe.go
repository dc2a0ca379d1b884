//go:build linux

package shm

import (
	"sync/atomic"
	"unsafe"
)

// wordAt is the aligned word at off of memory that is shared with a peer. The
// caller has checked off; mem is page-aligned.
func wordAt(mem []byte, off int) *atomic.Uint64 {
	return (*atomic.Uint64)(unsafe.Pointer(&mem[off : off+8 : off+8][0]))
}

// wordsAt are n such words from off.
func wordsAt(mem []byte, off, n int) []atomic.Uint64 {
	return unsafe.Slice((*atomic.Uint64)(unsafe.Pointer(&mem[off : off+8*n][0])), n)
}
