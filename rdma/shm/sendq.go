//go:build linux

package shm

import (
	"fmt"
	"sync"

	"github.com/rdmakv/rdmakv/rdma"
)

// A sendWQE is a posted send work request. Its fields are set before it is in
// the queue and then only read, but for those at the end.
type sendWQE struct {
	id       uint64
	op       rdma.Opcode
	signaled bool
	fence    bool
	solicit  bool
	length   uint32
	remote   rdma.RemoteAddr
	sgl      sgl
	inline   []byte // copied payload; nil unless inline was asked for
	space    []byte // array behind inline, kept for reuse

	// sent is how much has been framed: the transmitter's.
	sent uint32
	// done: the transmitter has framed all of a SEND or WRITE, or the reader
	// has placed all of a READ. Under QP.mu.
	done bool
}

// wqePool lends out requests: an idle QP holds none.
var wqePool = sync.Pool{New: func() any { return new(sendWQE) }}

func (w *sendWQE) free() {
	w.sgl.clear()
	w.inline = nil
	wqePool.Put(w)
}

// A sendQueue is the ring of requests that are not completed. All of it is
// under QP.mu.
//
//	head ── completed next ──▶ next ── transmitted next ──▶ tail
//	     sent, or waiting for        posted, not yet (or not
//	     an older READ               wholly) framed
type sendQueue struct {
	limit            int // work requests
	ring             []*sendWQE
	head, next, tail uint64
}

func (s *sendQueue) len() int { return int(s.tail - s.head) }

func (s *sendQueue) at(i uint64) *sendWQE { return s.ring[i&uint64(len(s.ring)-1)] }

func (s *sendQueue) put(w *sendWQE) {
	if s.len() == len(s.ring) {
		old := s.ring
		s.ring = make([]*sendWQE, max(8, 2*len(old)))
		for i := s.head; i != s.tail; i++ {
			s.ring[i&uint64(len(s.ring)-1)] = old[i&uint64(len(old)-1)]
		}
	}
	s.ring[s.tail&uint64(len(s.ring)-1)] = w
	s.tail++
}

// popHead takes the oldest request off; the caller frees it.
func (s *sendQueue) popHead() *sendWQE {
	i := s.head & uint64(len(s.ring)-1)
	w := s.ring[i]
	s.ring[i] = nil
	s.head++
	if s.next < s.head {
		s.next = s.head
	}
	return w
}

// newSendWQE checks a request against the QP's limits and copies it.
func (q *qp) newSendWQE(wr *rdma.SendWR) (*sendWQE, error) {
	switch wr.Op {
	case rdma.OpSend, rdma.OpRDMARead, rdma.OpRDMAWrite:
	case rdma.OpSendInv, rdma.OpLocalInv, rdma.OpAtomicCmpSwap, rdma.OpAtomicFetchAdd, rdma.OpBindWindow:
		return nil, fmt.Errorf("%w: %v", rdma.ErrNotSupported, wr.Op)
	default:
		return nil, fmt.Errorf("%w: %v is not a send operation", rdma.ErrInvalid, wr.Op)
	}
	w := wqePool.Get().(*sendWQE)
	w.id, w.op, w.remote = wr.ID, wr.Op, wr.Remote
	w.signaled = q.cfg.SignalAll || wr.Flags&rdma.SendSignaled != 0
	w.fence = wr.Flags&rdma.SendFence != 0
	w.solicit = wr.Flags&rdma.SendSolicited != 0
	w.sent, w.done, w.inline = 0, false, nil
	if err := w.setData(wr, q.cfg.Cap); err != nil {
		w.free()
		return nil, err
	}
	return w, nil
}

func (w *sendWQE) setData(wr *rdma.SendWR, limits rdma.QPCap) error {
	if wr.Flags&rdma.SendInline == 0 {
		if err := w.sgl.set(wr.SGL, limits.MaxSGE); err != nil {
			return err
		}
		if w.sgl.total > maxMsgSize {
			return fmt.Errorf("%w: %d bytes in one %v, the limit is %d", rdma.ErrInvalid, w.sgl.total, wr.Op, maxMsgSize)
		}
		w.length = uint32(w.sgl.total)
		return nil
	}
	switch {
	case wr.Op == rdma.OpRDMARead:
		return fmt.Errorf("%w: inline on %v", rdma.ErrInvalid, wr.Op)
	case len(wr.SGL) > 0:
		return fmt.Errorf("%w: inline data together with a scatter/gather list", rdma.ErrInvalid)
	case len(wr.Inline) > limits.MaxInline:
		return fmt.Errorf("%w: %d bytes inline, the QP's limit is %d", rdma.ErrInvalid, len(wr.Inline), limits.MaxInline)
	}
	w.sgl.clear()
	w.space = append(w.space[:0], wr.Inline...)
	w.inline = w.space
	w.length = uint32(len(wr.Inline))
	return nil
}
