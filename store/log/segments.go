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
	file   File // for writing; nil once the segment was left and synced
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
func (l *Log) access() Access { return Access{Write: true, Direct: l.direct} }

// runMaker keeps free files ready, so that nobody who holds a frame waits for a file to be
// written. It ends with the log. A file that could not be made is tried again each time
// that somebody asks, and once a second by the keeper.
func (l *Log) runMaker() {
	defer l.tasks.Done()
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		for l.state == running && l.err == nil && !l.stopping() && (len(l.segs.free) >= kept+1+l.segs.want || l.segs.failed != nil && l.segs.want == 0) {
			l.cond.Wait()
		}
		if l.state != running || l.err != nil || l.stopping() {
			return
		}
		name := l.nextFreeLocked()
		l.mu.Unlock()
		err := l.makeFree(name, l.c.SegmentSize)
		l.mu.Lock()
		l.segs.failed = err
		if err != nil {
			l.segs.want = 0 // those who wait are told
			l.c.Logger.Warn("no free segment could be made", "err", err)
		} else {
			l.segs.free = append(l.segs.free, name)
			l.count.made++
			l.room.changedLocked()
		}
		l.cond.Broadcast()
	}
}

// stopping says whether Close waits for the log's goroutines.
func (l *Log) stopping() bool {
	select {
	case <-l.stop:
		return true
	default:
		return false
	}
}

// nextFreeLocked returns a name that no free file has.
func (l *Log) nextFreeLocked() string {
	l.segs.serial++
	return strconv.FormatUint(l.segs.serial, 10) + freeSuffix
}

// makeFree makes one free file. With Always its bytes are written now, because to write
// them for the first time later takes a disk twice the time. The file has its name when it
// is whole: what a crash leaves of a making may have less room than its size says.
func (l *Log) makeFree(name string, size int64) error {
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
func (l *Log) changeLocked() error {
	w := &l.w
	w.changing = true
	defer func() {
		w.changing = false
		l.cond.Broadcast()
	}()
	// Every frame of this segment is written before the next one has a name. With Always
	// they are durable then, so a header proves that all before it is the log's.
	for l.err == nil && (len(w.flying) > 0 || l.unsyncedLocked()) {
		l.cond.Wait()
	}
	for len(l.segs.free) == 0 && l.usableLocked() == nil {
		l.segs.failed, l.segs.want = nil, 1
		l.cond.Broadcast()
		for len(l.segs.free) == 0 && l.segs.failed == nil && l.usableLocked() == nil {
			l.cond.Wait()
		}
		if l.segs.failed != nil {
			return fmt.Errorf("%w: %w", ErrFull, l.segs.failed)
		}
	}
	if err := l.usableLocked(); err != nil {
		return err
	}
	l.segs.want = 0
	before := w.seg
	free := l.segs.free[0]
	l.segs.free = l.segs.free[1:]
	header := l.headerLocked(before)
	header.Cut, header.Chain, header.Durable = w.end, before.chain, w.durable
	l.mu.Unlock()
	seg, err := l.enforce(free, header, nil)
	l.mu.Lock()
	if err != nil {
		return l.failLocked(err) // the file may have either name now
	}
	l.count.padding += uint64(before.header.Size - w.end.Offset())
	l.count.changes++
	before.left, before.end = true, w.end
	before.synced = l.c.Sync == Always
	l.segs.force = append(l.segs.force, seg)
	w.seg = seg
	w.end = format.At(seg.header.Number, l.block)
	w.written, w.fresh = w.end, w.end
	if l.c.Sync == Always {
		w.durable = w.end
	}
	l.room.changedLocked()
	select {
	case l.changed <- struct{}{}: // the syncer is to sync what was left
	default:
	}
	return nil
}

// unsyncedLocked says whether a segment that was left is not yet durable. Only one may be,
// which bounds what a power cut takes.
func (l *Log) unsyncedLocked() bool {
	for _, seg := range l.segs.force {
		if seg.left && !seg.synced {
			return true
		}
	}
	return false
}

// headerLocked begins the header of the segment behind another one.
func (l *Log) headerLocked(before *segment) format.Header {
	h := format.Header{
		Block: int(l.block), Store: l.c.Store, Number: 1, Life: l.book.now.Life, Epoch: l.book.now.Epoch, Size: l.c.SegmentSize, Made: l.made(),
	}
	if before != nil {
		h.Number = before.header.Number + 1
	}
	if l.c.Sync == Always {
		h.Ahead = int64(l.c.Window) * l.c.MaxFrame
	}
	return h
}

// enforce makes a free file a segment in force: the header is durable before the file has
// the number for its name, and the name is durable before the segment is used. fill, if
// there is one, writes frames that are durable together with the header.
func (l *Log) enforce(free string, h format.Header, fill func(File, format.Header) error) (*segment, error) {
	if h.Number > format.MaxSegment {
		return nil, fmt.Errorf("log: segment numbers are used up: export the store and import it into a new directory")
	}
	salt, err := l.salt()
	if err != nil {
		return nil, err
	}
	h.Salt = salt
	seg := &segment{name: segmentName(h.Number), header: h, size: h.Size, end: format.At(h.Number, int64(h.Block))}
	f, err := l.c.Dir.Open(free, l.access())
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
		err = l.c.Dir.Rename(free, seg.name)
	}
	if err == nil {
		err = l.c.Dir.Sync()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("log: begin segment %s: %w", seg.name, err), f.Close())
	}
	seg.file = f
	return seg, nil
}

// salt returns the random number of a use of a file.
func (l *Log) salt() (uint64, error) {
	var b [8]byte
	if _, err := io.ReadFull(l.c.Rand, b[:]); err != nil {
		return 0, fmt.Errorf("log: no random salt: %w", err)
	}
	return binary.LittleEndian.Uint64(b[:]), nil
}
