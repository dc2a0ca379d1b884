//go:build !race

package layout

// putBytes copies src into server memory at byte offset off, in no particular
// order. It becomes visible at the latest with the next StoreWord.
func putBytes(mem []byte, off int, src []byte) { copy(mem[off:off+len(src)], src) }

// putWord is putBytes of one aligned word.
func putWord(mem []byte, off int, w uint64) { setWord(mem, off, w) }

// MayPlace: see item_write.go.
const MayPlace = true

// ZeroWords clears server memory, in no particular order.
func ZeroWords(mem []byte) { clear(mem) }
