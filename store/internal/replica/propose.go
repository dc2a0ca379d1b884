package replica

import (
	"errors"
	"fmt"
	"time"

	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/entry"
	"github.com/rdmakv/rdmakv/store/internal/flight"
)

// Run proposes the marker of a term, and what is ordered behind it, until life ends or End is called, and answers what has waited too long. What the
// engine does not take is proposed again after a pause: it has no room, or it does not lead any
// more and Follows is about to be called. What it will never take fences the store: nothing behind
// it could be proposed.
func (r *Replica) Run(life *base.Life) {
	again := time.NewTimer(r.c.Pause)
	defer again.Stop()
	late := time.NewTimer(r.c.Patience)
	defer late.Stop()
	for {
		select {
		case <-r.wake:
		case <-again.C:
		case <-late.C:
		case <-r.over:
			return
		case <-life.Stop:
			return
		case <-life.Fence.Down:
			return
		}
		r.giveUp(time.Now())
		for {
			term, data, what := r.proposal()
			if data == nil {
				break
			}
			err := r.c.Propose(term, data)
			if errors.Is(err, consensus.ErrTooLarge) {
				life.Fence.Fail(fmt.Errorf("replica: an entry of %d bytes, cut at %d of at most %d: %w", len(data), r.c.MostBytes, r.c.MostEntry, err))
				return
			}
			if err != nil {
				again.Reset(r.c.Pause)
				break
			}
			r.proposed(term, what)
		}
		if left, waits := r.patience(time.Now()); waits {
			late.Reset(max(left, r.c.Pause)) // below that: an entry is being published
		} else {
			late.Stop()
		}
	}
}

// proposal returns what is to be proposed next, in which term, and what it is; nil: there is nothing.
func (r *Replica) proposal() (term uint64, data []byte, what entry.Kind) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.role == stands && !r.asked:
		return r.term, entry.AppendMarker(nil, r.c.Life, r.term), entry.Marker
	case r.role != leads:
		return 0, nil, 0
	}
	if data := r.checks.proposal(); data != nil {
		return r.term, data, entry.Check
	}
	if r.cut == nil && len(r.queue) > 0 && len(r.flying) < r.c.MostFlying {
		b := r.take()
		if len(r.flying) == 0 {
			r.moved = time.Now()
		}
		r.flying = append(r.flying, b)
		r.cut = entry.AppendWrites(make([]byte, 0, entry.Head+b.cost), r.reign, b.first, b.next, b.writes)
	}
	return r.term, r.cut, entry.Writes
}

// proposed notes that the engine has taken what proposal returned.
func (r *Replica) proposed(term uint64, what entry.Kind) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.term != term || r.role == follows:
	case what == entry.Marker:
		r.asked = true
	case what == entry.Check:
		r.checks.sent = true
	default:
		r.counts.Entries++
		r.counts.Bytes += uint64(len(r.cut))
		r.cut = nil
	}
}

// take takes the first of the queue as the writes of an entry. Caller holds mu.
func (r *Replica) take() batch {
	n, b, numbers := 0, batch{}, uint64(0)
	for _, f := range r.queue {
		cost := entry.Cost(f)
		numbers += uint64(f.Versions())
		if n > 0 && (b.cost+cost > r.c.MostBytes || numbers > entry.MostNumbers) {
			break
		}
		b.cost, b.bytes = b.cost+cost, b.bytes+f.Charge
		n++
	}
	b.writes = append(b.writes, r.queue[:n]...)
	b.first, b.next = numberOf(r.queue[0]), r.next
	rest := r.queue[:copy(r.queue, r.queue[n:])]
	clear(r.queue[len(rest):])
	if r.queue = rest; len(rest) > 0 {
		b.next = numberOf(rest[0])
	}
	return b
}

// numberOf is the first number of a write.
func numberOf(f *flight.Flight) uint64 {
	if f.Noop {
		return f.Version.Number()
	}
	return f.Version.Number() + 1 - uint64(f.Versions())
}
