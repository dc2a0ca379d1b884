package events

import (
	"encoding/binary"

	"github.com/rdmakv/rdmakv/store/layout"
)

// A ring holds the newest events in a bounded number of bytes, in order. It is
// a list of segments of one size; the oldest is emptied and used again when
// the bound is reached. An event in a segment:
//
//	+---------+--------------+------------+----+-------+-----+-------
//	| version | value length | key length | op | flags | key | value
//	| 64      | 32           | 16         | 8  | 8     |     | if kept
//	+---------+--------------+------------+----+-------+-----+-------
//
// The caller locks.
type ring struct {
	limit    int // bytes of all segments
	segment  int // bytes of one
	maxValue int // larger values are left out
	segs     []*ringSegment
	dropped  layout.Version // of the newest event that is not here any more
	events   int
}

type ringSegment struct {
	buf         []byte
	first, last layout.Version
	events      int
}

const (
	eventHead     = 16
	eventHasValue = 1 << 0
	eventMore     = 1 << 1

	maxRingSegment = 256 << 10
	minRingSegment = 16 << 10
	ringSegments   = 16 // at least, within the limit
	maxEventValue  = 64 << 10
)

// newRing returns a ring of at most limit bytes, which must be at least
// ringSegments * minRingSegment. Memory is taken as events come.
func newRing(limit int) *ring {
	seg := min(limit/ringSegments, maxRingSegment)
	return &ring{limit: limit, segment: seg, maxValue: min(maxEventValue, seg/4)}
}

// add appends an event; more: the next one is of the same batch. key and value
// are copied. A value of more than maxValue bytes need not be there.
func (r *ring) add(v layout.Version, op Op, key, value []byte, valLen int, more bool) {
	flags := byte(0)
	if more {
		flags |= eventMore
	}
	if op == Put && valLen <= r.maxValue {
		flags |= eventHasValue
	} else {
		value = nil
	}
	if op != Put {
		valLen = 0
	}
	s := r.room(eventHead + len(key) + len(value))
	if s.events == 0 {
		s.first = v
	}
	s.last = v
	s.events++
	r.events++
	b := binary.LittleEndian.AppendUint64(s.buf, uint64(v))
	b = binary.LittleEndian.AppendUint32(b, uint32(valLen))
	b = binary.LittleEndian.AppendUint16(b, uint16(len(key)))
	b = append(b, byte(op), flags)
	b = append(b, key...)
	s.buf = append(b, value...)
}

// room returns the newest segment, with room for n bytes.
func (r *ring) room(n int) *ringSegment {
	if k := len(r.segs); k > 0 {
		if s := r.segs[k-1]; len(s.buf)+n <= cap(s.buf) {
			return s
		}
	}
	var s *ringSegment
	if (len(r.segs)+1)*r.segment <= r.limit {
		s = &ringSegment{buf: make([]byte, 0, r.segment)}
	} else {
		s = r.segs[0]
		copy(r.segs, r.segs[1:])
		r.segs = r.segs[:len(r.segs)-1]
		r.dropped = s.last
		r.events -= s.events
		*s = ringSegment{buf: s.buf[:0]}
	}
	r.segs = append(r.segs, s)
	return s
}

// clear gives the memory back. Everything up to v counts as dropped.
func (r *ring) clear(v layout.Version) {
	r.segs, r.events, r.dropped = nil, 0, v
}

// bytes is the memory that the ring has taken.
func (r *ring) bytes() int { return len(r.segs) * r.segment }

// A ringEvent is an event in place: good until the lock is given back.
type ringEvent struct {
	version layout.Version
	op      Op
	more    bool
	kept    bool // value is there
	valLen  int
	key     []byte
	value   []byte
}

// parseEvent reads the event that b begins with, and returns what is behind it.
func parseEvent(b []byte) (e ringEvent, rest []byte) {
	e.version = layout.Version(binary.LittleEndian.Uint64(b))
	e.valLen = int(binary.LittleEndian.Uint32(b[8:]))
	kl := int(binary.LittleEndian.Uint16(b[12:]))
	e.op = Op(b[14])
	e.kept, e.more = b[15]&eventHasValue != 0, b[15]&eventMore != 0
	b = b[eventHead:]
	e.key, b = b[:kl:kl], b[kl:]
	if e.kept {
		e.value, b = b[:e.valLen:e.valLen], b[e.valLen:]
	}
	return e, b
}

// after calls yield for the events with versions above v, in order, until it
// returns false.
func (r *ring) after(v layout.Version, yield func(ringEvent) bool) {
	for _, s := range r.segs {
		if s.last <= v {
			continue
		}
		for b := s.buf; len(b) > 0; {
			var e ringEvent
			if e, b = parseEvent(b); e.version > v && !yield(e) {
				return
			}
		}
	}
}
