//go:build linux

package shm

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/rdmakv/rdmakv/rdma/internal/memfd"
	"github.com/rdmakv/rdmakv/rdma/mem"
)

// FuzzSetup: set-up messages and notices of regions, whatever a peer sends, are
// refused or mean something within bounds; and what is ours survives the way.
func FuzzSetup(f *testing.F) {
	h := hello{netns: 7, addr: netip.MustParseAddrPort("10.0.0.1:7400"), ird: 1, ord: 2, private: []byte("private")}
	w := welcome{accept: true, proof: true, ird: 3, ord: 4, private: []byte("private")}
	f.Add(h.append(nil), 0)
	f.Add(w.append(nil), 0)
	f.Add((&welcome{foreign: true}).append(nil), 0)
	f.Add(appendGone(appendShown(nil, 5, 6, memfd.Backing{Offset: 4096, Size: 8192}, 4096), 9), 1)
	f.Fuzz(func(t *testing.T, b []byte, fds int) {
		if h, err := parseHello(b); err == nil {
			if got := h.append(nil); !bytes.Equal(got[18:], b[18:]) && h.addr.Addr().Is4() == false {
				t.Errorf("%x became %x", b, got)
			}
			if len(h.private) > maxPrivate {
				t.Errorf("%d bytes of private data", len(h.private))
			}
		}
		if w, err := parseWelcome(b); err == nil {
			if got := w.append(nil); !bytes.Equal(got, b) {
				t.Errorf("%x became %x", b, got)
			}
		}
		if list, err := parseRegions(b, fds); err == nil {
			named := 0
			for _, s := range list {
				if s.gone {
					continue
				}
				named++
				if s.slot >= slotCount || s.key == 0 || s.n == 0 || s.off+s.n > s.size || s.off+s.n < s.off || s.size > mem.MaxSize {
					t.Errorf("%+v", s)
				}
			}
			if named != fds || len(list) > maxNotices {
				t.Errorf("%d regions for %d descriptors", named, fds)
			}
		}
	})
}

// FuzzRing: whatever stands in a peer's ring, the consumer goes forward by whole
// words, no further than the peer's tail, hands out no byte beyond the ring, and
// comes to an end.
func FuzzRing(f *testing.F) {
	one := binary.LittleEndian.AppendUint64(nil, word0(recSend, flagLast, 3))
	one = append(one, "abc-----"...)
	one = binary.LittleEndian.AppendUint64(one, word0(recRead, flagLast, 0))
	one = binary.LittleEndian.AppendUint64(one, 7|64<<32)
	one = binary.LittleEndian.AppendUint64(one, 4096)
	f.Add(one, uint64(len(one)), uint64(0))
	f.Add(one, uint64(1<<40), uint64(8))
	f.Add([]byte{}, uint64(ringSize), uint64(ringSize-8))
	pages := make([]byte, channelSize+8)
	pages = pages[-mem.Skew(pages, 0)&7:]
	f.Fuzz(func(t *testing.T, b []byte, ahead, from uint64) {
		clear(pages)
		h := halfAt(pages[:halfSize])
		c := consumer{h: &h, head: from &^ 7, tail: from &^ 7}
		for i := range min(len(b), ringSize) {
			h.ring[(c.head+uint64(i))&(ringSize-1)] = b[i]
		}
		h.tail.Store(c.head + ahead)
		for taken := uint64(0); ; {
			before := c.head
			r, ok, err := c.next()
			if err != nil || !ok {
				return
			}
			if r.size == 0 || r.size&7 != 0 || len(r.payload) > maxPiece || uint64(len(r.payload)) > r.size {
				t.Fatalf("%+v", r)
			}
			c.release(&r)
			if taken += c.head - before; taken > ahead || h.head.Load() != c.head {
				t.Fatalf("%d bytes taken of %d", taken, ahead)
			}
		}
	})
}

// TestRingCarries: what a producer puts comes out, whatever the sizes, over many
// turns of the ring.
func TestRingCarries(t *testing.T) {
	pages := make([]byte, channelSize+8)
	pages = pages[-mem.Skew(pages, 0)&7:]
	h := halfAt(pages[:halfSize])
	p, c := producer{h: &h}, consumer{h: &h}
	var in, out uint64 // bytes put and taken
	pattern := func(at uint64) byte { return byte(at*31 ^ at>>9) }
	n := uint64(1)
	for range 3000 {
		for {
			n = n*2862933555777941757 + 3037000493
			buf, got, fits, ok := p.reserve(recSend, n>>32%(3*maxPiece)+1, true)
			if !ok {
				t.Fatal("the ring is broken")
			}
			if !fits {
				break
			}
			for i := range buf[recordHeader : recordHeader+got] {
				buf[recordHeader+i] = pattern(in + uint64(i))
			}
			in += got
			p.commit(buf, recSend, 0, got)
			if n>>60 == 0 {
				break
			}
		}
		for n>>61 != 0 {
			n = n*2862933555777941757 + 3037000493
			r, ok, err := c.next()
			if err != nil {
				t.Fatal(err)
			}
			if !ok {
				if out != in {
					t.Fatalf("%d bytes came out of %d", out, in)
				}
				break
			}
			for i, b := range r.payload {
				if b != pattern(out+uint64(i)) {
					t.Fatalf("byte %d is wrong", out+uint64(i))
				}
			}
			out += uint64(len(r.payload))
			c.release(&r)
		}
	}
	if in < 50*ringSize {
		t.Errorf("only %d bytes went through", in)
	}
}
