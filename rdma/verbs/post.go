package verbs

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/mem"
	"github.com/rdmakv/rdmakv/rdma/verbs/ibv"
)

// postBatch is how many work requests go into one call into C, and to the device
// with one doorbell: as many as the shim chains. smallBatch is the room that a
// queue pair has before it is handed more at a time, and how many inline payloads
// of one call it keeps: 64 of each would be 28 KiB for each of a server's
// sessions, most of which post one reply at a time.
const (
	postBatch  = 64
	smallBatch = 16
)

// A sendQueue is the send queue of a QP: what turns a program's requests into those
// of the device.
type sendQueue struct {
	q         *qp
	maxInline int          // bytes that a request carries itself
	ord       atomic.Int32 // READs that the peer serves at a time

	mu      sync.Mutex
	scratch []ibv.SendWR // requests in the device's words, of the post under way; nil before the first
	posted  bool         // something was
	shut    bool         // Close takes no more sends, and frees inline
	inline  *mem.Block   // where inline payloads wait for the call; nil without
}

// PostSend posts a batch, with one doorbell for each postBatch requests.
func (q *qp) PostSend(wrs []rdma.SendWR) (int, error) {
	switch s := q.State(); s {
	case rdma.QPRTS:
	case rdma.QPError:
		if q.pd.dev.iwarp {
			return q.sends.flush(wrs)
		}
	default:
		return 0, fmt.Errorf("%w: state %v", rdma.ErrNotConnected, s)
	}
	q.sends.mu.Lock()
	n, err := q.sends.post(wrs)
	q.kickDead()
	q.sends.mu.Unlock()
	return n, err
}

// post posts with mu held. It is apart from PostSend, which stays short and without a
// defer.
func (s *sendQueue) post(wrs []rdma.SendWR) (int, error) {
	if s.shut {
		return 0, fmt.Errorf("%w: the queue pair was closed", rdma.ErrNotConnected)
	}
	scratch := s.room(len(wrs))
	s.posted = true
	for done := 0; done < len(wrs); {
		n := 0
		var bad error
		for n < len(scratch) && done+n < len(wrs) {
			if n >= smallBatch && wrs[done+n].Flags&rdma.SendInline != 0 {
				break // no place for its payload in this call
			}
			if bad = s.prepare(&wrs[done+n], &scratch[n], n); bad != nil {
				break
			}
			n++
		}
		posted, err := s.q.hw.PostSend(scratch[:n])
		done += posted
		if err != nil {
			return done, postError(err)
		}
		if bad != nil {
			return done, bad
		}
	}
	return len(wrs), nil
}

// room is where up to n requests are written in the device's words, at most
// postBatch. The caller holds mu; the room is good until mu is given back.
func (s *sendQueue) room(n int) []ibv.SendWR {
	if want := min(n, postBatch); len(s.scratch) < want || s.scratch == nil {
		size := smallBatch
		if want > smallBatch {
			size = postBatch
		}
		s.scratch = make([]ibv.SendWR, size)
	}
	return s.scratch
}

// postError gives a refused post its class.
func postError(err error) error {
	switch {
	case errors.Is(err, ibv.ErrClosed):
		return fmt.Errorf("%w: the queue pair was closed", rdma.ErrNotConnected)
	case errors.Is(err, syscall.ENOMEM), errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EAGAIN):
		return rdma.ErrQueueFull
	}
	return classify(err)
}

