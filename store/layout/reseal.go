package layout

import "github.com/zeebo/xxh3"

// Reseal has an item that an earlier incarnation wrote at place p, and that is verified whole here, verify under
// another incarnation: nothing changes but its checksums. Memory that a process leaves to the next one is
// believed in this way, item by item, and until then it verifies for no reader of the new incarnation.
//
// mem is the whole place. ok is false, and nothing was changed, if there is no item of the incarnation from, if a chunk of it does not
// verify, or if it is not live: an item that is pending was never published, and one that is dead was
// replaced. The caller holds the lock under which the item's place changes hands. A reader beside it sees the former checksum or
// the new one; the chunks' come first, because the item's vouches for them.
func Reseal(mem []byte, from, to uint64, p Place) (v ItemView, ok bool) {
	v, err := ParseItem(mem, from, p)
	if err != nil || v.State != Live || v.Size > len(mem) {
		return ItemView{}, false
	}
	w1 := getWord(mem, offItemWord1)
	for i := range v.Chunks {
		off, n := v.ChunkRange(i)
		if !v.VerifyChunk(i, mem[v.valOff+off:v.valOff+off+n]) {
			return ItemView{}, false
		}
	}
	for i := range v.Chunks {
		off, n := v.ChunkRange(i)
		data := mem[v.valOff+off : v.valOff+off+n]
		StoreWord(mem, v.sumsOff+i*wordSize, nonzero(xxh3.HashSeed(data, chunkSeed(to, p, v.Version, i))))
	}
	end := v.Size
	if v.Chunks > 0 {
		end = v.valOff
	}
	v.inc, v.sum = to, nonzero(xxh3.HashSeed(mem[ItemHeaderSize:end], itemSeed(to, p, v.Version, w1)))
	StoreWord(mem, offItemSum, v.sum)
	return v, true
}

// IsHead says whether the item's value is the head of a value in parts.
func (v *ItemView) IsHead() bool {
	return v.Chunks == 0 && getWord(v.b, offItemWord1)&flagHead != 0
}
