// Package setup is what the fabrics have in common while a connection is set up: how
// requests wait for the program and are answered once, and how a context ends what a
// socket does.
package setup

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
)

// CtxError is ctx.Err, marked as a deadline if it is one.
func CtxError(ctx context.Context) error {
	err := ctx.Err()
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%w: %w", rdma.ErrDeadline, err)
	}
	return err
}

// Interruptible makes the end of ctx interrupt reads and writes of conn. The returned
// stop reports whether that had not happened.
func Interruptible(ctx context.Context, conn net.Conn) (stop func() bool) {
	if end, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(end)
	}
	return context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
}

// Error gives the error of a step of a set-up over a socket its class. ErrProtocol
// and ErrRejected stay what they are. If ctx has ended, the class is that of its end.
// For everything else, whatever the kernel calls it, the class says that the peer is
// not there.
func Error(ctx context.Context, step string, err error) error {
	switch {
	case errors.Is(err, rdma.ErrProtocol), errors.Is(err, rdma.ErrRejected):
		return err
	case ctx.Err() != nil:
		return fmt.Errorf("%s: %w", step, CtxError(ctx))
	case errors.Is(err, os.ErrDeadlineExceeded):
		// The socket's deadline is ctx's, and may fire first.
		return fmt.Errorf("%w: %w: %s: %w", rdma.ErrDeadline, context.DeadlineExceeded, step, err)
	}
	return fmt.Errorf("%w: %s: %w", rdma.ErrPeerGone, step, err)
}
