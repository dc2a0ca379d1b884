package verbs

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/verbs/ibv"
)

// keepAlive finds a host that died without a word.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 3}

// A tcpLink is the socket over which two QPs were connected by hand. It stays
// open: its end is the end of the peer.
type tcpLink struct {
	conn *net.TCPConn
	once sync.Once
	over chan struct{} // closed when the watcher has ended
}

// watch waits for the peer's bye, or for the end of the socket, and tells q.
func (l *tcpLink) watch(q *qp) {
	defer close(l.over)
	f, err := readFrame(l.conn)
	why := "the peer has closed its socket"
	switch {
	case err == nil && f.kind == frameBye:
		why = "the peer has disconnected"
	case err == nil:
		why = fmt.Sprintf("the peer sent %v after the set-up", f.kind)
	case errors.Is(err, net.ErrClosed):
	case !errors.Is(err, io.EOF):
		why = err.Error()
	}
	q.peerGone(why)
}

// disconnect says bye. A peer that does not read makes no difference: the few
// bytes fit into the socket's buffer, or their deadline passes.
func (l *tcpLink) disconnect() {
	l.once.Do(func() {
		bye := frame{kind: frameBye}
		_ = l.conn.SetWriteDeadline(time.Now().Add(byeTimeout))
		_, _ = l.conn.Write(bye.append(nil))
		_ = l.conn.CloseWrite()
	})
}

// close waits a moment for the peer to close too, and frees the socket.
func (l *tcpLink) close() {
	t := time.NewTimer(byeTimeout)
	defer t.Stop()
	select {
	case <-l.over:
	case <-t.C:
	}
	_ = l.conn.Close()
	<-l.over
}

// interruptible makes ctx's end interrupt reads and writes of conn. The
// returned stop reports whether that had not happened.
func interruptible(ctx context.Context, conn net.Conn) (stop func() bool) {
	if end, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(end)
	}
	return context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
}

// randomPSN is where the numbers of a QP's packets begin: unpredictable, so that
// packets of an old connection, or of a stranger, do not fit.
func randomPSN() uint32 {
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails
	return binary.BigEndian.Uint32(b[:]) & maxQPN
}

// endpoint describes q to the peer behind conn, and the GID entry that it uses.
func (q *qp) endpoint(conn *net.TCPConn, ird, ord int) (endpoint, ibv.GIDEntry, error) {
	local := netip.Addr{}
	if a, ok := conn.LocalAddr().(*net.TCPAddr); ok {
		local = a.AddrPort().Addr().Unmap()
	}
	g, p, err := q.pd.dev.localGID(local)
	if err != nil {
		return endpoint{}, g, err
	}
	link := p.attr.LinkLayer
	if link == ibv.LinkUnspecified { // of old kernels: InfiniBand
		link = ibv.LinkInfiniBand
	}
	mtu := p.attr.ActiveMTU
	if m := mtuOf(q.pd.dev.fabric.opts.PathMTU); m != 0 {
		mtu = min(mtu, m)
	}
	return endpoint{
		qpn: q.num, psn: randomPSN(), gid: g.GID, lid: p.attr.LID, mtu: mtu, link: link,
		ird: uint8(ird), ord: uint8(ord), gidType: g.Type,
	}, g, nil
}

// judge refuses a peer that this end cannot reach.
func (mine *endpoint) judge(theirs *endpoint) error {
	switch {
	case mine.link != theirs.link:
		return fmt.Errorf("%w: one end is InfiniBand and the other Ethernet", errExchange)
	case mine.link == ibv.LinkEthernet && mine.gidType != theirs.gidType:
		return fmt.Errorf("%w: this end uses %s, the peer %s", errExchange, typeName(mine.gidType), typeName(theirs.gidType))
	}
	return nil
}

// bringByHand moves the QP to RTS with what the two ends have told each other,
// and returns what it runs over.
func (q *qp) bringByHand(mine, theirs *endpoint, g ibv.GIDEntry, ird, ord int) (rdma.Path, error) {
	d := q.pd.dev
	d.mu.Lock()
	num, grh := d.port.num, d.port.attr.GRHRequired
	d.mu.Unlock()
	rtr := ibv.QPAttr{
		PathMTU: min(mine.mtu, theirs.mtu), DestQPN: theirs.qpn, RQPSN: theirs.psn,
		AH: ibv.AHAttr{PortNum: num, DLID: theirs.lid},
	}
	// InfiniBand needs a GID between subnets, and where the port wants a GRH in
	// each packet; RoCE knows nothing else.
	if mine.link == ibv.LinkEthernet || grh || d.fabric.opts.GIDIndex >= 0 || theirs.lid == 0 {
		rtr.AH.IsGlobal = true
		rtr.AH.DGID, rtr.AH.SGIDIndex, rtr.AH.HopLimit = theirs.gid, uint8(g.Index), defaultHopLimit
	}
	rts := ibv.QPAttr{SQPSN: mine.psn}
	rtrMask := ibv.QPMaskAV | ibv.QPMaskPathMTU | ibv.QPMaskDestQPN | ibv.QPMaskRQPSN
	if err := q.bring(&rtr, &rts, rtrMask, ibv.QPMaskSQPSN, ird, ord); err != nil {
		return rdma.Path{}, err
	}
	return d.pathOf(&rtr), nil
}

// defaultHopLimit is what the IP stack uses too.
const defaultHopLimit = 64

// attach makes the socket the link of q and begins to watch it.
func (l *tcpLink) attach(q *qp, info rdma.ConnInfo) error {
	if err := l.conn.SetDeadline(time.Time{}); err != nil {
		return fmt.Errorf("%w: %w", rdma.ErrPeerGone, err)
	}
	l.over = make(chan struct{})
	if err := q.connected(l, info); err != nil {
		return err
	}
	go l.watch(q)
	return nil
}
