package client_test

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

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/admin"
	"github.com/rdmakv/rdmakv/client/internal/clienttest"
	"github.com/rdmakv/rdmakv/client/internal/clienttest/node"
	"github.com/rdmakv/rdmakv/client/internal/device"
	"github.com/rdmakv/rdmakv/internal/server"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/iwarp"
)

// roundTrip puts and gets, small and large, over the session in force.
func roundTrip(t *testing.T, c *client.Client) {
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
	n := node.Soft(t, nil)
	noRoute := &clienttest.RoutedRig{Rig: clienttest.NewRig("a"), Way: func(addr string) (rdma.Route, error) {
		return rdma.Route{}, fmt.Errorf("%w: no port is in the network of %s", rdma.ErrNoDevice, addr)
	}}
	deaf := clienttest.NewRig("b")
	deaf.Refuse(fmt.Errorf("%w: %w", rdma.ErrPeerGone, clienttest.ErrNotListening))
	refusing := clienttest.NewRig("c")
	refusing.Refuse(rdma.ErrRejected) // by the kernel: no words of a server
	good := clienttest.NewRig("d")
	c := rigged(n, []rdma.Fabric{noRoute, deaf, refusing, good, clienttest.NewRig("e")}, nil)
	roundTrip(t, c)
	stats, err := admin.Of(c).Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	info := admin.Of(c).Server()
	if fmt.Sprint(stats.Session) != fmt.Sprint(info) {
		t.Errorf("stats say %+v", stats.Session)
	}
	if info.Fabric != "d" || info.Device != "d0" || info.Software || info.Why != "the rig's choice" {
		t.Errorf("%+v", info)
	}
	want := []admin.Skipped{{Fabric: "a", Reason: "no port is in the network"}, {Fabric: "b", Device: "b0", Reason: "nothing listens"}, {Fabric: "c", Device: "c0", Reason: "rejected"}}
	if len(info.Skipped) != len(want) {
		t.Fatalf("%+v", info.Skipped)
	}
	for i, w := range want {
		if got := info.Skipped[i]; got.Fabric != w.Fabric || got.Device != w.Device || !strings.Contains(got.Reason, w.Reason) {
			t.Errorf("%+v, want %+v", got, w)
		}
	}
	if noRoute.Count() != 0 {
		t.Error("a connection was asked for without a route")
	}
	if took, err := admin.Of(c).PingRead(t.Context()); took <= 0 || err != nil {
		t.Error(took, err)
	}
}

// A server that answers and refuses is not asked again by another fabric: a wrong secret
// is one everywhere.
func TestRefusalIsFinal(t *testing.T) {
	n := node.Soft(t, func(cfg *server.Config) { cfg.Secret = []byte("sesame") })
	first, second := clienttest.NewRig("a"), clienttest.NewRig("b")
	cfg := configNode(n)
	cfg.Fabrics, cfg.Secret = []rdma.Fabric{first, second}, []byte("simsalabim")
	if err := dialError(t, cfg); !errors.Is(err, client.ErrAuth) {
		t.Error(err)
	}
	if first.Count() != 1 || second.Count() != 0 {
		t.Errorf("%d and %d connections", first.Count(), second.Count())
	}
}

// A fabric on which no server answers leaves time for the next one.
func TestFallbackHasTime(t *testing.T) {
	n := node.Soft(t, nil)
	dead := clienttest.NewRig("a")
	dead.Set(func(r *clienttest.Rig) { r.Connect = clienttest.Hang })
	c := rigged(n, []rdma.Fabric{dead, clienttest.NewRig("b")}, func(cfg *client.Config) { cfg.DialTimeout = 3 * time.Second })
	roundTrip(t, c)
	info := admin.Of(c).Server()
	if info.Fabric != "b" || len(info.Skipped) != 1 || !strings.Contains(info.Skipped[0].Reason, "no answer within") {
		t.Errorf("%+v", info)
	}
}

// RequireRDMA keeps the client off fabrics in software, whatever else fails.
func TestRequireRDMA(t *testing.T) {
	n := node.Soft(t, nil)
	soft := iwarp.New(iwarp.Options{})
	noRoute := &clienttest.RoutedRig{Rig: clienttest.NewRig("a"), Way: func(string) (rdma.Route, error) {
		return rdma.Route{}, fmt.Errorf("%w: install rdma-core", rdma.ErrNoDevice)
	}}
	cfg := configNode(n)
	cfg.Fabrics, cfg.RequireRDMA = []rdma.Fabric{noRoute, soft}, true
	err := dialError(t, cfg)
	if !errors.Is(err, client.ErrNoRDMA) || !errors.Is(err, rdma.ErrNoDevice) {
		t.Error(err)
	}
	for _, word := range []string{"install rdma-core", "in software", "iwarp"} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%q is not in %q", word, err)
		}
	}
	deaf := clienttest.NewRig("a")
	deaf.Refuse(rdma.ErrPeerGone)
	cfg.Fabrics = []rdma.Fabric{deaf, soft}
	if err := dialError(t, cfg); !errors.Is(err, client.ErrUnavailable) || errors.Is(err, client.ErrNoRDMA) {
		t.Errorf("a device that reaches no server: %v", err)
	}
	c := rigged(n, []rdma.Fabric{soft, clienttest.NewRig("b")}, func(cfg *client.Config) { cfg.RequireRDMA = true })
	if info := admin.Of(c).Server(); info.Fabric != "b" || info.Software {
		t.Errorf("%+v", info)
	}
}

