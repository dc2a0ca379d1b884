package sim

import (
	"fmt"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
)

// READs into prepared sinks, and polls that look for a while. Who polls sleeps between
// two looks, so that in a bubble time passes; what the network does to READs it does to
// these too: they are torn, late, lost, and their sinks fill piece by piece.

// PrepareSinks makes the sinks of the QP.
func (q *qp) PrepareSinks(sinks []rdma.SGE) error {
	n := q.net
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case !q.pd.dev.attr.Caps.Has(rdma.CapSpinRead):
		return fmt.Errorf("%w: prepared READs", rdma.ErrNotSupported)
	case q.gone:
		return fmt.Errorf("%w: the queue pair was closed", rdma.ErrNotConnected)
	case len(sinks) == 0 || q.sinks != nil:
		return fmt.Errorf("%w: %d sinks on a queue pair with %d", rdma.ErrInvalid, len(sinks), len(q.sinks))
	}
	for i := range sinks {
		l, err := makeSGL(sinks[i:i+1], 1)
		if err == nil && (l.total == 0 || !l.good(q.pd, rdma.AccessLocalWrite)) {
			err = fmt.Errorf("%w: no region to write to", rdma.ErrInvalid)
		}
		if err != nil {
			return fmt.Errorf("sink %d: %w", i, err)
		}
	}
	q.sinks = append(q.sinks, sinks...)
	return nil
}

// ReadSpin posts a READ into a sink and polls for it.
func (q *qp) ReadSpin(sink int, id uint64, remote rdma.RemoteAddr, n uint32, wcs []rdma.WC, d time.Duration) rdma.SpinResult {
	net := q.net
	net.mu.Lock()
	defer net.mu.Unlock()
	if uint(sink) >= uint(len(q.sinks)) || n == 0 || n > q.sinks[sink].Len || id == 0 || len(wcs) == 0 ||
		q.state != rdma.QPRTS || q.pd.dev.life.paused || q.sendCQ.usable() != nil {
		return rdma.SpinResult{}
	}
	to := q.sinks[sink]
	to.Len = n
	wr := rdma.SendWR{ID: id, Op: rdma.OpRDMARead, Flags: rdma.SendSignaled, SGL: []rdma.SGE{to}, Remote: remote}
	if to.MR.(*mr).closed || q.post(&wr) != nil {
		return rdma.SpinResult{}
	}
	net.counts.SinkReads++
	q.launch()
	net.turn()
	return q.sendCQ.spinFor(id, wcs, d)
}

// AwaitSpin polls for a READ that is pending.
func (q *qp) AwaitSpin(_ int, id uint64, wcs []rdma.WC, d time.Duration) rdma.SpinResult {
	q.net.mu.Lock()
	defer q.net.mu.Unlock()
	return q.sendCQ.spinFor(id, wcs, d)
}

// spinFor looks for the READ under id until any completion is there, for up to d. The
// caller holds mu, which is let go between two looks.
func (c *cq) spinFor(id uint64, wcs []rdma.WC, d time.Duration) (r rdma.SpinResult) {
	r.State = rdma.SpinPending
	c.look(d, func() bool {
		if c.usable() != nil {
			return true
		}
		var all [1]rdma.WC
		for r.State == rdma.SpinPending && r.Others < len(wcs) && c.take(all[:]) == 1 {
			if all[0].ID == id {
				r.State, r.Status, r.Polled = rdma.SpinDone, all[0].Status, all[0].Polled
				break
			}
			wcs[r.Others] = all[0]
			r.Others++
		}
		return r.State == rdma.SpinDone || r.Others > 0
	})
	if r.State == rdma.SpinPending {
		c.dev.net.counts.SinksPending++
	}
	return r
}

// looks is how often a poll that goes on for a while looks.
const looks = 8

// look calls found again and again for up to d, until it reports true. The caller holds
// mu.
func (c *cq) look(d time.Duration, found func() bool) {
	n := c.dev.net
	for range looks {
		if found() || d <= 0 {
			return
		}
		n.mu.Unlock()
		time.Sleep(d / looks)
		n.mu.Lock()
	}
	found()
}

// Spin is Poll that looks for up to d.
func (c *cq) Spin(wcs []rdma.WC, d time.Duration) (k int, err error) {
	c.dev.net.mu.Lock()
	defer c.dev.net.mu.Unlock()
	c.look(d, func() bool {
		if err = c.usable(); err == nil {
			k = c.take(wcs)
		}
		return k > 0 || err != nil
	})
	return k, err
}

// DefaultSpin: nobody spins here unless it is asked for.
func (c *cq) DefaultSpin() time.Duration { return 0 }

var (
	_ rdma.SpinReader  = (*qp)(nil)
	_ rdma.Spinner     = (*cq)(nil)
	_ rdma.SpinAdviser = (*cq)(nil)
)
