package log

import (
	"errors"
	"fmt"
	"slices"

	"github.com/rdmakv/rdmakv/store/log/internal/format"
)

// settle makes durable what may stand in the page cache alone, where the file system reads
// through nothing but the page cache. After a sync that failed an earlier process could
// have left pages there that the disk does not have, and that count as clean: no sync of
// ours writes them. So what is not known to be durable is written again, into the first
// segment of a life that has nothing else:
//
//	before    | sure | sure | frame | frame | ? |
//	after     | sure | sure |   void            |     | frame | frame |   next life
//
// The new segment is in force when all of it is durable, and the frames that it was made
// from are void from then on. A crash before leaves the log as it was.
func (o *opening) settle() error {
	if len(o.chain) == 0 {
		return nil
	}
	// What the newest life has read of those before it, it has made durable. Its own frames
	// say what was durable when they were made, so only the last ones are left.
	sure := o.sure()
	var again []late
	var cut *segment // where the log is to end before them
	var end Position
	var chain uint64
	size := o.block
	_, err := o.walk(nil, func(seg *segment, s *scanner, f format.Frame) error {
		if seg.header.Life == o.life && f.End() > sure {
			if len(again) == 0 && cut != seg {
				cut, end, chain = seg, format.At(seg.header.Number, int64(seg.header.Block)), 0
			}
			for len(again) > 0 && again[0].end <= f.Durable {
				first := again[0]
				cut, end, chain = first.seg, first.end, first.chain
				size -= format.Pad(int64(len(first.raw)), o.block)
				again = again[1:]
			}
			again = append(again, late{slices.Clone(s.raw), seg, f.End(), s.chain})
			if size += format.Pad(int64(len(s.raw)), o.block); size > format.MaxSize-format.MaxBlock {
				return fmt.Errorf("log: more than %d bytes are not known to be durable: open it on a file system with direct access", size)
			}
			return nil
		}
		cut, end, chain = seg, f.End(), s.chain
		return nil
	})
	if err != nil || len(again) == 0 {
		return err
	}
	cut.end, cut.chain = end, chain
	seg, err := o.beginLife(o.found.Epoch, cut, max(format.Pad(size, format.MaxBlock), 2*format.MaxBlock), func(f File, h format.Header) error {
		return o.writeAgain(f, h, again)
	})
	if err != nil {
		return err
	}
	if err := errors.Join(seg.close(), closeAll(o.chain)); err != nil {
		return fmt.Errorf("log: close: %w", err)
	}
	o.c.Logger.Info("the end of the log was written again, because the file system reads through the page cache alone", "frames", len(again), "bytes", size)
	// Everything is read anew, as any later start would.
	o.segs.force = nil
	o.c.Reach = max(o.c.Reach, format.At(seg.header.Number, o.block))
	names, err := o.c.Dir.List()
	if err != nil {
		return fmt.Errorf("log: list: %w", err)
	}
	return o.load(names)
}

// A late frame is not known to be durable.
type late struct {
	raw   []byte
	seg   *segment
	end   Position
	chain uint64 // of its segment, with it
}

// writeAgain writes frames behind the header of a segment that is not in force yet.
func (o *opening) writeAgain(f File, h format.Header, frames []late) error {
	off := int64(h.Block)
	for i := range frames {
		b := frames[i].raw
		at := format.At(h.Number, off)
		// Everything before it is durable when the segment is in force.
		head := format.Frame{Position: at, Life: h.Life, Durable: at, Number: uint64(i) + 1}
		format.SealFrame(b, &head, h.Salt)
		if _, err := f.WriteAt(b, off); err != nil {
			return err
		}
		off += int64(len(b))
		if h.Ahead > 0 {
			off = format.Pad(off, int64(h.Block))
		}
	}
	return nil
}
