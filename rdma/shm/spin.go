//go:build linux

package shm

import (
	"time"

	"github.com/rdmakv/rdmakv/rdma"
)

// looksPerClock is how many looks at the rings come between two at the clock.
const looksPerClock = 8

// defaultSpin is how long a wait for a peer that is awake may take: some round
// trips, and the work between them.
const defaultSpin = 50 * time.Microsecond

// DefaultSpin is the longest spin that costs less than sleeping on this fabric: a
// sleep costs two system calls, one at each end, and a wake-up by the scheduler.
func (c *cq) DefaultSpin() time.Duration { return defaultSpin }

// Spin implements rdma.Spinner. While it looks, the peers of the rings that it
// looks at send no wake-ups, because their words say so. When it ends, the
// rings sleep again, and it takes what came in between.
func (c *cq) Spin(wcs []rdma.WC, d time.Duration) (int, error) {
	n, err := c.Poll(wcs)
	if n > 0 || err != nil || d <= 0 {
		return n, err
	}
	rings := c.rings.Load()
	if rings == nil || len(*rings) == 0 {
		return 0, nil // nothing to look at: the goroutine that works for this CQ needs the processor
	}
	for _, q := range *rings {
		q.rx.claim()
	}
	end := time.Now().Add(d)
	for !c.spun() && time.Now().Before(end) {
	}
	for _, q := range *rings {
		q.rx.unclaim()
	}
	return c.Take(wcs)
}

// spun looks some times; true if there is something to take.
func (c *cq) spun() bool {
	for range looksPerClock {
		if c.look() {
			return true
		}
	}
	return c.Dead()
}

var _ rdma.Spinner = (*cq)(nil)
