package iwarp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
)

// keepAlive finds a peer that died without a word while nothing was under way.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 4}

// Connect dials a listener and returns when the QP is in RTS.
func (q *qp) Connect(ctx context.Context, addr string, p rdma.ConnParams) (rdma.ConnInfo, error) {
	d := q.pd.dev
	ird, ord, err := d.depths(p, d.attr.MaxConnectPrivate)
	if err != nil {
		return rdma.ConnInfo{}, opError("connect", addr, err)
	}
	if err := q.begin(); err != nil {
		return rdma.ConnInfo{}, opError("connect", addr, err)
	}
	info, err := q.dial(ctx, addr, ird, ord, p.PrivateData)
	if err != nil {
		if errors.Is(err, context.Canceled) && ctx.Err() == nil {
			err = fmt.Errorf("%w: the queue pair was closed while it was connecting", rdma.ErrClosed)
		}
		err = opError("connect", addr, err)
		q.fail(cause{err: err})
	}
	return info, err
}

// begin claims the QP for one connection attempt.
func (q *qp) begin() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.state != rdma.QPInit || q.claimed {
		return fmt.Errorf("%w: a queue pair connects once, this one is in state %v", rdma.ErrInvalid, q.state)
	}
	q.claimed = true
	return nil
}

// dial sets up TCP, TLS if that is wanted, and MPA as the initiator.
func (q *qp) dial(ctx context.Context, addr string, ird, ord int, private []byte) (rdma.ConnInfo, error) {
	o := &q.pd.dev.fabric.opts
	ctx, cancel := context.WithTimeout(ctx, o.SetupTimeout)
	defer cancel()
	// Closing the QP ends a set-up that is under way.
	q.mu.Lock()
	q.abort = cancel
	q.mu.Unlock()
	dialer := net.Dialer{KeepAliveConfig: keepAlive}
	c, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return rdma.ConnInfo{}, setupError(ctx, "dial", err)
	}
	conn := c.(*net.TCPConn)
	str, err := dialTLS(ctx, conn, o.TLS, addr)
	if err != nil {
		_ = conn.Close()
		return rdma.ConnInfo{}, err
	}
	info, err := q.handshake(ctx, str, conn, o, ird, ord, private)
	if err != nil {
		_ = conn.Close()
	}
	return info, err
}

// handshake exchanges the MPA frames and starts the connection.
func (q *qp) handshake(ctx context.Context, conn stream, tcp *net.TCPConn, o *Options, ird, ord int, private []byte) (rdma.ConnInfo, error) {
	stop := interruptible(ctx, conn)
	req := o.request(ird, ord, private)
	if _, err := conn.Write(req.append(nil)); err != nil {
		stop()
		return rdma.ConnInfo{}, setupError(ctx, "MPA request", err)
	}
	rep, err := readMPA(conn, true)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		if refused := (*net.OpError)(nil); o.TLS != nil && errors.As(err, &refused) && refused.Op == "remote error" {
			return rdma.ConnInfo{}, tlsError(ctx, err)
		}
		return rdma.ConnInfo{}, setupError(ctx, "MPA reply", err)
	}
	if rep.reject {
		info := rdma.ConnInfo{PrivateData: slices.Clone(rep.private), LocalAddr: conn.LocalAddr(), RemoteAddr: conn.RemoteAddr()}
		return info, rejection(&rep)
	}
	t, code, err := judgeReply(&req, &rep, ird, ord)
	if err != nil {
		if code != 0 {
			_, _ = conn.Write(appendTerminateFPDU(nil, &terminate{code: code}, t.crc))
			_ = conn.CloseWrite()
		}
		return rdma.ConnInfo{}, err
	}
	if err := q.attach(conn, tcp, &t, rdma.QPRTS); err != nil {
		return rdma.ConnInfo{}, err
	}
	return q.Info(), nil
}

