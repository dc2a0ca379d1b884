package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/server"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/iwarp"
)

// roundTrip puts and gets, small and large, over the session in force.
func roundTrip(t *testing.T, c *Client) {
	t.Helper()
	for _, size := range []int{10, 300_000} {
		key, value := fmt.Appendf(nil, "k%d", size), bytes.Repeat([]byte("v"), size)
		if err := c.Put(t.Context(), key, value); err != nil {
			t.Fatal(err)
		}
		if got, err := c.Get(t.Context(), key); err != nil || !bytes.Equal(got, value) {
			t.Fatalf("%d bytes: %d came, %v", size, len(got), err)
		}
	}
}

// The first fabric that reaches the server is used, and why the others are not
// is told.
func TestFirstFabricThatReaches(t *testing.T) {
	n := softNode(t, nil)
	noRoute := &routedRig{newRig("a"), func(addr string) (rdma.Route, error) {
		return rdma.Route{}, fmt.Errorf("%w: no port is in the network of %s", rdma.ErrNoDevice, addr)
	}}
	deaf := newRig("b")
	deaf.refuse(fmt.Errorf("%w: %w", rdma.ErrPeerGone, errNobodyListens))
	refusing := newRig("c")
	refusing.refuse(rdma.ErrRejected) // by the kernel: no words of a server
	good := newRig("d")
	c := n.rigged([]rdma.Fabric{noRoute, deaf, refusing, good, newRig("e")}, nil)
	roundTrip(t, c)
	stats, err := c.Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	info := c.Server()
	if fmt.Sprint(stats.Session) != fmt.Sprint(info) {
		t.Errorf("stats say %+v", stats.Session)
	}
	if info.Fabric != "d" || info.Device != "d0" || info.Software || info.Why != "the rig's choice" {
		t.Errorf("%+v", info)
	}
	want := []Skipped{{"a", "", "no port is in the network"}, {"b", "b0", "nobody listens"}, {"c", "c0", "rejected"}}
	if len(info.Skipped) != len(want) {
		t.Fatalf("%+v", info.Skipped)
	}
	for i, w := range want {
		if got := info.Skipped[i]; got.Fabric != w.Fabric || got.Device != w.Device || !strings.Contains(got.Reason, w.Reason) {
			t.Errorf("%+v, want %+v", got, w)
		}
	}
	if noRoute.count() != 0 {
		t.Error("a connection was asked for without a route")
	}
	if took, err := c.PingRead(t.Context()); took <= 0 || err != nil {
		t.Error(took, err)
	}
}

// Who answers and refuses is not asked again by another fabric: a wrong secret
// is one everywhere.
func TestRefusalIsFinal(t *testing.T) {
	n := softNode(t, func(cfg *server.Config) { cfg.Secret = []byte("sesame") })
	first, second := newRig("a"), newRig("b")
	cfg := n.config()
	cfg.Fabric, cfg.Fabrics, cfg.Secret = nil, []rdma.Fabric{first, second}, []byte("simsalabim")
	if err := dialError(t, cfg); !errors.Is(err, ErrAuth) {
		t.Error(err)
	}
	if first.count() != 1 || second.count() != 0 {
		t.Errorf("%d and %d connections", first.count(), second.count())
	}
}

// A fabric on which nobody answers leaves time for the next one.
func TestFallbackHasTime(t *testing.T) {
	n := softNode(t, nil)
	dead := newRig("a")
	dead.set(func(r *rig) { r.connect = hang })
	c := n.rigged([]rdma.Fabric{dead, newRig("b")}, func(cfg *Config) { cfg.DialTimeout = 8 * time.Second })
	roundTrip(t, c)
	info := c.Server()
	if info.Fabric != "b" || len(info.Skipped) != 1 || !strings.Contains(info.Skipped[0].Reason, "no answer within") {
		t.Errorf("%+v", info)
	}
}

