package rdma

import "time"

// A Spinner is a CQ that can poll for a while by itself. On hardware a call of
// ibv_poll_cq(3) is cheaper than the way from Go to C and back, so a leader that
// spins makes one call for some microseconds of polling instead of one call for
// each look. A CQ that reaches its queue without leaving Go is no Spinner.
type Spinner interface {
	// Spin is CQ.Poll, but that it goes on looking for up to d while the queue
	// is empty; then it returns 0 and no error. It may return earlier. Nobody
	// else polls the queue meanwhile. Safe for concurrent use with everything
	// but itself and Poll.
	Spin(wcs []WC, d time.Duration) (n int, err error)
}

// spinSlice bounds one call of Spin: for that long the leader sees neither its
// context nor a reply that another goroutine has handed in.
const spinSlice = 5 * time.Microsecond

// look polls once or, if the leader may spin for a while yet and the CQ can do
// that by itself, for one slice of that while.
func (d *Dispatcher) look(spin time.Duration) (int, error) {
	if spin <= 0 || d.spinner == nil {
		return d.cq.Poll(d.wcs)
	}
	return d.spinner.Spin(d.wcs, min(spin, spinSlice))
}
