// Package admit bounds what is in flight: the bytes and the number of writes (Gate), and the
// room that they take in the log (Log).
//
//	writer -> slowed down, if the log is nearly full -> room in the log -> gate -> order
//
// A write waits for room in the log before it is ordered, because it holds nothing then. If a
// write waited that has its place in the order, all writes behind it would wait too, and so
// would the deletes and the facts that a full log needs.
package admit

import (
	"context"
	"sync"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/log"
)

// A Gate bounds the bytes and the number of writes in flight. One write alone
// may exceed the bytes, or a value larger than the bound could never be put.
type Gate struct {
	maxBytes  int64
	maxWrites int
	room      *room // nil: there is no log

	mu      sync.Mutex
	bytes   int64
	writes  int
	closed  bool
	idle    chan struct{} // closed once the gate is closed and nothing is inside
	waiting []*waiter     // blocking callers, oldest first
}

type waiter struct {
	bytes int64
	ready chan struct{} // closed when the waiter is inside
}

// NewGate returns a gate that nothing has entered.
func NewGate(maxBytes int64, maxWrites int) *Gate {
	return &Gate{maxBytes: maxBytes, maxWrites: maxWrites, idle: make(chan struct{})}
}

// fitsLocked says whether n more bytes may enter.
func (g *Gate) fitsLocked(n int64) bool {
	return g.writes == 0 || (g.bytes+n <= g.maxBytes && g.writes < g.maxWrites)
}

// With has writes take room in a log, too. It is called before the first write.
func (g *Gate) With(l Log) { g.room = newRoom(l) }

// TryEnter admits a write of n bytes in so many parts, and sets room in the log aside for
// it: what it returns is to be given back by Return when the record of the write has its
// place in the log, or the write has not been ordered. It waits for nothing. Waiting callers
// go first.
//
// Errors: ErrOverloaded, of which a *LogError says that the log is the reason; ErrClosed.
func (g *Gate) TryEnter(n int64, parts int, use log.Use) (room int64, err error) {
	return g.try(n, parts, use, false)
}

// TryAgain is TryEnter for a write that had entered, could not be ordered, and has left: what
// slows puts down has counted it. If it were counted twice it could be refused each time.
func (g *Gate) TryAgain(n int64, parts int, use log.Use) (room int64, err error) {
	return g.try(n, parts, use, true)
}

func (g *Gate) try(n int64, parts int, use log.Use, counted bool) (room int64, err error) {
	if g.room != nil {
		if room, err = g.room.tryTake(n, parts, use, counted); err != nil {
			return 0, err
		}
	}
	if err := g.tryEnter(n); err != nil {
		g.Return(room)
		return 0, err
	}
	return room, nil
}

// Enter is TryEnter for those who can wait: until there is room, until they fit, until ctx ends
// or down is closed. When the gate is closed those who wait for room are refused: the checkpoint
// that makes room may never come.
func (g *Gate) Enter(ctx context.Context, down <-chan struct{}, n int64, parts int, use log.Use) (room int64, err error) {
	if g.room != nil {
		if room, err = g.room.take(ctx, down, n, parts, use); err != nil {
			return 0, err
		}
	}
	if err := g.enter(ctx, down, n); err != nil {
		g.Return(room)
		return 0, err
	}
	return room, nil
}

// Return gives room in the log back that TryEnter or Enter has set aside.
func (g *Gate) Return(room int64) {
	if room > 0 {
		g.room.log.Room.Unreserve(room)
	}
}

// tryEnter admits n bytes, or fails with ErrOverloaded. Waiting callers go first.
func (g *Gate) tryEnter(n int64) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return base.ErrClosed
	}
	if len(g.waiting) > 0 || !g.fitsLocked(n) {
		return base.ErrOverloaded
	}
	g.bytes += n
	g.writes++
	return nil
}

// enter admits n bytes, waiting until they fit, ctx ends or down is closed.
func (g *Gate) enter(ctx context.Context, down <-chan struct{}, n int64) error {
	err := g.tryEnter(n)
	if err != base.ErrOverloaded {
		return err
	}
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		return base.ErrClosed
	}
	w := &waiter{bytes: n, ready: make(chan struct{})}
	g.waiting = append(g.waiting, w)
	g.admitLocked() // what left since tryEnter may have made room
	g.mu.Unlock()
	select {
	case <-w.ready:
		return nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-down:
		err = base.ErrClosed
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, other := range g.waiting {
		if other == w {
			g.waiting = append(g.waiting[:i], g.waiting[i+1:]...)
			g.admitLocked() // the next may be smaller
			g.idleLocked()
			return err
		}
	}
	return nil // admitted meanwhile: the caller goes on and notices by itself
}

// admitLocked lets in whoever fits, in order.
func (g *Gate) admitLocked() {
	for len(g.waiting) > 0 && g.fitsLocked(g.waiting[0].bytes) {
		w := g.waiting[0]
		g.waiting = g.waiting[1:]
		g.bytes += w.bytes
		g.writes++
		close(w.ready)
	}
}

// Leave lets n bytes of some writes out.
func (g *Gate) Leave(n int64, writes int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.bytes -= n
	g.writes -= writes
	g.admitLocked()
	g.idleLocked()
}

// Close refuses newcomers, and callers that wait for room in the log. Callers that wait
// for the gate are still admitted: they were there before. The channel is closed when the
// last has left.
func (g *Gate) Close() <-chan struct{} {
	if g.room != nil {
		g.room.close()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed {
		g.closed = true
		g.idleLocked()
	}
	return g.idle
}

func (g *Gate) idleLocked() {
	if g.closed && g.writes == 0 && len(g.waiting) == 0 {
		close(g.idle)
	}
}

// PutRate is how many bytes a second puts are slowed down to by what is left of the log now,
// at least 1; 0: they are not slowed down.
func (g *Gate) PutRate() uint64 {
	if g.room == nil || g.room.log.Left == nil {
		return 0
	}
	l := &g.room.log
	bytes, slow := allowed(l.Left(), l.Bytes, l.Rate())
	if !slow {
		return 0
	}
	return max(1, uint64(min(bytes, 1<<62)))
}

// Inside returns the bytes and writes in flight.
func (g *Gate) Inside() (bytes int64, writes int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.bytes, g.writes
}
