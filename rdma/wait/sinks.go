package wait

import (
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/rdmakv/rdmakv/rdma"
)

// Sinks are where prepared READs of one QP land (rdma.SpinReader), beside a Dispatcher
// that polls the QP's CQ for sends. A goroutine takes a sink, READs into it, looks at
// what came, and puts it back:
//
//	Take ─▶ Read ─┬─ ReadDone ───▶ look at Bytes ─▶ Put
//	              ├─ ReadRefused ─────────────────▶ Put     nothing was posted
//	              └─ ReadLate                               the sink is the fabric's:
//	                   └─ its completion, polled by any leader ─▶ onLate ─▶ free again
//
// A READ that is late may still write to its sink. So the sink stays in quarantine, and
// no other READ lands there, until the completion has been polled, at the latest when
// the Dispatcher is closed.
//
// One goroutine at a time READs, the one that has the Dispatcher's lead: a CQ has one
// poller, and who polls for others besides itself delivers for them. The lead is not
// waited for. If another goroutine leads, because it waits too or because the
// background poller sleeps in an idle CQ, Read refuses, and the caller posts and waits
// as usual. Sinks are looked at and put back without the lead, by several goroutines at
// a time.
//
// All methods are safe for concurrent use.
type Sinks struct {
	d      *Dispatcher
	qp     rdma.SpinReader
	onLate func(*Sink)

	// hot is a free sink: the one put back last, for a caller that READs again and
	// again. The others are in free.
	hot    atomic.Pointer[Sink]
	closed atomic.Bool

	mu   sync.Mutex
	free []*Sink // the one used last is handed out first
	all  int
	back chan struct{} // cap 1: closed is set and all are in free
}

// A Sink is a place for one READ at a time.
type Sink struct {
	Bytes []byte // the memory, as it was given to NewSinks
	// Held is the owner's: what must outlive the READ, for onLate.
	Held any

	Index int // of its place

	op *Op // pending, for as long as the READ is not late
	id uint64
}

// A ReadState is how a READ into a sink has ended.
type ReadState uint8

const (
	ReadRefused ReadState = iota // not posted; the sink is the caller's
	ReadLate                     // under way; the sink is the fabric's
	ReadDone                     // completed; the sink is the caller's
)

// NewSinks prepares a sink for each of places, whose memory stays registered until qp is
// closed. qp must be a SpinReader with room in its send queue and its CQ, which is d's,
// for a READ into each. onLate is called when a READ that was late has ended, before its
// sink is free again: on the goroutine that polls, so it must not block or wait. It
// fails with the error of PrepareSinks.
func (d *Dispatcher) NewSinks(qp rdma.SpinReader, places []rdma.SGE, onLate func(*Sink)) (*Sinks, error) {
	if err := qp.PrepareSinks(places); err != nil {
		return nil, err
	}
	x := &Sinks{d: d, qp: qp, onLate: onLate, all: len(places), back: make(chan struct{}, 1)}
	for i, p := range places {
		end := p.Off + uint64(p.Len)
		k := &Sink{Index: i, Bytes: p.MR.Bytes()[p.Off:end:end]}
		x.arm(k)
		x.free = append(x.free, k)
	}
	return x, nil
}

// arm gives a sink an op for the READs to come. It counts as one in use only when it is
// waited for.
func (x *Sinks) arm(k *Sink) {
	k.op = x.d.NewOp()
	k.op.OnDetached(func(rdma.WC) { x.ended(k) })
	k.id = k.op.ID()
	x.d.ops.inUse.Add(-1)
}

// IsWorth reports whether a READ is worth a try: nothing is under way that a goroutine
// waits for, which it would do as the leader or behind one.
func (x *Sinks) IsWorth() bool { return x.d.ops.inUse.Load() == 0 }

// Take returns a free sink, nil if there is none or Close was called. Put gives it back,
// unless Read says ReadLate.
func (x *Sinks) Take() *Sink {
	k := x.hot.Swap(nil)
	if k == nil {
		k = x.pop()
	}
	if k != nil && x.closed.Load() {
		x.Put(k)
		return nil
	}
	return k
}

