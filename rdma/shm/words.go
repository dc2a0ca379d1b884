//go:build linux

package shm

import "github.com/rdmakv/rdmakv/internal/memory"

// copyRegion copies len(dst) bytes from off of a region that others may be
// writing. Whole aligned words are loaded once each, atomically. The store
// posts READs of whole words only; other lengths and offsets are legal too, and
// their ragged edges come out of the word around them.
func copyRegion(dst, region []byte, off uint64) {
	if skew := wordSkew(region, off); skew != 0 {
		n := min(8-skew, uint64(len(dst)))
		copyEdge(dst[:n], region, off)
		dst, off = dst[n:], off+n
	}
	body := uint64(len(dst)) &^ 7
	memory.LoadWords(dst, region[off:off+body])
	if tail := dst[body:]; len(tail) > 0 {
		copyEdge(tail, region, off+body)
	}
}

// copyEdge copies a part of one aligned word: out of a single load of it, or
// byte by byte where the region does not hold the whole word.
func copyEdge(dst, region []byte, off uint64) {
	skew := wordSkew(region, off)
	if off < skew || off-skew+8 > uint64(len(region)) {
		copy(dst, region[off:])
		return
	}
	var w [8]byte
	memory.LoadWords(w[:], region[off-skew:off-skew+8])
	copy(dst, w[skew:])
}