// RequireRDMA keeps the client off fabrics in software, whatever else fails.
func TestRequireRDMA(t *testing.T) {
	n := softNode(t, nil)
	soft := iwarp.New(iwarp.Options{})
	noRoute := &routedRig{newRig("a"), func(string) (rdma.Route, error) {
		return rdma.Route{}, fmt.Errorf("%w: install rdma-core", rdma.ErrNoDevice)
	}}
	cfg := n.config()
	cfg.Fabric, cfg.Fabrics, cfg.RequireRDMA = nil, []rdma.Fabric{noRoute, soft}, true
	err := dialError(t, cfg)
	if !errors.Is(err, ErrNoRDMA) || !errors.Is(err, rdma.ErrNoDevice) {
		t.Error(err)
	}
	for _, word := range []string{"install rdma-core", "in software", "iwarp"} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%q is not in %q", word, err)
		}
	}
	deaf := newRig("a")
	deaf.refuse(rdma.ErrPeerGone)
	cfg.Fabrics = []rdma.Fabric{deaf, soft}
	if err := dialError(t, cfg); !errors.Is(err, ErrUnavailable) || errors.Is(err, ErrNoRDMA) {
		t.Errorf("a device that reaches nobody: %v", err)
	}
	c := n.rigged([]rdma.Fabric{soft, newRig("b")}, func(cfg *Config) { cfg.RequireRDMA = true })
	if info := c.Server(); info.Fabric != "b" || info.Software {
		t.Errorf("%+v", info)
	}
}

// Devices that are named are used, and no others.
func TestDevicesByName(t *testing.T) {
	n := softNode(t, nil)
	a, b := newRig("a", "a0", "a1"), newRig("b", "b0", "b1")
	routed := &routedRig{newRig("r", "r0", "r1"), func(addr string) (rdma.Route, error) {
		return rdma.Route{Device: "r1", Addr: addr, Reason: "the route goes there"}, nil
	}}
	for _, tc := range []struct {
		fabrics []rdma.Fabric
		devices []string
		want    string
		why     string
	}{
		{[]rdma.Fabric{a, b}, []string{"b1"}, "b1", "named"},
		{[]rdma.Fabric{a, b}, []string{"b1", "a1"}, "a1", "named"}, // fabrics come first
		{[]rdma.Fabric{routed, a}, nil, "r1", "the route goes there"},
		{[]rdma.Fabric{routed, a}, []string{"r0", "r1"}, "r1", "the route goes there"},
		{[]rdma.Fabric{routed, a}, []string{"r0"}, "r0", "named"},
		{[]rdma.Fabric{routed, a}, []string{"a0"}, "a0", "named"},
	} {
		c := n.rigged(tc.fabrics, func(cfg *Config) { cfg.Devices = tc.devices })
		if info := c.Server(); info.Device != tc.want || !strings.Contains(info.Why, tc.why) {
			t.Errorf("%v: %+v", tc.devices, info)
		}
		c.Close()
	}
	// A name that no fabric has is no reason to take another device.
	cfg := n.config()
	cfg.Fabric, cfg.Fabrics, cfg.Device = nil, []rdma.Fabric{a, iwarp.New(iwarp.Options{})}, "mlx5_0"
	if err := dialError(t, cfg); !errors.Is(err, rdma.ErrNoDevice) || !strings.Contains(err.Error(), "iwarp0") {
		t.Error(err)
	}
	// A named device that does not work makes room for the next one.
	a.set(func(r *rig) {
		r.connect = func(_ context.Context, device, _ string) error {
			if device == "a0" {
				return rdma.ErrPeerGone
			}
			return nil
		}
	})
	c := n.rigged([]rdma.Fabric{a}, func(cfg *Config) { cfg.Devices = []string{"a0", "a1"} })
	if info := c.Server(); info.Device != "a1" {
		t.Errorf("%+v", info)
	}
}

// A client on a makeshift fabric moves to a better one as soon as that works,
// under load, and nothing fails by it.
func TestMoveToBetterFabric(t *testing.T) {
	n := softNode(t, nil)
	best, good, bad := newRig("best"), newRig("good"), newRig("bad")
	best.refuse(rdma.ErrPeerGone)
	good.refuse(rdma.ErrPeerGone)
	c := n.rigged([]rdma.Fabric{best, good, bad}, nil)
	roundTrip(t, c)
	if info := c.Server(); info.Fabric != "bad" {
		t.Fatalf("%+v", info)
	}
	w := startWriters(t, c, 4, 20*time.Second)
	for i, r := range []*rig{good, best} {
		w.progress(t)
		r.refuse(nil)
		eventually(t, "the move to "+r.name, func() bool { return c.Server().Fabric == r.name })
		if k := c.Counters(); k.Moves != uint64(i+1) || k.SessionsLost != 0 {
			t.Errorf("%+v", k)
		}
	}
	w.progress(t)
	w.finish(t, c)
	if w.unknown.Load() != 0 || w.failed.Load() != 0 {
		t.Errorf("%d outcomes unknown, %d calls failed", w.unknown.Load(), w.failed.Load())
	}
	roundTrip(t, c)
	settled(t, c)
	// What the devices left behind kept for later is given back.
	eventually(t, "the others hold no memory", func() bool {
		c.solo.transports.mu.Lock()
		defer c.solo.transports.mu.Unlock()
		for _, tr := range c.solo.transports.open {
			if total, _ := tr.buffers.usage(); total != 0 && tr != c.solo.current.Load().t {
				return false
			}
		}
		return len(c.solo.transports.open) == 3
	})
}

