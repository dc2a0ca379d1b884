package iwarp

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/rdmakv/rdmakv/rdma"
)

// A cq is a ring of completions that grows to its depth, and a channel of
// events.
type cq struct {
	dev   *device
	depth int

	// queued is the number of completions in the ring, so that a spinning
	// poller need not take the lock to learn that there are none. Written
	// under mu.
	queued atomic.Int64
	// looked are the QPs of qps, for who does not hold mu.
	looked atomic.Pointer[[]*qp]

	mu      sync.Mutex
	ring    []rdma.WC // length a power of two
	head    uint64    // next to poll; tail-head == queued
	tail    uint64
	armed   bool
	overrun bool
	closed  bool
	qps     map[*qp]int // users, and how often: as send and as receive CQ

	// events carries one token for each event raised and not yet waited for.
	// Its elements have no size, so the capacity costs nothing.
	events chan struct{}
	done   chan struct{} // closed by Close and by an overrun
}

const cqMaxEvents = 1 << 16

func newCQ(d *device, depth int) *cq {
	return &cq{
		dev: d, depth: depth, qps: make(map[*qp]int),
		events: make(chan struct{}, cqMaxEvents), done: make(chan struct{}),
	}
}

// attach counts qp as a user.
func (c *cq) attach(q *qp) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return fmt.Errorf("%w: completion queue", rdma.ErrClosed)
	}
	if c.overrun {
		return rdma.ErrCQOverrun
	}
	c.qps[q]++
	c.listQPs()
	return nil
}

// listQPs renews looked. A long list is of no use to anybody. Under mu.
func (c *cq) listQPs() {
	var list []*qp
	if len(c.qps) <= lookQPs {
		list = slices.Collect(maps.Keys(c.qps))
	}
	c.looked.Store(&list)
}

func (c *cq) detach(q *qp) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.qps[q]--; c.qps[q] <= 0 {
		delete(c.qps, q)
	}
	c.listQPs()
}

// push adds completions and raises an event if one was asked for. When the
// depth is passed the CQ dies, and its QPs with it: on a goroutine of their
// own, because the caller may hold the lock of one of them.
func (c *cq) push(wcs ...rdma.WC) {
	c.mu.Lock()
	if c.closed || c.overrun || len(wcs) == 0 {
		c.mu.Unlock()
		return
	}
	if int(c.tail-c.head)+len(wcs) > c.depth {
		c.overrun = true
		close(c.done)
		var victims []*qp
		for q := range c.qps {
			victims = append(victims, q)
		}
		c.mu.Unlock()
		go func() {
			for _, q := range victims {
				q.fail(cause{err: fmt.Errorf("%w: depth %d", rdma.ErrCQOverrun, c.depth)})
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
		default: // 65536 events unwaited for: whoever waits finds one
		}
	}
}

// grow doubles the ring.
func (c *cq) grow() {
	old := c.ring
	c.ring = make([]rdma.WC, max(16, 2*len(old)))
	for i := c.head; i != c.tail; i++ {
		c.ring[i&uint64(len(c.ring)-1)] = old[i&uint64(len(old)-1)]
	}
}

// Poll takes up to len(wcs) completions, without waiting.
func (c *cq) Poll(wcs []rdma.WC) (int, error) {
	if c.queued.Load() == 0 {
		select {
		case <-c.done:
		default:
			return 0, nil
		}
	}
	n, err := c.take(wcs)
	stamp(wcs[:n])
	return n, err
}

// take moves completions from the ring to wcs.
func (c *cq) take(wcs []rdma.WC) (int, error) {
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

// stamp notes the time of the poll where READs have come: whoever waited for one
// wants it for his lease, and one system call serves all that came together.
func stamp(wcs []rdma.WC) {
	for i := range wcs {
		if wcs[i].Op == rdma.OpRDMARead {
			now := bootNanos()
			for j := range wcs {
				wcs[j].Polled = now
			}
			return
		}
	}
}

// Arm asks for one event at the next completion. Whoever does that is about to
// sleep and looks no more.
func (c *cq) Arm() error {
	if list := c.looked.Load(); list != nil {
		for _, q := range *list {
			if q.hushed.Load() || q.rings.Load() {
				q.look(false)
			}
		}
	}
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
func (c *cq) Wait(ctx context.Context) error {
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
func (c *cq) Close() error {
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
	c.dev.numCQ.drop()
	c.dev.unuse()
	return nil
}
