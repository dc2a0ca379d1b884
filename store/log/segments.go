package log

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/rdmakv/rdmakv/store/log/internal/format"
)

// A segment is one file that is in force: it has its number for a name, and a header that
// was durable before it had it.
type segment struct {
	name   string
	header format.Header
	file   File // for writing; nil if an earlier life wrote it
	end    Position
	chain  uint64 // of its frames up to end
	left   bool   // another one is written now
	synced bool   // left, and all of it is durable
	size   int64  // of the file: less than the header says when its rest was given back

	reading sync.RWMutex
	reader  File // opened by the first read
	gone    bool // under reading: the file is another segment's
}

// segments are the files of a log. Guarded by Log.mu, but for what is said otherwise.
type segments struct {
	force  []*segment // by number; the last one is written, once a life has begun
	free   []string   // files of SegmentSize bytes, ready for use
	serial uint64     // of the name of the next free file
	want   int        // somebody waits for a free file, beside those that are kept
	failed error      // why no file could be made; nil after one was
}

// kept is how many free files are set aside: one that a start takes, so that a log that is
// full can be opened, and one for deletes, facts and what else makes room.
const kept = 2

const (
	segmentSuffix = ".seg"
	freeSuffix    = ".free"
	newSuffix     = ".new" // a file that is being made; a start removes it
)

// segmentName is the name of a segment in force.
func segmentName(number uint64) string { return fmt.Sprintf("%08x%s", number, segmentSuffix) }

// segmentNumber is the inverse of segmentName.
func segmentNumber(name string) (uint64, bool) {
	s, ok := strings.CutSuffix(name, segmentSuffix)
	n, err := strconv.ParseUint(s, 16, 64)
	return n, ok && err == nil && n != 0 && segmentName(n) == name
}

// IsPart reports whether a file of a log's directory has a part of the log. A copy of all
// such files is the same log; free files, and those that are being made, have nothing.
func IsPart(name string) bool {
	_, segment := segmentNumber(name)
	return segment || name == lifeFile
}

// freeSerial is the serial number in the name of a free file.
func freeSerial(name string) (uint64, bool) {
	s, ok := strings.CutSuffix(name, freeSuffix)
	n, err := strconv.ParseUint(s, 10, 63)
	return n, ok && err == nil && strconv.FormatUint(n, 10)+freeSuffix == name
}

// bytes is how much of the segments in force is used; end is that of the last one.
func (s *segments) bytes(end Position) (n int64) {
	for i, seg := range s.force {
		if i == len(s.force)-1 && end != 0 {
			return n + end.Offset()
		}
		n += seg.end.Offset()
	}
	return n
}

// find returns a segment in force, or nil.
func (s *segments) find(number uint64) *segment {
	i, ok := slices.BinarySearchFunc(s.force, number, func(g *segment, n uint64) int {
		switch {
		case g.header.Number < n:
			return -1
		case g.header.Number > n:
			return 1
		}
		return 0
	})
	if !ok {
		return nil
	}
	return s.force[i]
}

// close closes all files.
func (s *segments) close() (err error) {
	for _, seg := range s.force {
		err = errors.Join(err, seg.close())
	}
	return err
}

// close closes the files of a segment. Reads of it fail from then on.
func (s *segment) close() (err error) {
	if s.file != nil {
		err = s.file.Close()
		s.file = nil
	}
	s.reading.Lock()
	defer s.reading.Unlock()
	s.gone = true
	if s.reader != nil {
		err = errors.Join(err, s.reader.Close())
		s.reader = nil
	}
	return err
}

// access is how segments are opened for writing.
func (l *Log) access() Access { return Access{Write: true, Direct: l.writesDirect} }

// nextFreeLocked returns a name that no free file has.
func (l *upkeep) nextFreeLocked() string {
	l.segs.serial++
	return strconv.FormatUint(l.segs.serial, 10) + freeSuffix
}

// makeFree makes one free file. With Always its bytes are written now, because to write
// them for the first time later takes a disk twice the time. The file has its name when it
// is whole: what a crash leaves of a making may have less room than its size says.
func (l *upkeep) makeFree(name string, size int64) error {
	making := name + newSuffix
	f, err := l.c.Dir.Create(making, size, l.c.Sync == Always, Access{Write: true})
	if err == nil {
		err = errors.Join(f.Sync(), f.Close())
	}
	if err == nil {
		err = l.c.Dir.Rename(making, name)
	}
	if err != nil {
		if rm := l.c.Dir.Remove(making); rm != nil && !errors.Is(rm, fs.ErrNotExist) {
			err = errors.Join(err, rm)
		}
		return fmt.Errorf("log: create %s: %w", making, err)
	}
	return nil
}

