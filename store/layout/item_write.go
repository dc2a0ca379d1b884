package layout

import (
	"fmt"

	"github.com/zeebo/xxh3"
)

// WriteItem writes an item into mem, the server memory at place p, of which it
// takes ItemSize bytes: the state word first, as given (Pending or Held), then
// the rest. The place must be free: its former item dead, or its page past the
// lease that follows retirement. Nothing that a reader may believe changes
// until SetState makes the item live, because the checksum of the former
// content no longer holds.
//
// The caller owns the place; key and value are only read, and are read once.
//
// Where MayPlace is true the value of a chunked item may have been put where it belongs
// (ValueRange) before the item is written: then it.Value is that memory, and is not copied. The
// former item of the place is dead all the while, so nobody believes what is there in between.
func WriteItem(mem []byte, inc uint64, p Place, it Item, s State) {
	checkLens(len(it.Key), len(it.Value))
	if it.Version == 0 || it.Version > MaxVersion || it.Shard >= MaxShards || s != Pending && s != Held {
		panic(fmt.Sprintf("layout: WriteItem with version %#x, shard %d, state %v", uint64(it.Version), it.Shard, s))
	}
	sh := shapeOf(len(it.Key), len(it.Value), it.Expiry != 0)
	mem = mem[:sh.size]
	StoreWord(mem, offItemWord0, word0(it.Version, s))
	word1 := sh.word1(it.Shard)
	if IsHead(it.Value) {
		if _, err := ParseHead(it.Value); err == nil {
			word1 |= flagHead
		}
	}
	putWord(mem, offItemWord1, word1)
	putWord(mem, offItemSum, 0)
	placed := sh.chunks > 0 && &it.Value[0] == &mem[sh.valOff]
	// The padding comes first: the words that key and value do not fill.
	if sh.chunks > 0 {
		putWord(mem, sh.valOff-wordSize, 0)
	}
	if !placed {
		putWord(mem, sh.size-wordSize, 0)
	} else if used := sh.valLen % wordSize; used > 0 {
		putWord(mem, sh.size-wordSize, LoadWord(mem, sh.size-wordSize)&(1<<(8*used)-1))
	}
	if sh.expiry {
		putWord(mem, ItemHeaderSize, it.Expiry)
	}
	putBytes(mem, sh.keyOff, it.Key)
	if sh.chunks == 0 {
		putBytes(mem, sh.valOff, it.Value)
	}
	for i := range sh.chunks {
		lo := i * ChunkSize
		hi := min(lo+ChunkSize, sh.valLen)
		if !placed {
			putBytes(mem, sh.valOff+lo, it.Value[lo:hi])
		}
		// Sums are taken of the bytes in memory, never of the source a second
		// time, because they vouch for the bytes that a reader gets.
		sum := nonzero(xxh3.HashSeed(mem[sh.valOff+lo:sh.valOff+hi], chunkSeed(inc, p, it.Version, i)))
		putWord(mem, sh.sumsOff+i*wordSize, sum)
	}
	sum := xxh3.HashSeed(mem[ItemHeaderSize:sh.sumEnd()], itemSeed(inc, p, it.Version, word1))
	putWord(mem, offItemSum, nonzero(sum))
}

// ValueRange is where the value of an item stands, in bytes from its place: from off to end. ok
// is false for an item that is not chunked, whose value is written with the rest.
func ValueRange(keyLen, valLen int, expiry bool) (off, end int, ok bool) {
	checkLens(keyLen, valLen)
	sh := shapeOf(keyLen, valLen, expiry)
	return sh.valOff, sh.valOff + valLen, sh.chunks > 0
}

// SetState changes the state of the item at mem by one atomic store, which
// becomes visible after everything written before. v is the item's version.
func SetState(mem []byte, v Version, s State) {
	if v == 0 || v > MaxVersion || !s.valid() {
		panic(fmt.Sprintf("layout: SetState with version %#x, state %v", uint64(v), s))
	}
	StoreWord(mem, offItemWord0, word0(v, s))
}

// LoadState reads version and state of the item at mem, atomically. Nothing is
// verified: it is for the server, which knows what stands there.
func LoadState(mem []byte) (Version, State) {
	w := LoadWord(mem, offItemWord0)
	return Version(w >> stateBits), State(w & stateMask)
}

// DestroyChecksum makes sure that the item at mem never verifies again. It is
// done to every place of a page that is retired, before the wait of a lease:
// neither alone is enough (docs/correctness.md).
func DestroyChecksum(mem []byte) { StoreWord(mem, offItemSum, 0) }

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
