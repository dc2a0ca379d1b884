package wait

import (
	"runtime"

	"github.com/rdmakv/rdmakv/rdma"
)

// PostSend is qp.PostSend for work that ends with op, for a caller that waits for op
// right after it and posts nothing in between. If op is the only one in use, no
// goroutine leads, and QP and CQ can do it (rdma.SpinPoster), PostSend posts and
// looks for the completion in one call; Wait then mostly finds op done.
//
// PostSend delivers what completes meanwhile, so the caller must hold no lock that
// the functions of OnRecv or OnDetached take.
func (d *Dispatcher) PostSend(qp rdma.QP, wrs []rdma.SendWR, op *Op) (int, error) {
	p, can := qp.(rdma.SpinPoster)
	if !can || d.opt.Spin <= 0 || d.ops.inUse.Load() > 1 || !d.tryLead() {
		return qp.PostSend(wrs)
	}
	n, err := d.postSpin(p, wrs, op)
	rest := d.pace.restDue()
	d.leave()
	if rest {
		runtime.Gosched()
	}
	return n, err
}

// postSpin is PostSend of a leader.
func (d *Dispatcher) postSpin(p rdma.SpinPoster, wrs []rdma.SendWR, op *Op) (int, error) {
	w := d.pace.begin(op)
	slice := min(w.budget, postSlice)
	n, got, err := p.PostSendSpin(wrs, d.cq, d.wcs, slice)
	d.deliver(got, op)
	if w.state == waitOver {
		return n, err // this wait is not to spin
	}
	if op.Finished() {
		w.ends(true)
		return n, err
	}
	// Wait goes on spinning for what is left of the time.
	w.ends(false)
	if n == len(wrs) {
		if !w.timed {
			w.start()
			if got == 0 {
				w.begun -= int64(slice)
			}
		}
		d.pace.spunFor, d.pace.spunSince = op.ID(), w.begun
	}
	return n, err
}

// tryLead takes the lead if it is free.
func (d *Dispatcher) tryLead() bool {
	d.mu.Lock()
	free := d.cause == nil && !d.leading
	if free {
		d.leading = true
	}
	d.mu.Unlock()
	return free
}
