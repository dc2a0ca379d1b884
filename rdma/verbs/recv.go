package verbs

import (
	"fmt"
	"sync"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/verbs/ibv"
)

// These are receives in the device's words, made and used within one call.
type recvScratch [postBatch]ibv.RecvWR

var recvPool = sync.Pool{New: func() any { return new(recvScratch) }}

// A recvQueue is the receive queue of a QP; one that receives from an SRQ does not use
// its own.
type recvQueue struct {
	q *qp

	mu     sync.Mutex
	posted bool // something was
	shut   bool // Close takes no more receives
}

// PostRecv posts receives to the QP's own queue.
func (q *qp) PostRecv(wrs []rdma.RecvWR) (int, error) {
	if q.srq != nil {
		return 0, fmt.Errorf("%w: the queue pair receives from an SRQ; post there", rdma.ErrInvalid)
	}
	if q.State() == rdma.QPError && q.pd.dev.iwarp {
		return q.recvs.flush(wrs)
	}
	// The lock is held until the state has been looked at again: see shutdown.
	q.recvs.mu.Lock()
	defer q.recvs.mu.Unlock()
	defer q.kickDead()
	if q.recvs.shut {
		return 0, fmt.Errorf("%w: the queue pair was closed", rdma.ErrNotConnected)
	}
	q.recvs.posted = true
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

// flush is PostRecv on a dead QP of an iWARP device: see sendQueue.flush.
func (r *recvQueue) flush(wrs []rdma.RecvWR) (int, error) {
	q := r.q
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
