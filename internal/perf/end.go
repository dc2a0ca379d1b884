package perf

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/mem"
)

// What a work request was for stands in the top byte of its ID; the rest is a
// number: of the receive slot, of the control slot, of the message.
const (
	idKind    = uint64(0xff) << 56
	idRecv    = uint64(1) << 56
	idControl = uint64(2) << 56
	idData    = uint64(3) << 56
)

// controlSlots is how many control messages of one end are on their way at
// most.
const controlSlots = 8

// A region is registered memory.
type region struct {
	block *mem.Block
	mr    rdma.MR
}

func (r *region) bytes() []byte { return r.block.Bytes() }

// An end is one side of a test: everything that one connection needs, and
// nothing that another one has. One goroutine uses it; Close comes last.
type end struct {
	dev  rdma.Device
	attr rdma.DeviceAttr
	pd   rdma.PD
	cq   rdma.CQ
	qp   rdma.QP
	// events: wait in the completion channel instead of polling.
	events bool
	// soft: this process does the fabric's work. A goroutine that polled would
	// take the processor away from it, so none does.
	soft bool

	regions []*region
	recvs   *region // the receives in use, in slots of recvSlot bytes
	recvSGE []rdma.SGE
	recvWR  []rdma.RecvWR
	slot    int
	control *region // source of control messages
	busy    int     // control messages not yet completed
	turn    int     // slot of the next control message

	wcs        []rdma.WC // polled; those within [head, tail) are not looked at yet
	head, tail int
	inline     int // bytes that the QP takes inline

	moves atomic.Uint64 // completions so far, for the watch
}

// newEnd makes a PD, a CQ and a QP for sends and recvs work requests in flight.
// The QP grants nothing.
func newEnd(dev rdma.Device, sends, recvs, inline int, events bool) (e *end, err error) {
	e = &end{dev: dev, attr: dev.Attr(), events: events}
	e.soft = e.attr.Caps.Has(rdma.CapDiesWithProcess) || e.attr.Caps.Has(rdma.CapMapped)
	defer func() {
		if err != nil {
			err = errors.Join(err, e.close())
		}
	}()
	sends = min(sends+controlSlots, e.attr.MaxQPWR)
	recvs = min(recvs, e.attr.MaxQPWR)
	if e.attr.Caps.Has(rdma.CapInline) {
		e.inline = min(inline, e.attr.MaxInline)
	}
	if e.pd, err = dev.AllocPD(); err != nil {
		return e, err
	}
	if e.cq, err = dev.CreateCQ(min(sends+recvs, e.attr.MaxCQE)); err != nil {
		return e, err
	}
	e.wcs = make([]rdma.WC, 64)
	e.qp, err = e.pd.CreateQP(rdma.QPConfig{SendCQ: e.cq, RecvCQ: e.cq,
		Cap: rdma.QPCap{MaxSendWR: sends, MaxRecvWR: recvs, MaxSGE: 1, MaxInline: e.inline}})
	if err != nil {
		return e, err
	}
	e.control, err = e.region(controlSlots*controlSize, rdma.AccessLocalWrite)
	return e, err
}

// region allocates and registers memory that lives as long as the end.
func (e *end) region(size int, access rdma.Access) (*region, error) {
	// The side that accepts a connection maps only memory of which all pages
	// are there.
	mapped := e.attr.Caps.Has(rdma.CapMapped)
	block, err := mem.Alloc((size+7)&^7, mem.Options{Tag: "perf", Shared: mapped, Prefault: mapped})
	if err != nil {
		return nil, err
	}
	r := &region{block: block}
	e.regions = append(e.regions, r)
	r.mr, err = e.pd.RegMR(block.Bytes(), access)
	return r, err
}

// close gives everything back, the QP first: after that no buffer belongs to
// the fabric any more.
func (e *end) close() error {
	var errs []error
	if e.qp != nil {
		errs = append(errs, e.qp.Close())
	}
	for _, r := range e.regions {
		if r.mr != nil {
			errs = append(errs, r.mr.Close())
		}
		errs = append(errs, r.block.Free())
	}
	e.regions = nil
	if e.cq != nil {
		errs = append(errs, e.cq.Close())
	}
	if e.pd != nil {
		errs = append(errs, e.pd.Close())
	}
	return errors.Join(errs...)
}

// postReceives makes n receives of size bytes and posts them.
func (e *end) postReceives(n, size int) (err error) {
	e.slot = stride(max(size, controlSize))
	if e.recvs, err = e.region(n*e.slot, rdma.AccessLocalWrite); err != nil {
		return err
	}
	e.recvSGE = make([]rdma.SGE, n)
	e.recvWR = make([]rdma.RecvWR, n)
	for i := range n {
		e.recvSGE[i] = rdma.SGE{MR: e.recvs.mr, Off: uint64(i * e.slot), Len: uint32(e.slot)}
		e.recvWR[i] = rdma.RecvWR{ID: idRecv | uint64(i), SGL: e.recvSGE[i : i+1]}
	}
	_, err = e.qp.PostRecv(e.recvWR)
	return err
}

// received returns what a completed receive holds. The fabric owns it again
// after repost.
func (e *end) received(wc rdma.WC) []byte {
	i := int(wc.ID &^ idKind)
	return e.recvs.bytes()[i*e.slot:][:wc.ByteLen]
}