// Devices that are named are used, and no others.
func TestDevicesByName(t *testing.T) {
	n := node.Soft(t, nil)
	a, b := clienttest.NewRig("a", "a0", "a1"), clienttest.NewRig("b", "b0", "b1")
	routed := &clienttest.RoutedRig{Rig: clienttest.NewRig("r", "r0", "r1"), Way: func(addr string) (rdma.Route, error) {
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
		c := rigged(n, tc.fabrics, func(cfg *client.Config) { cfg.Devices = tc.devices })
		if info := admin.Of(c).Server(); info.Device != tc.want || !strings.Contains(info.Why, tc.why) {
			t.Errorf("%v: %+v", tc.devices, info)
		}
		c.Close()
	}
	// A name that no fabric has is no reason to take another device.
	cfg := configNode(n)
	cfg.Fabrics, cfg.Devices = []rdma.Fabric{a, iwarp.New(iwarp.Options{})}, []string{"mlx5_0"}
	if err := dialError(t, cfg); !errors.Is(err, rdma.ErrNoDevice) || !strings.Contains(err.Error(), "iwarp0") {
		t.Error(err)
	}
	// A named device that does not work makes room for the next one.
	a.Set(func(r *clienttest.Rig) {
		r.Connect = func(_ context.Context, device, _ string) error {
			if device == "a0" {
				return rdma.ErrPeerGone
			}
			return nil
		}
	})
	c := rigged(n, []rdma.Fabric{a}, func(cfg *client.Config) { cfg.Devices = []string{"a0", "a1"} })
	if info := admin.Of(c).Server(); info.Device != "a1" {
		t.Errorf("%+v", info)
	}
}

// A client on a makeshift fabric moves to a better one as soon as that works,
// under load, and nothing fails by it.
func TestMoveToBetterFabric(t *testing.T) {
	n := node.Soft(t, nil)
	best, good, bad := clienttest.NewRig("best"), clienttest.NewRig("good"), clienttest.NewRig("bad")
	best.Refuse(rdma.ErrPeerGone)
	good.Refuse(rdma.ErrPeerGone)
	c := rigged(n, []rdma.Fabric{best, good, bad}, nil)
	roundTrip(t, c)
	if info := admin.Of(c).Server(); info.Fabric != "bad" {
		t.Fatalf("%+v", info)
	}
	w := startWriters(t, c, 4, 20*time.Second)
	for i, r := range []*clienttest.Rig{good, best} {
		w.progress(t)
		r.Refuse(nil)
		clienttest.Eventually(t, "the move to "+r.Name(), func() bool { return admin.Of(c).Server().Fabric == r.Name() })
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
	clienttest.Eventually(t, "the others hold no memory", func() bool {
		open := rt(c).Only().Devices.Devices()
		for _, tr := range open {
			if tr.Buffers.Usage().Bytes != 0 && tr != rt(c).Only().Current().Device {
				return false
			}
		}
		return len(open) == 3
	})
}

// When the connection of a makeshift is lost, the attempt begins with the best.
func TestReconnectBeginsWithTheBest(t *testing.T) {
	n := node.Soft(t, nil)
	best, bad := clienttest.NewRig("best"), clienttest.NewRig("bad")
	best.Refuse(rdma.ErrPeerGone)
	c := rigged(n, []rdma.Fabric{best, bad}, nil)
	if info := admin.Of(c).Server(); info.Fabric != "bad" {
		t.Fatalf("%+v", info)
	}
	// The better fabric works once there is no connection: not by moving.
	best.Set(func(r *clienttest.Rig) {
		r.Connect = func(context.Context, string, string) error {
			if rt(c).Only().Current() != nil {
				return rdma.ErrPeerGone
			}
			return nil
		}
	})
	bad.Cut()
	clienttest.Eventually(t, "the best is in use", func() bool { return admin.Of(c).Server().Fabric == "best" })
	roundTrip(t, c)
	if k := c.Counters(); k.Moves != 0 {
		t.Error("it was reached by moving")
	}
}

// A device on which nothing can be made any more is opened anew.
func TestDeviceIsOpenedAnew(t *testing.T) {
	n := node.Soft(t, nil)
	r := clienttest.NewRig("a")
	c := rigged(n, []rdma.Fabric{r}, nil)
	roundTrip(t, c)
	removed := errors.New("device removed")
	r.Set(func(r *clienttest.Rig) { r.Queue = func() error { return removed } })
	r.Cut()
	clienttest.Eventually(t, "an attempt fails", func() bool { return c.Counters().ConnectsFailed > 0 })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := c.Get(ctx, []byte("k10")); !errors.Is(err, client.ErrUnavailable) {
		t.Errorf("%v", err)
	}
	r.Set(func(r *clienttest.Rig) { r.Queue = nil })
	roundTrip(t, c)
	if n := r.Opened("a0"); n < 2 {
		t.Errorf("opened %d times", n)
	}
	settled(t, c)
}

// Sessions pass their message memory on: connecting again registers nothing.
func TestReconnectRegistersNothing(t *testing.T) {
	n := node.Soft(t, nil)
	r := clienttest.NewRig("a")
	c := rigged(n, []rdma.Fabric{r}, nil)
	roundTrip(t, c)
	again := func() {
		old := rt(c).Only().Current()
		r.Cut()
		clienttest.Eventually(t, "another session", func() bool { s := rt(c).Only().Current(); return s != nil && s != old })
		<-old.Gone
		roundTrip(t, c)
	}
	for range 5 {
		again()
	}
	// A new session may begin before the memory of the old one has come back: two
	// in all. Buffers of gets and puts grow in number when more are in use at a
	// time; each of them must be in its pool still.
	tr, registered, blocks := rt(c).Only().Current().Device, 0, 0
	registrations := func() int {
		r.Mu.Lock()
		defer r.Mu.Unlock()
		return len(r.Accesses)
	}
	clienttest.Eventually(t, "no buffers are being registered", func() bool {
		registered, blocks = registrations(), 0
		for _, p := range []*device.Pool{tr.Buffers, tr.Staging} {
			u := p.Usage()
			blocks += u.Blocks
			if u.Working > 0 {
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
	n := node.Soft(t, nil)
	for _, caps := range []rdma.Caps{0, rdma.CapReadSinkWrite} {
		r := clienttest.NewRig("a")
		r.Caps = caps
		c := rigged(n, []rdma.Fabric{r}, nil)
		roundTrip(t, c)
		c.Close()
		sinks, others := 0, 0
		for _, a := range r.Accesses {
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
		if r.Granted != rdma.AccessRemoteRead {
			t.Errorf("QPs granted %b", r.Granted)
		}
	}
}

// Many clients at once, on many devices, opened and closed all the time.
func TestTransportsComeAndGo(t *testing.T) {
	n := node.Soft(t, nil)
	a, b := clienttest.NewRig("a"), clienttest.NewRig("b")
	c := rigged(n, []rdma.Fabric{a, b}, nil)
	var wg sync.WaitGroup
	var over atomic.Bool
	wg.Go(func() {
		for i := range 8 {
			time.Sleep(20 * time.Millisecond)
			if i%2 == 0 {
				a.Refuse(rdma.ErrPeerGone)
			} else {
				a.Refuse(nil)
			}
			a.Cut()
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
func roundTripOrLost(t *testing.T, c *client.Client) {
	t.Helper()
	key, value := []byte("k"), bytes.Repeat([]byte("v"), 100_000)
	if err := c.Put(t.Context(), key, value); err != nil {
		if !errors.Is(err, client.ErrOutcomeUnknown) {
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
	n := node.Soft(t, nil)
	best, bad := clienttest.NewRig("best"), clienttest.NewRig("bad")
	best.Refuse(rdma.ErrPeerGone)
	c := rigged(n, []rdma.Fabric{best, bad}, nil)
	old := rt(c).Only().Current()
	if !old.Enter() { // a call is at work on it
		t.Fatal("it is down")
	}
	best.Refuse(nil)
	clienttest.Eventually(t, "the move", func() bool { return c.Counters().Moves == 1 })
	closed := make(chan error)
	go func() { closed <- c.Close() }()
	clienttest.Eventually(t, "the old session ends", func() bool { return old.IsDown() })
	old.Leave()
	if err := <-closed; err != nil {
		t.Error(err)
	}
}

// A device that cannot be opened, and does not say so, keeps no call from one
// that is open.
func TestOpenHangs(t *testing.T) {
	n := node.Soft(t, nil)
	bad := clienttest.NewRig("bad")
	gate := make(chan struct{})
	best := &stuckRig{Rig: clienttest.NewRig("best"), gate: gate, stuck: make(chan struct{}, 1)}
	best.Refuse(rdma.ErrPeerGone)
	c := rigged(n, []rdma.Fabric{best, bad}, func(cfg *client.Config) { cfg.DialTimeout = time.Second })
	defer close(gate)
	roundTrip(t, c)
	// From now on nothing can be made on the better device, and to open it anew
	// takes for ever: as soon as the next attempt to improve comes by.
	best.Mu.Lock()
	best.Queue = func() error { return rdma.ErrNoDevice }
	best.Mu.Unlock()
	best.hang.Store(true)
	<-best.stuck
	bad.Cut()
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
	defer cancel()
	if _, err := c.Get(ctx, []byte("k10")); err != nil {
		t.Error(err)
	}
}

// A stuckRig does not open when told so, whatever becomes of the context.
type stuckRig struct {
	*clienttest.Rig
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
	return r.Rig.Open(ctx, name)
}
