//go:build !race

package layout

// putBytes copies src into server memory at byte offset off, in no particular
// order. It becomes visible at the latest with the next StoreWord.
func putBytes(mem []byte, off int, src []byte) { copy(mem[off:off+len(src)], src) }

// ZeroWords clears server memory, in no particular order.
func ZeroWords(mem []byte) { clear(mem) }
