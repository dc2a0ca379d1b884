package client

import (
	"context"
	"sync"
)

// A turnstile lets a bounded number of units through at a time and makes the
// others wait in order: credits, request slots and send queue space are each
// one. A waiter is served strictly by age, so a wide batch cannot be starved
// by narrow ones, and the number of waiters is bounded too: beyond it callers
// are turned away at once, because a queue that only grows answers nobody.
//
// Safe for concurrent use. No lock is taken while mu is held.
type turnstile struct {
	mu         sync.Mutex
	free       int
	head, tail *turn // FIFO of waiters
	waiting    int
	maxWaiting int
	shut       error // set once: everybody fails with it
}

// A turn is one waiter, allocated only when somebody has to wait.
type turn struct {
	n     int
	ready chan struct{} // closed when served or shut
	next  *turn
	err   error // read after ready
}

func newTurnstile(free, maxWaiting int) *turnstile {
	return &turnstile{free: free, maxWaiting: maxWaiting}
}

// tryEnter takes n units if nobody is waiting and they are free.
func (t *turnstile) tryEnter(n int) bool { return t.tryEnterLeaving(n, 0) }

// tryEnterLeaving is tryEnter that leaves some units free.
func (t *turnstile) tryEnterLeaving(n, left int) bool {
	t.mu.Lock()
	ok := t.shut == nil && t.head == nil && t.free-left >= n
	if ok {
		t.free -= n
	}
	t.mu.Unlock()
	return ok
}

// enter takes n units, waiting for its turn. It fails with ctx's error, with
// ErrOverloaded when too many wait, or with the reason the turnstile was shut.
func (t *turnstile) enter(ctx context.Context, n int) error {
	t.mu.Lock()
	switch {
	case t.shut != nil:
		defer t.mu.Unlock()
		return t.shut
	case t.head == nil && t.free >= n:
		t.free -= n
		t.mu.Unlock()
		return nil
	case t.waiting >= t.maxWaiting:
		t.mu.Unlock()
		return ErrOverloaded
	}
	w := &turn{n: n, ready: make(chan struct{})}
	if t.head == nil {
		t.head = w
	} else {
		t.tail.next = w
	}
	t.tail = w
	t.waiting++
	t.mu.Unlock()

	select {
	case <-w.ready:
		return w.err
	case <-ctx.Done():
	}
	t.mu.Lock()
	select {
	case <-w.ready: // served in the same moment: hand it on
		if w.err == nil {
			t.free += n
		}
	default:
		t.removeLocked(w)
	}
	t.serveLocked()
	t.mu.Unlock()
	return ctx.Err()
}

// leave gives n units back, or grants n new ones.
func (t *turnstile) leave(n int) {
	t.mu.Lock()
	t.free += n
	t.serveLocked()
	t.mu.Unlock()
}

// takeIdle takes away free units beyond keep if nobody waits, and returns how
// many: credits that an idle client gives back.
func (t *turnstile) takeIdle(keep int) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.head != nil || t.free <= keep {
		return 0
	}
	n := t.free - keep
	t.free = keep
	return n
}

// close fails all waiters, and everybody who comes later, with err.
func (t *turnstile) close(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.shut != nil {
		return
	}
	t.shut = err
	for w := t.head; w != nil; w = w.next {
		w.err = err
		close(w.ready)
	}
	t.head, t.tail, t.waiting = nil, nil, 0
}

func (t *turnstile) serveLocked() {
	for t.head != nil && t.free >= t.head.n {
		w := t.head
		t.head = w.next
		if t.head == nil {
			t.tail = nil
		}
		t.waiting--
		t.free -= w.n
		close(w.ready)
	}
}

func (t *turnstile) removeLocked(w *turn) {
	var prev *turn
	for p := t.head; p != nil; prev, p = p, p.next {
		if p != w {
			continue
		}
		if prev == nil {
			t.head = p.next
		} else {
			prev.next = p.next
		}
		if t.tail == p {
			t.tail = prev
		}
		t.waiting--
		return
	}
}

// state returns what is free and how many wait.
func (t *turnstile) state() (free, waiting int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.free, t.waiting
}
