package soft

import (
	"fmt"

	"github.com/rdmakv/rdmakv/rdma"
)

// A SendWQE is a posted send work request. All fields but the last ones are set
// before the request is in the queue, and then only read.
type SendWQE struct {
	ID       uint64
	Op       rdma.Opcode
	Signaled bool
	Fence    bool
	Solicit  bool
	Length   uint32 // bytes
	Remote   rdma.RemoteAddr
	SGL      SGL
	Inline   []byte // copied payload; nil unless inline was asked for
	space    []byte // array behind Inline, kept for reuse

	// Sent is how much has been framed: the transmitter's.
	Sent uint32
	// Done: the transmitter has framed all of a SEND or WRITE, or the receiver
	// has placed all of a READ. QP.Mu guards it.
	Done bool
}

// free drops references, so that a request that is over keeps no region alive.
func (w *SendWQE) free() {
	w.SGL.clear()
	w.Inline = nil
}

// A SendQueue is the ring of requests that are not completed. QP.Mu guards all
// of it.
//
//	Head ── completed next ──▶ Next ── transmitted next ──▶ Tail
//	     sent, or waiting for        posted, not yet (or not
//	     an older READ               wholly) framed
//
// A request stays in its slot when it is over, and the slot's next request uses
// its memory again. So code that keeps a pointer to a request must drop it
// before the request is over.
type SendQueue struct {
	limit            int // work requests
	ring             []*SendWQE
	Head, Next, Tail uint64
}

func (s *SendQueue) len() int { return int(s.Tail - s.Head) }

// At returns the i-th request since the queue was made, between Head and Tail.
func (s *SendQueue) At(i uint64) *SendWQE { return s.ring[i&uint64(len(s.ring)-1)] }

// post appends requests and returns how many were taken. reads says whether the
// peer serves READs; kind is the kind of regions that they may name.
func (s *SendQueue) post(wrs []rdma.SendWR, cfg *rdma.QPConfig, reads bool, kind *Kind) (int, error) {
	for i := range wrs {
		if s.len() >= s.limit {
			return i, fmt.Errorf("%w: %d send work requests posted", rdma.ErrQueueFull, s.limit)
		}
		if wrs[i].Op == rdma.OpRDMARead && !reads {
			return i, fmt.Errorf("%w: the peer serves no READs (ORD 0)", rdma.ErrInvalid)
		}
		if err := s.vacant().set(&wrs[i], cfg, kind); err != nil {
			return i, err
		}
		s.Tail++
	}
	return len(wrs), nil
}

// vacant is the request behind the newest one, to be filled in.
func (s *SendQueue) vacant() *SendWQE {
	if s.len() == len(s.ring) {
		old := s.ring
		s.ring = make([]*SendWQE, max(8, 2*len(old)))
		for i := s.Head; i != s.Tail; i++ {
			s.ring[i&uint64(len(s.ring)-1)] = old[i&uint64(len(old)-1)]
		}
	}
	w := &s.ring[s.Tail&uint64(len(s.ring)-1)]
	if *w == nil {
		*w = new(SendWQE)
	}
	return *w
}

// pop takes the oldest request off. It must be freed before the next post.
func (s *SendQueue) pop() *SendWQE {
	w := s.At(s.Head)
	s.Head++
	if s.Next < s.Head {
		s.Next = s.Head
	}
	return w
}

// set checks a request against the QP's limits and copies it.
func (w *SendWQE) set(wr *rdma.SendWR, cfg *rdma.QPConfig, kind *Kind) error {
	switch wr.Op {
	case rdma.OpSend, rdma.OpRDMARead, rdma.OpRDMAWrite:
	case rdma.OpSendInv, rdma.OpLocalInv, rdma.OpAtomicCmpSwap, rdma.OpAtomicFetchAdd, rdma.OpBindWindow:
		return fmt.Errorf("%w: %v", rdma.ErrNotSupported, wr.Op)
	default:
		return fmt.Errorf("%w: %v is not a send operation", rdma.ErrInvalid, wr.Op)
	}
	w.ID, w.Op, w.Remote = wr.ID, wr.Op, wr.Remote
	w.Signaled = cfg.SignalAll || wr.Flags&rdma.SendSignaled != 0
	w.Fence = wr.Flags&rdma.SendFence != 0
	w.Solicit = wr.Flags&rdma.SendSolicited != 0
	w.Sent, w.Done, w.Inline = 0, false, nil
	err := w.setData(wr, &cfg.Cap, kind)
	if err != nil {
		w.free()
	}
	return err
}

// setData takes over the SGL of a request, or copies its inline data.
func (w *SendWQE) setData(wr *rdma.SendWR, limits *rdma.QPCap, kind *Kind) error {
	if wr.Flags&rdma.SendInline == 0 {
		if err := w.SGL.set(wr.SGL, limits.MaxSGE, kind); err != nil {
			return err
		}
		if w.SGL.Total() > MaxMsgSize {
			return fmt.Errorf("%w: %d bytes in one %v, the limit is %d", rdma.ErrInvalid, w.SGL.Total(), wr.Op, MaxMsgSize)
		}
		w.Length = uint32(w.SGL.Total())
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
	w.SGL.clear()
	w.space = append(w.space[:0], wr.Inline...)
	w.Inline = w.space
	w.Length = uint32(len(wr.Inline))
	return nil
}
