//go:build race

package layout

// putBytes copies src into server memory at byte offset off as atomic 8-byte
// stores, reading, changing and writing back the words at both ends. There is
// one writer to a place, so nothing comes between.
func putBytes(mem []byte, off int, src []byte) {
	_ = mem[off : off+len(src)]
	for len(src) > 0 {
		base, in := off&^(wordSize-1), off&(wordSize-1)
		n := min(wordSize-in, len(src))
		w := LoadWord(mem, base)
		for i := range n {
			shift := 8 * (in + i)
			w = w&^(0xff<<shift) | uint64(src[i])<<shift
		}
		StoreWord(mem, base, w)
		off, src = off+n, src[n:]
	}
}

// putWord is putBytes of one aligned word.
func putWord(mem []byte, off int, w uint64) { StoreWord(mem, off, w) }

// MayPlace: see item_write.go. What comes from a device is written by plain stores.
const MayPlace = false

// ZeroWords clears server memory by atomic 8-byte stores. len(mem) must be a
// multiple of 8.
func ZeroWords(mem []byte) {
	for off := 0; off < len(mem); off += wordSize {
		StoreWord(mem, off, 0)
	}
}
