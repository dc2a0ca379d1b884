package layout

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// What is peeked at is what was written, and anything else is refused or
// stays within bounds.
func TestPeekItem(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	var buf []byte
	for range 2000 {
		it := Item{
			Version: Version(1 + rng.Uint64N(uint64(MaxVersion))), Shard: uint16(rng.IntN(MaxShards)),
			Key: bytes.Repeat([]byte{byte(rng.Uint32())}, 1+rng.IntN(40)), Value: make([]byte, rng.IntN(300)),
		}
		if rng.IntN(2) == 0 {
			it.Expiry = 1 + rng.Uint64()>>1
		}
		if rng.IntN(20) == 0 {
			it.Value = make([]byte, ChunkSize+rng.IntN(3*ChunkSize))
		}
		class, _ := ClassFor(ItemSize(len(it.Key), len(it.Value), it.Expiry != 0))
		mem := testMem(ClassSize(class))
		WriteItem(mem, 7, 9, it, Pending)
		if _, ok := PeekItem(mem, buf); ok {
			t.Fatal("a pending item was shown")
		}
		SetState(mem, it.Version, Live)
		p, ok := PeekItem(mem, buf)
		if !ok || p.Version != it.Version || p.Shard != it.Shard || !bytes.Equal(p.Key, it.Key) || p.Expiry != it.Expiry || p.Size != ItemSize(len(it.Key), len(it.Value), it.Expiry != 0) {
			t.Fatalf("%+v, %v of %+v", p, ok, it)
		}
		v, err := ParseItem(mem, 7, 9)
		if err != nil || v.Shard != it.Shard {
			t.Fatalf("parsed: shard %d, %v; want %d", v.Shard, err, it.Shard)
		}
		// Noise.
		for range 8 {
			StoreWord(mem, wordSize*rng.IntN(3), rng.Uint64())
			PeekItem(mem, buf)
		}
	}
}
