package verbs

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/verbs/ibv"
)

// A cq is a CQ of the device with a completion channel of its own, and in front
// of it a queue in software for completions that were taken from the device outside
// of Poll: when a QP is closed (drain.go), or when the cause of its end is looked for
// (state.go). Poll serves that queue first, which keeps the order.
//
//	device ──▶ hw ──▶ take ──┬──────────▶ Poll
//	                         └▶ soft ──▶
type cq struct {
	dev *device
	hw  *ibv.CQ
	ch  *ibv.CompChannel

	// pollMu makes take and the soft queue one step, so that no completion
	// overtakes another.
	pollMu sync.Mutex
	soft   []rdma.WC // its first head are polled
	head   int
	raw    [pollBatch]ibv.WC
	cooked [pollBatch]rdma.WC

	// down is why the queue is out of service. Read before every call.
	down atomic.Pointer[error]

	// wake ends waits in the channel that no event of the device ends: those of a
	// queue that dies, and those for events that software raises.
	wakeMu sync.Mutex
	wakeup context.Context
	wake   context.CancelFunc
	events int  // raised by software and not yet waited for
	armed  bool // and the device has raised none since, as far as this package knows

	mu     sync.Mutex
	closed bool
	qps    map[*qp]int // users, and how often: as send and as receive CQ
}

// pollBatch is how many completions one call into C brings at most.
const pollBatch = 64

// newCQ makes the queue with room for our own completions, and its channel.
func newCQ(d *device, depth int) (*cq, error) {
	ch, err := d.hw.CreateCompChannel()
	if err != nil {
		return nil, err
	}
	hw, err := d.hw.CreateCQOn(depth+cqSlack, ch, d.nextVector())
	if err != nil {
		_ = ch.Close()
		return nil, err
	}
	if d.kernel {
		hw.Yield()
	}
	c := &cq{dev: d, hw: hw, ch: ch, qps: make(map[*qp]int)}
	c.wakeup, c.wake = context.WithCancel(context.Background())
	d.mu.Lock()
	d.cqs[hw] = c
	d.mu.Unlock()
	return c, nil
}

// Poll takes up to len(wcs) completions, without waiting.
func (c *cq) Poll(wcs []rdma.WC) (int, error) { return c.poll(wcs, 0) }

// Spin is Poll that looks again and again for up to d (at most
// ibv.MaxSpin), inside one call into C: cheaper than a loop of Polls where a
// completion is expected within microseconds.
func (c *cq) Spin(wcs []rdma.WC, d time.Duration) (int, error) { return c.poll(wcs, d) }

// poll takes completions from the soft queue, else from the device, for up to spin.
func (c *cq) poll(wcs []rdma.WC, spin time.Duration) (int, error) {
	if why := c.down.Load(); why != nil {
		return 0, *why
	}
	c.pollMu.Lock()
	defer c.pollMu.Unlock()
	if len(c.soft) > c.head {
		n := copy(wcs, c.soft[c.head:])
		if c.head += n; c.head == len(c.soft) {
			c.soft, c.head = c.soft[:0], 0
		}
		return n, nil
	}
	return c.take(wcs, spin)
}

// take moves completions from the device to wcs, without those of our own. The caller
// holds pollMu.
func (c *cq) take(wcs []rdma.WC, spin time.Duration) (int, error) {
	for {
		raw := c.raw[:min(len(wcs), pollBatch)]
		if len(raw) == 0 {
			return 0, nil
		}
		var got int
		var err error
		if spin > 0 {
			got, err = c.hw.Spin(raw, spin)
		} else {
			got, err = c.hw.Poll(raw)
		}
		n := 0
		for i := range raw[:got] {
			if c.cook(&raw[i], &wcs[n]) {
				n++
			}
		}
		if err != nil && n == 0 {
			if why := c.down.Load(); why != nil {
				return 0, *why
			}
			return 0, fmt.Errorf("%w: %w", rdma.ErrClosed, err)
		}
		if n > 0 || got == 0 {
			return n, nil
		}
	}
}

// pull moves everything that the device has to the soft queue.
func (c *cq) pull() {
	if c.down.Load() != nil {
		return
	}
	c.pollMu.Lock()
	defer c.pollMu.Unlock()
	for {
		n, err := c.take(c.cooked[:], 0)
		if n == 0 || err != nil {
			return
		}
		c.append(c.cooked[:n])
	}
}

// append adds to the soft queue, which keeps no room for what was polled from it. The
// caller holds pollMu.
func (c *cq) append(wcs []rdma.WC) {
	if c.head > 0 {
		c.soft = c.soft[:copy(c.soft, c.soft[c.head:])]
		c.head = 0
	}
	c.soft = append(c.soft, wcs...)
}

// push adds completions that software made, and raises an event if Arm has asked for
// one.
func (c *cq) push(wcs ...rdma.WC) {
	if len(wcs) == 0 {
		return
	}
	c.pollMu.Lock()
	c.append(wcs)
	c.pollMu.Unlock()
	c.wakeMu.Lock()
	defer c.wakeMu.Unlock()
	if c.armed {
		c.armed = false
		c.events++
		c.endWaits()
	}
}

