package log

import (
	"sync"
	"time"
)

// An upkeep is what goes on in the background while a log runs. Nobody waits for it with
// something in his hands:
//
//	maker     makes free files, so that the next segment is there when it is needed
//	syncer    makes durable what was left, and everything each interval
//	keeper    once a second: an empty frame where the newest one says too little
//	retirer   gives back segments that nobody needs
type upkeep struct {
	*Log
	changed chan struct{}  // a segment was left
	retire  chan struct{}  // a segment may be idle
	stop    chan struct{}  // closed by Close
	tasks   sync.WaitGroup // of those who write frames: keeper and retirer
	// halt is closed when those have ended, and servants are the others: a frame on its
	// way may need a free file of the maker, or a segment that the syncer makes durable.
	halt     chan struct{}
	servants sync.WaitGroup
	making   sync.Cond // of Log.mu: the maker is to look again. It is not cond, because each frame would wake it
}

// newUpkeep returns one in which nothing goes on.
func newUpkeep() upkeep {
	return upkeep{changed: make(chan struct{}, 1), retire: make(chan struct{}, 1), stop: make(chan struct{}), halt: make(chan struct{})}
}

// start begins all of it.
func (l *upkeep) start() {
	l.servants.Add(2)
	go l.runMaker()
	go l.runSyncer()
	l.tasks.Add(2)
	go l.runKeeper()
	go l.runRetirer()
}

// end returns when nothing of it goes on any more.
func (l *upkeep) end() {
	close(l.stop)
	l.tasks.Wait()
	l.mu.Lock()
	close(l.halt)
	l.making.Signal()
	l.mu.Unlock()
	l.servants.Wait()
}

// runMaker keeps free files ready, so that nobody who holds a frame waits for a file to be
// written. It ends with the log. A file that could not be made is tried again each time
// that somebody asks, and once a second by the keeper.
func (l *upkeep) runMaker() {
	defer l.servants.Done()
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		for l.state == running && l.err == nil && !ended(l.halt) && (len(l.segs.free) >= kept+1+l.segs.want || l.segs.failed != nil && l.segs.want == 0) {
			l.making.Wait()
		}
		if l.state != running || l.err != nil || ended(l.halt) {
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

// ended says whether a channel was closed.
func ended(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// beatEvery is how often a log looks whether its newest frame still says too little of
// what is durable.
const beatEvery = time.Second

// runKeeper does once a second what nobody waits for.
func (l *upkeep) runKeeper() {
	defer l.tasks.Done()
	t := time.NewTicker(beatEvery)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-l.stop:
			return
		}
		l.beat()
		l.mu.Lock()
		l.segs.failed = nil // the disk may have room again
		l.making.Signal()
		l.mu.Unlock()
		l.pokeRetirer() // entries that others have replaced make a segment idle too
	}
}

// beat writes an empty frame if the newest one says less of what is durable than is true.
// Without it the newest frames of a log that nobody writes to could go bad and would pass
// for torn.
func (l *upkeep) beat() {
	l.mu.Lock()
	quiet := l.err == nil && len(l.w.flying) == 0 && l.w.told < l.w.last && l.w.last <= l.w.durable
	l.mu.Unlock()
	if !quiet {
		return // the next frame says it
	}
	f := l.Begin()
	if _, err := l.finish(f, true); err != nil {
		l.c.Logger.Warn("no empty frame could be written", "err", err)
	}
}
