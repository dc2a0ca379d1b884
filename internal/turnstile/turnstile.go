// Package turnstile has the queue of waiters that flow control needs: first come, first served,
// however many units a waiter asks for. It may be given more units than it began with, and it may
// be shut with a reason.
package turnstile

import (
	"context"
	"sync"
)

// A Turnstile lets a bounded number of units through at a time and makes the others wait in
// order: credits, request slots and send queue space are each one. A waiter is served strictly by
// age, so a wide batch cannot be starved by narrow ones. The number of waiters is bounded, too:
// beyond it callers are refused at once, because in a queue that only grows no caller would be
// served in time.
//
// It is safe for concurrent use. No lock is taken while mu is held.
type Turnstile struct {
	mu         sync.Mutex
	free       int
	head, tail *turn // FIFO of waiters
	waiting    int
	maxWaiting int
	tooMany    error // the error of Enter beyond maxWaiting
	shut       error // set once: every Enter fails with it
}

// A turn is one waiter. It is allocated only when a caller has to wait.
type turn struct {
	n     int
	ready chan struct{} // closed when served or shut
	next  *turn
	err   error // read after ready
}

// New returns a turnstile with free units. At most maxWaiting callers wait at a time;
// beyond them Enter fails with tooMany.
func New(free, maxWaiting int, tooMany error) *Turnstile {
	return &Turnstile{free: free, maxWaiting: maxWaiting, tooMany: tooMany}
}

// TryEnter takes n units if no caller waits and they are free.
func (t *Turnstile) TryEnter(n int) bool { return t.TryEnterLeaving(n, 0) }

// TryEnterLeaving is TryEnter that leaves some units free.
func (t *Turnstile) TryEnterLeaving(n, left int) bool {
	t.mu.Lock()
	ok := t.shut == nil && t.head == nil && t.free-left >= n
	if ok {
		t.free -= n
	}
	t.mu.Unlock()
	return ok
}

// Enter takes n units, waiting for its turn. It fails with ctx's error, with tooMany if there are
// too many waiters, or with the reason why the turnstile was shut.
func (t *Turnstile) Enter(ctx context.Context, n int) error {
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
		return t.tooMany
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

// Leave gives n units back, or grants n new ones.
func (t *Turnstile) Leave(n int) {
	t.mu.Lock()
	t.free += n
	t.serveLocked()
	t.mu.Unlock()
}

// TakeIdle takes away free units beyond keep if no caller waits, and returns how many: credits
// that an idle client gives back.
func (t *Turnstile) TakeIdle(keep int) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.head != nil || t.free <= keep {
		return 0
	}
	n := t.free - keep
	t.free = keep
	return n
}

// Close fails all waiters, and every later caller, with err.
func (t *Turnstile) Close(err error) {
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

// serveLocked lets waiters through, the oldest first, as long as units are free for
// it. mu is held.
func (t *Turnstile) serveLocked() {
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

// removeLocked takes a waiter out of the queue. mu is held.
func (t *Turnstile) removeLocked(w *turn) {
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

// State returns what is free and how many wait.
func (t *Turnstile) State() (free, waiting int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.free, t.waiting
}
