package log

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/rdmakv/rdmakv/store/log/internal/format"
)

// Start begins a life: from here on frames can be written. The epoch is the store's, at
// least the one that was found; it is durable when Start returns, and so is the number of
// the life. Start takes a segment whatever the log's bound says, because a log that is full
// could not be emptied otherwise.
//
//	what stands behind the end is given back  →  LIFE says the new life
//	→  header of a new segment  →  its name  →  LIFE says that it is there  →  frames
//
// A start that is cut short behind any of these steps leaves a log that opens: the next
// start takes another life.
func (l *Log) Start(epoch uint64) error {
	l.mu.Lock()
	state := l.state
	l.mu.Unlock()
	switch {
	case state != replayed:
		return fmt.Errorf("log: start of a log that is %v", state)
	case l.c.ReadOnly:
		return errors.New("log: it was opened for reading alone")
	case epoch < l.opening.found.Epoch:
		return fmt.Errorf("log: epoch %d, and %d was found", epoch, l.opening.found.Epoch)
	}
	o := l.opening
	var before *segment
	if n := len(o.chain); n > 0 {
		before = o.chain[n-1]
	}
	if err := o.giveBack(before); err != nil {
		return l.fail(err)
	}
	seg, err := o.beginLife(epoch, before, l.c.SegmentSize, nil)
	if err != nil {
		return l.fail(err)
	}
	if err := readCached(l, o.chain); err != nil {
		return l.fail(err)
	}
	l.mu.Lock()
	l.segs.force = append(slices.Clone(o.chain), seg)
	w := &l.w
	w.seg, w.began = seg, seg.header.Number
	w.end = format.At(seg.header.Number, l.block)
	w.fresh, w.written, w.durable, w.told, w.last, w.public = w.end, w.end, w.end, w.end, w.end, w.end
	l.state = running
	l.mu.Unlock()
	l.upkeep.start()
	return nil
}

// readCached has the segments that were found read through the page cache from now on, where
// this life writes through it. A start reads past it, because what stands there alone would be
// gone after a power cut; by now all of that is durable. A direct read of what was written a
// moment ago would wait until the disk has it. Nobody else reads yet.
func readCached(l *Log, found []*segment) error {
	if l.writesDirect || !l.readsDirect {
		return nil
	}
	l.readsDirect = false
	for _, seg := range found {
		if seg.reader == nil {
			continue
		}
		if err := seg.reader.Close(); err != nil {
			return fmt.Errorf("log: close %s: %w", seg.name, err)
		}
		seg.reader = nil // the next read opens it
	}
	return nil
}

// beginLife writes the next life down and gives it its first segment, of so many bytes.
// fill, if there is one, writes frames into the file before it is in force.
func (o *opening) beginLife(epoch uint64, before *segment, size int64, fill func(File, format.Header) error) (*segment, error) {
	now := format.Life{Life: o.book.now.Life + 1, Seen: o.life, Epoch: epoch, Made: o.made()}
	if before != nil {
		// It was durable before it was read. The header below says so too, but if this
		// start is cut short in between, nobody else would know.
		now.End = before.end
	}
	if err := o.book.write(now); err != nil {
		return nil, err
	}
	free, err := o.takeFree(size)
	if err != nil {
		return nil, err
	}
	h := o.w.headerLocked(nil)
	h.Size = size
	h.Number = o.newest + 1
	if before != nil {
		h.Cut, h.Chain = before.end, before.chain
	}
	h.Durable = format.At(h.Number, o.block)
	seg, err := o.w.enforce(free, h, fill)
	if err != nil {
		return nil, err
	}
	o.newest, o.life = h.Number, h.Life
	// From here on this segment may not be missing. If LIFE said so only at the next start,
	// the loss of a life's first segment would pass for a start that was cut short.
	now.Seen = now.Life
	if err := o.book.write(now); err != nil {
		return nil, errors.Join(err, seg.close())
	}
	return seg, nil
}

// takeFree returns a free file of so many bytes, one that is there or a new one.
func (o *opening) takeFree(size int64) (string, error) {
	o.mu.Lock()
	if size == o.c.SegmentSize && len(o.segs.free) > 0 {
		name := o.segs.free[0]
		o.segs.free = o.segs.free[1:]
		o.mu.Unlock()
		return name, nil
	}
	name := o.upkeep.nextFreeLocked()
	o.mu.Unlock()
	return name, o.upkeep.makeFree(name, size)
}

// giveBack gives back what stands behind the end of the log: void segments, and the rest of
// the segment in which it ends. It comes before the next life has a segment: if it came
// after it, and starts were cut short in between, each of them would leave a segment of
// full size with nothing in it, until there is no room for another start. A start that is
// cut short here leaves a log that ends at the same place.
func (o *opening) giveBack(before *segment) error {
	// The newest goes first, and before the segment is shortened that its header cuts:
	// what is left then leads to files that are there, at every moment.
	slices.SortFunc(o.void, func(a, b *segment) int { return cmp.Compare(b.header.Number, a.header.Number) })
	for _, seg := range o.void {
		if err := o.c.Dir.Remove(seg.name); err != nil {
			return fmt.Errorf("remove %s: %w", seg.name, err)
		}
		if err := o.c.Dir.Sync(); err != nil {
			return fmt.Errorf("remove %s: %w", seg.name, err)
		}
	}
	o.void = nil
	if before == nil {
		return nil
	}
	size := format.Pad(before.end.Offset(), format.MaxBlock)
	if size >= before.size {
		return nil
	}
	f, err := o.c.Dir.Open(before.name, Access{Write: true})
	if err != nil {
		return fmt.Errorf("shorten %s: %w", before.name, err)
	}
	err = f.Truncate(size)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("shorten %s: %w", before.name, err)
	}
	before.size = size
	return nil
}
