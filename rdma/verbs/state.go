package verbs

import (
	"fmt"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/verbs/ibv"
)

// begin claims the QP for one connection attempt. end is called when the QP
// fails meanwhile.
func (q *qp) begin(end func()) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if s := q.State(); s != rdma.QPInit || q.setup.claimed {
		return fmt.Errorf("%w: a queue pair connects once, this one is in state %v", rdma.ErrInvalid, s)
	}
	q.setup.claimed, q.setup.abort = true, end
	return nil
}

// fail moves the QP to ERR, once: err says why and wraps a class of package
// rdma. Outstanding work is flushed and the peer is told, shortly after.
func (q *qp) fail(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.State() == rdma.QPError {
		return
	}
	addr := ""
	if q.info.RemoteAddr != nil {
		addr = q.info.RemoteAddr.String()
	}
	q.state.Store(uint32(rdma.QPError))
	q.err = opError("connection", addr, err)
	if old, ok := err.(*rdma.OpError); ok {
		q.err = old
	}
	close(q.dead)
	if q.setup.abort != nil {
		q.setup.abort()
	}
	q.spawnLocked(q.shutdown)
}

// spawnLocked runs f on a goroutine that Close waits for. Once Close has begun,
// it starts none. The caller holds mu.
func (q *qp) spawnLocked(f func()) {
	if q.closed {
		return
	}
	q.workers.Go(f)
}

func (q *qp) spawn(f func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.spawnLocked(f)
}

// shutdown is what entering ERR means to the device and to the peer.
func (q *qp) shutdown() {
	// A receive that was posted before this is flushed by it; one that is
	// posted after it sees the state and kicks.
	q.recvs.mu.Lock()
	q.kick()
	q.recvs.mu.Unlock()
	q.mu.Lock()
	l := q.link
	q.mu.Unlock()
	if l != nil {
		l.Disconnect()
	}
}

// kick moves the QP of the device to ERR. Doing so again makes a device look
// for what was posted since: Soft-RoCE has no doorbell for receives, and
// flushes some sends only then (its requester counts one send for each doorbell
// and stops when it is a whole queue behind).
func (q *qp) kick() {
	// It fails on a device that is gone, which flushes nothing anyway.
	_ = q.hw.Modify(&ibv.QPAttr{State: ibv.QPSErr}, ibv.QPMaskState)
}

// kickDead is kick after a post to a QP that is in ERR by now.
func (q *qp) kickDead() {
	if q.State() == rdma.QPError {
		q.kick()
	}
}

// Disconnect moves the QP to ERR and tells the peer.
func (q *qp) Disconnect() error {
	q.fail(fmt.Errorf("%w: disconnected here", rdma.ErrClosed))
	return nil
}

// failed books a completion with an error, while the CQ is being polled. It
// returns false for the last work requests, which are our own.
func (q *qp) failed(wc *rdma.WC) bool {
	dead := q.State() == rdma.QPError
	switch {
	case dead && q.drain.takes(wc.ID):
		return false
	case dead:
	case wc.Status != rdma.StatusWRFlushErr:
		q.fail(fmt.Errorf("work request %#x: %w (vendor error %#x)", wc.ID, wc.Status.Err(), wc.VendorErr))
	case q.suspected.CompareAndSwap(false, true):
		// The device has moved it to ERR by itself.
		q.spawn(func() { q.inspect(fmt.Errorf("%w: the device has flushed the queue pair", rdma.ErrPeerGone)) })
	}
	return true
}

// peerGone is called by the link when the peer has disconnected or died.
func (q *qp) peerGone(why string) {
	q.spawn(func() { q.inspect(fmt.Errorf("%w: %s", rdma.ErrPeerGone, why)) })
}

// inspect finds out why the connection ended and fails the QP: with err, unless
// the QP had died on its own before. Then a completion says why, which the
// program may not have polled yet; or, where none does, the device has refused
// a request of the peer: nothing else ends a QP without a completion. Some
// devices report that as an event, Soft-RoCE does not.
func (q *qp) inspect(err error) {
	defer q.suspected.Store(false)
	if q.State() == rdma.QPError {
		return
	}
	if q.pd.dev.iwarp {
		// The kernel moves it to ERR when the peer is gone, too; and not every
		// driver tells the state.
		q.sendCQ.pull()
		q.recvCQ.pull()
	} else if attr, qerr := q.hw.Query(ibv.QPMaskState); qerr == nil && attr.State == ibv.QPSErr {
		q.sendCQ.pull()
		q.recvCQ.pull()
		err = fmt.Errorf("%w: the device refused a request of the peer", rdma.ErrAccess)
	}
	q.fail(err)
}

// heard is called when data has come, which says that the peer is in RTS.
func (q *qp) heard() { q.setup.early.give() }
