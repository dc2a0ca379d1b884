package verbs

import (
	"context"
	"net/netip"
	"sync"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/verbs/ibv"
	"github.com/rdmakv/rdmakv/rdma/verbs/internal/tcp"
)

// dialTCP connects by exchanging the QPs' data over TCP. With ErrRejected the
// info carries the peer's private data.
func (q *qp) dialTCP(ctx context.Context, addr string, ird, ord int, private []byte) (rdma.ConnInfo, error) {
	if _, err := resolve(ctx, addr); err != nil {
		return rdma.ConnInfo{}, err // as what it is: no such host, bad port
	}
	return tcp.Dial(ctx, &tcpEnd{q: q, ird: ird, ord: ord}, addr, private)
}

// A tcpEnd is a QP as the exchange over TCP sees it.
type tcpEnd struct {
	q        *qp
	ird, ord int          // what this end asks for; of the connection, once the peer is known
	gid      ibv.GIDEntry // what the connection uses
	path     rdma.Path    // what it runs over, once the QP is in RTS
}

// agree takes the depths that the peer names into account. Doing so again changes
// nothing.
func (e *tcpEnd) agree(theirs *tcp.Endpoint) {
	e.ird, e.ord = agreed(e.ird, e.ord, int(theirs.IRD), int(theirs.ORD))
}

// Describe says what the peer must know of the QP, and chooses the GID entry.
func (e *tcpEnd) Describe(local netip.Addr, theirs *tcp.Endpoint) (tcp.Endpoint, error) {
	if theirs != nil {
		e.agree(theirs)
	}
	d := e.q.pd.dev
	g, p, err := d.localGID(local)
	if err != nil {
		return tcp.Endpoint{}, err
	}
	e.gid = g
	link := p.attr.LinkLayer
	if link == ibv.LinkUnspecified { // of old kernels: InfiniBand
		link = ibv.LinkInfiniBand
	}
	mtu := p.attr.ActiveMTU
	if m := mtuOf(d.fabric.opts.PathMTU); m != 0 {
		mtu = min(mtu, m)
	}
	return tcp.Endpoint{
		QPN: e.q.num, GID: g.GID, LID: p.attr.LID, MTU: mtu, Link: link,
		IRD: uint8(e.ird), ORD: uint8(e.ord), GIDType: g.Type,
	}, nil
}

// Bring moves the QP to RTS with what the two ends have told each other.
func (e *tcpEnd) Bring(mine, theirs *tcp.Endpoint) error {
	e.agree(theirs)
	d := e.q.pd.dev
	d.mu.Lock()
	num, grh := d.port.num, d.port.attr.GRHRequired
	d.mu.Unlock()
	rtr := ibv.QPAttr{
		PathMTU: min(mine.MTU, theirs.MTU), DestQPN: theirs.QPN, RQPSN: theirs.PSN,
		AH: ibv.AHAttr{PortNum: num, DLID: theirs.LID},
	}
	// InfiniBand needs a GID between subnets, and where the port demands a GRH in
	// each packet; RoCE always needs one.
	if mine.Link == ibv.LinkEthernet || grh || d.fabric.opts.GIDIndex >= 0 || theirs.LID == 0 {
		rtr.AH.IsGlobal = true
		rtr.AH.DGID, rtr.AH.SGIDIndex, rtr.AH.HopLimit = theirs.GID, uint8(e.gid.Index), defaultHopLimit
	}
	rts := ibv.QPAttr{SQPSN: mine.PSN}
	rtrMask := ibv.QPMaskAV | ibv.QPMaskPathMTU | ibv.QPMaskDestQPN | ibv.QPMaskRQPSN
	if err := e.q.bring(&rtr, &rts, rtrMask, ibv.QPMaskSQPSN, e.ird, e.ord); err != nil {
		return err
	}
	e.path = d.pathOf(&rtr)
	return nil
}

// defaultHopLimit is what the IP stack uses too.
const defaultHopLimit = 64

// Connected gives the QP its link and opens it for posts.
func (e *tcpEnd) Connected(l *tcp.Link, private []byte) (rdma.ConnInfo, error) {
	info := infoOf("QP data over TCP", private, e.ird, e.ord, l.LocalAddr(), l.RemoteAddr(), e.path)
	return info, e.q.connected(l, info)
}

// PeerGone fails the QP.
func (e *tcpEnd) PeerGone(why string) { e.q.peerGone(why) }

// A tcpListener accepts connections of the exchange over TCP.
type tcpListener struct {
	*tcp.Listener
	dev  *device
	once sync.Once
}

// listenTCP listens for peers that exchange the QPs' data over TCP.
func (d *device) listenTCP(ctx context.Context, addr string) (rdma.Listener, error) {
	at, err := resolve(ctx, addr)
	if err != nil {
		return nil, err
	}
	o := tcp.Options{MaxPending: d.fabric.opts.MaxPending, SetupTimeout: d.fabric.opts.SetupTimeout}
	l, err := tcp.Listen(ctx, at[0], o)
	if err != nil {
		return nil, err
	}
	return &tcpListener{Listener: l, dev: d}, nil
}

// Accept waits for a request.
func (l *tcpListener) Accept(ctx context.Context) (rdma.ConnRequest, error) {
	r, err := l.Listener.Accept(ctx)
	if err != nil {
		return nil, err
	}
	return &tcpRequest{Request: r, dev: l.dev}, nil
}

// Close stops listening and rejects requests that the program has not taken.
func (l *tcpListener) Close() error {
	l.once.Do(func() {
		l.Listener.Close()
		l.dev.unuse()
	})
	return nil
}

// A tcpRequest is a peer that asks for a connection.
type tcpRequest struct {
	*tcp.Request
	dev *device
}

// Accept connects qp and returns once it is in RTS and the peer has said that
// it is too.
func (r *tcpRequest) Accept(ctx context.Context, target rdma.QP, p rdma.ConnParams) (rdma.ConnInfo, error) {
	return acceptInto(ctx, r.dev, target, p, r.RemoteAddr().String(), r.Claim,
		func(ctx context.Context, q *qp, ird, ord int) (rdma.ConnInfo, error) {
			return r.Request.Accept(ctx, &tcpEnd{q: q, ird: ird, ord: ord}, p.PrivateData)
		})
}

// Reject refuses, with private data for the peer.
func (r *tcpRequest) Reject(private []byte) error {
	if err := r.Request.Reject(private); err != nil {
		return opError("reject", r.RemoteAddr().String(), err)
	}
	return nil
}