// prepare checks a work request and writes it in the device's words. The
// payload of an inline request is copied to place slot, which lies outside the
// Go heap and its stacks.
func (s *sendQueue) prepare(wr *rdma.SendWR, out *ibv.SendWR, slot int) error {
	q := s.q
	out.ID = wr.ID
	out.Flags = 0
	if wr.Flags&rdma.SendSignaled != 0 {
		out.Flags |= ibv.SendSignaled
	}
	// On iWARP a READ behind READs needs no fence, and siw breaks the
	// connection over one.
	if wr.Flags&rdma.SendFence != 0 && !(q.pd.dev.iwarp && wr.Op == rdma.OpRDMARead) {
		out.Flags |= ibv.SendFence
	}
	if wr.Flags&rdma.SendSolicited != 0 {
		out.Flags |= ibv.SendSolicited
	}
	out.RemoteAddr, out.RKey = wr.Remote.Addr, wr.Remote.RKey
	sink := false // the SGL is written to
	switch wr.Op {
	case rdma.OpSend:
		out.Op = ibv.WRSend
	case rdma.OpRDMAWrite:
		out.Op = ibv.WRRDMAWrite
	case rdma.OpRDMARead:
		out.Op = ibv.WRRDMARead
		sink = true
	case rdma.OpAtomicCmpSwap, rdma.OpAtomicFetchAdd:
		if err := s.prepareAtomic(wr, out); err != nil {
			return err
		}
		sink = true
	case rdma.OpSendInv, rdma.OpLocalInv, rdma.OpBindWindow:
		return fmt.Errorf("%w: %v", rdma.ErrNotSupported, wr.Op)
	default:
		return fmt.Errorf("%w: opcode %v", rdma.ErrInvalid, wr.Op)
	}
	if sink && s.ord.Load() == 0 && q.State() == rdma.QPRTS {
		// Some devices never answer a READ with max_rd_atomic 0.
		return fmt.Errorf("%w: the peer serves no READs (ORD 0)", rdma.ErrInvalid)
	}
	if wr.Flags&rdma.SendInline != 0 {
		return s.prepareInline(wr, out, slot, sink)
	}
	right := rdma.Access(0)
	if sink {
		right = rdma.AccessLocalWrite
		if q.pd.dev.iwarp && len(wr.SGL) > 1 {
			return fmt.Errorf("%w: %d pieces of a READ's sink, the limit of iWARP is 1", rdma.ErrInvalid, len(wr.SGL))
		}
	}
	n, err := fillSGL(q.pd, q.maxSGE, wr.SGL, &out.SGL, right)
	if n == 0 && sink && q.pd.dev.iwarp {
		n = emptySGL(&out.SGL)
	}
	out.NumSGE = n
	return err
}

// prepareInline copies the payload of an inline request to place slot.
func (s *sendQueue) prepareInline(wr *rdma.SendWR, out *ibv.SendWR, slot int, sink bool) error {
	switch {
	case sink:
		return fmt.Errorf("%w: %v inline", rdma.ErrInvalid, wr.Op)
	case len(wr.SGL) != 0:
		return fmt.Errorf("%w: an inline request with a scatter/gather list", rdma.ErrInvalid)
	case len(wr.Inline) > s.maxInline:
		return fmt.Errorf("%w: %d bytes inline, the limit is %d", rdma.ErrInvalid, len(wr.Inline), s.maxInline)
	}
	out.Flags |= ibv.SendInline
	out.NumSGE = 0
	if len(wr.Inline) > 0 {
		place := s.inline.Bytes()[slot*s.maxInline:]
		copy(place, wr.Inline)
		out.NumSGE = 1
		out.SGL[0] = ibv.SGE{Addr: uint64(addrOf(place)), Len: uint32(len(wr.Inline))}
	}
	return nil
}

// prepareAtomic refuses what devices do not refuse but hang on.
func (s *sendQueue) prepareAtomic(wr *rdma.SendWR, out *ibv.SendWR) error {
	const word = 8
	switch {
	case !s.q.pd.dev.attr.Caps.Has(rdma.CapAtomics):
		return fmt.Errorf("%w: %v", rdma.ErrNotSupported, wr.Op)
	case wr.Remote.Addr%word != 0:
		return fmt.Errorf("%w: %v at %#x, which is no multiple of %d", rdma.ErrInvalid, wr.Op, wr.Remote.Addr, word)
	case len(wr.SGL) != 1 || wr.SGL[0].Len != word:
		return fmt.Errorf("%w: %v needs one piece of %d bytes", rdma.ErrInvalid, wr.Op, word)
	}
	out.CompareAdd, out.Swap = wr.CompareAdd, wr.Swap
	out.Op = ibv.WRAtomicFetchAdd
	if wr.Op == rdma.OpAtomicCmpSwap {
		out.Op = ibv.WRAtomicCmpSwp
	}
	return nil
}

// flush is PostSend on a dead QP of an iWARP device. RFC 5040's verbs let
// a device refuse such a post or take it for ever; so it is flushed here,
// behind what the device itself has flushed.
func (s *sendQueue) flush(wrs []rdma.SendWR) (int, error) {
	q := s.q
	select {
	case <-q.quiet:
		return 0, fmt.Errorf("%w: the queue pair was closed", rdma.ErrNotConnected)
	default:
	}
	q.sendCQ.pull()
	for i := range wrs {
		q.sendCQ.push(rdma.WC{ID: wrs[i].ID, Status: rdma.StatusWRFlushErr, QPN: q.num})
	}
	return len(wrs), nil
}

// free returns what Close no longer needs.
func (s *sendQueue) free() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inline != nil {
		_ = s.inline.Free()
	}
}
