package iwarp

import (
	"sync/atomic"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/boottime"
	"github.com/rdmakv/rdmakv/rdma/internal/soft"
)

// A cq is a completion queue; Spin looks into the sockets of its connections.
type cq struct {
	soft.CQ
	// looked are its QPs, if there are few of them.
	looked atomic.Pointer[[]*qp]
}

// CreateCQ creates a completion queue.
func (d *device) CreateCQ(depth int) (rdma.CQ, error) {
	c := new(cq)
	c.OnUsers = c.listQPs
	if err := c.Init(&d.Device, depth); err != nil {
		return nil, err
	}
	return c, nil
}

// listQPs renews looked. It keeps no list longer than lookQPs, because Spin would not
// use it.
func (c *cq) listQPs(users map[soft.User]int) {
	var list []*qp
	if len(users) <= lookQPs {
		for q := range users {
			list = append(list, q.(*qp))
		}
	}
	c.looked.Store(&list)
}

// Poll takes up to len(wcs) completions, without waiting.
func (c *cq) Poll(wcs []rdma.WC) (int, error) {
	if !c.Queued() && !c.Dead() {
		return 0, nil
	}
	n, err := c.Take(wcs)
	stamp(wcs[:n])
	return n, err
}

// stamp notes the time of the poll if READs have come: the program may need it for a
// lease, and one reading serves all that came together.
func stamp(wcs []rdma.WC) {
	for i := range wcs {
		if wcs[i].Op == rdma.OpRDMARead {
			now := boottime.Nanos()
			for j := range wcs {
				wcs[j].Polled = now
			}
			return
		}
	}
}

// Arm asks for one event at the next completion. A program that arms the CQ is about
// to sleep, so the CQ stops looking into sockets.
func (c *cq) Arm() error {
	if list := c.looked.Load(); list != nil {
		for _, q := range *list {
			if q.look.muted.Load() || q.tx.rings.Load() {
				q.look.take(false)
			}
		}
	}
	return c.CQ.Arm()
}
