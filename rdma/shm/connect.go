//go:build linux

package shm

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/internal/memfd"
	"github.com/rdmakv/rdmakv/rdma/internal/setup"
	"github.com/rdmakv/rdmakv/rdma/internal/soft"
	"github.com/rdmakv/rdmakv/rdma/mem"
	"golang.org/x/sys/unix"
)

// Connect dials a listener and returns when the QP is in RTS.
func (q *qp) Connect(ctx context.Context, addr string, p rdma.ConnParams) (rdma.ConnInfo, error) {
	ird, ord, err := q.pd.dev.Depths(p, maxPrivate)
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

// errForeign: the process behind a socket does not listen at the address.
var errForeign = errors.New("the process there does not listen at this address")

// dial tries the sockets of the port, one after the other.
func (q *qp) dial(ctx context.Context, addr string, ird, ord int, private []byte) (rdma.ConnInfo, error) {
	f := q.pd.dev.fabric
	ctx, cancel := context.WithTimeout(ctx, f.opts.SetupTimeout)
	defer cancel()
	// Closing the QP ends a set-up that is under way.
	q.OnFail(cancel)
	if err := ctx.Err(); err != nil {
		return rdma.ConnInfo{}, setup.CtxError(ctx)
	}
	want, err := resolve(ctx, addr)
	if err != nil {
		return rdma.ConnInfo{}, err
	}
	places, err := f.find(want.Port())
	if err != nil {
		return rdma.ConnInfo{}, fmt.Errorf("%w: %w", rdma.ErrPeerGone, err)
	}
	h := hello{netns: netns(), addr: want, ird: uint16(ird), ord: uint16(ord), private: private}
	var errs []error
	for _, p := range places {
		info, err := q.dialPlace(ctx, p, &h)
		if err == nil || ctx.Err() != nil || errors.Is(err, rdma.ErrRejected) {
			return info, err
		}
		errs = append(errs, fmt.Errorf("%s: %w", p.path, err))
	}
	if len(errs) == 1 {
		return rdma.ConnInfo{}, errs[0]
	}
	return rdma.ConnInfo{}, fmt.Errorf("%w: %w", rdma.ErrPeerGone, errors.Join(errs...))
}

// dialPlace connects through one socket.
func (q *qp) dialPlace(ctx context.Context, p place, h *hello) (rdma.ConnInfo, error) {
	f := q.pd.dev.fabric
	owner, err := f.checkDir(p.dir)
	if err != nil {
		return rdma.ConnInfo{}, fmt.Errorf("%w: %w", rdma.ErrPeerGone, err)
	}
	conn, err := dialSocket(ctx, p.path)
	if err != nil {
		return rdma.ConnInfo{}, setup.Error(ctx, "dial", err)
	}
	info, err := q.greet(ctx, conn, owner, h)
	if err != nil {
		_ = conn.Close()
	}
	return info, err
}

// dialSocket is a dial that waits while the listener's backlog is full, as a dial
// over TCP does.
func dialSocket(ctx context.Context, path string) (*net.UnixConn, error) {
	var d net.Dialer
	for {
		c, err := d.DialContext(ctx, "unixpacket", path)
		if err == nil {
			return c.(*net.UnixConn), nil
		}
		if !errors.Is(err, unix.EAGAIN) {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(time.Millisecond):
		}
	}
}

// greet judges the acceptor, asks, and takes what it gives.
func (q *qp) greet(ctx context.Context, conn *net.UnixConn, owner uint32, h *hello) (rdma.ConnInfo, error) {
	f := q.pd.dev.fabric
	if err := f.judge(conn, true, owner); err != nil {
		return rdma.ConnInfo{}, fmt.Errorf("%w: %w", rdma.ErrPeerGone, err)
	}
	stop := setup.Interruptible(ctx, conn)
	if _, err := conn.Write(h.append(nil)); err != nil {
		stop()
		return rdma.ConnInfo{}, setup.Error(ctx, "hello", err)
	}
	buf, oob := make([]byte, maxMessage), make([]byte, unix.CmsgSpace(4*maxNotices))
	n, fds, err := readMessage(conn, buf, oob)
	defer func() { closeAll(fds) }()
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return rdma.ConnInfo{}, setup.Error(ctx, "answer", err)
	}
	w, err := parseWelcome(buf[:n])
	if err != nil {
		return rdma.ConnInfo{}, err
	}
	remote := net.TCPAddrFromAddrPort(h.addr)
	local := localAddr(h.addr)
	switch {
	case w.foreign:
		return rdma.ConnInfo{}, fmt.Errorf("%w: %w", rdma.ErrPeerGone, errForeign)
	case !w.accept:
		info := rdma.ConnInfo{PrivateData: w.private, LocalAddr: local, RemoteAddr: remote}
		return info, fmt.Errorf("%w: %q", rdma.ErrRejected, printable(w.private))
	case len(fds) < 1 || len(fds) > 2 || (len(fds) == 2) != w.proof || int(w.ord) > int(h.ird) || int(w.ird) < 0:
		return rdma.ConnInfo{}, errWire
	}
	pages, err := memfd.MapChannel(fds[0], channelSize)
	if err != nil {
		return rdma.ConnInfo{}, fmt.Errorf("%w: %w", rdma.ErrProtocol, err)
	}
	a := attachment{
		conn: conn, ch: newChannel(pages, true), ird: int(h.ird), ord: min(int(h.ord), int(w.ird)),
		limits: mapLimits{maps: slotCount, bytes: mem.MaxSize},
		info:   rdma.ConnInfo{PrivateData: w.private, LocalAddr: local, RemoteAddr: remote},
	}
	if w.proof {
		a.proof = fileOf(fds[1])
		fds = fds[:1]
	}
	if err := q.attach(&a); err != nil {
		return rdma.ConnInfo{}, err
	}
	return q.Info(), nil
}

