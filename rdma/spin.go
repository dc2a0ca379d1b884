package rdma

import (
	"runtime"
	"time"
)

// A Spinner is a CQ that can poll for a while by itself. On hardware a call of
// ibv_poll_cq(3) is cheaper than the way from Go to C and back, so a leader that
// spins makes one call for some microseconds of polling instead of one call for
// each look. A CQ that reaches its queue without leaving Go is no Spinner.
//
// A fabric that is done in software may be one too: then Spin does the fabric's
// work in the calling goroutine, reads its sockets say, instead of waiting for
// another goroutine to get a processor.
type Spinner interface {
	// Spin is CQ.Poll, but that it goes on looking for up to d while the queue
	// is empty; then it returns 0 and no error. It may return earlier. Nobody
	// else polls the queue meanwhile. Safe for concurrent use with everything
	// but itself and Poll.
	Spin(wcs []WC, d time.Duration) (n int, err error)
}

// A SpinPoster is a QP that can post and then poll a CQ within one call, for the
// same reason.
type SpinPoster interface {
	// PostSendSpin is QP.PostSend and, if all of wrs were taken, Spinner.Spin of
	// cq, the QP's own, for up to d. posted and err are those of the post; a CQ
	// that is out of order is found by the next poll. A fabric that cannot do
	// both at this moment posts and returns polled 0. Like Spin it is for one
	// goroutine at a time: the one that polls.
	PostSendSpin(wrs []SendWR, cq CQ, wcs []WC, d time.Duration) (posted, polled int, err error)
}

const (
	// spinSlice bounds one call of Spin: for that long the leader sees neither its
	// context nor a reply that another goroutine has handed in.
	spinSlice = 5 * time.Microsecond
	// postSlice is the same for PostSendSpin. It is long, for nobody else has
	// work under way.
	postSlice = 50 * time.Microsecond
)

// look polls once or, if the leader may spin for a while yet and the CQ can do
// that by itself, for one slice of that while.
func (d *Dispatcher) look(spin time.Duration) (int, error) {
	if spin <= 0 || d.spinner == nil {
		return d.cq.Poll(d.wcs)
	}
	return d.spinner.Spin(d.wcs, min(spin, spinSlice))
}

// SpinTime is the longest spin of one wait on a CQ, given what was asked for:
// below 0 is none, 0 what suits the CQ. One that is no Spinner belongs to a
// fabric whose own goroutines need the processor: it is not polled in a loop
// unless somebody asks. A Spinner may know a time for itself.
func SpinTime(cq CQ, mode WaitMode, asked time.Duration) time.Duration {
	s, can := cq.(Spinner)
	switch {
	case asked != 0:
		return max(asked, 0)
	case !can:
		return 0
	case mode == WaitPoll:
		return MaxSpin
	}
	if knows, ok := s.(interface{ DefaultSpin() time.Duration }); ok {
		return knows.DefaultSpin()
	}
	return DefaultSpin
}

// A wait is what a leader does about its time. Its methods are the leader's.
type wait struct {
	d      *Dispatcher
	b      *SpinBudget // nil: the background poller, which never spins
	budget time.Duration
	state  waitState
	// begun is when the wait began, as d.nanos; valid if timed. The first look
	// of most waits needs no clock: on a fast path the completion is there by
	// the time that one would have been read.
	begun int64
	timed bool
	slept bool
}

type waitState uint8

const (
	waitOver  waitState = iota // no more spinning
	waitFresh                  // not looked yet
	waitSpins
)

// begin starts the wait for op.
func (d *Dispatcher) begin(op *Op) wait {
	w := wait{d: d}
	if op == nil {
		return w
	}
	w.b = d.budgetOf(op)
	if w.budget = w.b.Next(); w.budget > 0 {
		w.state = waitFresh
		switch {
		case d.spunFor == op.ID(): // PostSend has begun
			w.state, w.begun, w.timed = waitSpins, d.spunSince, true
		case w.b.Timed():
			w.start()
		}
	}
	return w
}

// budgetOf is the budget by kind of op: replies take as long as the peer does.
func (d *Dispatcher) budgetOf(op *Op) *SpinBudget {
	if op.isReply() {
		return d.replySpin
	}
	return d.workSpin
}

// nanos is the dispatcher's clock.
func (d *Dispatcher) nanos() int64 { return int64(time.Since(d.born)) }

func (w *wait) start() { w.begun, w.timed = w.d.nanos(), true }

// left is how long the next look may spin.
func (w *wait) left() time.Duration {
	switch w.state {
	case waitFresh:
		return w.budget
	case waitSpins:
		spent := time.Duration(w.d.nanos() - w.begun)
		if spent < w.budget {
			return w.budget - spent
		}
		w.state = waitOver
		w.b.Vain(spent)
	}
	return 0
}

// looked is told what a look that was allowed to spin for up to d has found.
// What others wait for counts too: while completions come, looking is work.
func (w *wait) looked(n int, d time.Duration) {
	switch {
	case w.state == waitOver:
	case !w.timed:
		w.start()
		if n == 0 {
			w.begun -= int64(d)
		}
	case n > 0:
		w.start()
	}
	if w.state == waitFresh {
		w.state = waitSpins
	}
	if w.state == waitSpins && n == 0 {
		runtime.Gosched() // to who makes the answer that is waited for
	}
}

// sleeps is called before the leader parks.
func (w *wait) sleeps() {
	if w.b != nil && w.b.Adaptive() && !w.timed {
		w.start()
	}
	w.slept = true
}

// ends is the end of the wait; done says that op is.
func (w *wait) ends(done bool) {
	switch {
	case w.b == nil:
	case w.state != waitOver && !done:
		w.b.Quit()
	case w.state != waitOver && w.timed:
		w.b.Got(time.Duration(w.d.nanos() - w.begun))
	case w.state != waitOver:
		w.b.Got(-1)
	case w.slept && done && w.timed:
		w.b.Slept(time.Duration(w.d.nanos() - w.begun))
	}
	w.state = waitOver
}

// Waits that find what they wait for by spinning never leave the processor by
// themselves. A goroutine that has kept one for 10 ms loses it in the middle of
// each longer call into C, by the runtime's monitor, which then keeps a core
// busy itself. So the leader makes room before that, as often as it needs to:
// every restAfter, or every restCount completions where those do not say when
// they were polled.
const (
	restAfter = 4 * time.Millisecond
	restCount = 256
)

// restDue reports whether it is time for the leader to let others run.
func (d *Dispatcher) restDue() bool {
	if d.polled != 0 {
		if d.polled-d.rested < int64(restAfter) {
			return false
		}
		d.rested = d.polled
		return true
	}
	if d.delivered < restCount {
		return false
	}
	d.delivered = 0
	return true
}
