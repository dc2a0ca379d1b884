package iwarp

import (
	"runtime"
	"sync/atomic"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/wait"
)

// This file says which goroutine reads the socket. The reader goroutine sleeps in the
// netpoller and reads when it is woken. Waking it takes several times as long as a round
// trip on the loopback, so a goroutine that has nothing better to do may look into the
// socket itself, without waiting: a waiter, through CQ.Spin, at the connections of its
// CQ, and the reader, when it has just answered a READ and expects another. The
// goroutine that holds rx.mu is the receiver; there is one at a time.
//
// While one looks, every arrival would still wake the reader, in vain and at the cost of
// the processor that the peer may need. So the socket is muted: SO_RCVLOWAT is raised,
// and the kernel announces nothing below that mark but an end or an error of the
// connection. A goroutine that stops looking lowers the mark again, and the kernel
// announces what is there by then. A waiter that has got its completion leaves the
// socket muted, because it is likely to come back; if it does not within keepEvery, the
// keeper lowers the mark.

const (
	// muteBytes is the mark while a goroutine looks: more than that is in the
	// socket only if it cannot keep up.
	muteBytes = 1 << 20
	// keepEvery is for how long at most bytes can lie in a muted socket into
	// which no goroutine looks, and half of that at least.
	keepEvery = 2 * time.Millisecond
	// doubtEvery is after how long at most a reset is noticed that the kernel has announced
	// with the bytes before it. It is long, because each connection with traffic is visited
	// so often.
	doubtEvery = 200 * time.Millisecond
	// lookQPs is how many connections a CQ may have for Spin to look at them:
	// each look is a system call, and with many of them the netpoller is better.
	lookQPs = 4
	// clockTurns is how many looks pay for one at the clock.
	clockTurns = 4
	// lookInFlight is a large READ, or many, bytes: they take longer to make and to move
	// than a peer takes to answer at all. Each READ counts as perRead bytes more.
	lookInFlight = 4 << 10
	perRead      = 512
	// lookMax bounds one call of Spin.
	lookMax = time.Millisecond
)

// Spin is Poll that looks into the sockets of the CQ's connections itself, for
// up to d. Large READs and many are given more time: while they are under way, and
// once bytes have come, it goes on until none do for a while, or lookMax is over. With
// more than lookQPs connections, or inside TLS, it only polls.
func (c *cq) Spin(wcs []rdma.WC, d time.Duration) (int, error) {
	if n, err := c.Poll(wcs); n > 0 || err != nil {
		return n, err
	}
	list := c.looked.Load()
	if list == nil || len(*list) == 0 {
		return 0, nil
	}
	for _, q := range *list {
		if q.req.inFlight.Load() >= lookInFlight {
			d = max(d, wait.DefaultSpin)
		}
	}
	begun := time.Now()
	last := begun
	for turn := 1; ; turn++ {
		able, came := false, false
		for _, q := range *list {
			switch q.look.take(true) {
			case lookCame:
				able, came = true, true
			case lookEmpty:
				able = true
			}
		}
		// Poll also tells of a CQ that has died.
		if c.Queued() || !able {
			return c.Poll(wcs)
		}
		if !came && turn%clockTurns != 0 {
			continue
		}
		now := time.Now()
		if came {
			// The rest of a response is on its way.
			last, d = now, max(d, wait.DefaultSpin)
		}
		if now.Sub(last) >= d || now.Sub(begun) >= lookMax {
			return c.Poll(wcs)
		}
	}
}

var _ rdma.Spinner = (*cq)(nil)

