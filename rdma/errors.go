package rdma

import (
	"errors"
	"fmt"
	"strings"
)

// Classes of failure. Every error of a fabric wraps one of them, which errors.Is
// finds, or is that of a context. What it wraps beside that differs between fabrics
// (an iWARP Terminate, an InfiniBand NAK), and is for people.
var (
	// ErrAccess: a protection fault. The rkey is unknown, the access is out of
	// bounds, or a right is missing, on the MR or on the QP. The connection has
	// ended.
	ErrAccess = errors.New("rdma: remote access refused")
	// ErrReceiverNotReady: the peer had no receive posted for a SEND, for longer
	// than the transport waits. The connection has ended.
	ErrReceiverNotReady = errors.New("rdma: receiver not ready")
	// ErrFlushed: the QP entered ERR before the work request was done; QP.Err says
	// why. Whether the work reached the peer is not known.
	ErrFlushed = errors.New("rdma: work request flushed")
	// ErrPeerGone: the peer has ended the connection, or does not answer.
	ErrPeerGone = errors.New("rdma: peer gone")
	// ErrDeadline: a deadline of the fabric has passed, such as that of a
	// connection's set-up.
	ErrDeadline = errors.New("rdma: deadline passed")
	// ErrProtocol: the peer broke the wire protocol.
	ErrProtocol = errors.New("rdma: protocol violation")
	// ErrLocal: a work request of this end was wrong: its SGL, length or memory
	// region.
	ErrLocal = errors.New("rdma: local work request error")
	// ErrRejected: the peer has refused the connection request.
	ErrRejected = errors.New("rdma: connection rejected")
	// ErrNotSupported: the device lacks the capability.
	ErrNotSupported = errors.New("rdma: not supported by this device")
	// ErrInvalid: an argument is out of range; the text names it and the limit.
	ErrInvalid = errors.New("rdma: invalid argument")
	// ErrQueueFull: the send queue, receive queue or SRQ has no room. There is room
	// again once completions have been polled.
	ErrQueueFull = errors.New("rdma: queue full")
	// ErrNotConnected: the state of the QP does not allow this.
	ErrNotConnected = errors.New("rdma: queue pair not connected")
	// ErrBusy: the object cannot be closed, since others that are open use it.
	ErrBusy = errors.New("rdma: object in use")
	// ErrClosed: the object was closed on this end.
	ErrClosed = errors.New("rdma: closed")
	// ErrCQOverrun: there were more completions than the CQ has room for. The CQ
	// is unusable.
	ErrCQOverrun = errors.New("rdma: completion queue overrun")
	// ErrNoDevice: no device has this name (the text lists those that exist), or
	// none reaches this address.
	ErrNoDevice = errors.New("rdma: no such device")
	// ErrLimit: a device limit (number of QPs, MRs, …) is reached.
	ErrLimit = errors.New("rdma: device limit reached")
)

// An OpError says which operation failed on what. It wraps the class of the error.
type OpError struct {
	Op     string // "connect", "accept", "listen", "register", "receive", …
	Fabric string // "iwarp"
	Addr   string // address of the peer, or to listen at; "" if there is none
	Err    error  // wraps one of the classes, and mostly a cause beside it
}

func (e *OpError) Error() string {
	var b strings.Builder
	b.WriteString(e.Fabric)
	b.WriteByte(' ')
	b.WriteString(e.Op)
	if e.Addr != "" {
		b.WriteByte(' ')
		b.WriteString(e.Addr)
	}
	b.WriteString(": ")
	b.WriteString(e.Err.Error())
	return b.String()
}

func (e *OpError) Unwrap() error { return e.Err }

// Timeout reports whether the operation failed because a deadline passed.
func (e *OpError) Timeout() bool { return errors.Is(e.Err, ErrDeadline) }

// A Status is the outcome of a work request, numbered and named as in
// enum ibv_wc_status.
type Status uint8

const (
	StatusSuccess        Status = 0
	StatusLocLenErr      Status = 1
	StatusLocQPOpErr     Status = 2
	StatusLocProtErr     Status = 4
	StatusWRFlushErr     Status = 5
	StatusMWBindErr      Status = 6
	StatusBadRespErr     Status = 7
	StatusLocAccessErr   Status = 8
	StatusRemInvReqErr   Status = 9
	StatusRemAccessErr   Status = 10
	StatusRemOpErr       Status = 11
	StatusRetryExcErr    Status = 12
	StatusRNRRetryExcErr Status = 13
	StatusRemAbortErr    Status = 16
	StatusFatalErr       Status = 19
	StatusRespTimeoutErr Status = 20
	StatusGeneralErr     Status = 21
	statusCount                 = 22
)

// statusTable is the one place where a completion status becomes a name and
// an error class.
var statusTable = [statusCount]struct {
	name  string
	class error
}{
	StatusSuccess:        {"SUCCESS", nil},
	StatusLocLenErr:      {"LOC_LEN_ERR", ErrLocal},
	StatusLocQPOpErr:     {"LOC_QP_OP_ERR", ErrLocal},
	StatusLocProtErr:     {"LOC_PROT_ERR", ErrLocal},
	StatusWRFlushErr:     {"WR_FLUSH_ERR", ErrFlushed},
	StatusMWBindErr:      {"MW_BIND_ERR", ErrLocal},
	StatusBadRespErr:     {"BAD_RESP_ERR", ErrProtocol},
	StatusLocAccessErr:   {"LOC_ACCESS_ERR", ErrLocal},
	StatusRemInvReqErr:   {"REM_INV_REQ_ERR", ErrAccess},
	StatusRemAccessErr:   {"REM_ACCESS_ERR", ErrAccess},
	StatusRemOpErr:       {"REM_OP_ERR", ErrPeerGone},
	StatusRetryExcErr:    {"RETRY_EXC_ERR", ErrPeerGone},
	StatusRNRRetryExcErr: {"RNR_RETRY_EXC_ERR", ErrReceiverNotReady},
	StatusRemAbortErr:    {"REM_ABORT_ERR", ErrPeerGone},
	StatusFatalErr:       {"FATAL_ERR", ErrPeerGone},
	StatusRespTimeoutErr: {"RESP_TIMEOUT_ERR", ErrPeerGone},
	StatusGeneralErr:     {"GENERAL_ERR", ErrProtocol},
}

func (s Status) String() string {
	if int(s) < len(statusTable) && statusTable[s].name != "" {
		return statusTable[s].name
	}
	return fmt.Sprintf("Status(%d)", uint8(s))
}

// Err is nil for StatusSuccess, else a StatusError.
func (s Status) Err() error {
	if s == StatusSuccess {
		return nil
	}
	return StatusError(s)
}

// StatusError is a completion status as an error; errors.Is matches its class.
type StatusError Status

func (e StatusError) Error() string {
	return "rdma: work completion " + Status(e).String()
}

// Unwrap returns the class of the status.
func (e StatusError) Unwrap() error {
	if int(e) < len(statusTable) && statusTable[e].class != nil {
		return statusTable[e].class
	}
	return ErrProtocol
}
