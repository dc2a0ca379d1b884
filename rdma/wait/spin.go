package wait

import (
	"runtime"
	"time"
)

const (
	// spinSlice bounds one call of Spin: for that long the leader sees neither its
	// context nor a reply that another goroutine has handed in.
	spinSlice = 5 * time.Microsecond
	// postSlice is the same for PostSendSpin. It is long, because no other goroutine
	// has work under way.
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

// A pace is what the leaders of a dispatcher know about their time: for how long
// waits spin, and when it is time to let others run. Only the leader uses it;
// passing the lead on, under Dispatcher.mu, passes the pace on with it.
type pace struct {
	born time.Time // what nanos counts from
	// work and reply say how long waits for work requests and for replies spin:
	// replies take as long as the peer does.
	work, reply *SpinBudget
	// spunFor is the ID of the op whose PostSend has spun, spunSince since when.
	spunFor   uint64
	spunSince int64
	// polled is WC.Polled of the last completion, rested that of the completion at
	// which the leader last rested. delivered counts completions since it rested; it
	// is used where polled is 0.
	polled, rested int64
	delivered      uint64
}

func newPace(mode Mode, spin time.Duration) pace {
	return pace{born: time.Now(), work: NewSpinBudget(mode, spin), reply: NewSpinBudget(mode, spin)}
}

// A wait is one wait of a leader: for how long it has spun, and whether it goes on.
// Only the leader calls its methods.
type wait struct {
	p      *pace
	b      *SpinBudget // nil: the background poller, which never spins
	budget time.Duration
	state  waitState
	// begun is when the wait began, as pace.nanos; valid if timed. The first look
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
func (p *pace) begin(op *Op) wait {
	w := wait{p: p}
	if op == nil {
		return w
	}
	w.b = p.budgetOf(op)
	if w.budget = w.b.Next(); w.budget > 0 {
		w.state = waitFresh
		switch {
		case p.spunFor == op.ID(): // PostSend has begun
			w.state, w.begun, w.timed = waitSpins, p.spunSince, true
		case w.b.Timed():
			w.start()
		}
	}
	return w
}

// budgetOf is the budget by kind of op.
func (p *pace) budgetOf(op *Op) *SpinBudget {
	if op.isReply() {
		return p.reply
	}
	return p.work
}

// nanos is the dispatcher's clock.
func (p *pace) nanos() int64 { return int64(time.Since(p.born)) }

func (w *wait) start() { w.begun, w.timed = w.p.nanos(), true }

// left is how long the next look may spin.
func (w *wait) left() time.Duration {
	switch w.state {
	case waitFresh:
		return w.budget
	case waitSpins:
		spent := time.Duration(w.p.nanos() - w.begun)
		if spent < w.budget {
			return w.budget - spent
		}
		w.state = waitOver
		w.b.Vain(spent)
	}
	return 0
}

// looked is told what a look that was allowed to spin for up to d has found.
// Completions for others count too: while completions come, looking is work.
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
		runtime.Gosched() // lets the goroutine run that makes the completion
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
		w.b.Got(time.Duration(w.p.nanos() - w.begun))
	case w.state != waitOver:
		w.b.Got(-1)
	case w.slept && done && w.timed:
		w.b.Slept(time.Duration(w.p.nanos() - w.begun))
	}
	w.state = waitOver
}

// A wait that finds its completion by spinning does not give up the processor. If a
// goroutine keeps one for 10 ms, the runtime's monitor takes it away in the middle
// of each longer call into C, and keeps a core busy itself by doing so. The leader
// avoids that by letting others run earlier: every restAfter, or every restCount
// completions if those do not say when they were polled.
const (
	restAfter = 4 * time.Millisecond
	restCount = 256
)

// saw notes n completions, the last of which was polled at that time (WC.Polled).
func (p *pace) saw(n int, polled int64) {
	p.polled = polled
	p.delivered += uint64(n)
}

// restDue reports whether it is time for the leader to let others run.
func (p *pace) restDue() bool {
	if p.polled != 0 {
		if p.polled-p.rested < int64(restAfter) {
			return false
		}
		p.rested = p.polled
		return true
	}
	if p.delivered < restCount {
		return false
	}
	p.delivered = 0
	return true
}
