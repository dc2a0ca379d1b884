package rdma

import (
	"fmt"
	"sync/atomic"
)

// How a 64-bit work request ID is divided. An ID is never 0, so that 0 may
// stand for "nobody waits for this one".
//
//	 63    62     61            24 23           0
//	┌────┬─────┬──────────────────┬──────────────┐
//	│recv│reply│  generation (38) │ index+1 (24) │
//	└────┴─────┴──────────────────┴──────────────┘
//	     └──────── tag (39) ──────┘
//
// The generation makes an ID of a slot that has been used again since differ
// from the old one: a late, doubled or forged ID meets nobody.
const (
	idRecv      = 1 << 63
	idIndexBits = 24
	idIndexMask = 1<<idIndexBits - 1
	genMask     = 1<<38 - 1
	tagReply    = 1 << 38
	tagMask     = tagReply | genMask
	idReply     = tagReply << idIndexBits
)

const (
	opsPerChunk = 64
	defaultOps  = 1 << 16
	maxOpsBound = idIndexMask - opsPerChunk
)

// RecvID marks n, at most 63 bits, as the ID of a RecvWR: its completions go to
// the OnRecv callback. RecvNumber takes the mark off again.
func RecvID(n uint64) uint64 { return n | idRecv }

// RecvNumber is what was given to RecvID.
func RecvNumber(id uint64) uint64 { return id &^ idRecv }

// An Op is one thing to wait for: the completion of a work request (NewOp) or
// an answer that a receive callback hands in (NewReply). It is used once:
// after Wait, Detach or Release it belongs to the Dispatcher again.
type Op struct {
	// state is tag<<2 | opFree…opDetached, and opDone. Whoever moves it to
	// opClaimed by compare-and-swap owns wc until it sets opDone.
	state   atomic.Uint64
	index   uint32
	next    atomic.Uint32 // free list: index+1 of the next free op
	wc      WC
	cleanup func(WC)

	wake chan struct{} // cap 1; a token means "look again", never more

	// leads is set by a leaving leader that has made this op's waiter its
	// successor; the waiter clears it.
	leads atomic.Bool

	// Guarded by Dispatcher.mu: the list of followers.
	linked     bool
	prev, succ *Op
}

// The states of an op:
//
//	free ──NewOp──▶ pending ──completion──▶ claimed ──▶ done ──Wait──▶ free
//	                   └──ctx end, Detach──▶ detached ──completion, cleanup──▶ free
//
// done is claimed with one more bit: wc may be read.
const (
	opFree = iota
	opPending
	opClaimed
	opDetached

	opStateBits = 2
	opDone      = 1 << 63
)

// ID is what goes into SendWR.ID, or, for a reply, into the request that asks
// for it. It is never 0.
func (op *Op) ID() uint64 { return op.tag()<<idIndexBits | uint64(op.index+1) }

// OnDetached sets what runs when the completion of a detached op arrives: when
// its Wait gave up, or after Detach. It is where a buffer leaves quarantine. It
// runs at most once, on whatever goroutine polls, and must not block or wait.
// Set it before the work is posted.
func (op *Op) OnDetached(f func(WC)) { op.cleanup = f }

// tag is what stands between mark and index in the op's ID: kind, generation.
func (op *Op) tag() uint64 { return op.state.Load() &^ opDone >> opStateBits }

func (op *Op) isReply() bool { return op.tag()&tagReply != 0 }

// finished reports whether wc may be read.
func (op *Op) finished() bool { return op.state.Load()&opDone != 0 }

// signal leaves a token. If one is there already its reader will look again
// and see whatever the caller has just stored.
func (op *Op) signal() {
	select {
	case op.wake <- struct{}{}:
	default:
	}
}

// opTable holds every op of a dispatcher in chunks that never move, and the
// free ones on a lock-free stack.
type opTable struct {
	chunks []atomic.Pointer[[opsPerChunk]Op] // grows under Dispatcher.mu, up to its length
	made   atomic.Uint32                     // ops in chunks
	free   atomic.Uint64                     // tag<<32 | index+1 of the first free op; the tag defeats ABA
	inUse  atomic.Int64
}

// at returns op number i, or nil.
func (t *opTable) at(i uint32) *Op {
	if i >= t.made.Load() {
		return nil
	}
	return &t.chunks[i/opsPerChunk].Load()[i%opsPerChunk]
}

// find returns the op whose index an ID names, and the tag the ID carries.
func (t *opTable) find(id uint64) (*Op, uint64) {
	i := id & idIndexMask
	if i == 0 || id&idRecv != 0 {
		return nil, 0
	}
	return t.at(uint32(i - 1)), id >> idIndexBits & tagMask
}

// pop takes an op off the free list; nil if it is empty.
func (t *opTable) pop() *Op {
	for {
		head := t.free.Load()
		i := uint32(head)
		if i == 0 {
			return nil
		}
		op := t.at(i - 1)
		if t.free.CompareAndSwap(head, (head>>32+1)<<32|uint64(op.next.Load())) {
			return op
		}
	}
}

// push returns an op to the free list.
func (t *opTable) push(op *Op) {
	for {
		head := t.free.Load()
		op.next.Store(uint32(head))
		if t.free.CompareAndSwap(head, (head>>32+1)<<32|uint64(op.index+1)) {
			return
		}
	}
}

