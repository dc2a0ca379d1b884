package sim

import (
	"context"
	"fmt"

	"github.com/rdmakv/rdmakv/rdma"
)

// A cq is a queue of completions and a channel of events, guarded by
// Network.mu.
type cq struct {
	dev     *device
	depth   int
	list    []entry
	armed   bool
	overrun bool
	closed  bool
	missed  bool        // an event was due while the program was paused
	qps     map[*qp]int // users, and how often: as send and as receive CQ

	// events has one token for each event that was raised and that no Wait has
	// taken; its elements have no size, so the capacity costs nothing.
	events chan struct{}
	done   chan struct{} // closed by Close and by an overrun
}

// An entry is a completion and the QP that it belongs to.
type entry struct {
	q  *qp
	wc rdma.WC
}

func newCQ(d *device, depth int) *cq {
	return &cq{dev: d, depth: depth, qps: make(map[*qp]int), events: make(chan struct{}, 1<<16), done: make(chan struct{})}
}

func (c *cq) usable() error {
	switch {
	case c.closed:
		return fmt.Errorf("%w: completion queue", rdma.ErrClosed)
	case c.overrun:
		return rdma.ErrCQOverrun
	}
	return nil
}

// push adds a completion and raises an event if Arm has asked for one. When the
// depth is passed the CQ dies, and its QPs with it.
func (c *cq) push(q *qp, wc rdma.WC) {
	if c.closed || c.overrun {
		return
	}
	if len(c.list) >= c.depth {
		c.overrun = true
		close(c.done)
		c.dev.net.logf("%s: completion queue of %d overrun", c.dev.life.host.name, c.depth)
		c.dev.net.after(0, func() {
			for q := range c.qps {
				q.fail(cause{err: fmt.Errorf("%w: depth %d", rdma.ErrCQOverrun, c.depth)})
			}
		})
		return
	}
	c.list = append(c.list, entry{q, wc})
	if !c.armed {
		return
	}
	c.armed = false
	if c.dev.life.paused && q.state != rdma.QPError {
		c.missed = true
		return
	}
	c.raise()
}

func (c *cq) raise() {
	select {
	case c.events <- struct{}{}:
	default: // 65536 events wait: the next Wait finds one
	}
}

// signal raises the event that came during a pause. If a poll then found
// nothing, its event is due again, too.
func (c *cq) signal() {
	if c.missed || len(c.list) > 0 {
		c.missed = false
		c.raise()
	}
}

// Poll takes up to len(wcs) completions, without waiting.
func (c *cq) Poll(wcs []rdma.WC) (int, error) {
	c.dev.net.mu.Lock()
	defer c.dev.net.mu.Unlock()
	if err := c.usable(); err != nil {
		return 0, err
	}
	return c.take(wcs), nil
}

// take moves completions to wcs. The caller holds mu.
func (c *cq) take(wcs []rdma.WC) (k int) {
	kept := c.list[:0]
	for _, e := range c.list {
		// A paused program gets nothing, except what is left of connections
		// that it ended: they are gone for it, and it cannot tell the
		// difference.
		if k == len(wcs) || c.dev.life.paused && e.q.state != rdma.QPError {
			kept = append(kept, e)
			continue
		}
		wcs[k] = e.wc
		k++
	}
	clear(c.list[len(kept):])
	c.list = kept
	return k
}

// Arm asks for one event at the next completion.
func (c *cq) Arm() error {
	c.dev.net.mu.Lock()
	defer c.dev.net.mu.Unlock()
	if err := c.usable(); err != nil {
		return err
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
		c.dev.net.mu.Lock()
		defer c.dev.net.mu.Unlock()
		return c.usable()
	}
}

// Close fails with ErrBusy while QPs use the CQ.
func (c *cq) Close() error {
	n := c.dev.net
	n.mu.Lock()
	defer n.mu.Unlock()
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
	c.list = nil
	delete(c.dev.cqs, c)
	c.dev.users--
	return nil
}
