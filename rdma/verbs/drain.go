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
	// release the buffers nevertheless.
	drainTimeout = 5 * time.Second
	// lastWQEFirst is how long the first QP with an SRQ waits to learn whether the
	// device reports that it has left the SRQ alone. lastWQESoon is how long the
	// QPs after it wait on a device that does not.
	lastWQEFirst = 250 * time.Millisecond
	lastWQESoon  = 5 * time.Millisecond
)

// Close disconnects, waits until the device has released every buffer, and
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
	q.drain.run()
	if l != nil {
		l.Close()
	}
	err := q.hw.Close()
	if q.srq != nil || q.pd.dev.iwarp {
		q.sendCQ.pull()
		q.recvCQ.pull()
	}
	q.pd.dev.leave(q)
	q.sends.free()
	q.sendCQ.detach(q)
	q.recvCQ.detach(q)
	if q.srq != nil {
		q.srq.detach()
	}
	q.pd.unuse()
	close(q.quiet)
	return classify(err)
}

// A drain brings back every work request of a QP that is being closed.
type drain struct {
	q            *qp
	sends, recvs atomic.Bool // the last work request came back
	leftSRQ      signal      // the device takes no more receives of the SRQ for the QP
}

// takes tells whether a completion of a dead QP is that of a last work request, and
// notes it.
func (d *drain) takes(id uint64) bool {
	switch id {
	case lastSendID:
		d.sends.Store(true)
	case lastRecvID:
		d.recvs.Store(true)
	default:
		return false
	}
	return true
}

// run takes every completion of the dead QP from its CQs, so that they can be
// polled when it is gone. A queue completes in order: when the last work request is
// back, all are. A CQ that is lost brings none, and neither does a device that is.
func (d *drain) run() {
	q, dev := d.q, d.q.pd.dev
	// A request that is posted from here on could come behind the last work
	// request, and would never complete.
	q.sends.mu.Lock()
	q.sends.shut = true
	read := q.endSinks()
	sends := lastWR{cq: q.sendCQ, back: &d.sends, done: !q.sends.posted && !read, post: q.sends.postLast}
	q.sends.mu.Unlock()
	q.recvs.mu.Lock()
	q.recvs.shut = true
	recvs := lastWR{cq: q.recvCQ, back: &d.recvs, done: !q.recvs.posted, post: q.recvs.postLast}
	q.recvs.mu.Unlock()
	if dev.iwarp {
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
			dev.fabric.opts.Logger.Error("RDMA device does not flush a queue pair", "device", dev.name, "qpn", q.num)
			break
		}
		time.Sleep(pause)
	}
	if q.srq != nil && q.Info().RemoteAddr != nil {
		d.leaveSRQ()
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

// step posts the last work request if that has not succeeded yet, looks into the
// CQ, and reports whether there is nothing to wait for any more.
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

func (s *sendQueue) postLast() error {
	_, err := s.q.hw.PostSend([]ibv.SendWR{{ID: lastSendID, Op: ibv.WRSend, Flags: ibv.SendSignaled}})
	s.q.kick()
	return err
}

func (r *recvQueue) postLast() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, err := r.q.hw.PostRecv([]ibv.RecvWR{{ID: lastRecvID}})
	r.q.kick()
	return err
}

// leaveSRQ waits until the device takes no more receives of the SRQ for this
// QP, and has completed those that it took: the event "last WQE reached".
// Devices that have an SRQ should report it; Soft-RoCE of some kernels does
// not, which the first QP to be closed finds out.
func (d *drain) leaveSRQ() {
	dev := d.q.pd.dev
	wait := drainTimeout
	switch dev.lastWQE.Load() {
	case lastWQEUnknown:
		wait = lastWQEFirst
	case lastWQEAbsent:
		wait = lastWQESoon
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-d.leftSRQ.ch:
	case <-t.C:
		dev.lastWQE.CompareAndSwap(lastWQEUnknown, lastWQEAbsent)
	}
	d.q.recvCQ.pull()
}