// growLocked adds one chunk. Going past the bound is a fault of the caller, who
// bounds its work in flight by credits and queue depths.
func (t *opTable) growLocked() {
	made := t.made.Load()
	if int(made/opsPerChunk) == len(t.chunks) {
		panic(fmt.Sprintf("rdma: %d operations in use, all that DispatcherOptions.MaxOps allows", made))
	}
	chunk := new([opsPerChunk]Op)
	for i := range chunk {
		chunk[i].index = made + uint32(i)
		chunk[i].wake = make(chan struct{}, 1)
	}
	t.chunks[made/opsPerChunk].Store(chunk)
	t.made.Store(made + opsPerChunk)
	for i := range chunk {
		t.push(&chunk[i])
	}
}

// NewOp returns an op for a work request. It does not allocate once as many ops
// exist as are in use at a time.
//
// In a batch only the last request needs an op and SendSignaled: completions of
// one QP come in order, so the last one, success or flush, vouches for those
// before it. Give the others ID 0.
func (d *Dispatcher) NewOp() *Op { return d.newOp(0) }

// NewReply returns an op that Complete finishes: for the answer to a request.
// Its ID is never accepted as a completion of the CQ, and that of NewOp never
// by Complete, so that no peer can end the quarantine of a buffer by guessing.
func (d *Dispatcher) NewReply() *Op { return d.newOp(tagReply) }

func (d *Dispatcher) newOp(kind uint64) *Op {
	op := d.ops.pop()
	for op == nil {
		d.grow()
		op = d.ops.pop()
	}
	d.ops.inUse.Add(1)
	op.state.Store(((op.tag()+1)&genMask|kind)<<opStateBits | opPending)
	return op
}

// Release gives an op back whose work was never posted because PostSend refused
// it. What OnDetached set does not run. (A reply may have been completed all
// the same, by whoever fails everything when a connection dies.)
func (d *Dispatcher) Release(op *Op) {
	base := op.tag() << opStateBits
	if !op.state.CompareAndSwap(base|opPending, base|opClaimed) {
		op.awaitDone()
	}
	d.recycle(op)
}

// grow makes more ops, unless somebody else just has.
func (d *Dispatcher) grow() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if uint32(d.ops.free.Load()) == 0 {
		d.ops.growLocked()
	}
}

// recycle makes an op free. The caller owns it (claimed or done).
func (d *Dispatcher) recycle(op *Op) {
	op.cleanup = nil
	op.state.Store(op.tag()<<opStateBits | opFree)
	d.ops.inUse.Add(-1)
	d.ops.push(op)
}

// take reads the completion of a finished op and frees it.
func (d *Dispatcher) take(op *Op) WC {
	wc := op.wc
	d.recycle(op)
	return wc
}

// finish hands wc to the op under this ID. It reports false if nobody waits
// there. The caller looks at self by himself: it needs no token.
func (d *Dispatcher) finish(id uint64, wc WC, self *Op) bool {
	op, tag := d.ops.find(id)
	if op == nil {
		return false
	}
	base := tag << opStateBits
	if op.state.CompareAndSwap(base|opPending, base|opClaimed) {
		op.wc = wc
		d.stats.finished.Add(1)
		op.state.Store(base | opClaimed | opDone) // wc passes to the waiter
		if op != self {
			op.signal()
		}
		return true
	}
	// pending turns into detached, never the other way round, so two looks in
	// this order miss nothing.
	if op.state.CompareAndSwap(base|opDetached, base|opClaimed) {
		cleanup := op.cleanup
		d.recycle(op)
		if cleanup != nil {
			cleanup(wc) // the buffers leave quarantine
		}
		return true
	}
	return false
}

// Complete finishes the reply with this ID, normally from the OnRecv callback;
// wc is what its Wait returns. It reports false if nobody waits under this ID:
// it was never given out, belongs to a work request, or is answered already.
// Safe for concurrent use, from any goroutine.
func (d *Dispatcher) Complete(id uint64, wc WC) bool {
	if id&idReply == 0 || !d.finish(id, wc, nil) {
		return false
	}
	if d.parkedOn.Load() == id {
		d.kickLeader()
	}
	return true
}

// Detach gives up an op without waiting: what OnDetached set runs when the
// completion arrives, or at once if it is there already. It is also the way to
// post and forget, with a buffer that must come back.
func (d *Dispatcher) Detach(op *Op) {
	if d.detach(op) {
		return
	}
	cleanup := op.cleanup
	wc := d.take(op)
	if cleanup != nil {
		cleanup(wc)
	}
}

// detach hands op over to its completion, or reports false because that has
// come already: op is done then and still the caller's.
func (d *Dispatcher) detach(op *Op) bool {
	tag := op.tag()
	base := tag << opStateBits
	if op.state.CompareAndSwap(base|opPending, base|opDetached) {
		if d.drained.Load() {
			d.flush(op, tag) // Close has looked already
		}
		return true
	}
	op.awaitDone()
	return false
}

// awaitDone waits out the few instructions between claimed and done.
func (op *Op) awaitDone() {
	for !op.finished() {
		op.check(opClaimed, opClaimed)
		<-op.wake
	}
}

// check panics unless op is in one of two states. It catches the use of an op
// that is gone, as long as nobody has got it anew.
func (op *Op) check(a, b uint64) {
	if st := op.state.Load() & (1<<opStateBits - 1); st != a && st != b {
		panic(fmt.Sprintf("rdma: operation %#x used after it was waited for, detached or released (state %d)", op.ID(), st))
	}
}

// flush runs the cleanup of a detached op whose completion will never come.
func (d *Dispatcher) flush(op *Op, tag uint64) {
	base := tag << opStateBits
	if !op.state.CompareAndSwap(base|opDetached, base|opClaimed) {
		return
	}
	wc := WC{ID: op.ID(), Status: StatusWRFlushErr}
	cleanup := op.cleanup
	d.recycle(op)
	if cleanup != nil {
		cleanup(wc)
	}
}
