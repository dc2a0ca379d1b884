package verbs

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"

	"github.com/rdmakv/rdmakv/rdma"
)

// dialTCP connects by exchanging the QPs' data over TCP. With ErrRejected the
// info carries the peer's private data.
func (q *qp) dialTCP(ctx context.Context, addr string, ird, ord int, private []byte) (rdma.ConnInfo, error) {
	if _, err := resolve(ctx, addr); err != nil {
		return rdma.ConnInfo{}, err // as what it is: no such host, bad port
	}
	dialer := net.Dialer{KeepAliveConfig: keepAlive}
	c, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return rdma.ConnInfo{}, tcpError(ctx, "dial", err)
	}
	conn := c.(*net.TCPConn)
	info, err := q.exchange(ctx, conn, ird, ord, private)
	if err != nil {
		_ = conn.Close()
	}
	return info, err
}

// tcpError is setupError for a socket: whatever the kernel calls it, the peer
// is not there.
func tcpError(ctx context.Context, step string, err error) error {
	if ctx.Err() != nil {
		return setupError(ctx, step, err)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) { // the socket's clock was first
		return fmt.Errorf("%s: %w: %w", step, rdma.ErrDeadline, context.DeadlineExceeded)
	}
	if errors.Is(err, rdma.ErrProtocol) {
		return fmt.Errorf("%s: %w", step, err)
	}
	if errors.Is(err, syscall.EADDRINUSE) || errors.Is(err, syscall.EMFILE) {
		return fmt.Errorf("%s: %w", step, classify(err))
	}
	return fmt.Errorf("%s: %w: %w", step, rdma.ErrPeerGone, err)
}

// exchange sends the request, takes the reply, brings the QP up and says so.
func (q *qp) exchange(ctx context.Context, conn *net.TCPConn, ird, ord int, private []byte) (rdma.ConnInfo, error) {
	stop := interruptible(ctx, conn)
	defer stop()
	mine, g, err := q.endpoint(conn, ird, ord)
	if err != nil {
		return rdma.ConnInfo{}, err
	}
	req := frame{kind: frameRequest, end: mine, private: private}
	if _, err := conn.Write(req.append(nil)); err != nil {
		return rdma.ConnInfo{}, tcpError(ctx, "request", err)
	}
	rep, err := readFrame(conn)
	if err != nil {
		return rdma.ConnInfo{}, tcpError(ctx, "reply", err)
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
	ird, ord = agreed(ird, ord, int(rep.end.ird), int(rep.end.ord))
	path, err := q.bringByHand(&mine, &rep.end, g, ird, ord)
	if err != nil {
		return rdma.ConnInfo{}, err
	}
	ready := frame{kind: frameReady}
	if _, err := conn.Write(ready.append(nil)); err != nil {
		return rdma.ConnInfo{}, tcpError(ctx, "ready", err)
	}
	if !stop() {
		return rdma.ConnInfo{}, setupError(ctx, "ready", ctx.Err())
	}
	info := infoOf("QP data over TCP", rep.private, ird, ord, conn.LocalAddr(), conn.RemoteAddr(), path)
	l := &tcpLink{conn: conn}
	if err := l.attach(q, info); err != nil {
		return rdma.ConnInfo{}, err
	}
	return info, nil
}
