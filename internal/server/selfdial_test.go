package server

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/rdmakv/rdmakv/internal/server/base"
	"github.com/rdmakv/rdmakv/rdma"
)

// watched is a plug that tells of changes of its port.
func watched(name string) *plug {
	p := newPlug(name)
	p.changes = make(chan struct{}, 1)
	return p
}

// cmIs says whether the node knows that connections can be made by its first
// device, or that they cannot.
func cmIs(srv *Server, ok bool) func() bool {
	return func() bool {
		c := srv.devices.all()[0].cm.Load()
		return c != nil && (c.err == nil) == ok
	}
}

// TestDeafListener: a listener that answers nobody after its port came back is
// found by the node's own dial and made anew, at its address. What the dials cost
// is no session and no refusal in the books.
func TestDeafListener(t *testing.T) {
	card := watched("only")
	srv := startPlugs(t, nil, card)
	eventually(t, "the node has dialled itself", cmIs(srv, true))
	addr := srv.Addrs()[0].String()
	old := srv.devices.listening()[0]
	p := dial(t, srv, peerOptions{})
	card.current().deafen()
	if _, err := tryDial(t, srv, peerOptions{}); err == nil {
		t.Fatal("a deaf listener answers")
	}
	card.changes <- struct{}{}
	eventually(t, "there is another listener", func() bool { return srv.devices.listening()[0] != old })
	if now := srv.Addrs()[0].String(); now != addr {
		t.Errorf("it listens at %s, before at %s", now, addr)
	}
	if err := p.put("key", "value"); err != nil {
		t.Errorf("the session from before: %v", err)
	}
	dial(t, srv, peerOptions{})
	eventually(t, "connections can be made", cmIs(srv, true))
	if isAway(srv, 0)() {
		t.Error("the device was taken for gone")
	}
	for c := range base.CauseCount {
		if n := srv.main.Counters.Ends[c].Load(); n != 0 {
			t.Errorf("%d connections ended or were refused: %v", n, c)
		}
	}
	setups, _ := srv.registry.Counts()
	if setups != 0 {
		t.Errorf("%d places of set-ups are taken", setups)
	}
}

// TestDeafDevice: where another listener does not help, health, readiness and the
// metric say so until it does.
func TestDeafDevice(t *testing.T) {
	card := watched("only")
	srv := startPlugs(t, nil, card)
	eventually(t, "the node has dialled itself", cmIs(srv, true))
	metric := `rdmakv_fabric_cm_ok{device="only",fabric="cards"} `
	if _, text := httpGet(t, srv, "/metrics"); !strings.Contains(text, metric+"1") {
		t.Error("the metric does not say that connections can be made")
	}
	card.set(func(p *plug) { p.busy = rdma.ErrNoDevice })
	card.current().deafen()
	card.changes <- struct{}{}
	eventually(t, "it is noticed", cmIs(srv, false))
	for _, path := range []string{"/healthz", "/readyz"} {
		code, text := httpGet(t, srv, path)
		if code != http.StatusOK || !strings.Contains(text, "degraded: device cards/only: connections cannot be made") || !strings.Contains(text, "rdma link") {
			t.Errorf("%s: %d %q", path, code, text)
		}
	}
	if _, text := httpGet(t, srv, "/metrics"); !strings.Contains(text, metric+"0") {
		t.Error("the metric does not say that connections cannot be made")
	}
	if st, err := srv.NodeStatus(); err != nil || !strings.Contains(st.Fabrics[0], "no new connections") {
		t.Errorf("status: %+v, %v", st, err)
	}
	card.set(func(p *plug) { p.busy = nil })
	card.changes <- struct{}{}
	eventually(t, "it is over", cmIs(srv, true))
	if _, text := httpGet(t, srv, "/readyz"); strings.Contains(text, "degraded") {
		t.Errorf("/readyz when it is over: %q", text)
	}
	dial(t, srv, peerOptions{})
}

// TestNeverReachesItself: a device by which the node has never reached itself is not
// called degraded, and its listeners are left alone.
func TestNeverReachesItself(t *testing.T) {
	card := watched("only")
	srv := startPlugs(t, nil, card)
	d, p := srv.devices.list[0], srv.devices.listening()[0]
	eventually(t, "the node has dialled itself", cmIs(srv, true))
	d.cm.Store(nil)
	card.current().deafen()
	srv.selfDial.check(t.Context(), d)
	if d.cm.Load() != nil || srv.devices.listening()[0] != p || p.closing.Load() {
		t.Error("a dial that never succeeded was believed")
	}
	if _, text := httpGet(t, srv, "/metrics"); strings.Contains(text, "rdmakv_fabric_cm_ok{") {
		t.Error("the metric is there")
	}
}

// TestPulledWhileDialling: a device that goes while the node dials it is closed and
// comes back.
func TestPulledWhileDialling(t *testing.T) {
	card := watched("only")
	srv := startPlugs(t, nil, card)
	for range 5 {
		eventually(t, "the node has dialled itself", cmIs(srv, true))
		old := srv.devices.all()[0]
		card.changes <- struct{}{}
		card.current().pull(true)
		eventually(t, "it is back", func() bool { return srv.devices.all()[0] != old })
	}
	if err := srv.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	leftBehind(t, card)
}

func TestHints(t *testing.T) {
	if h := hintOf(rdma.ErrNoDevice); !strings.Contains(h, "ip addr") {
		t.Error(h)
	}
	if h := hintOf(errors.Join(rdma.ErrDeadline)); !strings.Contains(h, "connection manager") {
		t.Error(h)
	}
}
