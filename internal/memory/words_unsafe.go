package memory

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"unsafe"
)

// LoadWords copies src into dst[:len(src)] by aligned 8-byte atomic loads, each
// word exactly once, in rising order. A plain copy would not do: memmove may
// assemble one aligned word from two loads, and then a word that a writer
// changes at that moment arrives as half old, half new.
//
// src must start on an 8-byte boundary and be a multiple of 8 long; dst may
// start anywhere, must not overlap src, and is written with plain stores: it
// belongs to the caller alone. A length of 0 is fine. Misuse panics with the
// numbers, because a responder checks lengths from the network before it gets
// here. LoadWords does not allocate.
func LoadWords(dst, src []byte) {
	n := len(src)
	if n == 0 {
		return
	}
	base := unsafe.Pointer(unsafe.SliceData(src))
	if n&7 != 0 || uintptr(base)&7 != 0 || len(dst) < n {
		panicWords(len(dst), n, uintptr(base))
	}
	dst = dst[:n]
	// Eight loads a turn, grouped before their stores: the loop is bound by the
	// load port, not by the branch.
	i := 0
	for ; i+64 <= n; i += 64 {
		p := unsafe.Add(base, i)
		w0 := atomic.LoadUint64((*uint64)(p))
		w1 := atomic.LoadUint64((*uint64)(unsafe.Add(p, 8)))
		w2 := atomic.LoadUint64((*uint64)(unsafe.Add(p, 16)))
		w3 := atomic.LoadUint64((*uint64)(unsafe.Add(p, 24)))
		w4 := atomic.LoadUint64((*uint64)(unsafe.Add(p, 32)))
		w5 := atomic.LoadUint64((*uint64)(unsafe.Add(p, 40)))
		w6 := atomic.LoadUint64((*uint64)(unsafe.Add(p, 48)))
		w7 := atomic.LoadUint64((*uint64)(unsafe.Add(p, 56)))
		d := dst[i : i+64 : i+64]
		binary.NativeEndian.PutUint64(d[0:8], w0)
		binary.NativeEndian.PutUint64(d[8:16], w1)
		binary.NativeEndian.PutUint64(d[16:24], w2)
		binary.NativeEndian.PutUint64(d[24:32], w3)
		binary.NativeEndian.PutUint64(d[32:40], w4)
		binary.NativeEndian.PutUint64(d[40:48], w5)
		binary.NativeEndian.PutUint64(d[48:56], w6)
		binary.NativeEndian.PutUint64(d[56:64], w7)
	}
	for ; i < n; i += 8 {
		w := atomic.LoadUint64((*uint64)(unsafe.Add(base, i)))
		binary.NativeEndian.PutUint64(dst[i:i+8], w)
	}
}

// panicWords is apart so that LoadWords itself keeps its values in registers.
//
//go:noinline
func panicWords(dst, src int, addr uintptr) {
	panic(fmt.Sprintf("memory: LoadWords(dst of %d bytes, src of %d bytes at %#x): "+
		"src must be 8-byte aligned, a multiple of 8 long and fit into dst", dst, src, addr))
}

// heapBytes returns n zeroed bytes of the Go heap that start on an 8-byte
// boundary; n is a multiple of 8. A []byte alone promises no alignment, a
// []uint64 does.
func heapBytes(n int) []byte {
	words := make([]uint64, n/8)
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), n)
}
