package log

import (
	"github.com/rdmakv/rdmakv/store/log/internal/format"
)

// The room of a log is what can be sealed without anybody waiting for a checkpoint: what
// is left of the segment that is written, and the free files that are ready, within the
// bound. Who wants to write reserves room first, while it holds nothing that others wait
// for, and gives the reservation back when its frame is sealed. So Seal finds a segment
// ready; if writers waited for room with a lock or a turn in their hands, the checkpoint
// that makes room would wait for them.
//
//	| in force: used ..........| rest |   | free |   | free |   | kept |   | kept for a start |
//	                            <--------- puts --------->
//	                            <------------ deletes ----------->
//	                            <------------- facts ---------------->
//
// What makes room has room when nothing else has: deletes may take one file more than puts,
// and facts an eighth of a segment more than deletes. Without the last share, deletes that
// have reserved and wait for a fact (the bound of the clock, an epoch) would hold what that
// fact needs.
//
// A start notes facts before anything makes room, and it may find a log that is full. So
// facts may fill what is left of the first segment of a life. If not, a store that was killed
// when its log was full could never be started again.
//
// A room counts bytes as Cost tells them, which is what a record takes if it travels alone.
type room struct {
	reserved int64
	waiting  chan struct{} // closed when there may be more room
}

// Use says what room is for.
type Use uint8

const (
	Puts    Use = iota // what fills the store
	Deletes            // what makes room in the store: deletes, expiry
	Facts              // what others wait for: bounds, epochs, states of replicas
)

// Cost is what one record with a body of so many bytes takes of the log at most: the
// record, the head of a frame, and what is left of its last block.
func (l *Log) Cost(body int) int64 {
	return format.Pad(int64(format.FrameHead+format.RecordSize(body)), l.block)
}

// Reserve sets room aside, or returns ErrFull. Unreserve gives it back.
func (l *Log) Reserve(n int64, use Use) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usableLocked(); err != nil {
		return err
	}
	if l.roomLocked(use)-l.room.reserved < n {
		return ErrFull
	}
	l.room.reserved += n
	return nil
}

// Unreserve gives a reservation back, when what it was for is sealed or will not be.
func (l *Log) Unreserve(n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.room.reserved -= n
	if l.room.reserved < 0 {
		panic("log: more room was given back than reserved")
	}
	if n > 0 {
		l.room.changedLocked()
	}
}

// Room returns how many bytes can be reserved now, and a channel that is closed when that
// may have become more.
func (l *Log) Room(use Use) (int64, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.room.waiting == nil {
		l.room.waiting = make(chan struct{})
	}
	if l.usableLocked() != nil {
		return 0, l.room.waiting
	}
	return max(0, l.roomLocked(use)-l.room.reserved), l.room.waiting
}

// roomLocked is the room with nothing reserved.
func (l *Log) roomLocked(use Use) int64 {
	aside := kept
	bound := l.c.MaxBytes
	if use != Puts {
		aside--
		bound += l.c.SegmentSize
	}
	// A frame that does not fit leaves the rest of a segment unused, at most a frame.
	usable := l.c.SegmentSize - l.block - l.c.MaxFrame
	rest := max(0, l.w.seg.header.Size-max(l.w.end, l.w.fresh).Offset()-l.c.MaxFrame)
	n := rest + int64(max(0, len(l.segs.free)-aside))*usable
	n = min(n, bound-l.segs.bytes(l.w.end))
	if use != Facts {
		return n - l.c.SegmentSize/8
	}
	if l.w.seg.header.Number == l.w.began {
		n = max(n, rest) // a start may find a full log, and has its segment whatever the bound says
	}
	return n
}

// changedLocked wakes those who wait for room.
func (r *room) changedLocked() {
	if r.waiting != nil {
		close(r.waiting)
		r.waiting = nil
	}
}
