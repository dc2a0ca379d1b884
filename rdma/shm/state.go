//go:build linux

package shm

import (
	"errors"
	"fmt"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/internal/soft"
)

// A bye is what an end leaves in its half for the other one before it hangs up.
type bye uint64

const (
	byeNone     bye = iota // it died without saying why
	byeClosed              // Disconnect or Close
	byeAccess              // the peer asked for memory that it may not have, or this end did
	byeNotReady            // a SEND met no receive
	byeProtocol            // the other one broke the protocol, or a SEND was too long
	byeLocal               // it made a mistake of its own
)

// A cause is why a connection ends, and what to tell the peer.
type cause struct {
	soft.Cause
	bye bye
}

// localFault is the end that a bad scatter/gather list brings.
func localFault(op rdma.Opcode) cause { return cause{soft.LocalFault(op), byeLocal} }

// violation is the end of a connection whose peer breaks the protocol.
func violation(err error) cause { return cause{soft.Cause{Err: err}, byeProtocol} }

// forbidden is the end of a READ or WRITE that is not allowed.
func forbidden(who string, why error) cause {
	return cause{soft.Cause{Err: fmt.Errorf("%w: %s: %w", rdma.ErrAccess, who, why)}, byeAccess}
}

// hungUp is the end of a connection whose peer has hung up, by its last word.
// That word is hostile, so an unknown one says nothing. oldest is the oldest
// request.
func hungUp(last bye, oldest *soft.SendWQE) cause {
	op := rdma.Opcode(0)
	if oldest != nil {
		op = oldest.Op
	}
	switch last {
	case byeAccess:
		c := cause{Cause: soft.Cause{Err: fmt.Errorf("%w: said by the peer", rdma.ErrAccess)}}
		if op == rdma.OpRDMARead || op == rdma.OpRDMAWrite {
			c.Send = rdma.StatusRemAccessErr
		}
		return c
	case byeNotReady:
		c := cause{Cause: soft.Cause{Err: fmt.Errorf("%w: said by the peer", rdma.ErrReceiverNotReady)}}
		if op == rdma.OpSend {
			c.Send = rdma.StatusRNRRetryExcErr
		}
		return c
	case byeProtocol:
		return cause{Cause: soft.Cause{Err: fmt.Errorf("%w: said by the peer of something of ours", rdma.ErrProtocol)}}
	}
	what := errors.New("the peer's process is gone")
	switch last {
	case byeClosed:
		what = errors.New("the peer closed the connection")
	case byeLocal:
		what = errors.New("the peer made a mistake and closed the connection")
	}
	return cause{Cause: soft.Cause{Err: fmt.Errorf("%w: %w", rdma.ErrPeerGone, what), Send: rdma.StatusRetryExcErr}}
}

// fail moves the QP to ERR, once, and records what to send to the peer.
func (q *qp) fail(c cause) {
	q.Mu.Lock()
	defer q.Mu.Unlock()
	q.failLocked(c)
}

func (q *qp) failLocked(c cause) {
	if q.StateLocked() != rdma.QPError {
		q.bye = c.bye
	}
	q.FailLocked(c.Cause)
}

// HangUp begins the end of the connection. FailLocked calls it under Mu.
func (q *qp) HangUp() { q.Workers.Go(q.finish) }

// finish hangs up, waits until no goroutine touches the program's memory,
// flushes, and releases everything that is the peer's or shared with it.
func (q *qp) finish() {
	q.Mu.Lock()
	ch, conn, last := q.ch, q.conn, max(q.bye, byeClosed)
	q.Mu.Unlock()
	if ch != nil {
		ch.out.bye.Store(uint64(last))
		raceRelease()
	}
	if conn != nil {
		_ = conn.Close()
	}
	q.rx.mu.Lock()
	q.tx.mu.Lock()
	q.Mu.Lock()
	q.rx.live = false
	q.FlushLocked()
	q.tx.resp, q.tx.reads = nil, nil // they may point into SQ
	q.Mu.Unlock()
	q.tx.mu.Unlock()
	q.rx.mu.Unlock()

	for _, c := range q.cqs() {
		c.unwatch(q)
	}
	q.show.stop()
	q.sockets.Wait()
	q.seen.close()
	if ch != nil {
		_ = ch.unmap()
	}
	// This comes last: a process that waits for this lock must learn that no
	// peer has the memory any more.
	if q.proof != nil {
		_ = q.proof.Close()
	}
}

func opError(op, addr string, err error) error {
	return &rdma.OpError{Op: op, Fabric: fabricName, Addr: addr, Err: err}
}
