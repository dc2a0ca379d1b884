package log

import (
	"fmt"
	"slices"

	"github.com/rdmakv/rdmakv/store/log/internal/format"
)

// A writer is the end of the log. Guarded by Log.mu.
//
//	... | done | done | flying | flying |            frames, by their turn (ord)
//	          ^ done             ^ sealed
//	 passed ≤ done ≤ sealed ≤ done + Window
//	 durable ≤ written ≤ end                         positions
type writer struct {
	*Log
	seg      *segment // in which frames are written
	began    uint64   // number of the first segment of this life
	changing bool     // somebody is going on to the next segment
	number   uint64   // of the newest frame that has a position, in this life

	end     Position // behind the newest sealed frame
	fresh   Position // the next frame begins here or behind: blocks before it are durable, or about to be
	written Position // all frames before it are done
	durable Position // all before it is durable
	last    Position // behind the newest frame that has records
	told    Position // what the newest frame says of durable
	public  Position // behind the newest frame that has passed

	sealed uint64   // the turn of the newest sealed frame
	done   uint64   // all frames up to this turn are done
	passed uint64   // all frames up to this turn have passed
	flying []*Frame // those from done+1 to sealed
}

// Seal gives the frame its position in the log, and its turn. What is sealed first is
// published first, so callers that depend on an order seal in it. The frame cannot be
// changed any more; after Seal it must be passed, whatever happens. It waits while Window
// frames are on their way, and for the next segment, but never for somebody's turn: a
// goroutine that has sealed a frame writes it before it seals another, or both wait for
// ever. After an error the frame was not sealed.
func (f *Frame) Seal() error {
	f.list()
	return f.seal(f.n != format.FrameHead)
}

// seal is Seal. A frame that is not placed has a turn, and no position.
func (f *Frame) seal(placed bool) error {
	l, w := f.l, &f.l.w
	l.mu.Lock()
	defer l.mu.Unlock()
	var err error
	if placed {
		err = l.w.placeLocked(f)
	} else {
		err = l.usableLocked()
	}
	if err != nil {
		return err
	}
	w.sealed++
	f.ord = w.sealed
	w.flying = append(w.flying, f)
	if !placed {
		f.done = true
		l.w.advanceLocked()
	}
	return nil
}

// placeLocked gives a frame its position.
func (w *writer) placeLocked(f *Frame) error {
	for {
		if err := w.usableLocked(); err != nil {
			return err
		}
		if w.changing || w.underway() >= w.c.Window {
			w.cond.Wait()
			continue
		}
		if f.build != nil {
			f.n = format.FrameHead
			f.build(f)
			f.list()
		}
		at := max(w.end, w.fresh)
		if at.Offset()+int64(f.n) > w.seg.header.Size {
			if err := w.changeLocked(); err != nil {
				return err
			}
			continue // others may have been quicker
		}
		if err := w.table.CheckAll(f.records); err != nil {
			return err
		}
		w.count.padding += uint64(at - w.end)
		w.takePlaceLocked(f, at)
		return nil
	}
}

// underway is how many frames with bytes there are from the oldest that is not done on.
func (w *writer) underway() (n int) {
	for _, f := range w.flying {
		if f.head.Position != 0 {
			n++
		}
	}
	return n
}

// takePlaceLocked puts a frame at a position where it fits.
func (w *writer) takePlaceLocked(f *Frame, at Position) {
	w.number++
	f.seg = w.seg
	f.head = format.Frame{Position: at, Life: w.book.now.Life, Durable: w.durable, Number: w.number, Bytes: f.n - format.FrameHead}
	w.told = w.durable
	w.end = at.Add(int64(f.n))
	if f.head.Bytes > 0 {
		w.last = w.end
	}
	if w.c.Sync == Always {
		// Each frame is durable by itself, so nobody may write in its last block.
		w.fresh = format.At(w.seg.header.Number, format.Pad(w.end.Offset(), w.block))
	}
	w.count.frames++
	w.count.bytes += uint64(f.n)
	w.count.records += uint64(len(f.records))
	off := int64(format.FrameHead)
	for i := range f.records {
		r := &f.records[i]
		r.Position = at.Add(off)
		off += int64(format.RecordSize(len(r.Body)))
		if err := w.table.Note(r); err != nil {
			// CheckAll has let it pass under the same hold of the lock.
			panic(fmt.Sprintf("log: frame %d at %v: %v", w.number, at, err))
		}
	}
}

