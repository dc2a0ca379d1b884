package log

import (
	"errors"
	"fmt"
	"slices"

	"github.com/rdmakv/rdmakv/store/log/internal/format"
)

// Replay reads the log from its beginning to its end, verifies every byte of it, and calls
// visit for every record, in the order of the log, whole frames only. Body is good until
// visit returns. Replay comes once, after Open. An error of visit ends it and is returned;
// a *DamageError says that acknowledged records are lost or cannot be read.
//
// The end is where no good frame begins. It is told from damage so:
//
//	... | good | good | does not verify | . . . | says: durable to here or further |
//	                  ^ P                         a good head behind it: damage
//	                                              none: P is the end
//
// What stood at P was not durable in the second case, because frames say what was durable,
// no frame is written further ahead of what is not durable than the header says, and an
// idle log gets a frame that says it. It is damage in any case if a later life has read
// the log beyond P, or if the caller knows that it was durable (Config.Reach).
func (l *Log) Replay(visit func(*Record) error) error {
	l.mu.Lock()
	state := l.state
	l.mu.Unlock()
	if state != found {
		return fmt.Errorf("log: replay of a log that is %v", state)
	}
	o := l.opening
	var r Record // one for all: visit makes it escape
	end, err := o.walk(func(next Record) error {
		r = next
		if err := l.table.Note(&r); err != nil {
			// Its checksums hold, so this program or a newer one wrote it.
			return &DamageError{File: segmentName(r.Position.Segment()), At: r.Position, Detail: "a record that cannot follow those before it", Err: err}
		}
		if visit == nil {
			return nil
		}
		return visit(&r)
	}, nil)
	if err != nil {
		return err
	}
	if now := l.book.now; now.Clean && end != now.End {
		return &DamageError{Detail: fmt.Sprintf("it ends at %v, but ended at %v when it was stopped", end, now.End)}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	o.found.End = end
	o.found.Segments = len(o.chain)
	o.found.Bytes = l.segs.bytes(0)
	l.state = replayed
	return nil
}

// walk reads the segments of the chain and finds the end, at which it cuts the chain: the
// segments behind it are void. framed is called behind each good frame; the scanner stands
// behind it.
func (o *opening) walk(visit func(Record) error, framed func(*segment, *scanner, format.Frame) error) (Position, error) {
	end := Position(0)
	var number, life uint64
	var buf []byte
	for i, seg := range o.chain {
		s := newScanner(seg.name, seg.reader, seg.header, seg.size, buf)
		if seg.header.Life == life {
			s.number = number
		}
		begins := i > 0 && seg.header.Life != life || seg.header.Cut == 0
		life = seg.header.Life
		limit := int64(0) // where the next segment says that this one ends
		var chain uint64
		if i+1 < len(o.chain) {
			next := o.chain[i+1].header
			limit, chain = next.Cut.Offset(), next.Chain
		}
		for limit == 0 || s.at < limit {
			f, err := s.next(visit)
			var broken *brokenError
			if errors.As(err, &broken) {
				if err := o.judge(i, s, broken); err != nil {
					return 0, err
				}
				o.void = append(o.void, o.chain[i+1:]...)
				err := closeAll(o.chain[i+1:])
				o.chain = o.chain[:i+1]
				o.segs.force = slices.Clone(o.chain)
				seg.end, seg.chain = s.position(s.at), s.chain
				return seg.end, err
			}
			if err != nil {
				return 0, err
			}
			if begins && s.number != 1 {
				return 0, &DamageError{File: seg.name, At: f.Position, Detail: fmt.Sprintf("its life begins with frame %d", f.Number)}
			}
			begins = false
			if framed != nil {
				if err := framed(seg, s, f); err != nil {
					return 0, err
				}
			}
		}
		if limit != 0 && (s.at != limit || s.chain != chain) {
			return 0, &DamageError{File: seg.name, Detail: fmt.Sprintf("its frames end at offset %d with another sum, or elsewhere, than %s says", s.at, o.chain[i+1].name)}
		}
		seg.end, seg.chain = s.position(s.at), s.chain
		end, number, buf = seg.end, s.number, s.buf
	}
	return end, nil
}

// judge returns nil if the log ends where the scanner of segment i stands, and a
// *DamageError if what stood there was durable.
func (o *opening) judge(i int, s *scanner, broken *brokenError) error {
	at := s.position(s.at)
	damage := func(format string, args ...any) error {
		return &DamageError{File: o.chain[i].name, At: at, Detail: "no good frame, and " + fmt.Sprintf(format, args...), Err: broken.cause}
	}
	for _, later := range o.chain[i+1:] {
		switch h := later.header; {
		case h.Life != s.header.Life:
			return damage("%s says that the log went on to offset %d", later.name, h.Cut.Offset())
		case h.Durable > at:
			return damage("%s says that the log was durable to %v", later.name, h.Durable)
		}
	}
	if reach := o.sure(); reach > at {
		return damage("the log was durable to %v", reach)
	}
	witness, err := s.proves(s.at, at)
	for j := i + 1; err == nil && witness == 0 && j < len(o.chain); j++ {
		later := o.chain[j]
		behind := newScanner(later.name, later.reader, later.header, later.size, s.buf)
		witness, err = behind.proves(0, at)
		s.lo, s.hi = 0, 0 // its buffer has other bytes now
	}
	switch {
	case err != nil:
		return err
	case witness != 0:
		return damage("the frame at %v says that it was durable", witness)
	}
	return nil
}
