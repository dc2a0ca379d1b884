package tcp

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/verbs/ibv"
)

// A fakeEnd stands for a queue pair and notes what it is told.
type fakeEnd struct {
	is          Endpoint
	first, mine Endpoint // what it knew of the peer when it described itself; what it was brought up with
	theirs      Endpoint
	bringErr    error
	link        *Link
	gone        chan string
}

func newFakeEnd(qpn uint32) *fakeEnd {
	e := &fakeEnd{is: goodEndpoint(), gone: make(chan string, 2)}
	e.is.QPN, e.is.PSN = qpn, 0
	return e
}

func (e *fakeEnd) Describe(local netip.Addr, theirs *Endpoint) (Endpoint, error) {
	if theirs != nil {
		e.first = *theirs
	}
	if local != netip.MustParseAddr("127.0.0.1") {
		return Endpoint{}, errors.New("not from 127.0.0.1")
	}
	return e.is, nil
}

func (e *fakeEnd) Bring(mine, theirs *Endpoint) error {
	e.mine, e.theirs = *mine, *theirs
	return e.bringErr
}

func (e *fakeEnd) Connected(l *Link, private []byte) (rdma.ConnInfo, error) {
	e.link = l
	return rdma.ConnInfo{PrivateData: private, LocalAddr: l.LocalAddr(), RemoteAddr: l.RemoteAddr()}, nil
}

func (e *fakeEnd) PeerGone(why string) { e.gone <- why }

// wait is the context of what must end at once.
func wait(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// dial connects a to b through a listener, and returns what both ends come to.
func dial(t *testing.T, a, b *fakeEnd) (ia, ib rdma.ConnInfo, erra, errb error) {
	t.Helper()
	l := listenHere(t, Options{})
	ctx, done := wait(t), make(chan struct{})
	go func() {
		defer close(done)
		ia, erra = Dial(ctx, a, l.Addr().String(), []byte("from the dialer"))
	}()
	r := accept(t, l)
	if errb = r.Claim(); errb == nil {
		ib, errb = r.Accept(ctx, b, []byte("from the listener"))
	}
	<-done
	if err := r.Claim(); !errors.Is(err, rdma.ErrNotConnected) {
		t.Errorf("claimed twice: %v", err)
	}
	return ia, ib, erra, errb
}

func TestConnect(t *testing.T) {
	a, b := newFakeEnd(2), newFakeEnd(3)
	ia, ib, erra, errb := dial(t, a, b)
	if erra != nil || errb != nil {
		t.Fatalf("dialer: %v, listener: %v", erra, errb)
	}
	if string(ia.PrivateData) != "from the listener" || string(ib.PrivateData) != "from the dialer" {
		t.Errorf("private data %q and %q", ia.PrivateData, ib.PrivateData)
	}
	if a.theirs != b.mine || b.theirs != a.mine || b.first != a.mine || a.first != (Endpoint{}) {
		t.Errorf("the dialer is %+v\nand was told of %+v,\nthe listener is %+v\nand was told of %+v", a.mine, a.theirs, b.mine, b.theirs)
	}
	if a.mine.PSN == 0 && b.mine.PSN == 0 {
		t.Error("the PSNs were not drawn")
	}
	if ia.RemoteAddr.String() != ib.LocalAddr.String() || ia.LocalAddr.String() != ib.RemoteAddr.String() {
		t.Errorf("addresses %v, %v and %v, %v", ia.LocalAddr, ia.RemoteAddr, ib.LocalAddr, ib.RemoteAddr)
	}
	a.link.Disconnect()
	a.link.Disconnect() // again, which does nothing
	if why := <-b.gone; why != "the peer has disconnected" {
		t.Errorf("the listener hears that %s", why)
	}
	b.link.Disconnect()
	b.link.Close()
	a.link.Close()
	if len(b.gone) > 0 {
		t.Errorf("and then that %s", <-b.gone)
	}
}

// A peer that ends without a word is noticed too.
func TestConnectLost(t *testing.T) {
	a, b := newFakeEnd(2), newFakeEnd(3)
	if _, _, erra, errb := dial(t, a, b); erra != nil || errb != nil {
		t.Fatalf("dialer: %v, listener: %v", erra, errb)
	}
	_ = a.link.conn.SetLinger(0)
	_ = a.link.conn.Close()
	if why := <-b.gone; !strings.Contains(why, "reset") && why != "the peer has closed its socket" {
		t.Errorf("the listener hears that %s", why)
	}
	b.link.Close()
	a.link.Close()
}

// Whichever end cannot go on, both fail, and with a reason.
func TestConnectFails(t *testing.T) {
	broken := errors.New("broken")
	for _, c := range []struct {
		name   string
		spoil  func(a, b *fakeEnd)
		ea, eb error
	}{
		{"other link layer", func(a, b *fakeEnd) { b.is.Link = ibv.LinkInfiniBand }, rdma.ErrPeerGone, rdma.ErrProtocol},
		{"other GID type", func(a, b *fakeEnd) { b.is.GIDType = ibv.GIDRoCEv1 }, rdma.ErrPeerGone, rdma.ErrProtocol},
		{"the listener's device refuses", func(a, b *fakeEnd) { b.bringErr = broken }, rdma.ErrPeerGone, broken},
		{"the dialer's device refuses", func(a, b *fakeEnd) { a.bringErr = broken }, broken, rdma.ErrPeerGone},
	} {
		a, b := newFakeEnd(2), newFakeEnd(3)
		c.spoil(a, b)
		if _, _, erra, errb := dial(t, a, b); !errors.Is(erra, c.ea) || !errors.Is(errb, c.eb) {
			t.Errorf("%s: dialer: %v, want %v; listener: %v, want %v", c.name, erra, c.ea, errb, c.eb)
		}
		if a.link != nil || b.link != nil {
			t.Errorf("%s: an end is connected", c.name)
		}
	}
}

func TestDialRejected(t *testing.T) {
	l := listenHere(t, Options{})
	ctx, done := wait(t), make(chan error, 1)
	var info rdma.ConnInfo
	go func() {
		var err error
		info, err = Dial(ctx, newFakeEnd(2), l.Addr().String(), nil)
		done <- err
	}()
	if err := accept(t, l).Reject([]byte("no")); err != nil {
		t.Error(err)
	}
	if err := <-done; !errors.Is(err, rdma.ErrRejected) || string(info.PrivateData) != "no" {
		t.Errorf("%v with %q, want ErrRejected with \"no\"", err, info.PrivateData)
	}
}

// Neither end waits longer than its context for a peer that says nothing.
func TestConnectDeadline(t *testing.T) {
	l := listenHere(t, Options{})
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := Dial(ctx, newFakeEnd(2), l.Addr().String(), nil); !errors.Is(err, rdma.ErrDeadline) {
		t.Errorf("Dial: %v, want ErrDeadline", err)
	}
	c := dialHere(t, l)
	sendRequest(t, c, "")
	r := accept(t, l)
	for r.RemoteAddr().String() != c.LocalAddr().String() { // the dialer's before
		r = accept(t, l)
	}
	ctx, cancel = context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := r.Claim(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Accept(ctx, newFakeEnd(3), nil); !errors.Is(err, rdma.ErrDeadline) {
		t.Errorf("Accept: %v, want ErrDeadline", err)
	}
}
