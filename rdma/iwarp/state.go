package iwarp

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/internal/setup"
	"github.com/rdmakv/rdmakv/rdma/internal/soft"
	"github.com/rdmakv/rdmakv/rdma/iwarp/internal/proto"
)

// A cause is why a connection ends, and what to tell the peer, if anything.
type cause struct {
	soft.Cause
	term *proto.Terminate
}

// lingerTimeout bounds how long a dead QP keeps its socket, in order to get the
// last bytes out and to read until the peer closes too. Closing a socket with
// unread bytes would reset it, and the reset could overtake the Terminate.
const lingerTimeout = 500 * time.Millisecond

// violation is the end of a connection whose peer broke a rule: a Terminate with
// the headers of ulpdu, the segment that broke it.
func violation(code proto.Code, ulpdu []byte) *cause {
	t := &proto.Terminate{Code: code}
	t.About(ulpdu)
	t.Header = slices.Clone(t.Header) // ulpdu is in a buffer that goes back
	what := "a segment"
	if len(ulpdu) >= proto.ControlLen {
		what = "its " + proto.Opcode(ulpdu[1]&15).String()
	}
	return &cause{soft.Cause{
		Err:    fmt.Errorf("%w: refused %s of the peer: %v", code.Class(), what, code),
		Vendor: code.Wire(),
	}, t}
}

// localFault is the end that a bad scatter/gather list brings.
func localFault(op rdma.Opcode) *cause {
	c := &cause{soft.LocalFault(op), &proto.Terminate{Code: proto.CodeLocalCatastrophic}}
	c.Vendor = proto.CodeLocalCatastrophic.Wire()
	return c
}

// failLocked moves the QP to ERR, once, and records what to send to the peer.
func (q *qp) failLocked(c *cause) {
	if q.StateLocked() != rdma.QPError {
		q.tx.term = c.term
	}
	q.FailLocked(c.Cause)
}

// HangUp begins the end of the connection: from here on a deadline bounds the
// socket in both directions. FailLocked calls it under Mu.
func (q *qp) HangUp() {
	if q.wire.conn != nil {
		q.wire.lingerEnd = time.Now().Add(lingerTimeout)
		_ = q.wire.conn.SetDeadline(q.wire.lingerEnd)
		q.tx.kick()
	}
	q.settle()
}

// settle flushes everything once the QP is in ERR and no goroutine touches the
// program's memory any more. It is called, under Mu, at each point where one of
// these may just have become true.
func (q *qp) settle() {
	if q.StateLocked() != rdma.QPError || q.tx.framing || q.rx.busy {
		return
	}
	q.resp.ring, q.resp.head, q.resp.tail = nil, 0, 0
	q.FlushLocked()
}

// waitStarted waits for the first FPDU of the peer. Once that has come, the connection
// was established, even if the peer has ended it since: a peer that reads one value and
// goes may be done before this goroutine runs again.
func (q *qp) waitStarted(ctx context.Context) error {
	timeout := time.NewTimer(q.pd.dev.fabric.opts.SetupTimeout)
	defer timeout.Stop()
	select {
	case <-q.rx.started:
		return nil
	case <-q.Done():
		select {
		case <-q.rx.started:
			return nil
		default:
			return q.Err()
		}
	case <-ctx.Done():
		return setup.CtxError(ctx)
	case <-timeout.C:
		return fmt.Errorf("%w: no ready-to-receive frame within %v", rdma.ErrDeadline, q.pd.dev.fabric.opts.SetupTimeout)
	}
}
