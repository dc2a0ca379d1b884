package tcp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/internal/setup"
)

// Dial connects by exchanging the QPs' data over TCP, with private data for
// the peer. With ErrRejected the info carries the peer's. It ends with ctx.
func Dial(ctx context.Context, e End, addr string, private []byte) (rdma.ConnInfo, error) {
	dialer := net.Dialer{KeepAliveConfig: keepAlive}
	c, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return rdma.ConnInfo{}, setupError(ctx, "dial", err)
	}
	conn := c.(*net.TCPConn)
	info, err := exchange(ctx, e, conn, private)
	if err != nil {
		_ = conn.Close()
	}
	return info, err
}

// setupError gives an error of a socket its class: the end of the context, if that has
// ended; else, whatever the kernel calls it, that the peer is not there.
func setupError(ctx context.Context, step string, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", step, setup.CtxError(ctx))
	}
	if errors.Is(err, os.ErrDeadlineExceeded) { // the socket's clock was first
		return fmt.Errorf("%s: %w: %w", step, rdma.ErrDeadline, context.DeadlineExceeded)
	}
	if errors.Is(err, rdma.ErrProtocol) {
		return fmt.Errorf("%s: %w", step, err)
	}
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%s: %w: %w", step, rdma.ErrInvalid, err)
	}
	if errors.Is(err, syscall.EMFILE) {
		return fmt.Errorf("%s: %w: %w", step, rdma.ErrLimit, err)
	}
	return fmt.Errorf("%s: %w: %w", step, rdma.ErrPeerGone, err)
}

// exchange sends the request, takes the reply, brings the QP up and says so.
func exchange(ctx context.Context, e End, conn *net.TCPConn, private []byte) (rdma.ConnInfo, error) {
	stop := setup.Interruptible(ctx, conn)
	defer stop()
	mine, err := ownEndpoint(e, conn, nil)
	if err != nil {
		return rdma.ConnInfo{}, err
	}
	req := frame{kind: frameRequest, end: mine, private: private}
	if _, err := conn.Write(req.append(nil)); err != nil {
		return rdma.ConnInfo{}, setupError(ctx, "request", err)
	}
	rep, err := readFrame(conn)
	if err != nil {
		return rdma.ConnInfo{}, setupError(ctx, "reply", err)
	}
	switch rep.kind {
	case frameReject:
		info := rdma.ConnInfo{PrivateData: rep.private, LocalAddr: conn.LocalAddr(), RemoteAddr: conn.RemoteAddr()}
		return info, fmt.Errorf("%w by the peer (%d bytes of private data)", rdma.ErrRejected, len(rep.private))
	case frameReply:
	default:
		return rdma.ConnInfo{}, fmt.Errorf("%w: %v instead of a reply", errExchange, rep.kind)
	}
	if err := mine.judge(&rep.end); err != nil {
		return rdma.ConnInfo{}, err
	}
	if err := e.Bring(&mine, &rep.end); err != nil {
		return rdma.ConnInfo{}, err
	}
	ready := frame{kind: frameReady}
	if _, err := conn.Write(ready.append(nil)); err != nil {
		return rdma.ConnInfo{}, setupError(ctx, "ready", err)
	}
	if !stop() {
		return rdma.ConnInfo{}, setupError(ctx, "ready", ctx.Err())
	}
	l := &Link{conn: conn}
	return l.attach(e, rep.private)
}

// ownEndpoint is what this end says of itself.
func ownEndpoint(e End, conn *net.TCPConn, theirs *Endpoint) (Endpoint, error) {
	mine, err := e.Describe(localAddr(conn), theirs)
	mine.PSN = randomPSN()
	return mine, err
}
