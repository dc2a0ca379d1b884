package log

import (
	"fmt"
	"time"

	"github.com/rdmakv/rdmakv/store/log/internal/format"
)

// Sync returns when everything that was sealed before the call is durable, in every
// policy. Any number of goroutines may call it.
func (l *Log) Sync() error {
	l.syncing <- struct{}{}
	defer func() { <-l.syncing }()
	l.mu.Lock()
	if err := l.usableLocked(); err != nil {
		l.mu.Unlock()
		return err
	}
	w := &l.w
	target, to := w.sealed, w.end
	// From here on frames begin in blocks that this sync does not make durable, so no
	// block that is durable is ever written again.
	w.fresh = format.At(w.seg.header.Number, format.Pad(to.Offset(), l.block))
	for w.done < target && l.err == nil {
		l.cond.Wait()
	}
	var dirty []*segment
	for _, seg := range l.segs.force {
		if seg.file != nil && !seg.synced && l.c.Sync != Always {
			dirty = append(dirty, seg)
		}
	}
	err := l.err
	l.mu.Unlock()
	if err != nil {
		return err
	}
	for _, seg := range dirty {
		if err := seg.file.Sync(); err != nil {
			return l.fail(fmt.Errorf("sync %s: %w", seg.name, err))
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count.syncs += uint64(len(dirty))
	w.durable = max(w.durable, to)
	for _, seg := range dirty {
		// It was left before its sync began, or is still written.
		if seg.left && seg.end <= to {
			seg.synced = true
			l.pokeRetirer() // it may have waited for that alone
		}
	}
	l.cond.Broadcast()
	return l.err
}

// Durable returns up to where everything is durable.
func (l *Log) Durable() Position {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.durable
}

// runSyncer makes durable what is to be without anybody waiting for it: each interval, and
// the segments that were left. It writes no frame: a frame may have to wait until a
// segment that was left is durable.
func (l *upkeep) runSyncer() {
	defer l.servants.Done()
	var tick <-chan time.Time
	if l.c.Sync == Interval {
		t := time.NewTicker(l.c.Interval)
		defer t.Stop()
		tick = t.C
	}
	for {
		select {
		case <-tick:
		case <-l.changed:
		case <-l.halt:
			return
		}
		l.mu.Lock()
		idle := l.err != nil || l.c.Sync == Always || l.w.durable >= l.w.end
		l.mu.Unlock()
		if idle {
			continue
		}
		// An error has failed the log, and whoever writes is told.
		_ = l.Sync()
	}
}
