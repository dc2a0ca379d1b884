package base

import (
	"math"
	"sync"
	"sync/atomic"
)

// A Door lets calls in that use memory and the disk, until Close. The memory is released
// and Pebble closed only when the last call has left, because a call that is inside
// reads both without a lock; if it were not waited for, it would read what is another's.
// Safe for concurrent use.
type Door struct {
	fence *Fence
	leave func() // exit, bound once: a call that enters allocates nothing

	inside atomic.Int64 // calls inside; plus closing once Close was called
	once   sync.Once
	idle   chan struct{} // closed when closing and no call is inside
}

// closing is added to the calls inside when the door closes: the sum is negative from
// then on, however many calls try to enter.
const closing = math.MinInt64 / 2

// NewDoor returns an open door.
func NewDoor(fence *Fence) *Door {
	d := &Door{fence: fence, idle: make(chan struct{})}
	d.leave = d.exit
	return d
}

// Enter lets a call in that uses memory and Pebble, until leave. It refuses
// with ErrClosed, or what fenced the store: after that nothing may be said.
func (d *Door) Enter() (leave func(), err error) {
	if err := d.fence.Failed(); err != nil {
		return nil, err
	}
	if d.inside.Add(1) <= 0 {
		d.exit()
		return nil, ErrClosed
	}
	return d.leave, nil
}

func (d *Door) exit() {
	if d.inside.Add(-1) == closing {
		d.empty()
	}
}

// Close refuses newcomers and returns a channel that is closed when the last
// call has left. It is called once.
func (d *Door) Close() <-chan struct{} {
	if d.inside.Add(closing) == closing {
		d.empty()
	}
	return d.idle
}

// empty is called when the door is closed and no call is inside. A newcomer that is
// turned away may find that once more.
func (d *Door) empty() { d.once.Do(func() { close(d.idle) }) }