// A looker is what a connection knows of the goroutines that look into its socket
// without having been woken. rx.mu guards its fields.
type looker struct {
	q        *qp
	lookable atomic.Bool // not TLS, and not ended
	muted    atomic.Bool // SO_RCVLOWAT is raised; written under rx.mu
	looks    uint64      // by waiters, and reads that left a doubt, for the keepers
	doubted  bool        // the doubter has it

	// The reader keeps these about the READs that it answers, to decide whether it is
	// worth while to look for the next one before it sleeps.
	budget   *wait.SpinBudget
	slept    time.Time // when it began to wait for the netpoller; zero: no READs before
	wakes    uint64    // device.spins.wakes when this reader last had something to do
	away     int       // READs for which it does not look, because others are at work, too
	noted    bool      // the device knows budget
	attended uint64    // rx.served when attend last looked at it
}

// Outcomes of take.
const (
	lookUseless = iota // there is no use in looking again
	lookEmpty          // nothing, or another goroutine looks
	lookCame           // there was something
)

// take takes what the socket has, unless another goroutine does. again says that the
// caller will look again.
func (look *looker) take(again bool) int {
	q := look.q
	if !look.lookable.Load() {
		return lookUseless
	}
	if q.tx.rings.Load() {
		// The goroutines whose requests were completed in the last round are about to
		// post the next ones. They run first, so that these requests travel together.
		if again {
			runtime.Gosched()
		}
		q.tx.ring()
	}
	if !q.rx.mu.TryLock() {
		return lookEmpty
	}
	defer q.rx.mu.Unlock()
	if q.rx.ended {
		return lookUseless
	}
	var outcome int
	if again && look.mute() {
		look.looks++
		outcome = q.rx.glance()
	} else {
		look.unmute()
		if outcome = q.rx.drain(); outcome != drainEnd {
			look.doubt()
		}
	}
	switch outcome {
	case drainEnd:
		look.end()
		return lookUseless
	case drainSome:
		return lookCame
	}
	return lookEmpty
}

// end makes the reader goroutine end a connection of which another goroutine has found
// the end. The caller holds rx.mu.
func (look *looker) end() {
	look.q.rx.ended = true
	look.lookable.Store(false)
	_ = look.q.wire.conn.SetReadDeadline(time.Unix(1, 0))
}

// stop ends all looking. The reader goroutine calls it as it ends.
func (look *looker) stop() {
	q := look.q
	q.rx.mu.Lock()
	defer q.rx.mu.Unlock()
	q.rx.ended = true
	look.lookable.Store(false)
	look.muted.Store(false)
	q.pd.dev.unmuter.drop(q)
	q.pd.dev.doubter.drop(q)
	if look.noted {
		q.pd.dev.spins.drop(look.budget)
	}
	if q.rx.buf != nil {
		q.rx.dropBuffer()
	}
}

// mute raises the mark below which the kernel announces nothing. It returns false if the
// mark cannot be raised. The caller holds rx.mu.
func (look *looker) mute() bool {
	q := look.q
	if look.muted.Load() {
		return true
	}
	if !setLowat(q.wire.fd, muteBytes) {
		return false
	}
	look.muted.Store(true)
	q.pd.dev.unmuter.add(q)
	return true
}

// read takes what the socket has, for a keeper. The caller holds rx.mu.
func (look *looker) read() {
	if look.q.rx.drain() == drainEnd {
		look.end()
		return
	}
	look.doubt()
}

// doubt has the doubter read once more, unless the last read has said that there was
// nothing left, because a read that takes the last bytes does not tell whether the
// connection was reset behind them: TCP_INQ counts bytes and the peer's orderly end only.
// If bytes and reset came before the reader was woken, it was woken once for both; without
// the doubter, no goroutine would hear of the reset. The caller holds rx.mu.
func (look *looker) doubt() {
	if look.q.rx.sure {
		return
	}
	look.looks++
	if !look.doubted {
		look.doubted = true
		look.q.pd.dev.doubter.add(look.q)
	}
}

// unmute lowers the mark; the kernel announces now what has come meanwhile. The caller
// holds rx.mu.
func (look *looker) unmute() {
	if !look.muted.Load() {
		return
	}
	look.muted.Store(false)
	if !look.q.rx.ended {
		setLowat(look.q.wire.fd, 1)
	}
}
