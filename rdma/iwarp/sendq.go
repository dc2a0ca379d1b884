package iwarp

import (
	"fmt"

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

// free drops references, so that a request that is over keeps no region alive.
func (w *sendWQE) free() {
	w.sgl.clear()
	w.inline = nil
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

// vacant is the request behind the newest one, to be filled in and then put.
// Requests stay in their slots when they are over and are used again.
func (s *sendQueue) vacant() *sendWQE {
	if s.len() == len(s.ring) {
		old := s.ring
		s.ring = make([]*sendWQE, max(8, 2*len(old)))
		for i := s.head; i != s.tail; i++ {
			s.ring[i&uint64(len(s.ring)-1)] = old[i&uint64(len(old)-1)]
		}
	}
	w := &s.ring[s.tail&uint64(len(s.ring)-1)]
	if *w == nil {
		*w = new(sendWQE)
	}
	return *w
}

// put adds what vacant gave.
func (s *sendQueue) put() { s.tail++ }

// popHead takes the oldest request off. It must be freed before the next vacant.
func (s *sendQueue) popHead() *sendWQE {
	w := s.at(s.head)
	s.head++
	if s.next < s.head {
		s.next = s.head
	}
	return w
}

// set checks a request against the QP's limits and copies it.
func (w *sendWQE) set(wr *rdma.SendWR, q *qp) error {
	switch wr.Op {
	case rdma.OpSend, rdma.OpRDMARead, rdma.OpRDMAWrite:
	case rdma.OpSendInv, rdma.OpLocalInv, rdma.OpAtomicCmpSwap, rdma.OpAtomicFetchAdd, rdma.OpBindWindow:
		return fmt.Errorf("%w: %v", rdma.ErrNotSupported, wr.Op)
	default:
		return fmt.Errorf("%w: %v is not a send operation", rdma.ErrInvalid, wr.Op)
	}
	w.id, w.op, w.remote = wr.ID, wr.Op, wr.Remote
	w.signaled = q.cfg.SignalAll || wr.Flags&rdma.SendSignaled != 0
	w.fence = wr.Flags&rdma.SendFence != 0
	w.solicit = wr.Flags&rdma.SendSolicited != 0
	w.sent, w.done, w.inline = 0, false, nil
	err := w.setData(wr, &q.cfg.Cap)
	if err != nil {
		w.free()
	}
	return err
}

func (w *sendWQE) setData(wr *rdma.SendWR, limits *rdma.QPCap) error {
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
