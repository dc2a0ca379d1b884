package format

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"
)

// Every parser takes any bytes: no panic, no length believed before it was compared with
// what is there, and what is accepted is the same bytes when it is written anew. A fuzzer
// does not find checksums, so each target has a way to seal what it made up.

func FuzzParseHeader(f *testing.F) {
	for _, h := range []Header{testHeader(1), testHeader(7)} {
		b := make([]byte, h.Block)
		PutHeader(b, h)
		f.Add(b[:headerLen], uint16(h.Block/512), true)
		f.Add(b[:headerLen], uint16(h.Block/512), false)
		f.Add(b[:20], uint16(1), true)
	}
	f.Fuzz(func(t *testing.T, head []byte, sectors uint16, seal bool) {
		b := make([]byte, min(max(len(head), int(sectors)*512), MaxBlock))
		copy(b, head)
		if block := MinBlock; seal && len(b) >= block {
			if n := int(binary.LittleEndian.Uint32(b[offBlock:])); n >= block && n <= len(b) {
				block = n
			}
			sealHeader(b, block)
		}
		keep := bytes.Clone(b)
		h, err := ParseHeader(b)
		if !bytes.Equal(b, keep) {
			t.Fatal("the buffer was changed")
		}
		if err != nil {
			return
		}
		if h.Block > len(b) || h.Size < 2*int64(h.Block) || h.Size > MaxSize || h.Number > MaxSegment || h.Ahead < 0 {
			t.Fatalf("%+v", h)
		}
		again := make([]byte, h.Block)
		PutHeader(again, h)
		if !bytes.Equal(again, b[:h.Block]) {
			t.Fatalf("%+v written anew is other bytes", h)
		}
	})
}

