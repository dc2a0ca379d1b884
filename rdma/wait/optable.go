package wait

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/rdmakv/rdmakv/rdma"
)

const (
	opsPerChunk = 64
	defaultOps  = 1 << 16
	maxOpsBound = idIndexMask - opsPerChunk
)

// An opTable holds every op of a dispatcher in chunks that never move, and the
// free ones on a lock-free stack. It brings ops and completions together and
// does not know which goroutine polls.
type opTable struct {
	chunks []atomic.Pointer[[opsPerChunk]Op] // grows under mu, up to its length
	made   atomic.Uint32                     // ops in chunks
	free   atomic.Uint64                     // tag<<32 | index+1 of the first free op; the tag defeats ABA

	inUse    atomic.Int64
	finished atomic.Uint64 // completions handed to waiters
	drained  atomic.Bool   // no completion comes any more: detach runs the cleanup itself

	mu sync.Mutex // growing; held with no other lock
}

// init makes the table of at most limit ops.
func (t *opTable) init(limit int) {
	t.chunks = make([]atomic.Pointer[[opsPerChunk]Op], (limit+opsPerChunk-1)/opsPerChunk)
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

// grow adds one chunk, unless another goroutine just has. A table that is full
// panics: the caller bounds its work in flight by credits and queue depths.
func (t *opTable) grow() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if uint32(t.free.Load()) != 0 {
		return
	}
	made := t.made.Load()
	if int(made/opsPerChunk) == len(t.chunks) {
		panic(fmt.Sprintf("wait: %d operations in use, all that Options.MaxOps allows", made))
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

// newOp returns a pending op; kind is 0 or tagReply.
func (t *opTable) newOp(kind uint64) *Op {
	op := t.pop()
	for op == nil {
		t.grow()
		op = t.pop()
	}
	t.inUse.Add(1)
	op.state.Store(((op.tag()+1)&genMask|kind)<<opStateBits | opPending)
	return op
}

// recycle makes an op free. The caller owns it (claimed or done).
func (t *opTable) recycle(op *Op) {
	op.cleanup = nil
	op.state.Store(op.tag()<<opStateBits | opFree)
	t.inUse.Add(-1)
	t.push(op)
}

// take reads the completion of a finished op and frees the op.
func (t *opTable) take(op *Op) rdma.WC {
	wc := op.wc
	t.recycle(op)
	return wc
}

// finish hands wc to the op under this ID. It returns false if no goroutine
// waits there. self is the op of the calling leader, which looks at it by
// itself, so finish leaves no token for it.
func (t *opTable) finish(id uint64, wc rdma.WC, self *Op) bool {
	op, tag := t.find(id)
	if op == nil {
		return false
	}
	base := tag << opStateBits
	if op.state.CompareAndSwap(base|opPending, base|opClaimed) {
		op.wc = wc
		t.finished.Add(1)
		op.state.Store(base | opClaimed | opDone) // wc passes to the waiter
		if op != self {
			op.signal()
		}
		return true
	}
	// pending turns into detached, never the other way round, so two looks in
	// this order miss nothing.
	return t.clean(op, tag, wc)
}

// clean runs the cleanup of a detached op with its completion and frees the op.
// It reports false if op is not detached.
func (t *opTable) clean(op *Op, tag uint64, wc rdma.WC) bool {
	base := tag << opStateBits
	if !op.state.CompareAndSwap(base|opDetached, base|opClaimed) {
		return false
	}
	cleanup := op.cleanup
	t.recycle(op)
	if cleanup != nil {
		cleanup(wc) // the buffers leave quarantine
	}
	return true
}

// detach hands op over to its completion, or reports false because that has
// come already: op is done then and still the caller's.
func (t *opTable) detach(op *Op) bool {
	tag := op.tag()
	base := tag << opStateBits
	if op.state.CompareAndSwap(base|opPending, base|opDetached) {
		if t.drained.Load() {
			t.flush(op, tag) // drain has passed this op already
		}
		return true
	}
	op.awaitDone()
	return false
}

// flush runs the cleanup of a detached op whose completion will never come.
func (t *opTable) flush(op *Op, tag uint64) {
	t.clean(op, tag, rdma.WC{ID: op.idUnder(tag), Status: rdma.StatusWRFlushErr})
}

// drain flushes every detached op, those of now and those to come. No
// completion may come after it.
func (t *opTable) drain() {
	t.drained.Store(true)
	for i := range t.made.Load() {
		op := t.at(i)
		t.flush(op, op.tag())
	}
}
