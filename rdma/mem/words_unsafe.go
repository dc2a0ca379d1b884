package mem

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

// WholeWords is up to how many bytes of one copy each aligned word of 8 bytes arrives whole,
// from the first byte on: what a software fabric promises of every READ. The words that
// a reader trusts by themselves stand in headers and slots, which are READ in far shorter
// pieces or begin their READ; whatever lies behind them is under a checksum.
const WholeWords = 4 << 10

// Copy copies len(dst) bytes from off of a region that others may be writing: the
// copy of a responder. Any offset and any length will do. Whole aligned words are
// loaded once each, in rising order, as LoadWords does; the ragged edges of a range
// that does not begin and end with a word come out of one load of the word around
// them, or byte by byte where the region does not hold all of that word.
//
// Beyond WholeWords bytes that holds for none of the words: the bytes are copied by the
// fastest means there are, and may be torn anywhere. A READ that is so long is of a
// value, of which a checksum tells whether it is torn; see WholeWords.
//
// dst belongs to the caller alone and must not overlap region. A range that leaves the
// region panics: a responder has checked it. Copy does not allocate.
func Copy(dst, region []byte, off uint64) {
	region = region[:len(region):len(region)] // what lies behind it belongs to another owner
	if len(dst) > WholeWords {
		n := WholeWords - int(Skew(region, off)) // the rest begins with a word
		if bulk(dst[n:], region[off+uint64(n):]) {
			dst = dst[:n]
		}
	}
	if skew := Skew(region, off); skew != 0 {
		n := min(8-skew, uint64(len(dst)))
		copyEdge(dst[:n], region, off)
		dst, off = dst[n:], off+n
	}
	body := uint64(len(dst)) &^ 7
	LoadWords(dst, region[off:off+body])
	if tail := dst[body:]; len(tail) > 0 {
		copyEdge(tail, region, off+body)
	}
}

// copyEdge copies a part of one aligned word.
func copyEdge(dst, region []byte, off uint64) {
	skew := Skew(region, off)
	if off < skew || off-skew+8 > uint64(len(region)) {
		copy(dst, region[off:off+uint64(len(dst))])
		return
	}
	var w [8]byte
	LoadWords(w[:], region[off-skew:off-skew+8])
	copy(dst, w[skew:])
}

// Skew is how many bytes region[off] lies behind an 8-byte boundary of memory, 0 to
// 7. off may be any number: nothing is read.
func Skew(region []byte, off uint64) uint64 {
	return (uint64(uintptr(unsafe.Pointer(unsafe.SliceData(region)))) + off) & 7
}

// heapBytes returns n zeroed bytes of the Go heap that start on an 8-byte
// boundary; n is a multiple of 8. A []byte alone promises no alignment, a
// []uint64 does.
func heapBytes(n int) []byte {
	words := make([]uint64, n/8)
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), n)
}
