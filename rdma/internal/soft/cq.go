package soft

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/rdmakv/rdmakv/rdma"
)

// A CQ is a ring of completions that grows to its depth, and a channel of events. A
// fabric embeds it in its own, and adds Poll, with whatever work the fabric does
// for a goroutine that polls. It is safe for concurrent use.
type CQ struct {
	dev   *Device
	depth int

	// queued is the number of completions in the ring, so that a spinning poller
	// need not take the lock to learn that there are none. It is written under mu.
	queued atomic.Int64

	// OnUsers, if the fabric sets it, is given the QPs of the CQ after each change,
	// once for each. It is called with the CQ's lock held, so it must only take
	// note.
	OnUsers func(qps map[User]int)

	mu      sync.Mutex
	ring    []rdma.WC // length a power of two
	head    uint64    // next to poll; tail-head == queued
	tail    uint64
	armed   bool
	overrun bool
	closed  bool
	qps     map[User]int // and how often: as send and as receive CQ

	// events carries one token for each event that was raised and that no Wait has
	// taken. Its elements have no size, so the capacity costs nothing.
	events chan struct{}
	done   chan struct{} // closed by Close and by an overrun
}

// A User is a QP that completes its work in a CQ.
type User interface {
	rdma.QP
	// Overrun ends the QP, because its CQ has no room.
	Overrun(err error)
}

const cqMaxEvents = 1 << 16

// Init makes c a completion queue of dev with room for depth completions. An error
// means that there is none: ErrInvalid, ErrLimit, ErrClosed.
func (c *CQ) Init(dev *Device, depth int) error {
	if depth < 1 || depth > MaxCQE {
		return fmt.Errorf("%w: CQ depth %d is not within 1 and %d", rdma.ErrInvalid, depth, MaxCQE)
	}
	if err := dev.cqs.Add("completion queues"); err != nil {
		return err
	}
	if err := dev.Use(); err != nil {
		dev.cqs.Drop()
		return err
	}
	c.dev, c.depth, c.qps = dev, depth, make(map[User]int)
	c.events, c.done = make(chan struct{}, cqMaxEvents), make(chan struct{})
	return nil
}

// base finds the CQ inside a fabric's CQ: only types that embed CQ have this
// method.
func (c *CQ) base() *CQ { return c }

// attach counts q as a user.
func (c *CQ) attach(q User) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return fmt.Errorf("%w: completion queue", rdma.ErrClosed)
	}
	if c.overrun {
		return rdma.ErrCQOverrun
	}
	c.qps[q]++
	c.tell()
	return nil
}

// detach counts it out.
func (c *CQ) detach(q User) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.qps[q]--; c.qps[q] <= 0 {
		delete(c.qps, q)
	}
	c.tell()
}

// tell is called under mu.
func (c *CQ) tell() {
	if c.OnUsers != nil {
		c.OnUsers(c.qps)
	}
}

// Push adds completions and raises an event if Arm has asked for one. When the
// depth is passed the CQ dies, and its QPs with it. They end on a goroutine of
// their own, because the caller may hold the lock of one of them.
func (c *CQ) Push(wcs ...rdma.WC) {
	c.mu.Lock()
	if c.closed || c.overrun || len(wcs) == 0 {
		c.mu.Unlock()
		return
	}
	if int(c.tail-c.head)+len(wcs) > c.depth {
		c.overrun = true
		close(c.done)
		var victims []User
		for q := range c.qps {
			victims = append(victims, q)
		}
		c.mu.Unlock()
		go func() {
			for _, q := range victims {
				q.Overrun(fmt.Errorf("%w: depth %d", rdma.ErrCQOverrun, c.depth))
			}
		}()
		return
	}
	for int(c.tail-c.head)+len(wcs) > len(c.ring) {
		c.grow()
	}
	mask := uint64(len(c.ring) - 1)
	for i := range wcs {
		c.ring[c.tail&mask] = wcs[i]
		c.tail++
	}
	c.queued.Store(int64(c.tail - c.head))
	wake := c.armed
	c.armed = false
	c.mu.Unlock()
	if wake {
		select {
		case c.events <- struct{}{}:
		default: // 65536 events wait: the next Wait finds one <~ default:
		}
	}
}

// grow doubles the ring.
func (c *CQ) grow() {
	old := c.ring
	c.ring = make([]rdma.WC, max(16, 2*len(old)))
	for i := c.head; i != c.tail; i++ {
		c.ring[i&uint64(len(c.ring)-1)] = old[i&uint64(len(old)-1)]
	}
}

// Queued reports whether there are completions to take.
func (c *CQ) Queued() bool { return c.queued.Load() != 0 }

// Dead reports whether the CQ was closed or overrun: Take says which.
func (c *CQ) Dead() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// Take moves up to len(wcs) completions from the ring to wcs.
func (c *CQ) Take(wcs []rdma.WC) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return 0, fmt.Errorf("%w: completion queue", rdma.ErrClosed)
	}
	if c.overrun {
		return 0, rdma.ErrCQOverrun
	}
	n := 0
	mask := uint64(len(c.ring) - 1)
	for n < len(wcs) && c.head != c.tail {
		wcs[n] = c.ring[c.head&mask]
		c.head++
		n++
	}
	c.queued.Store(int64(c.tail - c.head))
	return n, nil
}

// Arm asks for one event at the next completion.
func (c *CQ) Arm() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return fmt.Errorf("%w: completion queue", rdma.ErrClosed)
	}
	if c.overrun {
		return rdma.ErrCQOverrun
	}
	c.armed = true
	return nil
}

// Wait parks until an armed event has come.
func (c *CQ) Wait(ctx context.Context) error {
	select {
	case <-c.events:
		return nil
	default:
	}
	select {
	case <-c.events:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-c.done:
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.closed {
			return fmt.Errorf("%w: completion queue", rdma.ErrClosed)
		}
		return rdma.ErrCQOverrun
	}
}

// Close fails with ErrBusy while QPs use the CQ.
func (c *CQ) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	if len(c.qps) > 0 {
		return fmt.Errorf("%w: completion queue has %d QPs", rdma.ErrBusy, len(c.qps))
	}
	c.closed = true
	if !c.overrun {
		close(c.done)
	}
	c.ring, c.head, c.tail = nil, 0, 0
	c.queued.Store(0)
	c.dev.cqs.Drop()
	c.dev.Unuse()
	return nil
}
