package rdma

import (
	"errors"
	"fmt"
	"strings"
)

// Classes of failure. Fabrics differ in detail (an iWARP Terminate, an
// InfiniBand NAK); errors.Is with one of these is what a program may rely on.
var (
	// ErrAccess: a protection fault: bad rkey, out of bounds, right not given
	// on the MR or not (yet) granted on the QP. The connection is dead.
	ErrAccess = errors.New("rdma: remote access refused")
	// ErrReceiverNotReady: a SEND met no posted receive.
	ErrReceiverNotReady = errors.New("rdma: receiver not ready")
	// ErrFlushed: the work request was flushed because the QP is in ERR; the
	// cause stands in QP.Err.
	ErrFlushed = errors.New("rdma: work request flushed")
	// ErrPeerGone: the connection ended or nobody answers.
	ErrPeerGone = errors.New("rdma: peer gone")
	// ErrDeadline: the operation's own deadline passed.
	ErrDeadline = errors.New("rdma: deadline passed")
	// ErrProtocol: the peer broke the wire protocol.
	ErrProtocol = errors.New("rdma: protocol violation")
	// ErrLocal: this end's work request was wrong: bad SGE, length, lkey.
	ErrLocal = errors.New("rdma: local work request error")
	// ErrRejected: the peer answered the connection request with a refusal.
	ErrRejected = errors.New("rdma: connection rejected")
	// ErrNotSupported: the device lacks the capability.
	ErrNotSupported = errors.New("rdma: not supported by this device")
	// ErrInvalid: an argument is out of range; the text names it and the limit.
	ErrInvalid = errors.New("rdma: invalid argument")
	// ErrQueueFull: the send, receive or shared receive queue has no room.
	ErrQueueFull = errors.New("rdma: queue full")
	// ErrNotConnected: the QP is not in a state that allows this.
	ErrNotConnected = errors.New("rdma: queue pair not connected")
	// ErrBusy: the object still has users.
	ErrBusy = errors.New("rdma: object in use")
	// ErrClosed: the object was closed here.
	ErrClosed = errors.New("rdma: closed")
	// ErrCQOverrun: more completions than the CQ holds; it is unusable.
	ErrCQOverrun = errors.New("rdma: completion queue overrun")
	// ErrNoDevice: no such device; the text lists those that exist.
	ErrNoDevice = errors.New("rdma: no such device")
	// ErrLimit: a device limit (number of QPs, MRs, …) is reached.
	ErrLimit = errors.New("rdma: device limit reached")
)

// An OpError says which operation failed on what, and wraps a class above.
type OpError struct {
	Op     string // "connect", "accept", "listen", "register", "receive", …
	Fabric string // "iwarp"
	Addr   string // peer or listen address, if any
	Err    error  // wraps one of the classes; may wrap a cause too
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

// Timeout reports whether the operation ended at its deadline.
func (e *OpError) Timeout() bool { return errors.Is(e.Err, ErrDeadline) }

// Status is the outcome of a work request, numbered and named as
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
