package wait

import (
	"fmt"
	"sync/atomic"

	"github.com/rdmakv/rdmakv/rdma"
)

// This is how a 64-bit work request ID is divided. An ID is never 0: 0 is for
// requests that have no op.
//
//	 63    62     61            24 23           0
//	┌────┬─────┬──────────────────┬──────────────┐
//	│recv│reply│  generation (38) │ index+1 (24) │
//	└────┴─────┴──────────────────┴──────────────┘
//	     └──────── tag (39) ──────┘
//
// The generation counts how often the slot was used. A late, doubled or forged ID
// has another generation than the slot, and is counted as a stray.
const (
	idRecv      = 1 << 63
	idIndexBits = 24
	idIndexMask = 1<<idIndexBits - 1
	genMask     = 1<<38 - 1
	tagReply    = 1 << 38
	tagMask     = tagReply | genMask
	idReply     = tagReply << idIndexBits
)

// RecvID makes the ID of a RecvWR from a number below 1<<63, by setting the highest
// bit: the completion goes to the OnRecv callback.
func RecvID(n uint64) uint64 { return n | idRecv }

// RecvNumber returns the number that RecvID made id from.
func RecvNumber(id uint64) uint64 { return id &^ idRecv }

// An Op is one thing to wait for: the completion of a work request (NewOp), or a
// reply that the OnRecv callback passes to Complete (NewReply). It is used once:
// after Wait, Detach or Release it belongs to the Dispatcher, which gives it out
// again.
type Op struct {
	// state is tag<<2 | opFree…opDetached, and opDone. The goroutine that moves it
	// to opClaimed by compare-and-swap owns wc until it sets opDone.
	state   atomic.Uint64
	index   uint32
	next    atomic.Uint32 // free list: index+1 of the next free op
	wc      rdma.WC
	cleanup func(rdma.WC)

	wake chan struct{} // cap 1; a token means "look again", never more

	// leads is set by a leaving leader that has made this op's waiter its
	// successor; the waiter clears it.
	leads atomic.Bool

	// Dispatcher.mu guards these: the list of followers.
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

// ID is the value for rdma.SendWR.ID or, for a reply, for the message that asks the
// peer for it. It is never 0.
func (op *Op) ID() uint64 { return op.idUnder(op.tag()) }

func (op *Op) idUnder(tag uint64) uint64 { return tag<<idIndexBits | uint64(op.index+1) }

// OnDetached sets the function that runs when the completion of a detached op
// arrives, that is, of one whose Wait gave up or that was given to Detach. There
// the program takes a buffer out of quarantine. The function runs at most once, on
// the goroutine that polls, and must not block or wait. It must be set before the
// work is posted.
func (op *Op) OnDetached(f func(rdma.WC)) { op.cleanup = f }

// tag is what stands between mark and index in the op's ID: kind, generation.
func (op *Op) tag() uint64 { return op.state.Load() &^ opDone >> opStateBits }

func (op *Op) isReply() bool { return op.tag()&tagReply != 0 }

// Finished reports whether Wait would not wait: the completion has come.
func (op *Op) Finished() bool { return op.state.Load()&opDone != 0 }

// signal leaves a token. If one is there already its reader will look again
// and see whatever the caller has just stored.
func (op *Op) signal() {
	select {
	case op.wake <- struct{}{}:
	default:
	}
}

// awaitDone waits out the few instructions between claimed and done.
func (op *Op) awaitDone() {
	for !op.Finished() {
		op.check(opClaimed, opClaimed)
		<-op.wake
	}
}

// check panics unless op is in one of two states. It catches the use of an op that
// is gone, as long as the op has not been given out anew.
func (op *Op) check(a, b uint64) {
	if st := op.state.Load() & (1<<opStateBits - 1); st != a && st != b {
		panic(fmt.Sprintf("wait: operation %#x used after it was waited for, detached or released (state %d)", op.ID(), st))
	}
}

// NewOp returns an op for a work request. It allocates only while more ops are in
// use than ever before.
//
// Of a batch only the last request needs an op and SendSignaled. Completions of one
// QP come in order, so the last one, success or flush, says that those before it
// have ended too. The others get ID 0.
func (d *Dispatcher) NewOp() *Op { return d.ops.newOp(0) }

// NewReply returns an op that Complete finishes, for the reply to a message. A
// completion of the CQ never finishes it, and Complete never finishes an op of
// NewOp. So a peer that guesses IDs cannot end the quarantine of a buffer.
func (d *Dispatcher) NewReply() *Op { return d.ops.newOp(tagReply) }

// Release gives back an op whose work was not posted because PostSend refused it.
// The function set with OnDetached does not run. (A reply may have been completed
// all the same, by a goroutine that fails all of them when a connection ends.)
func (d *Dispatcher) Release(op *Op) {
	base := op.tag() << opStateBits
	if !op.state.CompareAndSwap(base|opPending, base|opClaimed) {
		op.awaitDone()
	}
	d.ops.recycle(op)
}

// Complete finishes the reply with this ID, normally from the OnRecv callback; its
// Wait returns wc. It reports false if no reply is expected under this ID: the ID
// was never given out, belongs to a work request, or has been answered already.
// Any goroutine may call it at any time.
func (d *Dispatcher) Complete(id uint64, wc rdma.WC) bool {
	if id&idReply == 0 || !d.ops.finish(id, wc, nil) {
		return false
	}
	if d.parkedOn.Load() == id {
		d.kickLeader()
	}
	return true
}

// Detach gives up an op without waiting. The function set with OnDetached runs when
// the completion arrives, or at once if it has arrived already. A program that
// posts work and need not wait for it gets its buffer back this way.
func (d *Dispatcher) Detach(op *Op) {
	if d.ops.detach(op) {
		return
	}
	cleanup := op.cleanup
	wc := d.ops.take(op)
	if cleanup != nil {
		cleanup(wc)
	}
}
