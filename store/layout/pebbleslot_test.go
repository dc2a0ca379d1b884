package layout

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
)

// sameToIndex reports where an index would treat the two hashes differently.
func sameToIndex(t testing.TB, a, b Hash) {
	t.Helper()
	if a.Fingerprint() != b.Fingerprint() {
		t.Fatalf("%x and %x have other fingerprints", a, b)
	}
	for d := range uint8(MaxDepth + 1) {
		if a.Prefix(d) != b.Prefix(d) {
			t.Fatalf("%x and %x part at depth %d", a, b, d)
		}
	}
	for step := range uint8(SegmentSteps) {
		a1, a2 := a.Mains(SegmentGroups(step))
		b1, b2 := b.Mains(SegmentGroups(step))
		if a1 != b1 || a2 != b2 {
			t.Fatalf("%x has the mains %v %v at step %d, %x has %v %v", a, a1, a2, step, b, b1, b2)
		}
	}
}

func checkPebbleSlot(t testing.TB, h Hash) {
	t.Helper()
	s := PebbleSlot(h)
	got, ok := s.PebbleHash()
	if s.Class() != ClassPebble || !ok {
		t.Fatalf("hash %x gave the slot %v", h, s)
	}
	sameToIndex(t, h, got)
	if again := PebbleSlot(got); again != s {
		t.Fatalf("hash %x has slot %#x, its stand-in %x has %#x", h, uint64(s), got, uint64(again))
	}
}

// Every border of every cell, on both sides, and random hashes.
func TestPebbleSlot(t *testing.T) {
	if len(xCells)-1 > cellMask || len(yCells)-1 > cellMask {
		t.Fatalf("%d and %d cells do not fit %d bits", len(xCells)-1, len(yCells)-1, cellBits)
	}
	t.Logf("%d and %d cells", len(xCells)-1, len(yCells)-1)
	rng := rand.New(rand.NewPCG(1, 1))
	for _, cells := range [][]uint32{xCells, yCells} {
		for _, first := range cells {
			for d := -1; d <= 1; d++ {
				n := (uint64(first) + uint64(d)) & (1<<31 - 1)
				other := rng.Uint64()
				checkPebbleSlot(t, Hash{Hi: rng.Uint64(), Lo: n<<33 | other&(1<<33-1)})
				checkPebbleSlot(t, Hash{Hi: rng.Uint64(), Lo: other<<32 | n<<1 | other>>63})
			}
		}
	}
	for range 100_000 {
		checkPebbleSlot(t, Hash{Hi: rng.Uint64(), Lo: rng.Uint64()})
	}
}

// A slot with other bits, whatever they are, gives a hash that makes them, or none.
func TestPebbleHashOfAnything(t *testing.T) {
	if _, ok := MakeSlot(7, 3, 99).PebbleHash(); ok {
		t.Error("the slot of an item has a hash")
	}
	if _, ok := Slot(0).PebbleHash(); ok {
		t.Error("the empty slot has a hash")
	}
	rng := rand.New(rand.NewPCG(2, 2))
	none := 0
	for range 100_000 {
		s := MakeSlot(uint16(rng.Uint64()), ClassPebble, Place(rng.Uint64()&placeMask))
		h, ok := s.PebbleHash()
		if !ok {
			none++
			continue
		}
		if PebbleSlot(h) != s {
			t.Fatalf("slot %#x has the hash %x, whose slot is %#x", uint64(s), h, uint64(PebbleSlot(h)))
		}
	}
	if none == 0 {
		t.Error("no bits were refused: the cells fill all nine bits?")
	}
}

func FuzzPebbleSlot(f *testing.F) {
	f.Add(uint64(0), uint64(0))
	f.Add(^uint64(0), ^uint64(0))
	f.Add(uint64(1)<<44, uint64(1)<<63)
	f.Fuzz(func(t *testing.T, hi, lo uint64) {
		checkPebbleSlot(t, Hash{Hi: hi, Lo: lo})
		s := Slot(hi)
		if h, ok := s.PebbleHash(); ok && PebbleSlot(h) != s {
			t.Fatalf("slot %#x: not what its hash %x makes", hi, h)
		}
		_ = s.String()
	})
}

// The bits as they stand in memory: a change is a change of the format.
func TestPebbleSlotBits(t *testing.T) {
	for _, c := range []struct {
		h    Hash
		want uint64
	}{
		{Hash{}, 0x0000_ff_00000_00000},
		{Hash{Hi: 0xabcde << 44}, 0x0000_ff_abcde_00000},
		{Hash{Hi: 0x1234}, 0x1234_ff_00000_00000},
		{Hash{Lo: 1 << 32}, 0x0000_ff_00000_00000 | 1<<pebbleSideX},
		{Hash{Lo: 1}, 0x0000_ff_00000_00000 | 1<<pebbleSideY},
		{Hash{Lo: ^uint64(0)}, 0x0000_ff_00000_00000 | uint64(len(xCells)-2)<<pebbleCellX | 1<<pebbleSideX |
			uint64(len(yCells)-2)<<pebbleCellY | 1<<pebbleSideY},
	} {
		if got := PebbleSlot(c.h); uint64(got) != c.want {
			t.Errorf("hash %x: slot %#x, want %#x", c.h, uint64(got), c.want)
		}
	}
	if n := [2]int{len(xCells) - 1, len(yCells) - 1}; n != [2]int{464, 438} {
		t.Errorf("%v cells", n)
	}
}

func BenchmarkPebbleSlot(b *testing.B) {
	var key [8]byte
	var sum Slot
	for b.Loop() {
		binary.LittleEndian.PutUint64(key[:], uint64(sum)+1)
		sum += PebbleSlot(HashKey(1, key[:]))
	}
}
