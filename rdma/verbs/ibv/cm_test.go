//go:build linux && cgo

package ibv

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestSockAddr(t *testing.T) {
	for _, s := range []string{"10.77.0.1:7471", "0.0.0.0:0", "[fd00:77::1]:65535", "[::]:1", "[fe80::1%7]:9"} {
		a := netip.MustParseAddrPort(s)
		c, err := toSockAddr(a)
		if err != nil || c.addrPort() != a {
			t.Errorf("%v became %+v, %v", a, c, err)
		}
	}
	mapped := netip.MustParseAddrPort("[::ffff:10.0.0.1]:5")
	if c, err := toSockAddr(mapped); err != nil || c.family != 4 || c.addrPort() != netip.MustParseAddrPort("10.0.0.1:5") {
		t.Errorf("%v became %+v, %v", mapped, c, err)
	}
	if c, err := toSockAddr(netip.AddrPort{}); err != nil || c.family != 0 || c.addrPort().IsValid() {
		t.Errorf("no address became %+v, %v", c, err)
	}
	if c, err := toSockAddr(netip.MustParseAddrPort("[fe80::1%lo]:9")); err != nil || c.scope == 0 {
		t.Errorf("zone lo became %+v, %v", c, err)
	}
	if _, err := toSockAddr(netip.MustParseAddrPort("[fe80::1%no-such-if]:9")); err == nil {
		t.Error("an unknown zone is none")
	}
}

func TestMillis(t *testing.T) {
	for d, want := range map[time.Duration]int{0: 0, -1: 0, 1: 1, time.Millisecond: 1, time.Millisecond + 1: 2,
		time.Second: 1000, 1 << 62: 1<<31 - 1} {
		if got := millis(d); got != want {
			t.Errorf("%v is %d ms, want %d", d, got, want)
		}
	}
}

// TestConnect: all steps of a connection, on every address of the device, then
// data, then the end of it.
func TestConnect(t *testing.T) {
	l, d := newParty(t), newParty(t)
	for _, addr := range l.addrs {
		t.Run(addr.String(), func(t *testing.T) {
			l, d := *l, *d
			l.t, d.t = t, t
			listener := l.listen(addr)
			if a := listener.LocalAddr(); a.Addr() != addr || a.Port() == 0 || listener.Device() != l.dev {
				t.Errorf("listens at %v on %q", a, listener.Device())
			}
			c := connect(&d, &l, listener)
			copy(l.mem, addr.String())
			clear(d.mem[:64])
			send(t, c.qd, SendWR{ID: 3, Op: WRRDMARead, Flags: SendSignaled, RKey: l.mr.RKey, RemoteAddr: addrOf(l.mem),
				NumSGE: 1, SGL: [MaxSGE]SGE{{Addr: addrOf(d.mem), Len: 64, LKey: d.mr.LKey}}})
			if one(t, d.cq, StatusSuccess); !strings.HasPrefix(string(d.mem), addr.String()) {
				t.Errorf("READ brought %q", d.mem[:64])
			}
			// librdmacm would have granted the side that dialed rights that we
			// did not give.
			if attr := must(c.qd.Query(QPMaskAccessFlags))(t); attr.AccessFlags&^AccessLocalWrite != 0 {
				t.Errorf("rights %v", attr.AccessFlags)
			}

			receive(t, c.qa, RecvWR{ID: 4})
			d.ok(c.dialed.Disconnect())
			if ev := l.on(CMDisconnected); ev.ID != c.accepted {
				t.Errorf("%+v", ev)
			}
			quiet(t, d.events) // until the peer answers
			// The QP is ours: it was not flushed.
			if n, err := l.cq.Poll(make([]WC, 1)); n != 0 || err != nil {
				t.Errorf("%d, %v", n, err)
			}
			l.ok(c.accepted.Disconnect())
			if ev := d.on(CMDisconnected); ev.ID != c.dialed {
				t.Errorf("%+v", ev)
			}
			l.ok(c.qa.Modify(&QPAttr{State: QPSErr}, QPMaskState))
			if wc := one(t, l.cq, StatusWRFlushErr); wc.ID != 4 {
				t.Errorf("%+v", wc)
			}
			l.on(CMTimewaitExit)
			d.on(CMTimewaitExit)
		})
	}
}

// TestCloseIsSeen: an id that is closed without Disconnect tells the peer.
func TestCloseIsSeen(t *testing.T) {
	l, d := newParty(t), newParty(t)
	c := connect(d, l, l.listen(l.addrs[0]))
	d.ok(c.dialed.Close())
	if ev := l.on(CMDisconnected); ev.ID != c.accepted {
		t.Errorf("%+v", ev)
	}
}