// attach gives the QP its socket and starts the reader. The acceptor of a
// peer-to-peer connection passes RTR and waits for the first FPDU.
func (q *qp) attach(conn stream, tcp *net.TCPConn, t *terms, state rdma.QPState) error {
	o := &q.pd.dev.fabric.opts
	raw, err := tcp.SyscallConn()
	if err != nil {
		return fmt.Errorf("%w: %w", rdma.ErrPeerGone, err)
	}
	if err := conn.SetDeadline(time.Time{}); err != nil {
		return fmt.Errorf("%w: %w", rdma.ErrPeerGone, err)
	}
	if err := raw.Control(func(fd uintptr) { q.fd = int(fd) }); err != nil {
		return fmt.Errorf("%w: %w", rdma.ErrPeerGone, err)
	}
	mss, err := tuneSocket(raw, &q.rx.sock, o.PeerTimeout, isWithin(tcp))
	if err != nil {
		return fmt.Errorf("%w: %w", rdma.ErrPeerGone, err)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.state != rdma.QPInit {
		return fmt.Errorf("%w: while connecting", rdma.ErrClosed)
	}
	q.conn, q.raw, q.state = conn, raw, state
	if q.secure, _ = conn.(*secure); q.secure != nil {
		q.raw = nil // whoever wrote to it would write past the encryption
	}
	q.crc, q.ird, q.ord = t.crc, t.ird, t.ord
	if t.rtr == RTRRead && t.hold {
		q.ird = max(q.ird, 1) // the RTR READ itself needs a place
	}
	q.maxPayload = payloadFor(o, mss, conn.RemoteAddr())
	q.txHold = t.hold
	q.orq.slots = make([]*sendWQE, nextPow2(t.ord+1)) // one more for an RTR READ
	if t.hold {
		q.rx.rtr = t.rtr
		if t.rtr != 0 {
			q.started = make(chan struct{})
		}
	} else {
		q.tx.rtr = t.rtr
	}
	q.info = rdma.ConnInfo{
		PrivateData: slices.Clone(t.private), IRD: t.ird, ORD: t.ord,
		LocalAddr: conn.LocalAddr(), RemoteAddr: conn.RemoteAddr(), Detail: t.detail(),
	}
	if q.secure != nil {
		q.info.Detail += ", " + q.secure.describe()
	}
	q.rx.budget = o.budget()
	q.lookable.Store(q.secure == nil)
	q.workers.Add(1)
	go q.read()
	q.kick()
	return nil
}

// isWithin reports whether the peer is on this machine.
func isWithin(conn *net.TCPConn) bool {
	local, ok := conn.LocalAddr().(*net.TCPAddr)
	remote, too := conn.RemoteAddr().(*net.TCPAddr)
	return ok && too && (remote.IP.IsLoopback() || remote.IP.Equal(local.IP))
}

// payloadFor is how many bytes of payload go into one FPDU. MPA wants FPDUs
// that fill a TCP segment, so that a card can place each as it comes. On the
// loopback there is no card, and longer ones save headers and checksums.
func payloadFor(o *Options, mss int, peer net.Addr) int {
	if o.MaxPayload != 0 {
		return o.MaxPayload &^ 7
	}
	if o.TLS != nil {
		return loopbackPayload // TLS cuts records as it likes
	}
	if a, ok := peer.(*net.TCPAddr); ok && a.IP.IsLoopback() {
		return loopbackPayload
	}
	n := mss - fpduLengthLen - maxHeaderLen - fpduCRCLen
	return max(minPayload, min(n, maxPayload)) &^ 7
}

func nextPow2(n int) int {
	p := 1
	for p < n {
		p *= 2
	}
	return p
}

// interruptible makes ctx's end interrupt reads and writes of conn. The
// returned stop reports whether that had not happened.
func interruptible(ctx context.Context, conn net.Conn) (stop func() bool) {
	if end, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(end)
	}
	return context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
}

// readMPA reads one request or reply, and not a byte more. Its private data is
// at most 512 bytes, whatever the wire says.
func readMPA(r io.Reader, reply bool) (mpaFrame, error) {
	var b [mpaHeaderLen]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return mpaFrame{}, err
	}
	f, n, err := parseMPAHeader(b[:], reply)
	if err != nil {
		return f, err
	}
	private := make([]byte, n)
	if _, err := io.ReadFull(r, private); err != nil {
		return f, err
	}
	return f, f.setPrivate(private)
}

// setupError gives an error of connection set-up its class.
func setupError(ctx context.Context, step string, err error) error {
	switch {
	case errors.Is(err, rdma.ErrProtocol), errors.Is(err, rdma.ErrRejected):
		return err
	case ctx.Err() != nil:
		return fmt.Errorf("%s: %w", step, ctxError(ctx))
	case errors.Is(err, os.ErrDeadlineExceeded):
		// The socket's deadline is ctx's, and may fire first.
		return fmt.Errorf("%w: %w: %s: %w", rdma.ErrDeadline, context.DeadlineExceeded, step, err)
	}
	return fmt.Errorf("%w: %s: %w", rdma.ErrPeerGone, step, err)
}

func opError(op, addr string, err error) error {
	return &rdma.OpError{Op: op, Fabric: "iwarp", Addr: addr, Err: err}
}