// changeLocked goes on to the next segment, or waits while somebody else does. When it
// returns nil there is one, which may be full again. It lets mu go in between.
func (w *writer) changeLocked() error {
	w.changing = true
	defer func() {
		w.changing = false
		w.cond.Broadcast()
	}()
	// Every frame of this segment is written before the next one has a name. With Always
	// they are durable then, so a header proves that all before it is the log's.
	for w.err == nil && (len(w.flying) > 0 || w.unsyncedLocked()) {
		w.cond.Wait()
	}
	for len(w.segs.free) == 0 && w.usableLocked() == nil {
		w.segs.failed, w.segs.want = nil, 1
		w.upkeep.making.Signal()
		for len(w.segs.free) == 0 && w.segs.failed == nil && w.usableLocked() == nil {
			w.cond.Wait()
		}
		if w.segs.failed != nil {
			return fmt.Errorf("%w: %w", ErrFull, w.segs.failed)
		}
	}
	if err := w.usableLocked(); err != nil {
		return err
	}
	w.segs.want = 0
	before := w.seg
	free := w.segs.free[0]
	w.segs.free = w.segs.free[1:]
	w.upkeep.making.Signal()
	header := w.headerLocked(before)
	header.Cut, header.Chain, header.Durable = w.end, before.chain, w.durable
	w.mu.Unlock()
	seg, err := w.enforce(free, header, nil)
	w.mu.Lock()
	if err != nil {
		return w.failLocked(err) // the file may have either name now
	}
	w.count.padding += uint64(before.header.Size - w.end.Offset())
	w.count.changes++
	before.left, before.end = true, w.end
	before.synced = w.c.Sync == Always
	w.segs.force = append(w.segs.force, seg)
	w.seg = seg
	w.end = format.At(seg.header.Number, w.block)
	w.written, w.fresh = w.end, w.end
	if w.c.Sync == Always {
		w.durable = w.end
	}
	w.room.changedLocked()
	w.pokeRetirer() // nobody releases facts, so a segment of facts alone is idle from here on
	select {
	case w.upkeep.changed <- struct{}{}: // the syncer is to sync what was left
	default:
	}
	return nil
}

// unsyncedLocked says whether a segment that was left is not yet durable. Only one may be,
// which bounds what a power cut takes.
func (w *writer) unsyncedLocked() bool {
	for _, seg := range w.segs.force {
		if seg.left && !seg.synced {
			return true
		}
	}
	return false
}

// headerLocked begins the header of the segment behind another one.
func (w *writer) headerLocked(before *segment) format.Header {
	h := format.Header{
		Block: int(w.block), Store: w.c.Store, Number: 1, Life: w.book.now.Life, Epoch: w.book.now.Epoch, Size: w.c.SegmentSize, Made: w.made(),
	}
	if before != nil {
		h.Number = before.header.Number + 1
	}
	if w.c.Sync == Always {
		h.Ahead = int64(w.c.Window) * w.c.MaxFrame
	}
	return h
}

// enforce makes a free file a segment in force: the header is durable before the file has
// the number for its name, and the name is durable before the segment is used. fill, if
// there is one, writes frames that are durable together with the header.
func (w *writer) enforce(free string, h format.Header, fill func(File, format.Header) error) (*segment, error) {
	if h.Number > format.MaxSegment {
		return nil, fmt.Errorf("log: segment numbers are used up: export the store and import it into a new directory")
	}
	salt, err := w.salt()
	if err != nil {
		return nil, err
	}
	h.Salt = salt
	seg := &segment{name: segmentName(h.Number), header: h, size: h.Size, end: format.At(h.Number, int64(h.Block))}
	f, err := w.c.Dir.Open(free, w.access())
	if err != nil {
		return nil, fmt.Errorf("log: open %s: %w", free, err)
	}
	b := aligned(h.Block, format.MaxBlock)
	format.PutHeader(b, h)
	_, err = f.WriteAt(b, 0)
	if err == nil && fill != nil {
		err = fill(f, h)
	}
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = w.c.Dir.Rename(free, seg.name)
	}
	if err == nil {
		err = w.c.Dir.Sync()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("log: begin segment %s: %w", seg.name, err), f.Close())
	}
	seg.file = f
	return seg, nil
}

// salt returns the random number of a use of a file.
func (w *writer) salt() (uint64, error) {
	var b [8]byte
	if _, err := io.ReadFull(w.c.Rand, b[:]); err != nil {
		return 0, fmt.Errorf("log: no random salt: %w", err)
	}
	return binary.LittleEndian.Uint64(b[:]), nil
}
