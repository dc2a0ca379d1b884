package format

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/zeebo/xxh3"
)

// testFrame is a frame with a record of each kind, and its head.
func testFrame(tb testing.TB) ([]byte, Frame) {
	tb.Helper()
	f := Frame{Position: At(7, 4096), Life: 3, Durable: At(7, 4096), Number: 5}
	b, err := buildFrame(&f, testSalt, "write 1 0 258 0 \"hello\"\nentry 2 0 17 4 \"an entry\"\nfact 2 1 0 0 \"\"\n")
	if err != nil {
		tb.Fatal(err)
	}
	return b, f
}

// sealHead gives a head that was changed a checksum that holds, as a wrong writer would.
func sealHead(b []byte, salt uint64) {
	binary.LittleEndian.PutUint64(b[offFrameSum:], xxh3.HashSeed(b[offFrameBody:FrameHead], salt))
}

// sealHeader does the same for a header.
func sealHeader(b []byte, block int) {
	binary.LittleEndian.PutUint64(b[offSum:], xxh3.Hash(b[offMagic:block]))
}

// TestHeaderRefused: a header of which the checksum holds is refused for each field that is
// beyond its bounds, because readers compute with the fields.
func TestHeaderRefused(t *testing.T) {
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
		"magic":                {put64(offMagic, magic+1), "magic", false},
		"format 0":             {put32(offFormat, 0), "format 0", false},
		"newer format":         {put32(offFormat, Version+1), "use a newer one", true},
		"block 0":              {put32(offBlock, 0), "block of 0", false},
		"block too small":      {put32(offBlock, MinBlock/2), "block of 2048", false},
		"block no power":       {put32(offBlock, MinBlock+512), "block of 4608", false},
		"block too large":      {put32(offBlock, 2*MaxBlock), "block of 131072", false},
		"block beyond bytes":   {put32(offBlock, 2*MinBlock), "block of 8192", false},
		"number 0":             {put64(offNumber, 0), "number 0", false},
		"number too high":      {put64(offNumber, MaxSegment+1), "number", false},
		"life 0":               {put64(offLife, 0), "life 0", false},
		"size too small":       {put64(offSize, MinBlock), "size of", false},
		"size too large":       {put64(offSize, MaxSize+MinBlock), "size of", false},
		"size negative":        {put64(offSize, 1<<63), "size of", false},
		"size no blocks":       {put64(offSize, 64<<20+512), "size of", false},
		"ahead negative":       {put64(offAhead, 1<<63), "ahead", false},
		"ahead without end":    {put64(offAhead, maxAhead+1), "ahead", false},
		"cut in itself":        {put64(offCut, uint64(At(7, 4096))), "begins behind", false},
		"cut behind it":        {put64(offCut, uint64(At(8, 4096))), "begins behind", false},
		"cut in segment 0":     {put64(offCut, uint64(At(0, 4096))), "cut at", false},
		"cut in a header":      {put64(offCut, uint64(At(6, 8))), "cut at", false},
		"cut within a record":  {put64(offCut, uint64(At(6, 4097))), "cut at", false},
		"cut beyond a file":    {put64(offCut, uint64(At(6, MaxSize+8))), "cut at", false},
		"chain without cut":    {put64(offCut, 0), "cut at", false},
		"durable ahead of all": {put64(offDurable, uint64(At(7, 4104))), "begins behind", false},
		"fields of tomorrow":   {func(b []byte) { b[headerLen] = 1 }, "unknown fields", true},
		"last byte of padding": {func(b []byte) { b[MinBlock-1] = 1 }, "unknown fields", true},
	} {
		b := make([]byte, MinBlock)
		PutHeader(b, testHeader(7))
		if _, err := ParseHeader(b); err != nil {
			t.Fatal(err)
		}
		c.change(b)
		sealHeader(b, MinBlock)
		_, err := ParseHeader(b)
		if err == nil || !strings.Contains(err.Error(), c.want) || errors.Is(err, ErrNewer) != c.newer {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := ParseHeader(make([]byte, MinBlock-1)); err == nil {
		t.Error("less than a block is a header")
	}
	if HeaderMagic(make([]byte, headerLen)) || HeaderMagic([]byte("short")) {
		t.Error("zeros begin like a header")
	}
}

// TestFrameRefused: the same for frames and records of which the checksums hold.
func TestFrameRefused(t *testing.T) {
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
		"other position":        {put64(offFramePosition, uint64(At(7, 8192))), ErrNoFrame.Error(), false},
		"other life":            {put64(offFrameLife, 2), ErrNoFrame.Error(), false},
		"durable ahead":         {put64(offFrameDurable, uint64(At(7, 4104))), "durable to", false},
		"number 0":              {put64(offFrameNumber, 0), "frame 0", false},
		"flags":                 {put64(offFrameZero, 1), "flags", true},
		"bytes not aligned":     {put32(offFrameBytes, 145), "in 145 bytes", false},
		"bytes beyond the rest": {put32(offFrameBytes, 1<<20), "are left", false},
		"bytes beyond a file":   {put32(offFrameBytes, 1<<32-8), "bytes, durable", false},
		"records, no bytes":     {put32(offFrameBytes, 0), "in 0 bytes", false},
		"bytes, no records":     {put32(offFrameRecords, 0), "0 records", false},
		"too many records":      {put32(offFrameRecords, 4), "4 records", false},
		"all records":           {put32(offFrameRecords, 1<<32-1), "records in", false},
		"one record fewer":      {put32(offFrameRecords, 2), "expected 2", false},
		"ends within a record":  {put32(offFrameBytes, 120), "shorter than the head", false},
		"other body sum":        {put64(offFrameBody, 1), "expected 3, whose", false},
	} {
		b, f := testFrame(t)
		c.change(b)
		sealHead(b, testSalt)
		if _, err := ParseFrame(b, testSalt, f.Position, f.Life, noRecord(t)); err == nil || !strings.Contains(err.Error(), c.want) || errors.Is(err, ErrNewer) != c.newer {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Where a caller knows neither position nor life, the fields speak for themselves.
	for name, change := range map[string]func([]byte){
		"position in a header": put64(offFramePosition, uint64(At(7, 64))), "position in segment 0": put64(offFramePosition, 4096),
		"position not aligned": put64(offFramePosition, uint64(At(7, 4100))), "life 0": put64(offFrameLife, 0),
	} {
		b, _ := testFrame(t)
		put64(offFrameDurable, 0)(b)
		change(b)
		sealHead(b, testSalt)
		if _, err := ParseHead(b, testSalt, 0, 0); err == nil || err == ErrNoFrame {
			t.Errorf("%s: %v", name, err)
		}
	}
	b, f := testFrame(t)
	if _, err := ParseHead(b[:FrameHead-1], testSalt, f.Position, f.Life); err != ErrNoFrame {
		t.Errorf("a part of a head: %v", err)
	}
	if _, err := ParseHead(b, testSalt+1, f.Position, f.Life); err != ErrNoFrame {
		t.Errorf("another salt: %v", err)
	}
}

// TestRecordRefused: records of which the checksum holds and the rest does not.
func TestRecordRefused(t *testing.T) {
	at := At(7, 4096+FrameHead)
	for name, c := range map[string]struct {
		change func([]byte)
		want   string
		newer  bool
	}{
		"kind 0":    {func(b []byte) { b[offRecordKind] = 0 }, "kind(0)", true},
		"kind 4":    {func(b []byte) { b[offRecordKind] = 4 }, "kind(4)", true},
		"flags":     {func(b []byte) { b[offRecordFlags] = 1 }, "flags", true},
		"too long":  {func(b []byte) { b[offRecordSize] = 9 }, "are left", false},
		"endless":   {func(b []byte) { binary.LittleEndian.PutUint32(b[offRecordSize:], 1<<32-1) }, "are left", false},
		"padding 1": {func(b []byte) { b[RecordHead+5] = 1 }, "padded", false},
		"padding 3": {func(b []byte) { b[RecordHead+7] = 1 }, "padded", false},
	} {
		b := appendRecord(nil, Record{Kind: Write, Stream: 1}, []byte("hello"))
		c.change(b)
		binary.LittleEndian.PutUint64(b, recordSum(b, testSalt, at))
		if _, err := ParseRecord(b, testSalt, at); err == nil || !strings.Contains(err.Error(), c.want) || errors.Is(err, ErrNewer) != c.newer {
			t.Errorf("%s: %v", name, err)
		}
	}
	b := appendRecord(nil, Record{Kind: Write, Stream: 1}, []byte("hello"))
	if _, err := ParseRecord(b[:RecordHead-1], testSalt, at); err == nil {
		t.Error("a part of a head is a record")
	}
}

// noRecord is a visitor that must not be called: records are told of good frames alone.
func noRecord(t *testing.T) func(Record) error {
	return func(r Record) error {
		t.Errorf("record at %v of a frame that is not good", r.Position)
		return nil
	}
}

// TestEveryBitFlipped: a header and a frame with any one bit changed are found, and no
// record of such a frame is told.
func TestEveryBitFlipped(t *testing.T) {
	b := make([]byte, MinBlock)
	PutHeader(b, testHeader(7))
	for bit := range 8 * len(b) {
		b[bit/8] ^= 1 << (bit % 8)
		if h, err := ParseHeader(b); err == nil {
			t.Fatalf("header with bit %d flipped: %+v", bit, h)
		}
		b[bit/8] ^= 1 << (bit % 8)
	}
	b, f := testFrame(t)
	for bit := range 8 * len(b) {
		b[bit/8] ^= 1 << (bit % 8)
		if g, err := ParseFrame(b, testSalt, f.Position, f.Life, noRecord(t)); err == nil {
			t.Fatalf("frame with bit %d flipped: %+v", bit, g)
		}
		// A place of 0 fits every frame, so the sum alone has to find it.
		if _, err := ParseFrame(b, testSalt, 0, 0, noRecord(t)); err == nil {
			t.Fatalf("frame with bit %d flipped, of any place", bit)
		}
		b[bit/8] ^= 1 << (bit % 8)
	}
}

// TestNowhereElse: a frame and its records are good at their place, with their salt and in
// their life alone, and only as a whole and in their order.
func TestNowhereElse(t *testing.T) {
	b, f := testFrame(t)
	for _, c := range []struct {
		salt uint64
		at   Position
		life uint64
	}{{testSalt ^ 1, f.Position, f.Life}, {testSalt, f.Position.Add(4096), f.Life}, {testSalt, At(8, 4096), f.Life}, {testSalt, f.Position, f.Life + 1}} {
		if _, err := ParseFrame(b, c.salt, c.at, c.life, noRecord(t)); err != ErrNoFrame {
			t.Errorf("%+v: %v", c, err)
		}
	}
	first := f.Position.Add(FrameHead)
	if _, err := ParseRecord(b[FrameHead:], testSalt, first); err != nil {
		t.Fatal(err)
	}
	for _, at := range []Position{first.Add(8), At(8, first.Offset()), first ^ 1<<63} {
		if _, err := ParseRecord(b[FrameHead:], testSalt, at); err == nil {
			t.Errorf("a record of %v is good at %v", first, at)
		}
	}
	// Two records of one size change places: each is sealed anew for its place, by
	// somebody who knows the salt and not the sum over all.
	two := Frame{Position: f.Position, Life: f.Life, Number: 1}
	c, err := buildFrame(&two, testSalt, "write 1 0 1 0 \"first\"\nwrite 1 0 2 0 \"again\"\n")
	if err != nil {
		t.Fatal(err)
	}
	n := RecordSize(5)
	swapped := bytes.Clone(c)
	copy(swapped[FrameHead:], c[FrameHead+n:])
	copy(swapped[FrameHead+n:], c[FrameHead:FrameHead+n])
	for i := range 2 {
		r := swapped[FrameHead+i*n:][:n]
		binary.LittleEndian.PutUint64(r, recordSum(r, testSalt, two.Position.Add(int64(FrameHead+i*n))))
	}
	if _, err := ParseFrame(swapped, testSalt, two.Position, two.Life, noRecord(t)); err == nil {
		t.Error("records in another order")
	}
}

// TestChain: the sum of a segment's frames tells their order and their number.
func TestChain(t *testing.T) {
	a, b := uint64(0x0123456789abcdef), uint64(0xfedcba9876543210)
	seen := map[uint64]string{}
	for name, sums := range map[string][]uint64{"": nil, "a": {a}, "b": {b}, "ab": {a, b}, "ba": {b, a}, "aa": {a, a}, "aab": {a, a, b}} {
		c := uint64(0)
		for _, s := range sums {
			c = Chain(c, s)
		}
		if other, ok := seen[c]; ok {
			t.Errorf("%q and %q have one sum", name, other)
		}
		seen[c] = name
	}
}

// TestVisitEnds: an error of the visitor comes back as it is, and ends the visit.
func TestVisitEnds(t *testing.T) {
	b, f := testFrame(t)
	stop, n := errors.New("stop"), 0
	if _, err := ParseFrame(b, testSalt, f.Position, f.Life, func(Record) error { n++; return stop }); err != stop || n != 1 {
		t.Errorf("%v after %d records", err, n)
	}
}
