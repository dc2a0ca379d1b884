package iwarp

import (
	"runtime"
	"syscall"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
)

// Who reads the socket. The reader goroutine sleeps in the netpoller and reads
// when it is woken. To be woken takes several times as long as a round trip on
// the loopback, so somebody who has nothing better to do may look himself,
// without waiting: a waiter, through CQ.Spin, at the connections of its CQ, and
// the reader, when it has just answered a READ and expects another. Whoever
// holds QP.rxMu is the receiver; there is one at a time.
//
// While somebody looks, every arrival would still wake the reader, in vain and
// at the cost of the processor that the peer may need. So the connection is
// hushed: SO_RCVLOWAT is raised, and the kernel announces less than that to
// nobody (but an end or an error of the connection it does announce). Whoever
// stops looking lowers it again, which announces what is there by then. A waiter
// that has got what it wanted leaves the connection hushed, because it is likely
// to come back; if it does not within keepEvery, the keeper lowers it.

const (
	// hushBytes is the mark while somebody looks: more than that is in the
	// socket only if he cannot keep up.
	hushBytes = 1 << 20
	// keepEvery is for how long at most bytes can lie in a hushed socket at
	// which nobody looks, and half of that at least.
	keepEvery = 2 * time.Millisecond
	// lookQPs is how many connections a CQ may have for Spin to look at them:
	// each look is a system call, and with many of them the netpoller is better.
	lookQPs = 4
	// clockTurns is how many looks pay for one at the clock.
	clockTurns = 4
	// lookOwed is a large READ, or many: they take longer to make and to move than
	// a peer takes to answer at all. Each counts as owedEach bytes more.
	lookOwed = 4 << 10
	owedEach = 512
	// lookMax bounds one call of Spin.
	lookMax = time.Millisecond
)

// Spin is Poll that looks into the sockets of the CQ's connections itself, for
// up to d. Large READs and many are given more time: while they are under way, and
// once bytes have come, it goes on until none do for a while, or lookMax is over. With more than lookQPs of them, or inside TLS, it only polls.
func (c *cq) Spin(wcs []rdma.WC, d time.Duration) (int, error) {
	if n, err := c.Poll(wcs); n > 0 || err != nil {
		return n, err
	}
	list := c.looked.Load()
	if list == nil || len(*list) == 0 {
		return 0, nil
	}
	for _, q := range *list {
		if q.owed.Load() >= lookOwed {
			d = max(d, rdma.DefaultSpin)
		}
	}
	begun := time.Now()
	last := begun
	for turn := 1; ; turn++ {
		able, came := false, false
		for _, q := range *list {
			switch q.look(true) {
			case lookCame:
				able, came = true, true
			case lookEmpty:
				able = true
			}
		}
		// Poll also tells of a CQ that has died.
		if c.queued.Load() != 0 || !able {
			return c.Poll(wcs)
		}
		if !came && turn%clockTurns != 0 {
			continue
		}
		now := time.Now()
		if came {
			// The rest of a response is on its way.
			last, d = now, max(d, rdma.DefaultSpin)
		}
		if now.Sub(last) >= d || now.Sub(begun) >= lookMax {
			return c.Poll(wcs)
		}
	}
}

var _ rdma.Spinner = (*cq)(nil)

// Outcomes of look.
const (
	lookUseless = iota // there is no use in looking again
	lookEmpty          // nothing, or somebody else looks
	lookCame           // there was something
)

// look takes what the socket has, unless somebody else does. hush says that the
// caller will look again.
func (q *qp) look(hush bool) int {
	if !q.lookable.Load() {
		return lookUseless
	}
	if q.rings.Load() {
		// Those whose requests were completed in the last round are about to
		// post the next ones: let them, so that they travel together.
		if hush {
			runtime.Gosched()
		}
		q.ring()
	}
	if !q.rxMu.TryLock() {
		return lookEmpty
	}
	defer q.rxMu.Unlock()
	if q.rx.ended {
		return lookUseless
	}
	var outcome int
	if hush && q.hush() {
		q.rx.looks++
		outcome = q.glance()
	} else {
		q.unhush()
		outcome = q.drain()
	}
	switch outcome {
	case drainEnd:
		q.endLook()
		return lookUseless
	case drainSome:
		return lookCame
	}
	return lookEmpty
}