// endWaits ends all waits in the channel, so that each Wait looks again. The caller
// holds wakeMu.
func (c *cq) endWaits() {
	c.wake()
	c.wakeup, c.wake = context.WithCancel(context.Background())
}

// cook turns a completion of the device into one of package rdma. It returns false
// for those of our own.
func (c *cq) cook(raw *ibv.WC, wc *rdma.WC) bool {
	*wc = rdma.WC{ID: raw.ID, Status: rdma.Status(raw.Status), QPN: raw.QPN, Polled: raw.Polled}
	if raw.Status != ibv.StatusSuccess {
		wc.VendorErr = raw.VendorErr
		if q := c.dev.findQP(raw.QPN); q != nil {
			return q.failed(wc)
		}
		return true
	}
	wc.ByteLen = raw.ByteLen
	switch {
	case raw.Opcode&ibv.WCRecv != 0:
		wc.Op = rdma.OpRecv
		if raw.Flags&ibv.WCFlagWithInv != 0 {
			wc.Flags |= rdma.WCWithInv
			wc.InvalidatedRKey = raw.ImmInv
		}
	case raw.Opcode == ibv.WCRDMARead:
		wc.Op = rdma.OpRDMARead
	case raw.Opcode == ibv.WCRDMAWrite:
		wc.Op = rdma.OpRDMAWrite
	case raw.Opcode == ibv.WCCompSwap:
		wc.Op = rdma.OpAtomicCmpSwap
	case raw.Opcode == ibv.WCFetchAdd:
		wc.Op = rdma.OpAtomicFetchAdd
	default:
		wc.Op = rdma.OpSend
	}
	return true
}

// Arm asks for one event at the next completion.
func (c *cq) Arm() error {
	if why := c.down.Load(); why != nil {
		return *why
	}
	c.wakeMu.Lock()
	c.armed = true
	c.wakeMu.Unlock()
	if err := c.hw.ReqNotify(false); err != nil {
		if why := c.down.Load(); why != nil {
			return *why
		}
		return classify(err)
	}
	return nil
}

// Wait parks until an armed event has come.
func (c *cq) Wait(ctx context.Context) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		c.wakeMu.Lock()
		if c.events > 0 {
			c.events--
			c.wakeMu.Unlock()
			return nil
		}
		wakeup := c.wakeup
		c.wakeMu.Unlock()
		// die stores down first and ends the waits after: a wait that misses the
		// one is ended by the other.
		if why := c.down.Load(); why != nil {
			return *why
		}
		if c.get(ctx, wakeup) == nil {
			c.wakeMu.Lock()
			c.armed = false
			c.wakeMu.Unlock()
			return nil
		}
		// The wait was ended by ctx or by endWaits, or the channel failed.
		if wakeup.Err() == nil && ctx.Err() == nil {
			if why := c.down.Load(); why != nil {
				return *why
			}
			return fmt.Errorf("%w: completion channel", rdma.ErrClosed)
		}
	}
}

// get waits for an event of the device until either context ends.
func (c *cq) get(ctx, wakeup context.Context) error {
	if ctx.Done() == nil {
		_, err := c.ch.Get(wakeup)
		return err
	}
	both, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(wakeup, cancel)()
	_, err := c.ch.Get(both)
	return err
}

// attach counts q as a user.
func (c *cq) attach(q *qp) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return fmt.Errorf("%w: completion queue", rdma.ErrClosed)
	}
	if why := c.down.Load(); why != nil {
		return *why
	}
	c.qps[q]++
	return nil
}

func (c *cq) detach(q *qp) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.qps[q]--; c.qps[q] <= 0 {
		delete(c.qps, q)
	}
}

// die takes the queue out of service and ends its waits.
func (c *cq) die(why error) {
	c.down.CompareAndSwap(nil, &why)
	c.wakeMu.Lock()
	c.endWaits()
	c.wakeMu.Unlock()
}

// overrun is the end of a CQ that was given more completions than it holds,
// and of its QPs.
func (c *cq) overrun() {
	c.die(fmt.Errorf("%w (%d completions)", rdma.ErrCQOverrun, c.hw.Depth()))
	c.mu.Lock()
	var victims []*qp
	for q := range c.qps {
		victims = append(victims, q)
	}
	c.mu.Unlock()
	for _, q := range victims {
		q.fail(fmt.Errorf("%w (%d completions)", rdma.ErrCQOverrun, c.hw.Depth()))
	}
}

// Close fails with ErrBusy while QPs use the CQ.
func (c *cq) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	if len(c.qps) > 0 {
		return fmt.Errorf("%w: completion queue has %d QPs", rdma.ErrBusy, len(c.qps))
	}
	c.closed = true
	why := fmt.Errorf("%w: completion queue", rdma.ErrClosed)
	c.down.Store(&why)
	c.die(why)
	c.dev.mu.Lock()
	delete(c.dev.cqs, c.hw)
	c.dev.mu.Unlock()
	err := c.hw.Close()
	if err == nil {
		err = c.ch.Close()
	}
	c.wakeMu.Lock()
	c.wake()
	c.wakeMu.Unlock()
	c.dev.unuse()
	return classify(err)
}

var _ rdma.CQ = (*cq)(nil)