// When the connection of a makeshift is lost, the attempt begins with the best.
func TestReconnectBeginsWithTheBest(t *testing.T) {
	n := softNode(t, nil)
	best, bad := newRig("best"), newRig("bad")
	best.refuse(rdma.ErrPeerGone)
	c := n.rigged([]rdma.Fabric{best, bad}, nil)
	if info := c.Server(); info.Fabric != "bad" {
		t.Fatalf("%+v", info)
	}
	// The better fabric works once there is no connection: not by moving.
	best.set(func(r *rig) {
		r.connect = func(context.Context, string, string) error {
			if c.solo.current.Load() != nil {
				return rdma.ErrPeerGone
			}
			return nil
		}
	})
	bad.cut()
	eventually(t, "the best is in use", func() bool { return c.Server().Fabric == "best" })
	roundTrip(t, c)
	if k := c.Counters(); k.Moves != 0 {
		t.Error("it was reached by moving")
	}
}

// A device on which nothing can be made any more is opened anew.
func TestDeviceIsOpenedAnew(t *testing.T) {
	n := softNode(t, nil)
	r := newRig("a")
	c := n.rigged([]rdma.Fabric{r}, nil)
	roundTrip(t, c)
	removed := errors.New("device removed")
	r.set(func(r *rig) { r.queue = func() error { return removed } })
	r.cut()
	eventually(t, "an attempt fails", func() bool { return c.Counters().ConnectsFailed > 0 })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := c.Get(ctx, []byte("k10")); !errors.Is(err, ErrUnavailable) {
		t.Errorf("%v", err)
	}
	r.set(func(r *rig) { r.queue = nil })
	roundTrip(t, c)
	if n := r.opened("a0"); n < 2 {
		t.Errorf("opened %d times", n)
	}
	settled(t, c)
}

// Sessions pass their message memory on: connecting again registers nothing.
func TestReconnectRegistersNothing(t *testing.T) {
	n := softNode(t, nil)
	r := newRig("a")
	c := n.rigged([]rdma.Fabric{r}, nil)
	roundTrip(t, c)
	again := func() {
		old := c.solo.current.Load()
		r.cut()
		eventually(t, "another session", func() bool { s := c.solo.current.Load(); return s != nil && s != old })
		<-old.gone
		roundTrip(t, c)
	}
	for range 5 {
		again()
	}
	// A new session may begin before the memory of the old one has come back: two
	// in all. Buffers of gets and puts grow in number when more are in use at a
	// time; each of them must be in its pool still.
	tr, registered, blocks := c.solo.current.Load().t, 0, 0
	registrations := func() int {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.accesses)
	}
	eventually(t, "no buffers are being registered", func() bool {
		registered, blocks = registrations(), 0
		for _, p := range []*bufferPool{tr.buffers, tr.staging} {
			p.mu.Lock()
			defer p.mu.Unlock()
			blocks += len(p.blocks)
			if p.working > 0 {
				return false
			}
		}
		return registered == registrations()
	})
	if n := registered - blocks; n < 1 || n > 2 {
		t.Errorf("%d registrations for messages in 6 sessions, want 1 or 2 (and %d for buffers)", n, blocks)
	}
}

