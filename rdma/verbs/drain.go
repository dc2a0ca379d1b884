package verbs

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/verbs/ibv"
)

// IDs of the last work request in each queue of a QP that is being closed.
// They count only in completions of such a QP with an error. Random bits: a
// program's own ID is not one of them by accident.
const (
	lastSendID = 0x9d3c_5be1_70a2_f64f
	lastRecvID = 0x9d3c_5be1_70a2_f650
)

const (
	// drainTimeout bounds the wait for flushes, which take microseconds. A
	// device that is slower than this is broken; destroying the QP makes it
	// let go of the buffers all the same.
	drainTimeout = 5 * time.Second
	// lastWQEFirst is how long the first QP with an SRQ waits to learn whether
	// the device reports that it has left the SRQ alone; lastWQESoon is how
	// long those after it wait on a device that does not.
	lastWQEFirst = 250 * time.Millisecond
	lastWQESoon  = 5 * time.Millisecond
)

// Close disconnects, waits until the device has let go of every buffer, and
// destroys the QP.
func (q *qp) Close() error {
	q.fail(fmt.Errorf("%w: closed here", rdma.ErrClosed))
	q.mu.Lock()
	first := !q.closed
	q.closed = true
	l := q.link
	q.mu.Unlock()
	if !first {
		<-q.quiet
		return nil
	}
	q.workers.Wait()
	q.drain()
	if l != nil {
		l.close()
	}
	err := q.hw.Close()
	if q.srq != nil || q.pd.dev.iwarp {
		q.sendCQ.pull()
		q.recvCQ.pull()
	}
	q.pd.dev.leave(q)
	q.sendMu.Lock()
	if q.inline != nil {
		_ = q.inline.Free()
	}
	q.sendMu.Unlock()
	q.sendCQ.detach(q)
	q.recvCQ.detach(q)
	if q.srq != nil {
		q.srq.detach()
	}
	q.pd.unuse()
	close(q.quiet)
	return classify(err)
}

// drain takes every completion of the dead QP from its CQs, so that they can
// be polled when it is gone. A queue completes in order: when the last work
// request is back, all are. Nothing comes from a CQ that is lost, and from a
// device that is.
func (q *qp) drain() {
	d := q.pd.dev
	// What is posted from here on could come behind the last work request, and
	// would never complete.
	q.sendMu.Lock()
	q.shut = true
	sends := lastWR{cq: q.sendCQ, back: &q.sendDrained, done: !q.sent, post: q.postLastSend}
	q.sendMu.Unlock()
	q.recvMu.Lock()
	q.recvShut = true
	recvs := lastWR{cq: q.recvCQ, back: &q.recvDrained, done: !q.received, post: q.postLastRecv}
	q.recvMu.Unlock()
	if d.iwarp {
		// These flush while they enter ERR, and take no work request after it.
		q.sendCQ.pull()
		q.recvCQ.pull()
		return
	}
	deadline := time.Now().Add(drainTimeout)
	for pause := 20 * time.Microsecond; ; pause = min(2*pause, 2*time.Millisecond) {
		sendsBack, recvsBack := sends.step(), recvs.step()
		if sendsBack && recvsBack {
			break
		}
		if time.Now().After(deadline) {
			d.fabric.opts.Logger.Error("RDMA device does not flush a queue pair", "device", d.name, "qpn", q.num)
			break
		}
		time.Sleep(pause)
	}
	if q.srq != nil && q.Info().RemoteAddr != nil {
		q.leaveSRQ()
	}
}

// A lastWR is the last work request of one queue.
type lastWR struct {
	cq     *cq
	post   func() error
	posted bool
	back   *atomic.Bool // it has been seen in the CQ
	done   bool
}

// step posts it if that has not succeeded yet, looks into the CQ, and tells
// whether there is nothing to wait for any more.
func (w *lastWR) step() bool {
	if w.done || w.cq.down.Load() != nil {
		return true
	}
	w.cq.pull() // which makes room, too
	if !w.posted {
		err := w.post()
		if err != nil && !errors.Is(postError(err), rdma.ErrQueueFull) {
			w.done = true // the device takes none in this state
		}
		w.posted = err == nil
		w.cq.pull()
	}
	w.done = w.done || w.back.Load()
	return w.done
}

func (q *qp) postLastSend() error {
	_, err := q.hw.PostSend([]ibv.SendWR{{ID: lastSendID, Op: ibv.WRSend, Flags: ibv.SendSignaled}})
	q.kick()
	return err
}

func (q *qp) postLastRecv() error {
	q.recvMu.Lock()
	defer q.recvMu.Unlock()
	_, err := q.hw.PostRecv([]ibv.RecvWR{{ID: lastRecvID}})
	q.kick()
	return err
}

// leaveSRQ waits until the device takes no more receives of the SRQ for this
// QP, and has completed those that it took: the event "last WQE reached".
// Devices that have an SRQ should report it; Soft-RoCE of some kernels does
// not, which the first QP to be closed finds out.
func (q *qp) leaveSRQ() {
	d := q.pd.dev
	wait := drainTimeout
	switch d.lastWQE.Load() {
	case lastWQEUnknown:
		wait = lastWQEFirst
	case lastWQEAbsent:
		wait = lastWQESoon
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-q.lastWQE:
	case <-t.C:
		d.lastWQE.CompareAndSwap(lastWQEUnknown, lastWQEAbsent)
	}
	q.recvCQ.pull()
}