// An attachment is what a set-up has brought about.
type attachment struct {
	conn     *net.UnixConn
	ch       *channel
	proof    proofFile
	ird, ord int
	limits   mapLimits
	info     rdma.ConnInfo
}

// attach gives the QP its connection and brings it to RTS. It takes over channel
// and proof, also if it fails.
func (q *qp) attach(a *attachment) error {
	give := func(err error) error {
		_ = a.ch.unmap()
		if a.proof != nil {
			_ = a.proof.Close()
		}
		return err
	}
	raw, err := a.conn.SyscallConn()
	if err != nil {
		return give(fmt.Errorf("%w: %w", rdma.ErrPeerGone, err))
	}
	if err := a.conn.SetDeadline(time.Time{}); err != nil {
		return give(fmt.Errorf("%w: %w", rdma.ErrPeerGone, err))
	}
	q.rx.mu.Lock()
	defer q.rx.mu.Unlock()
	q.Mu.Lock()
	info := a.info
	info.IRD, info.ORD = a.ird, a.ord
	info.Detail = "shared memory, rings of " + fmt.Sprint(ringSize>>10) + " KiB"
	info.PrivateData = slices.Clone(a.info.PrivateData)
	if err := q.EstablishLocked(info, a.ird, a.ord, rdma.QPRTS); err != nil {
		q.Mu.Unlock()
		return give(err)
	}
	q.conn, q.raw, q.ch, q.proof = a.conn, raw, a.ch, a.proof
	q.tx.h = &a.ch.out
	q.rx.h, q.rx.live = &a.ch.in, true
	q.seen.limits, q.seen.total = a.limits, &q.pd.dev.fabric.maps
	if a.limits.backed {
		q.seen.sum = &q.pd.dev.fabric.accepted
	}
	q.sockets.Go(q.listen)
	// mu is still held: the end of the connection comes after this.
	for _, c := range q.cqs() {
		c.watch(q)
	}
	q.Mu.Unlock()
	q.show.start(&a.ch.out)
	return nil
}

// localAddr is the local address of a connection: its sockets have none.
func localAddr(peer netip.AddrPort) net.Addr {
	return &net.TCPAddr{IP: peer.Addr().AsSlice()}
}

func printable(b []byte) string {
	if len(b) > 64 {
		b = b[:64]
	}
	return string(b)
}