func TestReject(t *testing.T) {
	l, d := newParty(t), newParty(t)
	listener := l.listen(l.addrs[0])
	id := d.resolve(listener.LocalAddr())
	d.ok(id.Connect(hello("client", d.newQP())))
	req := l.on(CMConnectRequest)
	closing(t, req.ID)
	l.ok(req.ID.Reject([]byte("go away")))
	ev := d.on(CMRejected)
	// 28: the consumer rejected (IB_CM_REJ_CONSUMER_DEFINED).
	if ev.ID != id || ev.Status != 28 || !private(ev.Param, "go away") {
		t.Errorf("%+v", ev)
	}
	quiet(t, l.events)
}

// TestPrivateData: as much as fits in each direction, and not a byte more.
func TestPrivateData(t *testing.T) {
	l, d := newParty(t), newParty(t)
	listener := l.listen(l.addrs[0])
	fill := func(n int) []byte { return bytes.Repeat([]byte{0xa5}, n) }
	for _, accept := range []bool{true, false} {
		id, qd := d.resolve(listener.LocalAddr()), d.newQP()
		p := hello("", qd)
		p.PrivateData = fill(MaxPrivateConnect + 1)
		if err := id.Connect(p); !isInval(err) {
			t.Errorf("a byte too many to connect: %v", err)
		}
		p.PrivateData = fill(MaxPrivateConnect)
		d.ok(id.Connect(p))
		req := l.on(CMConnectRequest)
		closing(t, req.ID)
		if !bytes.Equal(req.Param.PrivateData, p.PrivateData) {
			t.Errorf("request with %x", req.Param.PrivateData)
		}
		if !accept {
			if err := req.ID.Reject(fill(MaxPrivateReject + 1)); !isInval(err) {
				t.Errorf("a byte too many to reject: %v", err)
			}
			l.ok(req.ID.Reject(fill(MaxPrivateReject)))
			if ev := d.on(CMRejected); !bytes.Equal(ev.Param.PrivateData, fill(MaxPrivateReject)) {
				t.Errorf("rejected with %x", ev.Param.PrivateData)
			}
			continue
		}
		qa := l.newQP()
		l.move(req.ID, qa, 0, QPSInit, QPSRTR, QPSRTS)
		p = hello("", qa)
		p.PrivateData = fill(MaxPrivateAccept + 1)
		if err := req.ID.Accept(p); !isInval(err) {
			t.Errorf("a byte too many to accept: %v", err)
		}
		p.PrivateData = fill(MaxPrivateAccept)
		l.ok(req.ID.Accept(p))
		if ev := d.on(CMConnectResponse); !bytes.Equal(ev.Param.PrivateData, p.PrivateData) {
			t.Errorf("response with %x", ev.Param.PrivateData)
		}
	}
}

// TestNobodyThere: no listener, a listener that closed with a request pending,
// an address without a host, a network without a device.
func TestNobodyThere(t *testing.T) {
	l, d := newParty(t), newParty(t)
	listener := l.listen(l.addrs[0])
	at := listener.LocalAddr()

	id := d.resolve(at)
	d.ok(id.Connect(hello("client", d.newQP())))
	// The request may be in the channel or not: either way it will not be
	// taken.
	l.ok(listener.Close())
	d.on(CMRejected)
	quiet(t, l.events)

	id = d.resolve(at)
	d.ok(id.Connect(hello("client", d.newQP())))
	if ev := d.on(CMRejected); ev.Status != 8 { // IB_CM_REJ_INVALID_SERVICE_ID
		t.Errorf("%+v", ev)
	}

	id = d.newID()
	gone := netip.AddrPortFrom(d.addrs[0].Prev(), 1)
	if d.addrs[0].Is4() {
		b := d.addrs[0].As4()
		b[3] = 250
		gone = netip.AddrPortFrom(netip.AddrFrom4(b), 1)
	}
	d.ok(id.ResolveAddr(netip.AddrPort{}, gone, 200*time.Millisecond))
	if ev := d.on(CMAddrError); ev.ID != id || ev.Status >= 0 {
		t.Errorf("%+v", ev)
	}

	id = d.newID()
	err := id.Bind(netip.MustParseAddrPort("192.0.2.1:7000"))
	if !isErrno(err, syscall.EADDRNOTAVAIL) && !isErrno(err, syscall.ENODEV) || !strings.Contains(err.Error(), "no RDMA device has this address") {
		t.Errorf("%v", err)
	}
}

func TestBind(t *testing.T) {
	p := newParty(t)
	at := p.listen(p.addrs[0]).LocalAddr()
	id := p.newID()
	err := id.Bind(at)
	if err == nil {
		err = id.Listen(1)
	}
	if !isErrno(err, syscall.EADDRINUSE) {
		t.Errorf("a second listener at %v: %v", at, err)
	}
	all := p.newID()
	p.ok(all.SetReuseAddr(true))
	p.ok(all.SetAFOnly(true))
	p.ok(all.Bind(netip.MustParseAddrPort("[::]:0")))
	p.ok(all.Listen(1))
	if all.Device() != "" || all.Port() != 0 || all.LocalAddr().Port() == 0 || all.PeerAddr().IsValid() {
		t.Errorf("listens on %q at %v", all.Device(), all.LocalAddr())
	}
	if err := p.newID().Bind(netip.AddrPort{}); !isInval(err) {
		t.Errorf("bound to nothing: %v", err)
	}
}

