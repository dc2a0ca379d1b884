package layout

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"unsafe"
)

// This file is how server memory is written.
//
// A word that a reader trusts by itself (item state, bucket header, slot,
// root word, directory entry, beat words) is written by StoreWord: one aligned
// atomic 8-byte store. Everything else (lengths, checksum, key, value) is
// trusted only after a checksum over all of it held, so it may be written by
// plain copying, torn at any byte and visible in any order, as long as all of
// it is visible before the word that vouches for it.
//
// That is what an atomic store gives. sync/atomic is sequentially consistent:
// on amd64 it is XCHG, which drains the store buffer; on arm64 it is STLR,
// before which every earlier store of this thread is visible to every observer
// of the same shareability domain. The observers are the cores that run a
// software responder and, with hardware, a cache-coherent DMA master, which
// takes words from the same coherent caches. Nothing is needed in the other
// direction: plain stores that become visible before an *earlier* atomic one
// (arm64 allows it) change the body under an old state word, whose version the
// checksum then refuses.
//
// Under the race detector the plain copies are atomic 8-byte stores as well
// (race_on.go): a software responder in the same process reads with atomic
// loads, and the detector would call the mixture a race, as the Go memory model
// does. The checksum makes it a harmless one; the detector cannot know that.

// le converts between a word's value and its bytes in memory, which are
// little-endian everywhere. It compiles to nothing on amd64 and arm64.
func le(w uint64) uint64 {
	var b [wordSize]byte
	binary.NativeEndian.PutUint64(b[:], w)
	return binary.LittleEndian.Uint64(b[:])
}

// wordAt is the word of mem at byte offset off. Out of bounds or misaligned is
// a broken invariant of the caller.
func wordAt(mem []byte, off int) *uint64 {
	p := unsafe.Pointer(unsafe.SliceData(mem[off : off+wordSize]))
	if uintptr(p)%wordSize != 0 {
		panic(fmt.Sprintf("layout: word at offset %d of memory at %p is not 8-byte aligned", off, unsafe.SliceData(mem)))
	}
	return (*uint64)(p)
}

// StoreWord writes one word of server memory, atomically and after every
// earlier store of this goroutine. mem[off] must be 8-byte aligned.
func StoreWord(mem []byte, off int, w uint64) { atomic.StoreUint64(wordAt(mem, off), le(w)) }

// LoadWord reads one word of server memory, atomically.
func LoadWord(mem []byte, off int) uint64 { return le(atomic.LoadUint64(wordAt(mem, off))) }

// raiseWord sets a word to w unless it is higher already, so that two writers
// of a version word never take it back. It returns once the word is at least w.
func raiseWord(mem []byte, off int, w uint64) {
	p := wordAt(mem, off)
	for {
		old := atomic.LoadUint64(p)
		if le(old) >= w || atomic.CompareAndSwapUint64(p, old, le(w)) {
			return
		}
	}
}

// getWord reads a word of the caller's own buffer, which need not be aligned.
func getWord(b []byte, off int) uint64 { return binary.LittleEndian.Uint64(b[off:]) }

// setWord writes a word of the caller's own buffer.
func setWord(b []byte, off int, w uint64) { binary.LittleEndian.PutUint64(b[off:], w) }