// ring sends what was posted since a round that completed many requests at once.
func (q *qp) ring() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.rings.Load() {
		q.rings.Store(false)
		q.ringing = false
		q.kick()
	}
}

// endLook makes the reader goroutine end a connection of which somebody else has
// found the end. Under rxMu.
func (q *qp) endLook() {
	q.rx.ended = true
	q.lookable.Store(false)
	_ = q.conn.SetReadDeadline(time.Unix(1, 0))
}

// stopLooks ends all looking: the reader goroutine, who calls it, has ended.
func (q *qp) stopLooks() {
	q.rxMu.Lock()
	defer q.rxMu.Unlock()
	q.rx.ended = true
	q.lookable.Store(false)
	q.hushed.Store(false)
	q.pd.dev.keeper.drop(q)
	if q.rx.noted {
		q.pd.dev.spins.drop(q.rx.budget)
	}
	if q.rx.buf != nil {
		q.dropBuffer()
	}
}

// Outcomes of drain.
const (
	drainEmpty = iota // the socket has no more
	drainSome         // it had something
	drainEnd          // the connection has no more
)

// drain reads until the socket is empty and does what the bytes say. Under rxMu.
func (q *qp) drain() int {
	rx := &q.rx
	for {
		n, more, err := q.fetch(true)
		switch {
		case err == syscall.EINTR:
			continue
		case err == syscall.EAGAIN:
			more = false
		case q.took(n, err) == drainEnd:
			return drainEnd
		}
		if !more {
			if rx.start == rx.end && !q.hushed.Load() {
				q.dropBuffer()
			}
			return drainEmpty
		}
	}
}

// glance reads once, for who looks again soon: what it leaves in the socket is
// announced to nobody. Under rxMu.
func (q *qp) glance() int {
	n, _, err := q.fetch(false)
	if err == syscall.EAGAIN || err == syscall.EINTR {
		return drainEmpty
	}
	return q.took(n, err)
}

// fetch reads once, to where the next bytes belong. more is valid if it was
// asked for.
func (q *qp) fetch(more bool) (int, bool, error) {
	if q.rx.direct.left > 0 {
		if n, more, err, ok := q.readDirect(); ok {
			return n, more, err
		}
	}
	b := q.space()
	if more {
		n, more, err := q.rx.sock.read(q.fd, b)
		q.rx.end += max(n, 0)
		return n, more, err
	}
	n, err := q.rx.sock.glance(q.fd, b)
	q.rx.end += max(n, 0)
	return n, false, err
}

// space is where the next bytes of the stream go that have no other place.
func (q *qp) space() []byte {
	rx := &q.rx
	if rx.buf == nil {
		rx.buf = rxPool.Get().(*rxBuffer)
		rx.start, rx.end = 0, 0
	}
	return rx.buf.b[rx.end:]
}

// took does what the n bytes say that fetch has brought.
func (q *qp) took(n int, err error) int {
	switch {
	case err != nil:
		q.fail(lost("read", err))
		return drainEnd
	case n == 0:
		q.fail(lost("read", nil))
		return drainEnd
	case q.rx.direct.left > 0:
		return drainSome // nothing for a round yet
	}
	if !q.round() {
		return drainEnd
	}
	return drainSome
}

// hush raises the mark below which the kernel announces nothing; false: it
// cannot. Under rxMu.
func (q *qp) hush() bool {
	if q.hushed.Load() {
		return true
	}
	if !setLowat(q.fd, hushBytes) {
		return false
	}
	q.hushed.Store(true)
	q.pd.dev.keeper.add(q)
	return true
}

// unhush lowers it; what has come meanwhile is announced now. Under rxMu.
func (q *qp) unhush() {
	if !q.hushed.Load() {
		return
	}
	q.hushed.Store(false)
	if !q.rx.ended {
		setLowat(q.fd, 1)
	}
}