// Write writes a frame that was sealed. When it returns nil the kernel has the frame; with
// Always it is durable. Frames are written at the same time and end in any order. After an
// error the log has failed.
func (f *Frame) Write() error {
	if f.head.Position == 0 {
		return nil
	}
	l := f.l
	n := f.n
	if l.writesDirect {
		n = int(format.Pad(int64(n), l.block))
		clear(f.buf[f.n:n])
	}
	format.SealFrame(f.buf[:f.n], &f.head, f.seg.header.Salt)
	if err := l.w.write(f, f.buf[:n]); err != nil {
		return l.fail(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	f.done = true
	if l.c.Sync == Always && !l.writesDirect {
		l.count.syncs++
	}
	l.w.advanceLocked()
	return l.err
}

// write writes the bytes of a frame.
func (w *writer) write(f *Frame, b []byte) error {
	w.mu.Lock()
	err := w.err
	w.mu.Unlock()
	if err != nil {
		return err // after a failure not one byte more: the order would have a hole
	}
	off := f.head.Position.Offset()
	n, err := f.seg.file.WriteAt(b, off)
	if err == nil && n != len(b) {
		err = fmt.Errorf("%d of %d bytes were written", n, len(b))
	}
	if err != nil {
		return fmt.Errorf("write %s at offset %d: %w", f.seg.name, off, err)
	}
	if w.c.Sync == Always && !w.writesDirect {
		if err := f.seg.file.Sync(); err != nil {
			return fmt.Errorf("sync %s: %w", f.seg.name, err)
		}
	}
	return nil
}

// advanceLocked takes the frames that are done, with all before them, out of flight.
func (w *writer) advanceLocked() {
	n := 0
	for n < len(w.flying) && w.flying[n].done {
		f := w.flying[n]
		if f.head.Position != 0 {
			f.seg.chain = format.Chain(f.seg.chain, f.head.Sum)
			f.seg.end = f.head.End()
			w.written = f.head.End()
			if w.c.Sync == Always {
				w.durable = w.written
			}
		}
		w.done = f.ord
		n++
	}
	if n > 0 {
		w.flying = slices.Delete(w.flying, 0, n)
		w.cond.Broadcast()
	}
}

// Turn returns when this frame and all before it are done, and all before it have passed.
// The caller then publishes what the frame says, and answers; nobody else does so until it
// calls Pass. An error says that the log has failed: the frame may or may not be durable,
// and must not be published.
func (f *Frame) Turn() error {
	l := f.l
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.w.done < f.ord || l.w.passed != f.ord-1 {
		if l.err != nil {
			return l.err
		}
		l.cond.Wait()
	}
	return l.err
}

// Pass ends the turn of a frame and gives it back to the log. If the log has failed it
// may be called out of turn.
func (f *Frame) Pass() {
	l := f.l
	l.mu.Lock()
	if l.err == nil {
		if l.w.passed != f.ord-1 {
			panic(fmt.Sprintf("log: frame of turn %d passes behind turn %d", f.ord, l.w.passed))
		}
		l.w.passed = f.ord
		if f.head.Position != 0 {
			l.w.public = f.head.End()
		}
		l.cond.Broadcast()
	}
	failed := l.err != nil
	l.mu.Unlock()
	if f.frees {
		l.pokeRetirer()
	}
	if failed {
		return // somebody may still write it, or wait for it
	}
	f.Drop()
}
