//go:build linux && cgo

package ibv

import (
	"context"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// A party is one end of connections made by librdmacm: a channel, and what its
// QPs are made of.
type party struct {
	t      testing.TB
	dev    string
	addrs  []netip.Addr // of the device
	events *EventChannel
	ctx    *Context
	pd     *PD
	cq     *CQ
	mem    []byte
	mr     *MR
}

func newParty(t testing.TB) *party {
	t.Helper()
	p := &party{t: t, ctx: openAny(t)}
	p.dev = p.ctx.Info().Name
	for _, e := range must(p.ctx.GIDTable(1))(t) {
		if a := netip.AddrFrom16(e.GID).Unmap(); e.Type == GIDRoCEv2 && !a.IsLinkLocalUnicast() {
			p.addrs = append(p.addrs, a)
		}
	}
	if len(p.addrs) == 0 {
		t.Fatalf("%s has no IP address", p.dev)
	}
	p.pd = must(p.ctx.AllocPD())(t)
	closing(t, p.pd)
	p.cq = must(p.ctx.CreateCQ(256, nil))(t)
	closing(t, p.cq)
	p.mem = pages(t, memSize)
	p.mr = must(p.pd.RegMR(uintptr(addrOf(p.mem)), memSize, AccessLocalWrite|AccessRemoteRead))(t)
	closing(t, p.mr)
	p.events = must(NewEventChannel())(t)
	closing(t, p.events)
	return p
}

func (p *party) newID() *CMID {
	p.t.Helper()
	id := must(p.events.NewID())(p.t)
	closing(p.t, id)
	return id
}

func (p *party) newQP() *QP {
	p.t.Helper()
	return newQP(p.t, p.pd, QPInit{SendCQ: p.cq, RecvCQ: p.cq,
		Cap: QPCap{MaxSendWR: 16, MaxRecvWR: 16, MaxSendSGE: 1, MaxRecvSGE: 1}})
}

// listen makes an id that listens at addr and a free port.
func (p *party) listen(addr netip.Addr) *CMID {
	p.t.Helper()
	id := p.newID()
	if err := id.Bind(netip.AddrPortFrom(addr, 0)); err != nil {
		p.t.Fatal(err)
	}
	if err := id.Listen(16); err != nil {
		p.t.Fatal(err)
	}
	return id
}

// on waits for the next event of e, which has to be of type want.
func on(t testing.TB, e *EventChannel, want CMEventType) CMEvent {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	ev, err := e.Get(ctx)
	if err != nil {
		t.Fatalf("waiting for %v: %v", want, err)
	}
	if ev.Type != want {
		t.Fatalf("event %v, status %d; want %v", ev.Type, ev.Status, want)
	}
	return ev
}

func (p *party) on(want CMEventType) CMEvent {
	p.t.Helper()
	return on(p.t, p.events, want)
}

func (p *party) ok(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

// resolve finds the way to dst for a new id.
func (p *party) resolve(dst netip.AddrPort) *CMID {
	p.t.Helper()
	id := p.newID()
	p.ok(id.ResolveAddr(netip.AddrPort{}, dst, patience))
	if ev := p.on(CMAddrResolved); ev.ID != id || id.Device() != p.dev || id.Port() != 1 {
		p.t.Fatalf("resolved %v to %q", ev.ID == id, id.Device())
	}
	p.ok(id.ResolveRoute(patience))
	p.on(CMRouteResolved)
	return id
}

// move takes q to the states, with the connection's attributes but rights of
// our own.
func (p *party) move(id *CMID, q *QP, rights Access, states ...QPState) {
	p.t.Helper()
	for _, s := range states {
		attr, mask, err := id.InitQPAttr(s)
		p.ok(err)
		if mask&QPMaskAccessFlags != 0 {
			attr.AccessFlags = rights
		}
		if err := q.Modify(&attr, mask); err != nil {
			p.t.Fatalf("to %v with %v: %v", s, mask, err)
		}
	}
}

// hello is the private data of a side.
func hello(who string, q *QP) ConnParam {
	return ConnParam{PrivateData: []byte(who), ResponderResources: 4, InitiatorDepth: 4, RetryCount: 6, RNRRetryCount: 7, QPNum: q.Num()}
}

// A link is a connection with both its ends in this process.
type link struct {
	dialed, accepted *CMID
	qd, qa           *QP // the QP of the side that dialed, and of that which accepted
}

// connect goes through all steps, of which each gives the events in the order
// that the manual pages tell.
func connect(d, l *party, listener *CMID) link {
	d.t.Helper()
	id := d.resolve(listener.LocalAddr())
	qd := d.newQP()
	d.ok(id.Connect(hello("client", qd)))

	req := l.on(CMConnectRequest)
	if req.ListenID != listener || req.ID == nil || req.Param.QPNum != qd.Num() || req.Param.InitiatorDepth == 0 ||
		req.ID.Device() != l.dev || !private(req.Param, "client") {
		l.t.Fatalf("request %+v", req)
	}
	if req.ID.LocalAddr() != listener.LocalAddr() || req.ID.PeerAddr().Addr() != id.LocalAddr().Addr() {
		l.t.Errorf("from %v to %v", req.ID.PeerAddr(), req.ID.LocalAddr())
	}
	closing(l.t, req.ID)
	qa := l.newQP()
	l.move(req.ID, qa, AccessRemoteRead, QPSInit, QPSRTR, QPSRTS)
	l.ok(req.ID.Accept(hello("server", qa)))

	res := d.on(CMConnectResponse)
	if res.ID != id || res.Param.QPNum != qa.Num() || !private(res.Param, "server") {
		d.t.Fatalf("response %+v", res)
	}
	d.move(id, qd, 0, QPSInit, QPSRTR, QPSRTS)
	d.ok(id.Establish())
	if ev := l.on(CMEstablished); ev.ID != req.ID {
		l.t.Fatalf("established %+v", ev)
	}
	return link{dialed: id, accepted: req.ID, qd: qd, qa: qa}
}

// private says if p's private data are text and nothing but the zeros with
// which IB's connection manager fills it up.
func private(p ConnParam, text string) bool {
	return strings.TrimRight(string(p.PrivateData), "\x00") == text
}

// quiet checks that e has no event.
func quiet(t testing.TB, e *EventChannel) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
	defer cancel()
	if ev, err := e.Get(ctx); err == nil {
		t.Errorf("event %v, status %d", ev.Type, ev.Status)
	}
}