func FuzzParseFrame(f *testing.F) {
	b, g := testFrame(f)
	f.Add(b, uint64(testSalt), uint64(g.Position), g.Life, true)
	f.Add(b[:FrameHead], uint64(testSalt), uint64(g.Position), g.Life, false)
	f.Add(b[:len(b)-1], uint64(testSalt), uint64(0), uint64(0), true)
	f.Add(bytes.Repeat([]byte{0xff}, 256), uint64(0), uint64(0), uint64(0), true)
	f.Add(make([]byte, 128), uint64(0), uint64(0), uint64(0), true)
	f.Fuzz(func(t *testing.T, b []byte, salt, at, life uint64, seal bool) {
		if seal {
			sealAll(b, salt)
		}
		keep, told := bytes.Clone(b), 0
		g, err := ParseFrame(b, salt, Position(at), life, func(r Record) error {
			told++
			return nil
		})
		if !bytes.Equal(b, keep) {
			t.Fatal("the buffer was changed")
		}
		if err != nil {
			if told > 0 {
				t.Fatalf("%d records of a frame that is not good: %v", told, err)
			}
			return
		}
		if told != g.Records || FrameHead+g.Bytes > len(b) || g.End().Segment() != g.Position.Segment() || g.Durable > g.Position {
			t.Fatalf("%d records told of %+v in %d bytes", told, g, len(b))
		}
		again, want := make([]byte, FrameHead), Frame{Position: g.Position, Life: g.Life, Durable: g.Durable, Number: g.Number}
		if _, err := ParseFrame(b, salt, Position(at), life, func(r Record) error {
			one, err := ParseRecord(b[r.Position.Offset()-g.Position.Offset():], salt, r.Position)
			if err != nil || one.Stream != r.Stream || one.Kind != r.Kind || !bytes.Equal(one.Body, r.Body) {
				t.Fatalf("record at %v alone: %+v, %v", r.Position, one, err)
			}
			again = appendRecord(again, r, r.Body)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		SealFrame(again, &want, salt)
		if want != g || !bytes.Equal(again, b[:len(again)]) {
			t.Fatalf("%+v written anew is %+v", g, want)
		}
	})
}

// sealAll writes the checksums that a frame of these bytes would have: of the records as
// far as there are such, then over them, then of the head. It trusts no length.
func sealAll(b []byte, salt uint64) {
	if len(b) < FrameHead {
		return
	}
	le := binary.LittleEndian
	at, body := Position(le.Uint64(b[offFramePosition:])), uint64(0)
	end := min(uint64(len(b)), FrameHead+uint64(le.Uint32(b[offFrameBytes:])))
	for off := uint64(FrameHead); off+RecordHead <= end; {
		n := uint64(RecordAt(b[off:]))
		if off+n > end {
			break
		}
		sum := recordSum(b[off:off+n], salt, at.Add(int64(off)))
		le.PutUint64(b[off:], sum)
		body, off = fold(body, sum), off+n
	}
	le.PutUint64(b[offFrameBody:], body)
	sealHead(b, salt)
}

func FuzzParseRecord(f *testing.F) {
	for _, body := range []string{"", "hello", "eight by", "nine byte"} {
		f.Add(appendRecord(nil, Record{Kind: Entry, Stream: 2, Index: 3, Term: 4}, []byte(body)), uint64(testSalt), uint64(At(7, 4160)), true)
	}
	f.Add(bytes.Repeat([]byte{0xff}, RecordHead), uint64(0), uint64(0), true)
	f.Add(make([]byte, RecordHead-1), uint64(0), uint64(0), false)
	f.Fuzz(func(t *testing.T, b []byte, salt, at uint64, seal bool) {
		if n := int64(len(b)); seal && n >= RecordHead && RecordAt(b) <= n {
			binary.LittleEndian.PutUint64(b, recordSum(b[:RecordAt(b)], salt, Position(at)))
		}
		r, err := ParseRecord(b, salt, Position(at))
		if err != nil {
			return
		}
		n := RecordSize(len(r.Body))
		again := appendRecord(nil, r, r.Body)
		binary.LittleEndian.PutUint64(again, recordSum(again, salt, Position(at)))
		if int64(n) != RecordAt(b) || !bytes.Equal(again, b[:n]) {
			t.Fatalf("%+v written anew is other bytes", r)
		}
	})
}

// FuzzSegment reads a segment as any reader must: from block to block, and behind a good
// frame at the next place. The segment holds good frames, over which the fuzzer's bytes are
// laid. The scan ends, and what it tells are records that were written there.
func FuzzSegment(f *testing.F) {
	f.Add(uint64(1), uint32(4096), []byte{1}, uint32(9000), []byte("other bytes"))
	f.Add(uint64(2), uint32(0), []byte{}, uint32(1<<31), []byte{0xff})
	b, _ := testFrame(f)
	f.Add(uint64(3), uint32(4096), b, uint32(8192), b)
	f.Fuzz(func(t *testing.T, seed uint64, at1 uint32, over1 []byte, at2 uint32, over2 []byte) {
		seg, written := testSegment(seed)
		for off, over := range map[uint32][]byte{at1: over1, at2: over2} {
			copy(seg[int(off)%len(seg):], over)
		}
		steps := 0
		for off := int64(MinBlock); off < int64(len(seg)); steps++ {
			g, err := ParseFrame(seg[off:], segmentSalt, At(7, off), 3, func(r Record) error {
				if want, ok := written[r.Position]; !ok || want != string(r.Body) {
					t.Fatalf("record at %v says %q, %q was written", r.Position, r.Body, want)
				}
				return nil
			})
			if err != nil {
				off = Pad(off+1, Align)
				continue
			}
			off = Pad(g.End().Offset(), Align)
		}
		if steps > len(seg)/Align {
			t.Fatalf("%d steps over %d bytes", steps, len(seg))
		}
	})
}

// segmentSalt is not the salt of the frames that the fuzzer begins with, since that is what
// a client cannot know.
const segmentSalt = 0x8877665544332211

// testSegment is 64 KiB of a segment with frames of random records, and what was written
// where. Behind the frames stand frames of an earlier use, with another salt.
func testSegment(seed uint64) (seg []byte, written map[Position]string) {
	rnd := rand.New(rand.NewPCG(seed, 1))
	seg, written = make([]byte, 64<<10), map[Position]string{}
	off, number := int64(MinBlock), uint64(0)
	for {
		number++
		frame := make([]byte, FrameHead)
		var bodies []string
		for range rnd.IntN(5) {
			body := make([]byte, rnd.IntN(3000))
			for i := range body {
				body[i] = byte(rnd.Uint32())
			}
			frame = appendRecord(frame, Record{Kind: Kind(1 + rnd.IntN(3)), Stream: rnd.Uint64N(3), Index: number}, body)
			bodies = append(bodies, string(body))
		}
		if off+int64(len(frame)) > int64(len(seg)) {
			return seg, written
		}
		salt := uint64(segmentSalt)
		if off > int64(len(seg))/2 {
			salt++
		}
		SealFrame(frame, &Frame{Position: At(7, off), Life: 3, Number: number}, salt)
		copy(seg[off:], frame)
		at := At(7, off+FrameHead)
		for _, body := range bodies {
			if salt == segmentSalt {
				written[at] = body
			}
			at = at.Add(int64(RecordSize(len(body))))
		}
		off = Pad(off+int64(len(frame)), MinBlock)
	}
}
