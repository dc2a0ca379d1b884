package log

import (
	"errors"
	"fmt"
	"sync"

	"github.com/rdmakv/rdmakv/store/log/internal/streams"
)

// A Log is an open log. Open finds it, Replay tells what stands in it, Start begins a
// life; from then on frames can be written, by any number of goroutines. Lock order: none;
// mu is held while nothing else is, and never during I/O.
type Log struct {
	c            Config
	frames       sync.Pool // *Frame
	block        int64     // a frame behind a sync begins at a multiple of it
	readsDirect  bool      // reads go past the page cache
	writesDirect bool      // so do frames

	// syncing has one Sync at a time in it. It is a channel, because who waits for the disk
	// while it holds a mutex keeps the time of a simulation from passing for those who wait
	// for the mutex.
	syncing chan struct{}
	upkeep  upkeep
	opening *opening

	mu       sync.Mutex
	cond     sync.Cond // a frame is done, a turn passed, a segment is ready, the log has failed
	state    state
	err      error // why nothing is written any more
	book     *lifeBook
	segs     segments
	w        writer
	table    *streams.Table
	released Position // the highest that any stream has said
	room     room
	holds    map[*hold]struct{}
	count    counts
}

// A state is how far a log is.
type state uint8

const (
	found    state = iota // the segments are known, the end is not
	replayed              // the end is known
	running               // a life has begun
	closed
)

// String names a state for errors.
func (s state) String() string {
	switch s {
	case found:
		return "opened"
	case replayed:
		return "replayed"
	case running:
		return "running"
	case closed:
		return "closed"
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}

// Found is what an opening has found.
type Found struct {
	Life     uint64   // the newest life before this one; 0: the log is new
	Epoch    uint64   // the store's, the newest that stands anywhere
	Clean    bool     // the life before has ended by a clean stop
	First    Position // the first byte of the log
	End      Position // behind its last frame; 0 before Replay
	Segments int      // in force
	Bytes    int64    // of them
}

// Found returns what the opening has found.
func (l *Log) Found() Found {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.opening.found
}

// usable returns why the log cannot be written, or nil. The caller holds mu.
func (l *Log) usableLocked() error {
	switch {
	case l.err != nil:
		return l.err
	case l.state == closed:
		return ErrClosed
	case l.state != running:
		return fmt.Errorf("log: it is %v: call Replay and Start first", l.state)
	}
	return nil
}

// fail ends writing for good.
func (l *Log) fail(err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failLocked(err)
}

func (l *Log) failLocked(err error) error {
	if l.err == nil {
		l.err = fmt.Errorf("%w: %w", ErrFailed, err)
		l.c.Logger.Error("the log has failed", "err", err)
	}
	l.cond.Broadcast()
	l.upkeep.making.Signal()
	l.room.changedLocked() // who waits for room asks again, and is told
	return l.err
}

// Err returns why the log cannot be written any more, or nil.
func (l *Log) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// Life is the number of the running life.
func (l *Log) Life() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.book.now.Life
}

// SetEpoch makes a higher epoch of the store durable, in LIFE. Until it returns, nothing
// may be told that was made in it.
func (l *Log) SetEpoch(epoch uint64) error {
	l.syncing <- struct{}{}
	defer func() { <-l.syncing }()
	l.mu.Lock()
	err, now := l.usableLocked(), l.book.now
	l.mu.Unlock()
	if err != nil {
		return err
	}
	if epoch < now.Epoch {
		return fmt.Errorf("log: epoch %d comes after %d", epoch, now.Epoch)
	}
	now.Epoch = epoch
	now, err = l.book.put(now)
	if err != nil {
		return l.fail(err)
	}
	l.mu.Lock()
	l.book.now = now // under the lock, because frames and headers are made meanwhile
	l.mu.Unlock()
	return nil
}

// Close syncs what was written, in every policy, and closes the files. With clean it notes
// that the life has ended by a clean stop; the next opening is told so, and if the log ends
// elsewhere then, it is damaged. Nobody may use the log meanwhile. The directory can be
// opened again when Close has returned, whatever it returns.
func (l *Log) Close(clean bool) error {
	l.mu.Lock()
	was := l.state
	if was == closed {
		l.mu.Unlock()
		return nil
	}
	l.mu.Unlock()
	var err error
	if was == running {
		l.upkeep.end()
		if err = l.Sync(); err == nil && clean {
			now := l.book.now
			now.Clean, now.End, now.Seen = true, l.w.end, now.Life
			if err = l.book.write(now); err != nil {
				err = l.fail(err)
			}
		}
	}
	l.mu.Lock()
	l.state = closed
	l.cond.Broadcast()
	l.room.changedLocked()
	l.mu.Unlock()
	return errors.Join(err, l.segs.close(), l.book.f.Close())
}

// made is the time that headers and LIFE say, in microseconds.
func (l *Log) made() uint64 { return uint64(l.c.Now().UnixMicro()) }

// counts are Stats as they grow.
type counts struct {
	frames, records, bytes, padding, syncs    uint64
	changes, made, recycled, removed, carried uint64
}

// Stats are numbers for people and for metrics. Those that count begin with the life.
type Stats struct {
	Life     uint64
	Segments int   // in force
	Free     int   // files that are ready for use
	Bytes    int64 // of the segments in force, up to their ends
	Bound    int64 // of Bytes: Config.MaxBytes
	// End is behind the newest frame that was sealed, Durable behind the newest that is
	// durable with all before it, Passed behind the newest that has passed. Whole is the
	// end of the newest segment that was left and all of whose frames have passed: up to
	// there a checkpoint may go. 0: there is none.
	End, Durable, Passed, Whole Position

	Frames, Records uint64
	Written         uint64 // bytes, with heads and without what is left of blocks
	Padding         uint64 // bytes that were left of blocks and segments
	Syncs           uint64 // beside direct writes
	Changes         uint64 // of the segment
	Made, Recycled  uint64 // files
	Removed         uint64 // files
	Carried         uint64 // facts that were written again
}

// Stats returns numbers of this moment.
func (l *Log) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := Stats{
		Segments: len(l.segs.force), Free: len(l.segs.free), Bytes: l.segs.bytes(l.w.end), Bound: l.c.MaxBytes, Durable: l.w.durable, End: l.w.end,
		Frames: l.count.frames, Records: l.count.records, Written: l.count.bytes, Padding: l.count.padding, Syncs: l.count.syncs,
		Changes: l.count.changes, Made: l.count.made, Recycled: l.count.recycled, Removed: l.count.removed, Carried: l.count.carried,
	}
	s.Passed = l.w.public
	for _, seg := range l.segs.force {
		if seg.left && seg.end <= l.w.public {
			s.Whole = seg.end
		}
	}
	s.Life = l.book.now.Life
	return s
}
