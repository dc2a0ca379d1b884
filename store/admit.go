package store

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/rdmakv/rdmakv/store/layout"
)

// Submit orders a write and returns; Done tells the rest. It may be called
// from any goroutine, and writes of one key take effect in the order of their
// Submit calls. It does not wait for the disk, except for a delete of a key
// of which memory alone cannot say whether it exists; and it waits for a region
// to be registered, unless NoWait, when the item has no room in those there are.
//
// Errors: ErrKeyEmpty, ErrKeyTooLarge, ErrTooLarge, ErrShard, ErrGrowing,
// ErrOverloaded (the in-flight bound is reached: nothing is queued beyond it; or an increment or a
// touch lost its key to others maxRounds times), ErrUnsupported, ErrNoSpace,
// ErrReadOnlyDisk, ErrClosed, ErrFatal, and ErrCorrupt for a delete whose
// record cannot be read. After an error nothing was ordered.
func (s *Store) Submit(w *Write) error {
	if err := s.checkWrite(w); err != nil {
		return err
	}
	w.charge = w.cost()
	for {
		charged := w.charge
		if err := s.gate.tryEnter(charged); err != nil {
			return err
		}
		err := s.order(w, patience{disk: !w.NoWait, memory: !w.NoWait})
		if err == nil {
			return nil
		}
		s.gate.leave(charged, 1)
		if err != errCharge {
			return err
		}
	}
}

// Do is the blocking form of Submit: it waits for room, for memory, and until
// the write is durable and published. When ctx ends after the write was
// ordered, the error is ErrOutcomeUnknown together with ctx's; w and what it
// refers to may then still be in use.
func (s *Store) Do(ctx context.Context, w *Write) error { return s.submitAndWait(ctx, w) }

// Put stores value under key and returns its version once that is durable and
// published. It waits for room where Submit would say ErrOverloaded. key and
// value are copied. When ctx ends after the write was ordered, the error is
// ErrOutcomeUnknown together with ctx's.
func (s *Store) Put(ctx context.Context, shard uint16, key, value []byte) (layout.Version, error) {
	w := &Write{Shard: shard, Key: append([]byte(nil), key...), Value: append([]byte(nil), value...)}
	err := s.submitAndWait(ctx, w)
	return w.Version, err
}

// Delete removes key and reports whether it was there. Otherwise as Put.
func (s *Store) Delete(ctx context.Context, shard uint16, key []byte) (existed bool, err error) {
	w := &Write{Shard: shard, Key: append([]byte(nil), key...), Op: OpDelete}
	err = s.submitAndWait(ctx, w)
	return err == nil && w.Existed, err
}

// submitAndWait is the blocking form of Submit. After an error w is garbage:
// the store may still be using it.
func (s *Store) submitAndWait(ctx context.Context, w *Write) error {
	if err := s.checkWrite(w); err != nil {
		return err
	}
	done := make(chan struct{})
	w.Done = func(*Write) { close(done) }
	w.charge = w.cost()
	for again := true; again; {
		charged := w.charge
		if err := s.gate.enter(ctx, s.fence.down, charged); err != nil {
			return s.fencedOr(err)
		}
		wait := patience{disk: true}
		err := s.order(w, wait)
		for errors.Is(err, ErrGrowing) {
			select {
			case <-s.Growing():
				err = s.order(w, wait)
			case <-ctx.Done():
				err = ctx.Err()
			case <-s.fence.down:
				err = s.fencedOr(ErrClosed)
			}
		}
		if err != nil {
			s.gate.leave(charged, 1)
		}
		if again = err == errCharge; err != nil && !again {
			return err
		}
	}
	select {
	case <-done:
		return w.Err
	case <-ctx.Done():
		// Both may be ready; what is known is not called unknown.
		select {
		case <-done:
			return w.Err
		default:
		}
		return fmt.Errorf("%w: %w", ErrOutcomeUnknown, ctx.Err())
	case <-s.fence.down:
		return fmt.Errorf("%w: %w", ErrOutcomeUnknown, s.fence.failed())
	}
}

// fencedOr returns the error that fenced the store, or err if it is not.
func (s *Store) fencedOr(err error) error {
	if fatal := s.fence.failed(); fatal != nil {
		return fatal
	}
	return err
}

// A gate bounds the bytes and the number of writes in flight. One write alone
// may exceed the bytes, or a value larger than the bound could never be put.
type gate struct {
	maxBytes  int64
	maxWrites int

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

func newGate(maxBytes int64, maxWrites int) *gate {
	return &gate{maxBytes: maxBytes, maxWrites: maxWrites, idle: make(chan struct{})}
}

// fitsLocked says whether n more bytes may enter.
func (g *gate) fitsLocked(n int64) bool {
	return g.writes == 0 || (g.bytes+n <= g.maxBytes && g.writes < g.maxWrites)
}

// tryEnter admits n bytes or says ErrOverloaded. Those who wait go first.
func (g *gate) tryEnter(n int64) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return ErrClosed
	}
	if len(g.waiting) > 0 || !g.fitsLocked(n) {
		return ErrOverloaded
	}
	g.bytes += n
	g.writes++
	return nil
}

// enter admits n bytes, waiting until they fit, ctx ends or down is closed.
func (g *gate) enter(ctx context.Context, down <-chan struct{}, n int64) error {
	err := g.tryEnter(n)
	if err != ErrOverloaded {
		return err
	}
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		return ErrClosed
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
		err = ErrClosed
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
func (g *gate) admitLocked() {
	for len(g.waiting) > 0 && g.fitsLocked(g.waiting[0].bytes) {
		w := g.waiting[0]
		g.waiting = g.waiting[1:]
		g.bytes += w.bytes
		g.writes++
		close(w.ready)
	}
}

// leave lets n bytes of some writes out.
func (g *gate) leave(n int64, writes int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.bytes -= n
	g.writes -= writes
	g.admitLocked()
	g.idleLocked()
}

// close refuses newcomers. Those who wait are still admitted: they were there
// before. The channel is closed when the last has left.
func (g *gate) close() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed {
		g.closed = true
		g.idleLocked()
	}
	return g.idle
}

func (g *gate) idleLocked() {
	if g.closed && g.writes == 0 && len(g.waiting) == 0 {
		close(g.idle)
	}
}

// inside returns the bytes and writes in flight.
func (g *gate) inside() (bytes int64, writes int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.bytes, g.writes
}
