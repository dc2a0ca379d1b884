package log

import "github.com/rdmakv/rdmakv/store/log/internal/format"

// windowSize is how much a Window reads at a time, bytes. The records of one shard stand some
// thirty records apart, and a read past the page cache takes as long as 100 KiB of it.
const windowSize = 256 << 10

// A Window reads records as ReadAt does, for a reader whose next record stands a little behind
// the last one, mostly: it reads ahead, and finds most of them at hand. What is read ahead was
// written before, and a block that is written once is never written again, so it stays what it
// is. Not safe for concurrent use.
type Window struct {
	log *Log
	seg *segment // what is at hand is of it; a file that is used again is another segment
	off int64    // where that begins in it
	b   []byte
	mem []byte // what b is in: windowSize, and the blocks at its ends
}

// NewWindow returns a Window that has read nothing.
func NewWindow(l *Log) *Window { return &Window{log: l} }

// ReadAt reads the record at a position and verifies it. The body is good until the next call.
// Errors and waits are those of Log.ReadAt.
func (w *Window) ReadAt(at Position) (Record, error) {
	seg, err := w.log.segmentFor(at)
	if err != nil {
		return Record{}, err
	}
	if b := w.at(seg, at.Offset()); b != nil {
		return parseRecord(seg, b, at)
	}
	if err := w.load(seg, at.Offset()); err != nil {
		return Record{}, err
	}
	if b := w.at(seg, at.Offset()); b != nil {
		return parseRecord(seg, b, at)
	}
	// It is larger than the window, or it is not a record.
	return w.log.ReadAt(at)
}

// at returns what is at hand from an offset on, if a whole record may be in it.
func (w *Window) at(seg *segment, off int64) []byte {
	if seg != w.seg || off < w.off || off+format.RecordHead > w.off+int64(len(w.b)) {
		return nil
	}
	b := w.b[off-w.off:]
	if format.RecordAt(b) > int64(len(b)) {
		return nil
	}
	return b
}

// load reads from an offset on what is written there by now.
func (w *Window) load(seg *segment, off int64) error {
	w.log.mu.Lock()
	end := seg.size
	if written := w.log.w.written; written.Segment() == seg.header.Number {
		end = min(end, written.Offset())
	}
	w.log.mu.Unlock()
	if w.mem == nil {
		w.mem = aligned(windowSize+2*format.MaxBlock, format.MaxBlock)
	}
	w.seg = nil
	b, err := seg.readInto(w.log, w.mem, off, min(windowSize, end-off))
	if err != nil {
		return err
	}
	w.seg, w.off, w.b = seg, off, b
	return nil
}
