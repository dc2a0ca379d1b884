package base

import (
	"sync"
	"sync/atomic"
	"time"
)

// A Clock counts nanoseconds since it was made, and never runs backwards.
type Clock struct{ began time.Time }

// NewClock returns a Clock that begins now.
func NewClock() Clock { return Clock{time.Now()} }

// Now is the time in nanoseconds since NewClock.
func (c Clock) Now() int64 { return int64(time.Since(c.began)) }

// A Fence says whether a node, or a space of it, has stopped serving for good, and
// why: its store has failed, a lane or a device did for good, or another process is this
// node. A store that has failed calls back for none of its writes and cannot be
// closed; the store of a node that stood down does and can. All methods are safe for
// concurrent use.
type Fence struct {
	once      sync.Once
	fenced    chan struct{} // closed by the first Fail
	why       error         // set before
	stood     atomic.Bool   // it was not the store that failed
	storeGone chan struct{} // closed when the store calls back for nothing any more
}

// NewFence returns a Fence of a node that serves.
func NewFence() *Fence { return &Fence{fenced: make(chan struct{}), storeGone: make(chan struct{})} }

// Fail fences, and reports whether this call did: the first error stays.
func (f *Fence) Fail(err error) (first bool) {
	f.once.Do(func() {
		f.why = err
		close(f.fenced)
		first = true
	})
	return first
}

// StandDown is Fail for a node whose store is well.
func (f *Fence) StandDown(err error) (first bool) {
	f.stood.Store(true)
	return f.Fail(err)
}

// LoseStore says that the store calls back for none of the writes that it has. It is
// called once, before Fail; it may come after StandDown, where the disk fails while a
// node stands down.
func (f *Fence) LoseStore() { close(f.storeGone) }

// Done is closed when the node is fenced.
func (f *Fence) Done() <-chan struct{} { return f.fenced }

// Err is nil until Done is closed; afterwards it says why.
func (f *Fence) Err() error {
	select {
	case <-f.fenced:
		return f.why
	default:
		return nil
	}
}

// StoodDown reports whether StandDown was called.
func (f *Fence) StoodDown() bool { return f.stood.Load() }

// Silent is closed when the store calls back for nothing any more. To be called after
// Done is closed.
func (f *Fence) Silent() <-chan struct{} {
	if f.stood.Load() {
		return f.storeGone
	}
	return f.fenced
}

// StoreWell reports whether the store can be closed.
func (f *Fence) StoreWell() bool {
	select {
	case <-f.storeGone:
		return false
	default:
		return f.Err() == nil || f.stood.Load()
	}
}

// WaitsFor says what an end is waiting for, so that one that takes too long can say
// why. The zero value says nothing.
type WaitsFor struct{ what atomic.Pointer[string] }

// Set says what is waited for from now on; "" is nothing.
func (w *WaitsFor) Set(what string) { w.what.Store(&what) }

// Get returns what was set last.
func (w *WaitsFor) Get() string {
	if p := w.what.Load(); p != nil {
		return *p
	}
	return ""
}