func (x *Sinks) pop() *Sink {
	x.mu.Lock()
	defer x.mu.Unlock()
	n := len(x.free)
	if n == 0 {
		return nil
	}
	k := x.free[n-1]
	x.free = x.free[:n-1]
	return k
}

// Put gives a sink back. What it holds is no longer the caller's to look at.
func (x *Sinks) Put(k *Sink) {
	if x.hot.CompareAndSwap(nil, k) {
		// Close looks into hot after it has set closed: one of the two finds the sink.
		if !x.closed.Load() || !x.hot.CompareAndSwap(k, nil) {
			return
		}
	}
	x.mu.Lock()
	x.free = append(x.free, k)
	last := x.closed.Load() && len(x.free) == x.all
	x.mu.Unlock()
	if last {
		token(x.back)
	}
}

// Read READs n bytes into a sink of Take, polls for as long as a wait may spin at this
// moment, and returns how that ended: if ReadDone, with status and time of the
// completion (rdma.WC.Status, WC.Polled). It does not wait: in mode Event, or where
// spinning has found nothing lately, it refuses.
//
// It delivers what else completes meanwhile, so the caller must hold no lock that the
// functions of OnRecv or OnDetached take.
func (x *Sinks) Read(k *Sink, remote rdma.RemoteAddr, n uint32) (state ReadState, status rdma.Status, polled int64) {
	d := x.d
	if d.opt.Spin <= 0 || !d.tryLead() {
		return ReadRefused, 0, 0
	}
	b := d.pace.work
	budget := b.Next()
	if budget <= 0 {
		d.leave()
		return ReadRefused, 0, 0
	}
	w := wait{p: &d.pace, b: b, budget: budget, state: waitFresh}
	if b.Timed() {
		w.start()
	}
	r := x.qp.ReadSpin(k.Index, k.id, remote, n, d.wcs, min(budget, postSlice))
	if r.State == rdma.SpinPending {
		r = x.goOn(k, &w, r)
	}
	switch r.State {
	case rdma.SpinDone:
		state = ReadDone
		if r.Others > 0 {
			d.deliver(r.Others, nil)
		}
		d.pace.saw(1, r.Polled)
	case rdma.SpinPending:
		state = ReadLate
		d.ops.inUse.Add(1)
		d.Detach(k.op)
	}
	w.ends(state == ReadDone)
	rest := d.pace.restDue()
	d.leave()
	if rest {
		runtime.Gosched()
	}
	return state, r.Status, r.Polled
}

// goOn polls for a READ whose first look has not found its end, for what is left of the
// budget.
func (x *Sinks) goOn(k *Sink, w *wait, r rdma.SpinResult) rdma.SpinResult {
	d := x.d
	for slice := min(w.budget, postSlice); r.State == rdma.SpinPending; {
		d.deliver(r.Others, nil)
		w.looked(r.Others, slice)
		if slice = min(w.left(), postSlice); slice <= 0 || d.down.Load() {
			return rdma.SpinResult{State: rdma.SpinPending}
		}
		r = x.qp.AwaitSpin(k.Index, k.id, d.wcs, slice)
	}
	return r
}

// ended is the end of a READ that was late.
func (x *Sinks) ended(k *Sink) {
	x.onLate(k)
	x.arm(k)
	x.Put(k)
}

// Close ends Take, and waits until every sink is back: until the callers that have one
// have looked, and until late READs have ended. So the Dispatcher must have been closed.
func (x *Sinks) Close() {
	x.closed.Store(true)
	if k := x.hot.Swap(nil); k != nil {
		x.Put(k)
	}
	x.mu.Lock()
	waits := len(x.free) < x.all
	x.mu.Unlock()
	if waits {
		<-x.back
	}
}

// Out is how many sinks are with callers or with the fabric.
func (x *Sinks) Out() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	out := x.all - len(x.free)
	if x.hot.Load() != nil {
		out--
	}
	return out
}
