package rdma

import (
	"context"
	"fmt"
)

// QPConfig says how to create a QP.
type QPConfig struct {
	SendCQ, RecvCQ CQ    // where completions of sends and of receives go; they may be the same CQ
	SRQ            SRQ   // nil: the QP has a receive queue of its own
	Cap            QPCap // zero fields take small defaults
	// Access is what the peer may do from the start. Normally that is nothing, and
	// SetAccess grants rights once the peer has authenticated.
	Access Access
	// SignalAll makes every send work request signaled (sq_sig_all).
	SignalAll bool
}

// QPCap bounds the queues of a QP (struct ibv_qp_cap).
type QPCap struct {
	MaxSendWR int // send work requests outstanding, up to DeviceAttr.MaxQPWR; 0 means 128
	MaxRecvWR int // receives posted, likewise; ignored with an SRQ
	MaxSGE    int // pieces of memory in one work request; 0 means 4
	MaxInline int // bytes of inline data in one work request; 0 means none
}

// QPState is the state of a QP (ibv_modify_qp(3)).
type QPState uint8

const (
	QPReset QPState = iota
	QPInit          // receives may be posted
	QPRTR           // ready to receive
	QPRTS           // ready to send: connected
	QPSQD           // send queue drained
	QPError         // everything is flushed
)

func (s QPState) String() string {
	switch s {
	case QPReset:
		return "RESET"
	case QPInit:
		return "INIT"
	case QPRTR:
		return "RTR"
	case QPRTS:
		return "RTS"
	case QPSQD:
		return "SQD"
	case QPError:
		return "ERR"
	}
	return fmt.Sprintf("QPState(%d)", uint8(s))
}

// A QP is a reliable connected queue pair. All methods are safe for
// concurrent use; the order of concurrent posts is not defined.
type QP interface {
	QPN() uint32
	PD() PD
	State() QPState

	// PostSend posts a batch of requests with one doorbell, and does not wait. It
	// returns how many were taken, in order. If n < len(wrs), err says why wrs[n]
	// was not: ErrQueueFull, ErrInvalid, ErrNotSupported, ErrNotConnected; the
	// requests before it are posted nevertheless. In state ERR a request is taken
	// and flushed, as in hardware. When PostSend returns the caller may reuse the
	// slice, its SGLs and inline data, which has been copied. The memory that the
	// SGLs name belongs to the fabric until the completion (package comment).
	PostSend(wrs []SendWR) (n int, err error)
	// PostRecv is the same for receives. They may be posted in state INIT, before
	// the QP is connected. On a QP with an SRQ it fails with ErrInvalid.
	PostRecv(wrs []RecvWR) (n int, err error)

	// SetAccess replaces the rights of the connected peer (ibv_modify_qp(3) with
	// IBV_QP_ACCESS_FLAGS, in state INIT or RTS). When it returns, the new rights
	// hold for every request that is not being served yet.
	SetAccess(a Access) error
	Access() Access

	// Connect connects to the listener at a host:port address, and returns when the
	// QP is in RTS. It fails with an OpError that wraps ErrRejected (ConnInfo then
	// has the peer's private data), ErrPeerGone, ErrDeadline or ctx.Err(). After
	// a failure the QP is in ERR and can only be closed. ctx bounds the set-up
	// alone.
	Connect(ctx context.Context, addr string, p ConnParams) (ConnInfo, error)
	// Info is what Connect or Accept returned; the zero ConnInfo before.
	Info() ConnInfo

	// Disconnect moves the QP to ERR: outstanding work is flushed, and the peer is
	// told. It does not wait. Calling it again is harmless.
	Disconnect() error
	// Done returns a channel that is closed when the QP enters ERR, for whatever
	// reason.
	Done() <-chan struct{}
	// Err is nil until the QP enters ERR. Afterwards it is why: an OpError that
	// wraps ErrClosed (Disconnect or Close on this end), ErrPeerGone, ErrAccess,
	// ErrReceiverNotReady or ErrProtocol.
	Err() error

	// Close disconnects, waits until the fabric no longer uses any buffer of the
	// QP, and destroys the QP. When it returns, all work that was outstanding has
	// its completion in the CQs, as flushed, and can be polled. Closing twice is
	// harmless.
	Close() error
}

// An SRQ is a receive queue that QPs of one PD share (CapSRQ). A receive posted to
// it goes to whichever of them gets a message next; the completion names the QP.
// All methods are safe for concurrent use.
type SRQ interface {
	PD() PD
	// PostRecv is QP.PostRecv, for all QPs that use the SRQ.
	PostRecv(wrs []RecvWR) (n int, err error)
	// Close fails with ErrBusy while a QP uses the SRQ. Receives that are still
	// posted are dropped without completions; their buffers are the program's again
	// when Close returns.
	Close() error
}