func (e *end) repost(wc rdma.WC) error {
	i := int(wc.ID &^ idKind)
	_, err := e.qp.PostRecv(e.recvWR[i : i+1])
	return err
}

// send sends a control message; encode appends it to an empty slice with room.
func (e *end) send(ctx context.Context, encode func(dst []byte) []byte) error {
	for e.busy == controlSlots {
		// All slots are on their way, so wait for a completion. Completions of
		// other work stay in the queue.
		if err := e.fill(ctx); err != nil {
			return err
		}
	}
	off := e.turn * controlSize
	msg := encode(e.control.bytes()[off : off : off+controlSize])
	wr := rdma.SendWR{ID: idControl, Op: rdma.OpSend, Flags: rdma.SendSignaled,
		SGL: []rdma.SGE{{MR: e.control.mr, Off: uint64(off), Len: uint32(len(msg))}}}
	if err := e.post([]rdma.SendWR{wr}); err != nil {
		return err
	}
	e.busy++
	e.turn = (e.turn + 1) % controlSlots
	return nil
}

func (e *end) post(wrs []rdma.SendWR) error {
	n, err := e.qp.PostSend(wrs)
	if n < len(wrs) {
		return fmt.Errorf("posting %v: %w", wrs[n].Op, err)
	}
	return nil
}

// next waits for a completion that is none of a control message's SEND.
func (e *end) next(ctx context.Context) (rdma.WC, error) {
	for e.head == e.tail {
		if err := e.fill(ctx); err != nil {
			return rdma.WC{}, err
		}
	}
	wc := e.wcs[e.head]
	e.head++
	if wc.Status != rdma.StatusSuccess {
		return wc, e.failed(wc)
	}
	return wc, nil
}

// fill waits until there is at least one more completion and takes those that
// are there; it deals with completions of control messages itself.
func (e *end) fill(ctx context.Context) error {
	if e.head == e.tail {
		e.head, e.tail = 0, 0
	} else if e.tail == len(e.wcs) {
		e.wcs = append(e.wcs, make([]rdma.WC, len(e.wcs))...) // bounded by the depth of the CQ
	}
	n, err := e.wait(ctx, e.wcs[e.tail:])
	if err != nil {
		return err
	}
	return e.keep(n)
}

// keep takes the n completions behind tail into the queue.
func (e *end) keep(n int) error {
	e.moves.Store(e.moves.Load() + uint64(n))
	fresh := e.wcs[e.tail : e.tail+n]
	for _, wc := range fresh {
		if wc.ID&idKind == idControl {
			if wc.Status != rdma.StatusSuccess {
				return e.failed(wc)
			}
			e.busy--
			continue
		}
		e.wcs[e.tail] = wc
		e.tail++
	}
	return nil
}

// look takes what has completed, without waiting.
func (e *end) look() error {
	if e.head == e.tail {
		e.head, e.tail = 0, 0
	}
	if e.tail == len(e.wcs) {
		return nil
	}
	n, err := e.cq.Poll(e.wcs[e.tail:])
	if err != nil {
		return err
	}
	return e.keep(n)
}

// spinTime is for how long one call of an rdma.Spinner polls.
const spinTime = 50 * time.Microsecond

// wait polls, or sleeps, until there is a completion.
func (e *end) wait(ctx context.Context, wcs []rdma.WC) (int, error) {
	if e.events || e.soft {
		return e.sleep(ctx, wcs)
	}
	spin, can := e.cq.(rdma.Spinner)
	for i := 1; ; i++ {
		var n int
		var err error
		if can {
			n, err = spin.Spin(wcs, spinTime)
		} else {
			n, err = e.cq.Poll(wcs)
		}
		if n > 0 || err != nil {
			return n, err
		}
		if can || i%256 == 0 {
			runtime.Gosched()
			if ctx.Err() != nil {
				return 0, context.Cause(ctx)
			}
		}
	}
}

// sleep waits by events.
func (e *end) sleep(ctx context.Context, wcs []rdma.WC) (int, error) {
	n, err := rdma.Await(ctx, e.cq, wcs)
	if err != nil && errors.Is(err, ctx.Err()) {
		err = context.Cause(ctx)
	}
	return n, err
}

// failed is the error of a completion: what ended the connection if that is
// known, because a flush does not say why.
func (e *end) failed(wc rdma.WC) error {
	err := wc.Status.Err()
	if cause := e.qp.Err(); cause != nil && errors.Is(err, rdma.ErrFlushed) {
		return cause
	}
	return err
}

// errStalled: nothing has moved for Limits.Idle (server) or Options.Stall.
var errStalled = errors.New("perf: nothing moves any more")

// watch returns a context that ends when the end stops moving for the given
// time. stop ends the watching.
func (e *end) watch(ctx context.Context, patience time.Duration) (watched context.Context, stop func()) {
	watched, cancel := context.WithCancelCause(ctx)
	tick := time.NewTicker(patience / 4)
	go func() {
		defer tick.Stop()
		seen, quiet := e.moves.Load(), 0
		for {
			select {
			case <-watched.Done():
				return
			case <-tick.C:
			}
			now := e.moves.Load()
			if now != seen {
				seen, quiet = now, 0
			} else if quiet++; quiet >= 4 {
				cancel(fmt.Errorf("%w: for %v", errStalled, patience))
				return
			}
		}
	}()
	return watched, func() { cancel(context.Canceled) }
}
