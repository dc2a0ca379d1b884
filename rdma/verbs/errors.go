package verbs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/internal/setup"
	"github.com/rdmakv/rdmakv/rdma/verbs/ibv"
)

// opError wraps err, which wraps a class of package rdma, with what was done to
// whom.
func opError(op, addr string, err error) error {
	return &rdma.OpError{Op: op, Fabric: fabricName, Addr: addr, Err: err}
}

// classOf is the class of an errno of rdma-core or the kernel's RDMA.
func classOf(errno syscall.Errno) error {
	switch errno {
	case syscall.EINVAL, syscall.EADDRINUSE, syscall.EADDRNOTAVAIL, syscall.EAFNOSUPPORT, syscall.EACCES, syscall.EPERM, syscall.EFAULT:
		return rdma.ErrInvalid
	case syscall.ENOMEM, syscall.ENOSPC, syscall.EMFILE, syscall.ENFILE, syscall.EAGAIN:
		return rdma.ErrLimit
	case syscall.EOPNOTSUPP, syscall.ENOSYS:
		return rdma.ErrNotSupported
	case syscall.EBUSY:
		return rdma.ErrBusy
	case syscall.ENODEV:
		return rdma.ErrNoDevice
	case syscall.ETIMEDOUT, syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.ENETUNREACH, syscall.EHOSTUNREACH,
		syscall.ENETDOWN, syscall.EHOSTDOWN, syscall.ENOTCONN, syscall.EIO, syscall.EPIPE:
		return rdma.ErrPeerGone
	}
	return rdma.ErrProtocol
}

// classify gives an error of package ibv its class, once.
func classify(err error) error {
	if err == nil {
		return nil
	}
	for _, c := range []error{rdma.ErrInvalid, rdma.ErrLimit, rdma.ErrNotSupported, rdma.ErrBusy, rdma.ErrNoDevice, rdma.ErrPeerGone,
		rdma.ErrClosed, rdma.ErrProtocol, rdma.ErrDeadline, context.Canceled} {
		if errors.Is(err, c) {
			return err
		}
	}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return fmt.Errorf("%w: %w", classOf(errno), err)
	}
	if errors.Is(err, ibv.ErrClosed) || errors.Is(err, os.ErrClosed) {
		return fmt.Errorf("%w: %w", rdma.ErrClosed, err)
	}
	return fmt.Errorf("%w: %w", rdma.ErrProtocol, err)
}

// setupError is why a set-up ended: the end of its context, if that has ended, else
// err.
func setupError(ctx context.Context, step string, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", step, setup.CtxError(ctx))
	}
	return fmt.Errorf("%s: %w", step, classify(err))
}

// rejectReasons names the reasons of a CM REJ that occur in practice (InfiniBand
// Architecture, chapter 12.6.7.2); the status of a REJECTED event.
var rejectReasons = map[int]string{
	1:  "no queue pair left",
	3:  "no resources",
	4:  "timeout",
	5:  "unsupported request",
	8:  "nobody listens there",
	10: "stale connection",
	12: "invalid GID",
	13: "invalid LID",
	17: "wrong MTU",
	24: "port redirected",
	28: "by the program",
	33: "wrong service version",
}

const (
	rejectTimeout   = 4  // the peer gave up waiting
	rejectNoService = 8  // IB_CM_REJ_INVALID_SERVICE_ID
	rejectConsumer  = 28 // IB_CM_REJ_CONSUMER_DEFINED
)

// rejection turns the status of a REJECTED event into an error. A refusal by
// the peer's program is ErrRejected; where no program listens the kernel refuses, and
// that is ErrPeerGone.
func rejection(status int) error {
	if status < 0 { // iWARP: an errno
		errno := syscall.Errno(-status)
		if errno == syscall.ECONNREFUSED {
			return fmt.Errorf("%w: nobody listens there: %w", rdma.ErrPeerGone, errno)
		}
		return fmt.Errorf("%w by the peer: %w", rdma.ErrRejected, errno)
	}
	reason, ok := rejectReasons[status]
	if !ok {
		reason = "see the InfiniBand Architecture, REJ message"
	}
	class := rdma.ErrPeerGone
	if status == rejectConsumer {
		class = rdma.ErrRejected
	}
	err := fmt.Errorf("%w: rejected: %s (reason %d)", class, reason, status)
	if status == rejectNoService { // callers look for the errno that TCP has for this
		err = fmt.Errorf("%w: %w", err, syscall.ECONNREFUSED)
	}
	return err
}

// eventError turns the status of an event that reports a failure, 0 or a
// negative errno, into an error.
func eventError(what string, status int) error {
	if status >= 0 {
		return fmt.Errorf("%w: %s", rdma.ErrPeerGone, what)
	}
	errno := syscall.Errno(-status)
	class := classOf(errno)
	if class == rdma.ErrProtocol || class == rdma.ErrInvalid {
		class = rdma.ErrPeerGone // the peer or the path to it, whatever the number
	}
	return fmt.Errorf("%w: %s: %w", class, what, errno)
}
