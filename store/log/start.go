package log

import (
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
//	LIFE says the new life  →  header of a new segment  →  its name  →  frames
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
	seg, err := o.beginLife(epoch, before, l.c.SegmentSize, nil)
	if err != nil {
		return l.fail(err)
	}
	l.mu.Lock()
	l.segs.force = append(slices.Clone(o.chain), seg)
	w := &l.w
	w.seg = seg
	w.end = format.At(seg.header.Number, l.block)
	w.fresh, w.written, w.durable, w.told, w.last = w.end, w.end, w.end, w.end, w.end
	l.state = running
	l.mu.Unlock()
	if err := o.giveBack(before); err != nil {
		// Only room on the disk is lost.
		l.c.Logger.Warn("what stands behind the end of the log could not be given back", "err", err)
	}
	l.upkeep.start()
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

// giveBack gives back the room that an earlier life has left unused: void segments, and
// the rest of the segment in which the log before ends. So a server that dies and starts
// again and again does not fill its disk with nearly empty segments.
func (o *opening) giveBack(before *segment) error {
	for _, seg := range o.void {
		if err := o.c.Dir.Remove(seg.name); err != nil {
			return err
		}
	}
	removed := len(o.void) > 0
	o.void = nil
	if removed {
		if err := o.c.Dir.Sync(); err != nil {
			return err
		}
	}
	if before == nil {
		return nil
	}
	size := format.Pad(before.end.Offset(), format.MaxBlock)
	if size >= before.size {
		return nil
	}
	f, err := o.c.Dir.Open(before.name, Access{Write: true})
	if err != nil {
		return err
	}
	if err = f.Truncate(size); err == nil {
		before.size = size // also if the sync fails: nothing can be read behind it
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}
