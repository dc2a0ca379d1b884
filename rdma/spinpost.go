package rdma

import "runtime"

// PostSend is qp.PostSend for work that ends with op, for a caller who then
// waits for op at once: nothing else to post comes in between. If op is the only
// one under way and nobody leads, it posts and looks for the completion in one
// call, where QP and CQ can do that; Wait then mostly finds op done.
//
// What completes meanwhile is delivered: the caller holds no lock that OnRecv or
// OnDetached take.
func (d *Dispatcher) PostSend(qp QP, wrs []SendWR, op *Op) (int, error) {
	p, can := qp.(SpinPoster)
	if !can || d.opt.Spin <= 0 || d.ops.inUse.Load() > 1 || !d.tryLead() {
		return qp.PostSend(wrs)
	}
	n, err := d.postSpin(p, wrs, op)
	rest := d.restDue()
	d.leave()
	if rest {
		runtime.Gosched()
	}
	return n, err
}

// postSpin is PostSend of a leader.
func (d *Dispatcher) postSpin(p SpinPoster, wrs []SendWR, op *Op) (int, error) {
	w := d.begin(op)
	slice := min(w.budget, postSlice)
	n, got, err := p.PostSendSpin(wrs, d.cq, d.wcs, slice)
	d.deliver(got, op)
	if w.state == waitOver {
		return n, err // this wait is not to spin
	}
	if op.finished() {
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
		d.spunFor, d.spunSince = op.ID(), w.begun
	}
	return n, err
}

// tryLead takes the lead if it is free.
func (d *Dispatcher) tryLead() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.cause != nil || d.leading {
		return false
	}
	d.leading = true
	return true
}
