package rdma

import (
	"context"
	"fmt"
)

// QPConfig says how to create a QP. Zero fields of Cap take small defaults.
type QPConfig struct {
	SendCQ, RecvCQ CQ  // may be the same
	SRQ            SRQ // nil: the QP has a receive queue of its own
	Cap            QPCap
	// Access is what the peer may do from the start. Normally none: rights
	// are granted with SetAccess once the peer has authenticated.
	Access Access
	// SignalAll makes every send work request signaled (sq_sig_all).
	SignalAll bool
}

// QPCap bounds the queues of a QP (struct ibv_qp_cap).
type QPCap struct {
	MaxSendWR int // 1 … DeviceAttr.MaxQPWR; 0 means 128
	MaxRecvWR int // likewise; ignored with an SRQ
	MaxSGE    int // 0 means 4
	MaxInline int // bytes; 0 means none
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

	// PostSend posts a batch with one doorbell and returns how many were
	// taken. If n < len(wrs), err says why wrs[n] was not: ErrQueueFull,
	// ErrInvalid, ErrNotSupported, ErrNotConnected. In state ERR a post is
	// taken and flushed, as in hardware. The slice and its SGLs may be reused
	// when PostSend returns; the memory that they name may not (package
	// comment), except inline data, which has been copied.
	PostSend(wrs []SendWR) (n int, err error)
	// PostRecv is the same for receives. On a QP with an SRQ: ErrInvalid.
	PostRecv(wrs []RecvWR) (n int, err error)

	// SetAccess replaces the remote rights of the connected peer
	// (ibv_modify_qp with IBV_QP_ACCESS_FLAGS in INIT or RTS). When it returns
	// the new rights are in force for every request not yet being served.
	SetAccess(a Access) error
	Access() Access

	// Connect dials a listener and returns when the QP is in RTS, or with an
	// OpError that wraps ErrRejected (with the peer's private data in
	// ConnInfo), ErrPeerGone, ErrDeadline or ctx.Err(). A QP whose Connect
	// failed is in ERR and can only be closed.
	Connect(ctx context.Context, addr string, p ConnParams) (ConnInfo, error)
	// Info is the outcome of Connect or Accept; zero before.
	Info() ConnInfo

	// Disconnect moves the QP to ERR: outstanding work is flushed, the peer
	// learns of it. Idempotent, does not wait.
	Disconnect() error
	// Done is closed when the QP has entered ERR, for whatever reason.
	Done() <-chan struct{}
	// Err is nil while the QP lives; afterwards why it died, an OpError whose
	// class tells who: ErrClosed (Disconnect or Close here), ErrPeerGone,
	// ErrAccess, ErrReceiverNotReady, ErrProtocol.
	Err() error

	// Close disconnects, waits until the fabric has let go of every buffer,
	// and destroys the QP. Completions of work that was outstanding have been
	// put on the CQs as flushed before Close returns; they can still be
	// polled. Closing twice is harmless.
	Close() error
}

// An SRQ is a receive queue shared by QPs of one PD (CapSRQ). Safe for
// concurrent use.
type SRQ interface {
	PD() PD
	PostRecv(wrs []RecvWR) (n int, err error)
	// Close fails with ErrBusy while a QP uses it. Receives still posted are
	// dropped without completions; their buffers are free when it returns.
	Close() error
}
