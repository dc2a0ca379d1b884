package handle

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdmakv/rdmakv/store"
)

// A slowdown keeps the puts that the store slows down because its log is nearly full, and for a
// while those that find it full. Each is submitted again when the store may let it in, so clients are slowed down to what
// checkpoints take in. If puts were refused instead, clients would rest longer than they
// have to, and send everything again.
//
//	submitted -> refused, with a time to wait -> parked, behind those that are
//	                                                |  the oldest, when its time has come
//	                                                v
//	                                             submitted again -> refused: the oldest again
//
// As long as one is parked, puts that come go behind it, because the store lets in whoever
// comes when there is time for one: the oldest could be refused for ever. Deletes, which the
// store does not slow down, pass. There are as many parked as sessions have credits at most.
type slowdown struct {
	wake chan struct{} // the first was parked; room for one
	n    atomic.Int32  // parked, and the one that is being submitted again

	mu     sync.Mutex
	parked []*op     // oldest first
	due    time.Time // when the oldest may be let in
	closed bool      // Run has ended
}

// behind parks r if others are. false: none is, and r is the caller's.
func (d *slowdown) behind(r *op) bool {
	if d.n.Load() == 0 {
		return false
	}
	d.mu.Lock()
	if d.n.Load() == 0 {
		d.mu.Unlock()
		return false
	}
	return d.addLocked(r, false)
}

// park keeps r until Run submits it again; again says that Run has, and that the store has refused
// it once more.
func (d *slowdown) park(r *op, wait time.Duration, again bool) {
	d.mu.Lock()
	if again || d.n.Load() == 0 {
		d.due = time.Now().Add(wait)
	}
	d.addLocked(r, again)
}

// addLocked lets go of mu. A write whose session has ended is dropped, because drop has been
// here, or will not find it.
func (d *slowdown) addLocked(r *op, first bool) bool {
	if d.closed || r.Session.Context().Err() != nil {
		d.mu.Unlock()
		drop(r)
		return true
	}
	if r.waits == 0 {
		r.waits = max(1, r.c.env.Clock.Now())
	}
	if first {
		d.parked = slices.Insert(d.parked, 0, r)
	} else {
		d.parked = append(d.parked, r)
	}
	d.n.Add(1)
	d.mu.Unlock()
	select {
	case d.wake <- struct{}{}:
	default:
	}
	return true
}

// rest returns how long the oldest has to wait yet; some is false if there is none.
func (d *slowdown) rest() (wait time.Duration, some bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return time.Until(d.due), len(d.parked) > 0
}

// take takes the oldest out, to be submitted again; nil: there is none. It counts until done.
func (d *slowdown) take() *op {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.parked) == 0 {
		return nil
	}
	r := d.parked[0]
	d.parked = slices.Delete(d.parked, 0, 1)
	return r
}

// done is that what take has returned was submitted, or parked again.
func (d *slowdown) done() { d.n.Add(-1) }

// drop ends the parked writes of a dead session, or with nil all of them: then none is parked
// any more.
func (d *slowdown) drop(c *conn) {
	var mine []*op
	d.mu.Lock()
	d.closed = d.closed || c == nil
	d.parked = slices.DeleteFunc(d.parked, func(r *op) bool {
		if c != nil && r.c != c {
			return false
		}
		mine = append(mine, r)
		return true
	})
	d.n.Add(-int32(len(mine)))
	d.mu.Unlock()
	for _, r := range mine {
		drop(r)
	}
}

// waiting returns how many writes are parked.
func (d *slowdown) waiting() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.parked)
}

// slowly submits parked puts again, one behind the other. It returns when ctx ends.
func (h *Handlers) slowly(ctx context.Context) {
	d := &h.slow
	defer d.drop(nil) // their sessions are ending too
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.wake:
		}
		for {
			wait, some := d.rest()
			if !some {
				break
			}
			timer.Reset(wait)
			select {
			case <-ctx.Done():
				return
			case <-timer.C:
			}
			if r := d.take(); r != nil {
				s := r.Session // r belongs to the next message once it is answered
				order(r, true)
				d.done()
				s.Flush()
			}
		}
	}
}

// slows says whether a write is one that the store slows down.
func slows(w *store.Write) bool {
	return w.Kind != store.OpDelete &&
		(w.Kind != store.OpBatch || slices.ContainsFunc(w.Parts, func(p store.Part) bool { return !p.Delete }))
}

const (
	// fullRest is how long a put waits before it is submitted again that found the log full.
	fullRest = 5 * time.Millisecond
	// fullPatience is how long a put may have been here and still wait for a log that is full. A
	// full log has room again within milliseconds while the next file is on its way. If it has
	// none for longer the disk is full, or checkpoints do not come to an end, and the client is to know.
	fullPatience = time.Second
	// slowPatience is how long a put may wait that the store slows down. While checkpoints go on the
	// log gets room at their rate, and few writers wait this long. While they fail, the store lets in
	// ever fewer puts, and the client is to know: this is half of what a call of kvclient waits.
	slowPatience = 5 * time.Second
)

// slowed returns how long the write has to wait that was refused with err, if that is because
// of the log. It does not wait for a full log if it is a delete, which has room where puts
// have none, or has been here for long, or if checkpoints fail; and nobody is slowed down for ever. Those who wait are
// parked in the order in which they came, so when the oldest is refused for its age the next
// one is asked at once, and none waits longer by more than one turn.
func slowed(r *op, err error) (wait time.Duration, ok bool) {
	e, is := errors.AsType[*store.LogError](err)
	now := r.c.env.Clock.Now()
	switch {
	case !is:
		return 0, false
	case !e.Full:
		patience := slowPatience
		if e.Trouble != nil {
			patience = fullPatience
		}
		return e.Wait, r.waits == 0 || time.Duration(now-r.waits) < patience
	}
	return fullRest, e.Trouble == nil && slows(&r.write) && time.Duration(now-r.Begun) < fullPatience
}
