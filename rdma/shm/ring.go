//go:build linux

package shm

import (
	"encoding/binary"
	"fmt"

	"github.com/rdmakv/rdmakv/rdma"
)

// Records. Each begins with a word:
//
//	63            48 47    40 39    32 31                   0
//	┌───────────────┬────────┬────────┬──────────────────────┐
//	│ 0             │ flags  │ type   │ bytes of payload     │
//	└───────────────┴────────┴────────┴──────────────────────┘
//
// then come the fixed words of its type, then the payload, padded to 8 bytes. A
// record never wraps around the ring's end: a pad fills the rest.
type recType uint8

const (
	recPad   recType = iota + 1 // "payload" to the ring's end
	recSend                     // a piece of a SEND
	recWrite                    // a piece of a WRITE: rkey, address
	recRead                     // a READ request: rkey | length<<32, address
	recResp                     // a piece of the answer to the oldest READ
	recTypes
)

const (
	flagLast    = 1 << 0 // the message ends here
	flagSolicit = 1 << 1

	recordHeader = 8
	maxFixed     = 16
	// maxPiece is the payload of one record: a quarter of the ring, so that one
	// end copies in while the other copies out.
	maxPiece = ringSize / 4
	// minPiece: less than that is not worth a record before the ring's end.
	minPiece = 512
)

// fixedOf is the length of the fixed words by type.
var fixedOf = [recTypes]int{recWrite: 16, recRead: 16}

// A record as the consumer has copied it out: everything but the payload, which
// lies in the ring still.
type record struct {
	typ     recType
	flags   uint8
	a, b    uint64 // fixed words
	payload []byte // within the ring: the peer may be changing it
	size    uint64 // of the whole record in the ring
}

// A producer is the writing end of a half. Its owner holds sender.mu.
type producer struct {
	h    *half
	tail uint64 // of this end, in private memory: what stands in shared memory is never read back
	head uint64 // the consumer's, as last seen
	// stuck says that the last piece of work found no room. QP.Mu guards it.
	stuck bool
}

// room is how many bytes are free, after a look at the consumer's word if there
// are fewer than want. ok is false if that word makes no sense.
func (p *producer) room(want uint64) (free uint64, ok bool) {
	if free = ringSize - (p.tail - p.head); free >= want {
		return free, true
	}
	head := p.h.head.Load()
	raceAcquire()
	// The index must move forward, up to our tail, by whole words.
	if head-p.head > p.tail-p.head || head&7 != 0 {
		return 0, false
	}
	p.head = head
	return ringSize - (p.tail - p.head), true
}

// reserve finds room for a record with up to n bytes of payload and says how many
// of them fit, 0 ≤ got ≤ n; got < n only if split. It may put a pad. fits is
// false if there is no room now, ok if the consumer's word makes no sense.
func (p *producer) reserve(typ recType, n uint64, split bool) (buf []byte, got uint64, fits, ok bool) {
	fixed := uint64(recordHeader + fixedOf[typ])
	least := n
	if split {
		least = min(n, minPiece)
	}
	for {
		free, ok := p.room(fixed + align(min(n, maxPiece)))
		if !ok {
			return nil, 0, false, false
		}
		at := p.tail & (ringSize - 1)
		end := ringSize - at
		if c := min(free, end); c >= fixed+align(least) {
			got = min(n, maxPiece, c-fixed)
			return p.h.ring[at : at+fixed+align(got)], got, true, true
		}
		if free <= end {
			return nil, 0, false, true
		}
		binary.LittleEndian.PutUint64(p.h.ring[at:], word0(recPad, 0, end-recordHeader))
		p.tail += end
	}
}

// commit makes a record of the reserved bytes visible, and with it the pad.
func (p *producer) commit(buf []byte, typ recType, flags uint8, n uint64) {
	binary.LittleEndian.PutUint64(buf, word0(typ, flags, n))
	p.tail += uint64(len(buf))
	raceRelease()
	p.h.tail.Store(p.tail)
}

func word0(typ recType, flags uint8, n uint64) uint64 {
	return n | uint64(typ)<<32 | uint64(flags)<<40
}

func align(n uint64) uint64 { return (n + 7) &^ 7 }

// A consumer is the reading end of a half. Its owner holds receiver.mu.
type consumer struct {
	h    *half
	head uint64 // ours
	tail uint64 // the producer's, as last seen and checked
}

// ready reports whether something may have come.
func (c *consumer) ready() bool { return c.h.tail.Load() != c.head }

// next copies the next record out; ok is false if there is none. An error wraps
// rdma.ErrProtocol: the peer has written nonsense.
func (c *consumer) next() (r record, ok bool, err error) {
	for {
		if c.head == c.tail {
			tail := c.h.tail.Load()
			raceAcquire()
			if tail == c.head {
				return r, false, nil
			}
			if tail-c.head > ringSize || tail&7 != 0 {
				return r, false, fmt.Errorf("%w: the peer's ring claims %d bytes, it has %d", rdma.ErrProtocol, int64(tail-c.head), ringSize)
			}
			c.tail = tail
		}
		if r, err = parseRecord(c.h.ring, c.head&(ringSize-1), c.tail-c.head); err != nil {
			return r, false, err
		}
		if r.typ != recPad {
			return r, true, nil
		}
		c.release(&r)
	}
}

// release gives a record's bytes back to the producer.
func (c *consumer) release(r *record) {
	c.head += r.size
	raceRelease()
	c.h.head.Store(c.head)
}

// parseRecord reads the record at a place of a ring of which have bytes are
// filled. Every field is copied out once and then checked.
func parseRecord(ring []byte, at, have uint64) (r record, err error) {
	end := uint64(len(ring)) - at
	w := wordAt(ring, int(at)).Load()
	n := w & 0xffffffff
	r.typ, r.flags = recType(w>>32), uint8(w>>40)
	if w>>48 != 0 || r.typ == 0 || r.typ >= recTypes || r.flags&^(flagLast|flagSolicit) != 0 {
		return r, fmt.Errorf("%w: the peer's ring has no record at %d: %#x", rdma.ErrProtocol, at, w)
	}
	fixed := uint64(recordHeader + fixedOf[r.typ])
	r.size = fixed + align(n)
	switch {
	case r.size > have || r.size > end:
		return r, fmt.Errorf("%w: a record of %d bytes in the peer's ring, %d are there", rdma.ErrProtocol, r.size, min(have, end))
	case r.typ == recPad && r.size == have:
		// The pad becomes visible with the record behind it. A peer could send
		// pads alone for ever.
		return r, fmt.Errorf("%w: a pad with nothing behind it in the peer's ring", rdma.ErrProtocol)
	case r.typ == recPad && r.size != end:
		return r, fmt.Errorf("%w: a pad of %d bytes in the peer's ring, %d to its end", rdma.ErrProtocol, r.size, end)
	case r.typ != recPad && n > maxPiece, r.typ == recRead && n != 0:
		return r, fmt.Errorf("%w: a record of type %d with %d bytes of payload", rdma.ErrProtocol, r.typ, n)
	}
	if fixedOf[r.typ] > 0 {
		r.a, r.b = wordAt(ring, int(at)+8).Load(), wordAt(ring, int(at)+16).Load()
	}
	r.payload = ring[at+fixed : at+fixed+n]
	return r, nil
}
