package format

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/zeebo/xxh3"
)

func testLife() Life {
	return Life{Store: [16]byte{1}, Serial: 5, Life: 3, Seen: 3, Epoch: 9, Clean: true, End: At(7, 8304), Made: 1e15}
}

// sealLife gives a copy that was changed a checksum that holds.
func sealLife(b []byte) {
	binary.LittleEndian.PutUint64(b[offLifeSum:], xxh3.Hash(b[offLifeMagic:LifeLen]))
}

// TestLifeRefused: a copy of LIFE of which the checksum holds, and a field does not.
func TestLifeRefused(t *testing.T) {
	put64 := func(off int, v uint64) func([]byte) {
		return func(b []byte) { binary.LittleEndian.PutUint64(b[off:], v) }
	}
	put32 := func(off int, v uint32) func([]byte) {
		return func(b []byte) { binary.LittleEndian.PutUint32(b[off:], v) }
	}
	for name, c := range map[string]struct {
		change func([]byte)
		want   string
		newer  bool
	}{
		"magic":              {put64(offLifeMagic, 1), "magic", false},
		"format 0":           {put32(offLifeFormat, 0), "format 0", false},
		"newer format":       {put32(offLifeFormat, Version+1), "use a newer one", true},
		"unknown flag":       {put32(offLifeFlags, 3), "flags 0x3", true},
		"serial 0":           {put64(offLifeSerial, 0), "copy 0", false},
		"saw a later life":   {put64(offLifeSeen, 4), "which saw life 4", false},
		"clean without end":  {put64(offLifeEnd, 0), "ended at 0+0, cleanly: true", false},
		"end in segment 0":   {put64(offLifeEnd, 8192), "ended at 0+2000", false},
		"end in a header":    {put64(offLifeEnd, uint64(At(7, 64))), "ended at 7+40", false},
		"end within a field": {put64(offLifeEnd, uint64(At(7, 8301))), "ended at 7+206d", false},
	} {
		b := make([]byte, LifeLen)
		PutLife(b, testLife())
		if got, err := ParseLife(b); err != nil || got != testLife() {
			t.Fatal(got, err)
		}
		c.change(b)
		sealLife(b)
		if _, err := ParseLife(b); err == nil || !strings.Contains(err.Error(), c.want) || errors.Is(err, ErrNewer) != c.newer {
			t.Errorf("%s: %v", name, err)
		}
	}
	// A start says where it found the end, and has not ended cleanly.
	unclean := testLife()
	unclean.Clean = false
	whole := make([]byte, LifeLen)
	PutLife(whole, unclean)
	if got, err := ParseLife(whole); err != nil || got != unclean {
		t.Error(got, err)
	}
	if _, err := ParseLife(make([]byte, LifeLen-1)); err == nil {
		t.Error("a part of a copy is one")
	}
	b := make([]byte, LifeLen)
	PutLife(b, testLife())
	for bit := range 8 * len(b) {
		b[bit/8] ^= 1 << (bit % 8)
		if l, err := ParseLife(b); err == nil {
			t.Fatalf("bit %d flipped: %+v", bit, l)
		}
		b[bit/8] ^= 1 << (bit % 8)
	}
}

func FuzzParseLife(f *testing.F) {
	b := make([]byte, LifeLen)
	PutLife(b, testLife())
	f.Add(b, true)
	f.Add(b, false)
	f.Add(b[:LifeLen-1], true)
	f.Fuzz(func(t *testing.T, b []byte, seal bool) {
		if seal && len(b) >= LifeLen {
			sealLife(b)
		}
		l, err := ParseLife(b)
		if err != nil {
			return
		}
		again := make([]byte, LifeLen)
		PutLife(again, l)
		if !bytes.Equal(again, b[:LifeLen]) {
			t.Fatalf("%+v written anew is other bytes", l)
		}
	})
}
