package log

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/rdmakv/rdmakv/store/log/internal/format"
)

// A segment is given back when nothing in it is needed: no stream needs it (Release, Trim,
// Drop), nobody holds it, and the facts that stand in it stand in a later segment too,
// durably. Segments go in their order, so that what is in force is one piece.

// A hold keeps what stands at a position and behind it.
type hold struct{ at Position }

// Hold keeps everything from a position on in the log, for a reader, until the function
// that it returns is called, once or more often. A position that was freed is an error.
func (l *Log) Hold(at Position) (release func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.state == closed:
		return nil, ErrClosed
	case len(l.segs.force) > 0 && at < l.segs.force[0].header.Cut:
		return nil, &DamageError{File: segmentName(at.Segment()), At: at, Detail: "the segment was freed"}
	}
	h := &hold{at: at}
	l.holds[h] = struct{}{}
	return func() {
		l.mu.Lock()
		delete(l.holds, h)
		l.mu.Unlock()
		l.pokeRetirer()
	}, nil
}

// Release says that nothing that a stream has written before a position is needed any
// more: a checkpoint that is durable has it. It is not kept over a start; the stream's
// owner says it again.
func (l *Log) Release(stream uint64, upTo Position) {
	l.mu.Lock()
	l.table.Release(stream, upTo)
	l.released = max(l.released, upTo)
	l.mu.Unlock()
	l.pokeRetirer()
}

// pokeRetirer has the retirer look again.
func (l *Log) pokeRetirer() {
	select {
	case l.upkeep.retire <- struct{}{}:
	default:
	}
}

// runRetirer gives segments back as soon as they can go.
func (l *upkeep) runRetirer() {
	defer l.tasks.Done()
	for {
		select {
		case <-l.retire:
		case <-l.stop:
			return
		}
		for !ended(l.stop) {
			more, err := l.retireOne()
			if err != nil && !errors.Is(err, ErrClosed) {
				l.c.Logger.Warn("a segment could not be given back", "err", err)
			}
			if !more || err != nil {
				break
			}
		}
	}
}

// retireOne gives the oldest segment back, if nothing in it is needed.
func (l *upkeep) retireOne() (bool, error) {
	seg, carry := l.idleSegment()
	if seg == nil {
		return false, nil
	}
	for carry {
		if err := l.carry(seg.header.Number); err != nil {
			return false, err
		}
		_, carry = l.idleSegment()
	}
	// What made the segment idle may be a trim or a drop that is still on its way: if it
	// were lost after the segment is gone, a start would find a stream without its
	// beginning.
	if err := l.Sync(); err != nil {
		return false, err
	}
	l.mu.Lock()
	if again, carry := l.idleSegmentLocked(); again != seg || carry {
		l.mu.Unlock()
		return again != nil, nil
	}
	if err := l.table.Retire(seg.header.Number); err != nil {
		l.mu.Unlock()
		return false, fmt.Errorf("log: %w", err) // idleSegment has asked the same
	}
	l.segs.force = slices.Delete(slices.Clone(l.segs.force), 0, 1)
	recycle := seg.size == l.c.SegmentSize && int64(len(l.segs.force)+len(l.segs.free)) < l.c.MaxBytes/l.c.SegmentSize+kept
	name := l.nextFreeLocked()
	l.mu.Unlock()

	err := seg.close()
	if err == nil && recycle {
		err = l.c.Dir.Rename(seg.name, name)
	} else if err == nil {
		err = l.c.Dir.Remove(seg.name)
	}
	if err == nil {
		// Until the directory is durable the file could come back under its number, with
		// the header of another.
		err = l.c.Dir.Sync()
	}
	if err != nil {
		return false, l.fail(fmt.Errorf("give %s back: %w", seg.name, err))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if recycle {
		l.segs.free = append(l.segs.free, name)
		l.count.recycled++
	} else {
		l.count.removed++
	}
	l.room.changedLocked()
	l.cond.Broadcast()
	return true, nil
}

// idleSegment returns the oldest segment if only its facts are needed, and whether it has
// any; nil: there is none.
func (l *upkeep) idleSegment() (*segment, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.idleSegmentLocked()
}

func (l *upkeep) idleSegmentLocked() (*segment, bool) {
	if len(l.segs.force) < 2 || l.usableLocked() != nil {
		return nil, false
	}
	seg := l.segs.force[0]
	if !seg.synced {
		return nil, false
	}
	next := l.segs.force[1].header
	if next.Cut > max(l.released, l.c.From) {
		// No checkpoint has it. The next opening expects it, even if nothing stands in it.
		return nil, false
	}
	needed := Position(math.MaxUint64)
	if at, _ := l.table.Oldest(); at != 0 {
		needed = at
	}
	for h := range l.holds {
		needed = min(needed, h.at)
	}
	if needed <= seg.end && needed < format.At(next.Number, 0) {
		return nil, false
	}
	facts := int64(0)
	l.table.FactsIn(seg.header.Number, func(_ uint64, _ uint16, body []byte) { facts += int64(format.RecordSize(len(body))) })
	// A segment that is mostly facts that count gives hardly any room back. If it were
	// given back all the same, facts that do not fit in one segment would be written again
	// and again for nothing.
	if facts > seg.header.Size/2 && l.segs.bytes(l.w.end) <= l.c.MaxBytes/2 {
		return nil, false
	}
	return seg, facts > 0
}

// carry writes facts of a segment again, as many as a frame has room for. They are read
// and get their place under one hold of the lock: a newer value that was sealed in between
// would be followed by this older one.
func (l *upkeep) carry(number uint64) error {
	f := l.Begin()
	n := uint64(0)
	f.build = func(f *Frame) {
		n = 0
		full := false
		l.table.FactsIn(number, func(stream uint64, name uint16, body []byte) {
			if !full && f.AddFact(stream, name, body) == nil {
				n++
			} else {
				full = true
			}
		})
	}
	_, err := l.finish(f, true)
	if err == nil {
		l.mu.Lock()
		l.count.carried += n
		l.mu.Unlock()
	}
	return err
}
