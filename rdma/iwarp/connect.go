package iwarp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/internal/setup"
	"github.com/rdmakv/rdmakv/rdma/internal/soft"
	"github.com/rdmakv/rdmakv/rdma/iwarp/internal/proto"
)

// keepAlive finds a peer that died without closing the connection while nothing
// was under way.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 4}

// Connect dials a listener and returns when the QP is in RTS.
func (q *qp) Connect(ctx context.Context, addr string, p rdma.ConnParams) (rdma.ConnInfo, error) {
	d := q.pd.dev
	ird, ord, err := d.Depths(p, d.Attr().MaxConnectPrivate)
	if err != nil {
		return rdma.ConnInfo{}, opError("connect", addr, err)
	}
	if err := q.Begin(); err != nil {
		return rdma.ConnInfo{}, opError("connect", addr, err)
	}
	info, err := q.dial(ctx, addr, ird, ord, p.PrivateData)
	if err != nil {
		if errors.Is(err, context.Canceled) && ctx.Err() == nil {
			err = fmt.Errorf("%w: the queue pair was closed while it was connecting", rdma.ErrClosed)
		}
		err = opError("connect", addr, err)
		q.Fail(soft.Cause{Err: err})
	}
	return info, err
}

// dial sets up TCP, TLS if the options ask for it, and MPA as the initiator.
func (q *qp) dial(ctx context.Context, addr string, ird, ord int, private []byte) (rdma.ConnInfo, error) {
	o := &q.pd.dev.fabric.opts
	ctx, cancel := context.WithTimeout(ctx, o.SetupTimeout)
	defer cancel()
	// Closing the QP ends a set-up that is under way.
	q.OnFail(cancel)
	dialer := net.Dialer{KeepAliveConfig: keepAlive}
	c, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return rdma.ConnInfo{}, setup.Error(ctx, "dial", err)
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
	stop := setup.Interruptible(ctx, conn)
	req := o.request(isWithin(tcp), ird, ord, private)
	if _, err := conn.Write(req.Append(nil)); err != nil {
		stop()
		return rdma.ConnInfo{}, setup.Error(ctx, "MPA request", err)
	}
	rep, err := readMPA(conn, true)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		if refused := (*net.OpError)(nil); o.TLS != nil && errors.As(err, &refused) && refused.Op == "remote error" {
			return rdma.ConnInfo{}, tlsError(ctx, err)
		}
		return rdma.ConnInfo{}, setup.Error(ctx, "MPA reply", err)
	}
	if rep.Reject {
		info := rdma.ConnInfo{PrivateData: slices.Clone(rep.Private), LocalAddr: conn.LocalAddr(), RemoteAddr: conn.RemoteAddr()}
		return info, rejection(&rep)
	}
	t, code, err := judgeReply(&req, &rep, ird, ord)
	if err != nil {
		if code != 0 {
			_, _ = conn.Write(proto.AppendTerminate(nil, &proto.Terminate{Code: code}, t.crc))
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
	if err := raw.Control(func(fd uintptr) { q.wire.fd = int(fd) }); err != nil {
		return fmt.Errorf("%w: %w", rdma.ErrPeerGone, err)
	}
	mss, err := tuneSocket(raw, &q.rx.sock, o.PeerTimeout, isWithin(tcp))
	if err != nil {
		return fmt.Errorf("%w: %w", rdma.ErrPeerGone, err)
	}
	q.Mu.Lock()
	defer q.Mu.Unlock()
	info := rdma.ConnInfo{
		PrivateData: slices.Clone(t.private), IRD: t.ird, ORD: t.ord,
		LocalAddr: conn.LocalAddr(), RemoteAddr: conn.RemoteAddr(), Detail: t.detail(),
	}
	tlsConn, _ := conn.(*secure)
	if tlsConn != nil {
		info.Detail += ", " + tlsConn.describe()
	}
	ird := t.ird
	if t.rtr == RTRRead && t.silent {
		ird = max(ird, 1) // the RTR READ itself needs a place
	}
	if err := q.EstablishLocked(info, ird, t.ord, state); err != nil {
		return err
	}
	q.wire.conn, q.wire.secure = conn, tlsConn
	if tlsConn == nil { // with TLS, writing to the raw socket would go past the encryption
		q.wire.raw = raw
	}
	q.wire.crc = t.crc
	q.wire.maxPayload = payloadFor(o, mss, conn.RemoteAddr())
	q.tx.silent = t.silent
	q.req.ring.slots = make([]*soft.SendWQE, nextPow2(t.ord+1)) // one more for an RTR READ
	q.req.ring.whole = make([]uint32, len(q.req.ring.slots))
	if t.silent {
		q.rx.rtr = t.rtr
		if t.rtr != 0 {
			q.rx.started = make(chan struct{})
		}
	} else {
		q.tx.rtr = t.rtr
	}
	q.look.budget = o.budget()
	q.look.lookable.Store(q.wire.secure == nil)
	q.Workers.Add(1)
	go q.rx.read()
	q.tx.kick()
	return nil
}

// isWithin reports whether the peer is on this machine.
func isWithin(conn *net.TCPConn) bool {
	local, ok := conn.LocalAddr().(*net.TCPAddr)
	remote, too := conn.RemoteAddr().(*net.TCPAddr)
	return ok && too && (remote.IP.IsLoopback() || remote.IP.Equal(local.IP))
}

// payloadFor is how many bytes of payload go into one FPDU. MPA asks for FPDUs
// that fill a TCP segment, so that a card can place each as it comes. On the
// loopback there is no card, and longer FPDUs save headers and checksums.
func payloadFor(o *Options, mss int, peer net.Addr) int {
	if o.MaxPayload != 0 {
		return o.MaxPayload &^ 7
	}
	if o.TLS != nil {
		return loopbackPayload // TLS chooses its records itself
	}
	if a, ok := peer.(*net.TCPAddr); ok && a.IP.IsLoopback() {
		return loopbackPayload
	}
	n := mss - proto.FPDULengthLen - proto.MaxHeaderLen - proto.FPDUCRCLen
	return max(minPayload, min(n, maxPayload)) &^ 7
}

func nextPow2(n int) int {
	p := 1
	for p < n {
		p *= 2
	}
	return p
}

// readMPA reads one request or reply, and not a byte more. Its private data is
// at most 512 bytes, whatever the wire says.
func readMPA(r io.Reader, reply bool) (proto.Frame, error) {
	var b [proto.FrameHeaderLen]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return proto.Frame{}, err
	}
	f, n, err := proto.ParseFrameHeader(b[:], reply)
	if err != nil {
		return f, err
	}
	private := make([]byte, n)
	if _, err := io.ReadFull(r, private); err != nil {
		return f, err
	}
	return f, f.SetPrivate(private)
}

func opError(op, addr string, err error) error {
	return &rdma.OpError{Op: op, Fabric: "iwarp", Addr: addr, Err: err}
}
