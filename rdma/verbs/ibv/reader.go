package ibv

import (
	"slices"
	"syscall"
	"time"
)

// A Reader makes READs of one QP whose work requests are prepared: each READ lands in
// one of its sinks, and is posted and polled for in one call into C, which writes
// nothing but what differs from READ to READ. rdma-core has no such object.
//
// One goroutine at a time may call Read and Await, the one that polls the QP's CQ for
// sends; Close may race with them. It is closed before the QP, which answers EBUSY
// until then.
type Reader struct {
	object
	qp    *QP
	sinks []SGE
}

// MaxSinks bounds the sinks of a Reader.
const MaxSinks = 1 << 10

// NewReader makes a Reader with these sinks. Their memory stays registered, in the
// QP's protection domain, until the QP is closed. EINVAL: none, or too many.
func (q *QP) NewReader(sinks []SGE) (*Reader, error) {
	if len(sinks) == 0 || len(sinks) > MaxSinks {
		return nil, callError("prepare READs", syscall.EINVAL)
	}
	cq := q.init.SendCQ
	release, err := useAll(&q.object, &cq.object)
	if err != nil {
		return nil, err
	}
	defer release()
	r := &Reader{object: object{key: newKey()}, qp: q, sinks: slices.Clone(sinks)}
	h, errno := sysCreateReader(q.h, cq.h, cq.yield, r.sinks)
	if errno != 0 {
		return nil, callError("prepare READs", errno)
	}
	r.h = h
	q.kids.add("reader")
	return r, nil
}

// Read posts a READ of n bytes, at least 1, into a sink, and polls the CQ for one
// completion for up to d, at most MaxSpin. It returns how many it has put into wc: 0 or
// 1, that of the READ or of another request that completed before it. The READ completes
// under id. The sink must not be in use by another READ.
//
// With an error the READ is not posted, and nothing was polled: ErrClosed, or a
// CallError with EINVAL if the sink has no room for n bytes, or with ENOMEM if the send
// queue is full.
func (r *Reader) Read(sink int, id, addr uint64, rkey, n uint32, d time.Duration, wc *WC) (int, error) {
	if uint(sink) >= uint(len(r.sinks)) || n == 0 || n > r.sinks[sink].Len {
		return 0, callError("ibv_post_send", syscall.EINVAL)
	}
	if err := r.use(); err != nil {
		return 0, err
	}
	got, errno := sysRead(r.h, sink, id, addr, rkey, n, bounded(d), wc)
	r.mu.RUnlock()
	if errno != 0 {
		return 0, callError("ibv_post_send", errno)
	}
	return got, nil
}

// Await polls on, for one completion.
func (r *Reader) Await(d time.Duration, wc *WC) (int, error) {
	if err := r.use(); err != nil {
		return 0, err
	}
	got, errno := sysAwaitRead(r.h, bounded(d), wc)
	r.mu.RUnlock()
	return got, pollError(errno)
}

// Close ends the Reader, when no call of it is under way. READs that it has posted go
// on, and complete in the CQ.
func (r *Reader) Close() error {
	done, err := r.destroy("end prepared READs", sysDestroyReader)
	if done {
		r.qp.kids.done("reader")
	}
	return err
}
