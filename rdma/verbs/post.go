package verbs

import (
	"errors"
	"fmt"
	"sync"
	"syscall"

	"github.com/rdmakv/rdmakv/rdma"
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

// Receives in the device's words, made and used within one call.
type recvScratch [postBatch]ibv.RecvWR

var recvPool = sync.Pool{New: func() any { return new(recvScratch) }}

// PostSend posts a batch, with one doorbell for each postBatch requests.
func (q *qp) PostSend(wrs []rdma.SendWR) (int, error) {
	switch s := q.State(); s {
	case rdma.QPRTS:
	case rdma.QPError:
		if q.pd.dev.iwarp {
			return q.flushSends(wrs)
		}
	default:
		return 0, fmt.Errorf("%w: state %v", rdma.ErrNotConnected, s)
	}
	q.sendMu.Lock()
	n, err := q.postLocked(wrs)
	q.kickDead()
	q.sendMu.Unlock()
	return n, err
}

// postLocked posts with sendMu held. It is apart because a function with a loop
// pays for each of its defers.
func (q *qp) postLocked(wrs []rdma.SendWR) (int, error) {
	if q.shut {
		return 0, fmt.Errorf("%w: the queue pair was closed", rdma.ErrNotConnected)
	}
	scratch := q.room(len(wrs))
	q.sent = true
	for done := 0; done < len(wrs); {
		n := 0
		var bad error
		for n < len(scratch) && done+n < len(wrs) {
			if n >= smallBatch && wrs[done+n].Flags&rdma.SendInline != 0 {
				break // no place for its payload in this call
			}
			if bad = q.prepare(&wrs[done+n], &scratch[n], n); bad != nil {
				break
			}
			n++
		}
		posted, err := q.hw.PostSend(scratch[:n])
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
// postBatch. Called with sendMu held; it is good until sendMu is given back.
func (q *qp) room(n int) []ibv.SendWR {
	if want := min(n, postBatch); len(q.scratch) < want || q.scratch == nil {
		size := smallBatch
		if want > smallBatch {
			size = postBatch
		}
		q.scratch = make([]ibv.SendWR, size)
	}
	return q.scratch
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
func (q *qp) prepare(wr *rdma.SendWR, out *ibv.SendWR, slot int) error {
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
		if err := q.prepareAtomic(wr, out); err != nil {
			return err
		}
		sink = true
	case rdma.OpSendInv, rdma.OpLocalInv, rdma.OpBindWindow:
		return fmt.Errorf("%w: %v", rdma.ErrNotSupported, wr.Op)
	default:
		return fmt.Errorf("%w: opcode %v", rdma.ErrInvalid, wr.Op)
	}
	if sink && q.ord.Load() == 0 && q.State() == rdma.QPRTS {
		// Some devices never answer a READ with max_rd_atomic 0.
		return fmt.Errorf("%w: the peer serves no READs (ORD 0)", rdma.ErrInvalid)
	}
	if wr.Flags&rdma.SendInline != 0 {
		return q.prepareInline(wr, out, slot, sink)
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

func (q *qp) prepareInline(wr *rdma.SendWR, out *ibv.SendWR, slot int, sink bool) error {
	switch {
	case sink:
		return fmt.Errorf("%w: %v inline", rdma.ErrInvalid, wr.Op)
	case len(wr.SGL) != 0:
		return fmt.Errorf("%w: an inline request with a scatter/gather list", rdma.ErrInvalid)
	case len(wr.Inline) > q.maxInline:
		return fmt.Errorf("%w: %d bytes inline, the limit is %d", rdma.ErrInvalid, len(wr.Inline), q.maxInline)
	}
	out.Flags |= ibv.SendInline
	out.NumSGE = 0
	if len(wr.Inline) > 0 {
		place := q.inline.Bytes()[slot*q.maxInline:]
		copy(place, wr.Inline)
		out.NumSGE = 1
		out.SGL[0] = ibv.SGE{Addr: uint64(addrOf(place)), Len: uint32(len(wr.Inline))}
	}
	return nil
}

// prepareAtomic refuses what devices do not refuse but hang on.
func (q *qp) prepareAtomic(wr *rdma.SendWR, out *ibv.SendWR) error {
	const word = 8
	switch {
	case !q.pd.dev.attr.Caps.Has(rdma.CapAtomics):
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

// emptySGL is a list without bytes as siw wants it for READs and receives: with
// no entry at all it takes an old one for a READ, and refuses a receive.
func emptySGL(out *[ibv.MaxSGE]ibv.SGE) uint32 {
	out[0] = ibv.SGE{}
	return 1
}

// fillSGL checks a scatter/gather list and writes it as addresses and lkeys.
// Entries without bytes are left out: they are lawful, and siw's kernel driver
// dies of them.
func fillSGL(p *pd, limit int, sgl []rdma.SGE, out *[ibv.MaxSGE]ibv.SGE, right rdma.Access) (uint32, error) {
	if len(sgl) > limit {
		return 0, fmt.Errorf("%w: %d scatter/gather entries, the limit is %d", rdma.ErrInvalid, len(sgl), limit)
	}
	total, n := uint64(0), 0
	for i := range sgl {
		s := &sgl[i]
		m, ok := s.MR.(*mr)
		switch {
		case !ok || m == nil || m.pd != p:
			return 0, fmt.Errorf("%w: entry %d is no region of this protection domain", rdma.ErrInvalid, i)
		case m.closed.Load():
			return 0, fmt.Errorf("%w: the region of entry %d was closed", rdma.ErrInvalid, i)
		case s.Off > uint64(len(m.buf)) || uint64(s.Len) > uint64(len(m.buf))-s.Off:
			return 0, fmt.Errorf("%w: entry %d: %d bytes at %d in a region of %d", rdma.ErrInvalid, i, s.Len, s.Off, len(m.buf))
		case m.access&right != right:
			return 0, fmt.Errorf("%w: the region of entry %d has no AccessLocalWrite", rdma.ErrInvalid, i)
		}
		if s.Len > 0 {
			total += uint64(s.Len)
			out[n] = ibv.SGE{Addr: m.hw.Addr + s.Off, Len: s.Len, LKey: m.hw.LKey}
			n++
		}
	}
	if total > uint64(p.dev.attr.MaxMsgSize) {
		return 0, fmt.Errorf("%w: %d bytes, the limit is %d", rdma.ErrInvalid, total, p.dev.attr.MaxMsgSize)
	}
	return uint32(n), nil
}

// PostRecv posts receives to the QP's own queue.
func (q *qp) PostRecv(wrs []rdma.RecvWR) (int, error) {
	if q.srq != nil {
		return 0, fmt.Errorf("%w: the queue pair receives from an SRQ; post there", rdma.ErrInvalid)
	}
	if q.State() == rdma.QPError && q.pd.dev.iwarp {
		return q.flushRecvs(wrs)
	}
	// Held until the state has been looked at again: see shutdown.
	q.recvMu.Lock()
	defer q.recvMu.Unlock()
	defer q.kickDead()
	if q.recvShut {
		return 0, fmt.Errorf("%w: the queue pair was closed", rdma.ErrNotConnected)
	}
	q.received = true
	return postRecv(q.pd, q.maxSGE, wrs, q.hw.PostRecv)
}

// postRecv checks receives and hands them to post, batch by batch.
func postRecv(p *pd, maxSGE int, wrs []rdma.RecvWR, post func([]ibv.RecvWR) (int, error)) (int, error) {
	scratch := recvPool.Get().(*recvScratch)
	defer recvPool.Put(scratch)
	for done := 0; done < len(wrs); {
		n := 0
		var bad error
		for n < postBatch && done+n < len(wrs) {
			wr, out := &wrs[done+n], &scratch[n]
			out.ID = wr.ID
			if out.NumSGE, bad = fillSGL(p, maxSGE, wr.SGL, &out.SGL, rdma.AccessLocalWrite); bad != nil {
				break
			}
			if out.NumSGE == 0 && p.dev.iwarp {
				out.NumSGE = emptySGL(&out.SGL)
			}
			n++
		}
		posted, err := post(scratch[:n])
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

// flushSends is PostSend on a dead QP of an iWARP device. RFC 5040's verbs let
// a device refuse such a post or take it for ever; so it is flushed here,
// behind what the device itself has flushed.
func (q *qp) flushSends(wrs []rdma.SendWR) (int, error) {
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

// flushRecvs is the same for receives.
func (q *qp) flushRecvs(wrs []rdma.RecvWR) (int, error) {
	select {
	case <-q.quiet:
		return 0, fmt.Errorf("%w: the queue pair was closed", rdma.ErrNotConnected)
	default:
	}
	q.recvCQ.pull()
	for i := range wrs {
		q.recvCQ.push(rdma.WC{ID: wrs[i].ID, Status: rdma.StatusWRFlushErr, QPN: q.num})
	}
	return len(wrs), nil
}
