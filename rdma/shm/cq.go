//go:build linux

package shm

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/internal/soft"
)

// A cq is a completion queue; a goroutine that polls it serves the rings of its
// connections.
type cq struct {
	soft.CQ

	ringsMu sync.Mutex
	// rings are the connections whose rings Poll looks into; copied on change,
	// under ringsMu.
	rings atomic.Pointer[[]*qp]
}

// maxRings bounds what one Poll looks at. Connections beyond it are served by
// their own goroutines, which their peers wake.
const maxRings = 16

// CreateCQ creates a completion queue.
func (d *device) CreateCQ(depth int) (rdma.CQ, error) {
	c := new(cq)
	if err := c.Init(&d.Device, depth); err != nil {
		return nil, err
	}
	return c, nil
}

// cqs are the completion queues of a connection, which may be one.
func (q *qp) cqs() [2]*cq { return [2]*cq{q.Config.SendCQ.(*cq), q.Config.RecvCQ.(*cq)} }

// look serves the rings of the connections; true if a completion is queued.
func (c *cq) look() bool {
	if rings := c.rings.Load(); rings != nil {
		for _, q := range *rings {
			q.rx.glance()
		}
	}
	return c.Queued()
}

// watch adds a connection to those that Poll looks at, if there is room.
func (c *cq) watch(q *qp) {
	c.ringsMu.Lock()
	defer c.ringsMu.Unlock()
	var list []*qp
	if old := c.rings.Load(); old != nil {
		list = *old
	}
	if len(list) < maxRings && !slices.Contains(list, q) {
		list = append(slices.Clone(list), q)
		c.rings.Store(&list)
	}
}

// unwatch takes it out.
func (c *cq) unwatch(q *qp) {
	c.ringsMu.Lock()
	defer c.ringsMu.Unlock()
	if old := c.rings.Load(); old != nil {
		list := slices.DeleteFunc(slices.Clone(*old), func(o *qp) bool { return o == q })
		c.rings.Store(&list)
	}
}

// Poll takes up to len(wcs) completions, without waiting.
func (c *cq) Poll(wcs []rdma.WC) (int, error) {
	if !c.Queued() && !c.look() && !c.Dead() {
		return 0, nil
	}
	return c.Take(wcs)
}