// Where the sink of a READ needs REMOTE_WRITE, the memory that gets land in has
// it and no other memory has, and no QP ever grants it.
func TestReadSinkRights(t *testing.T) {
	n := softNode(t, nil)
	for _, caps := range []rdma.Caps{0, rdma.CapReadSinkWrite} {
		r := newRig("a")
		r.caps = caps
		c := n.rigged([]rdma.Fabric{r}, nil)
		roundTrip(t, c)
		c.Close()
		sinks, others := 0, 0
		for _, a := range r.accesses {
			switch a {
			case rdma.AccessLocalWrite | rdma.AccessRemoteWrite:
				sinks++
			case rdma.AccessLocalWrite, rdma.AccessRemoteRead: // messages and plain sinks; large puts
				others++
			default:
				t.Errorf("memory with rights %b", a)
			}
		}
		if (sinks > 0) != (caps != 0) || others < 2 {
			t.Errorf("caps %b: %d sinks with REMOTE_WRITE, %d others", caps, sinks, others)
		}
		if r.granted != rdma.AccessRemoteRead {
			t.Errorf("QPs granted %b", r.granted)
		}
	}
}

// Many clients at once, on many transports, opened and closed all the time.
func TestTransportsComeAndGo(t *testing.T) {
	n := softNode(t, nil)
	a, b := newRig("a"), newRig("b")
	c := n.rigged([]rdma.Fabric{a, b}, nil)
	var wg sync.WaitGroup
	var over atomic.Bool
	wg.Go(func() {
		for i := range 8 {
			time.Sleep(20 * time.Millisecond)
			if i%2 == 0 {
				a.refuse(rdma.ErrPeerGone)
			} else {
				a.refuse(nil)
			}
			a.cut()
		}
		over.Store(true)
	})
	for !over.Load() {
		roundTripOrLost(t, c)
	}
	wg.Wait()
	roundTrip(t, c)
	settled(t, c)
}

// roundTripOrLost is roundTrip while connections break.
func roundTripOrLost(t *testing.T, c *Client) {
	t.Helper()
	key, value := []byte("k"), bytes.Repeat([]byte("v"), 100_000)
	if err := c.Put(t.Context(), key, value); err != nil {
		if !errors.Is(err, ErrOutcomeUnknown) {
			t.Error(err)
		}
		return
	}
	if got, err := c.Get(t.Context(), key); err != nil || !bytes.Equal(got, value) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

// Close ends a session too that has been left for a better fabric and still has
// work under way.
func TestCloseWhileMoving(t *testing.T) {
	n := softNode(t, nil)
	best, bad := newRig("best"), newRig("bad")
	best.refuse(rdma.ErrPeerGone)
	c := n.rigged([]rdma.Fabric{best, bad}, nil)
	old := c.solo.current.Load()
	if !old.use() { // somebody is at work on it
		t.Fatal("it is down")
	}
	best.refuse(nil)
	eventually(t, "the move", func() bool { return c.Counters().Moves == 1 })
	closed := make(chan error)
	go func() { closed <- c.Close() }()
	eventually(t, "the old session ends", func() bool { return old.isDown() })
	old.unuse()
	if err := <-closed; err != nil {
		t.Error(err)
	}
}

// A device that cannot be opened, and does not say so, keeps nobody from one
// that is open.
func TestOpenHangs(t *testing.T) {
	n := softNode(t, nil)
	bad := newRig("bad")
	gate := make(chan struct{})
	best := &stuckRig{rig: newRig("best"), gate: gate, stuck: make(chan struct{}, 1)}
	best.refuse(rdma.ErrPeerGone)
	c := n.rigged([]rdma.Fabric{best, bad}, func(cfg *Config) { cfg.DialTimeout = time.Second })
	defer close(gate)
	roundTrip(t, c)
	// From now on nothing can be made on the better device, and to open it anew
	// takes for ever: as soon as the next attempt to improve comes by.
	best.mu.Lock()
	best.queue = func() error { return rdma.ErrNoDevice }
	best.mu.Unlock()
	best.hang.Store(true)
	<-best.stuck
	bad.cut()
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
	defer cancel()
	if _, err := c.Get(ctx, []byte("k10")); err != nil {
		t.Error(err)
	}
}

// A stuckRig does not open when told so, whatever becomes of the context.
type stuckRig struct {
	*rig
	gate  chan struct{}
	stuck chan struct{}
	hang  atomic.Bool
}

func (r *stuckRig) Open(ctx context.Context, name string) (rdma.Device, error) {
	if r.hang.Load() {
		select {
		case r.stuck <- struct{}{}:
		default:
		}
		<-r.gate
		return nil, rdma.ErrNoDevice
	}
	return r.rig.Open(ctx, name)
}