// TestOptions: the ACK timeout and the type of service reach the QP.
func TestOptions(t *testing.T) {
	l, d := newParty(t), newParty(t)
	listener := l.listen(l.addrs[0])
	id := d.newID()
	d.ok(id.SetTOS(0x68))
	d.ok(id.SetAckTimeout(9))
	d.ok(id.ResolveAddr(netip.AddrPort{}, listener.LocalAddr(), patience))
	d.on(CMAddrResolved)
	d.ok(id.ResolveRoute(patience))
	d.on(CMRouteResolved)
	d.ok(id.Connect(hello("client", d.newQP())))
	req := l.on(CMConnectRequest)
	closing(t, req.ID)
	qa := l.newQP()
	l.move(req.ID, qa, 0, QPSInit, QPSRTR, QPSRTS)
	l.ok(req.ID.Accept(hello("server", qa)))
	d.on(CMConnectResponse)
	attr, mask, err := id.InitQPAttr(QPSRTR)
	if err != nil || mask&QPMaskAV == 0 || attr.AH.TrafficClass != 0x68 || !attr.AH.IsGlobal || attr.DestQPN != qa.Num() {
		t.Errorf("%+v, %v, %v", attr, mask, err)
	}
	attr, mask, err = id.InitQPAttr(QPSRTS)
	if err != nil || mask&QPMaskTimeout == 0 || attr.Timeout != 9 {
		t.Errorf("timeout %d, %v, %v", attr.Timeout, mask, err)
	}
}

// TestMigrate: a request to connect gets a channel of its own.
func TestMigrate(t *testing.T) {
	l, d := newParty(t), newParty(t)
	listener := l.listen(l.addrs[0])
	id := d.resolve(listener.LocalAddr())
	qd := d.newQP()
	d.ok(id.Connect(hello("client", qd)))
	req := l.on(CMConnectRequest)
	own := must(NewEventChannel())(t)
	closing(t, own)
	closing(t, req.ID)
	l.ok(req.ID.Migrate(own))
	if err := own.Close(); !isErrno(err, syscall.EBUSY) {
		t.Errorf("closed a channel with an id: %v", err)
	}
	qa := l.newQP()
	l.move(req.ID, qa, 0, QPSInit, QPSRTR, QPSRTS)
	l.ok(req.ID.Accept(hello("server", qa)))
	d.on(CMConnectResponse)
	d.move(id, qd, 0, QPSInit, QPSRTR, QPSRTS)
	d.ok(id.Establish())
	if ev := on(t, own, CMEstablished); ev.ID != req.ID {
		t.Errorf("%+v", ev)
	}
	quiet(t, l.events)
}

// TestCMClosed: every method of what is closed.
func TestCMClosed(t *testing.T) {
	anyDevice(t)
	events := must(NewEventChannel())(t)
	id := must(events.NewID())(t)
	if err := events.Close(); !isErrno(err, syscall.EBUSY) || !strings.Contains(err.Error(), "1 CM id") {
		t.Errorf("closed a channel with an id: %v", err)
	}
	for _, o := range []interface{ Close() error }{id, id, events, events} {
		if err := o.Close(); err != nil {
			t.Errorf("%T: %v", o, err)
		}
	}
	var none netip.AddrPort
	some := netip.MustParseAddrPort("10.0.0.1:1")
	for what, err := range map[string]error{
		"Get": second(events.Get(context.Background())), "NewID": second(events.NewID()),
		"Bind": id.Bind(some), "Listen": id.Listen(1), "ResolveAddr": id.ResolveAddr(none, some, 1),
		"ResolveRoute": id.ResolveRoute(1), "Connect": id.Connect(ConnParam{}), "Accept": id.Accept(ConnParam{}),
		"Reject": id.Reject(nil), "Establish": id.Establish(), "Disconnect": id.Disconnect(), "SetTOS": id.SetTOS(1),
		"Migrate": id.Migrate(events),
	} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("%s after Close: %v", what, err)
		}
	}
	if _, _, err := id.InitQPAttr(QPSInit); !errors.Is(err, ErrClosed) {
		t.Errorf("InitQPAttr after Close: %v", err)
	}
	if id.LocalAddr().IsValid() || id.PeerAddr().IsValid() || id.Device() != "" || id.Port() != 0 {
		t.Error("a closed id has an address")
	}
	if err := new(CMID).Connect(ConnParam{PrivateData: make([]byte, 256)}); !isInval(err) {
		t.Errorf("256 bytes of private data: %v", err)
	}
}
