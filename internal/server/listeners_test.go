package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rdmakv/rdmakv/internal/server/telemetry"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma/iwarp"
	"github.com/rdmakv/rdmakv/store/layout"
)

// twoCards is a node on two devices that differ, with regions of 4 MiB.
func twoCards(c *Config) (left, right *card) {
	left, right = newCard("left", iwarp.Options{}), newCard("right", iwarp.Options{NoCRC: true, ReadDepth: 8})
	c.Fabric = nil
	c.Listeners = []Listener{
		{Fabric: left, Addr: "127.0.0.1:0", Group: "one port"},
		{Fabric: right, Addr: "127.0.0.2:0", Group: "one port"},
	}
	c.RegionSize, c.IndexRegionSize = 4<<20, 2<<20
	return left, right
}

// holds READs the regions of a peer's own device until one has the text.
func (p *peer) holds(text string) bool {
	p.t.Helper()
	const piece = 256 << 10
	_, regions := p.regions()
	for _, r := range regions {
		if layout.RegionKind(r.Kind) != layout.KindItems {
			continue
		}
		for off := uint64(0); off < r.Length; off += piece {
			b, err := p.read(r.Addr+off, r.RKey, int(min(piece, r.Length-off)))
			if err != nil {
				p.t.Fatalf("READ of region %d: %v", r.ID, err)
			}
			if bytes.Contains(b, []byte(text)) {
				return true
			}
		}
	}
	return false
}

// TestTwoDevices: clients of two devices read what the other wrote, each with
// the table of its own device, also in regions that came later; at the end
// nothing is registered with either.
func TestTwoDevices(t *testing.T) {
	var left, right *card
	srv := startServer(t, func(c *Config) { left, right = twoCards(c) })
	addrs := srv.Addrs()
	if len(addrs) != 2 {
		t.Fatalf("addresses %v", addrs)
	}
	_, one, _ := net.SplitHostPort(addrs[0].String())
	_, two, _ := net.SplitHostPort(addrs[1].String())
	if one != two {
		t.Errorf("the group has the ports %s and %s", one, two)
	}
	l := dial(t, srv, peerOptions{via: addrs[0].String()})
	r := dial(t, srv, peerOptions{via: addrs[1].String()})
	for i, p := range []*peer{l, r} {
		text := fmt.Sprintf("written through device %d", i)
		if err := p.put("from"+fmt.Sprint(i), text); err != nil {
			t.Fatal(err)
		}
		if !l.holds(text) || !r.holds(text) {
			t.Errorf("%q is not in the memory that both read", text)
		}
	}
	_, before := r.regions()
	filler := strings.Repeat("x", 12<<10)
	for i := 0; ; i++ {
		if err := l.put(fmt.Sprintf("filler%d", i), filler); err != nil {
			t.Fatal(err)
		}
		if _, now := r.regions(); len(now) > len(before)+1 {
			break
		}
	}
	if err := l.put("last", "in a region that came later"); err != nil || !r.holds("in a region that came later") {
		t.Errorf("the value in a later region: %v", err)
	}
	_, all := l.regions()
	if n := int64(len(all)); left.slabs.Load() != n || right.slabs.Load() != n {
		t.Errorf("%d regions: %d are registered on the left, %d on the right", n, left.slabs.Load(), right.slabs.Load())
	}
	st, err := srv.Stats()
	if err != nil || len(st.Devices) != 2 {
		t.Fatalf("devices %+v, %v", st.Devices, err)
	}
	for i, want := range []string{"left", "right"} {
		d := st.Devices[i]
		if d.Device != want || d.Fabric != "cards" || d.Sessions != 1 || len(d.Listen) != 1 || d.Listen[0] != addrs[i].String() {
			t.Errorf("device %d: %+v", i, d)
		}
	}
	if got := strings.Join(srv.Devices(), " "); got != "cards/left cards/right" {
		t.Errorf("devices %s", got)
	}
	reg := prometheus.NewRegistry()
	reg.MustRegister(telemetry.NewCollector(sources{srv}))
	if _, err := reg.Gather(); err != nil {
		t.Errorf("metrics of two devices: %v", err)
	}
	l.close()
	r.close()
	if err := srv.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	for _, c := range []*card{left, right} {
		if c.slabs.Load() != 0 || c.open.Load() != 0 {
			t.Errorf("%s: %d regions registered and %d devices open after the end", c.name, c.slabs.Load(), c.open.Load())
		}
	}
}

// TestLargePutOnEach: values are READ from clients of each device with memory
// of that device, and with as few READs in flight as a device has.
func TestLargePutOnEach(t *testing.T) {
	srv := startServer(t, func(c *Config) {
		_, right := twoCards(c)
		right.Fabric = iwarp.New(iwarp.Options{ReadDepth: 1})
		c.Credits = 4
	})
	for _, addr := range srv.Addrs() {
		p := dial(t, srv, peerOptions{via: addr.String()})
		value := p.sink()[:1<<20]
		for i := range value {
			value[i] = byte(i * 5)
		}
		var ids []uint64
		for i := range 3 { // at once
			id := p.id()
			p.send(wire.AppendPutLarge(nil, id, wire.PutLarge{
				Key: fmt.Appendf(nil, "large%d", i), ValueLen: uint64(len(value)), Checksum: checksum(value),
				RKey: p.mr.RKey(), Addr: p.mr.Addr() + (peerReceives+1)*peerSize,
			}))
			ids = append(ids, id)
		}
		for i, id := range ids {
			h, body, err := p.await(id)
			if err == nil {
				err = wire.ReplyError(h, body)
			}
			if testing.Short() && errors.Is(err, wire.StatusOverloaded.Err()) {
				err = p.putLargeSoon(fmt.Appendf(nil, "large%d", i), len(value), checksum(value))
			}
			if err != nil {
				t.Errorf("%v: %v", addr, err)
			}
		}
	}
}

// TestRegistrationFails: what one device refuses is taken back from the other:
// at the start, which fails, and later, when puts go on without a slot.
func TestRegistrationFails(t *testing.T) {
	memlock := errors.New("memlock")
	cfg := testConfig()
	left, right := twoCards(&cfg)
	right.atRegister(func(int) error { return memlock })
	srv, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := srv.Start(t.Context()); !errors.Is(err, memlock) || !strings.Contains(err.Error(), "cards/right") {
		t.Errorf("started: %v", err)
	}
	for _, c := range []*card{left, right} {
		if c.slabs.Load() != 0 || c.open.Load() != 0 {
			t.Errorf("%s: %d regions registered and %d devices open after a start that failed", c.name, c.slabs.Load(), c.open.Load())
		}
	}

	srv = startServer(t, func(c *Config) { left, right = twoCards(c) })
	p := dial(t, srv, peerOptions{})
	if err := p.put("small", "before"); err != nil { // makes the first region of items
		t.Fatal(err)
	}
	had := right.slabs.Load()
	right.atRegister(func(int) error { return memlock })
	value := strings.Repeat("x", 12<<10)
	for i := range 600 { // 7 MiB into one region
		if err := p.put(fmt.Sprintf("k%d", i), value); err != nil {
			t.Fatal(err)
		}
	}
	if l, r := left.slabs.Load(), right.slabs.Load(); l != r || r < had {
		t.Errorf("%d regions are registered on the left, %d on the right; there were %d", l, r, had)
	}
	if st, _ := srv.Stats(); st.Store.NoMemory+st.Store.Evicted == 0 {
		t.Error("no put went without memory, or took another's")
	}
	for _, key := range []string{"small", "k0", "k599"} {
		if r, err := p.get(key, 16<<10); err != nil || key != "small" && string(r.Value) != value {
			t.Errorf("%s: %d bytes, %v", key, len(r.Value), err)
		}
	}
}

// TestSlowRegistration: while a device takes its time with a region, the beat
// goes on, puts that have room and all gets go on, and a session that ends does
// not wait for it. The put that needs the region is done when it is there.
func TestSlowRegistration(t *testing.T) {
	var left *card
	srv := startServer(t, func(c *Config) {
		left, _ = twoCards(c)
		c.Beat = 20 * time.Millisecond
	})
	filler, hasty, p := dial(t, srv, peerOptions{}), dial(t, srv, peerOptions{}), dial(t, srv, peerOptions{})
	if err := p.put("small", "before"); err != nil { // makes the first region of items
		t.Fatal(err)
	}
	release := make(chan struct{})
	begun := make(chan struct{})
	var once sync.Once
	left.atRegister(func(int) error {
		once.Do(func() { close(begun) })
		<-release
		return nil
	})
	open := sync.OnceFunc(func() { close(release) })
	defer open()
	value := strings.Repeat("x", 12<<10)
	var parked uint64
	full := 0
	for parked == 0 { // until one does not come back
		id := filler.id()
		filler.send(wire.AppendPut(nil, id, wire.Put{Key: fmt.Appendf(nil, "k%d", full), Value: []byte(value)}))
		for parked == 0 {
			select {
			case <-begun:
				parked = id
			default:
				if n := srv.main.Store.Stats().Published; n < uint64(full+2) { // with "small"
					time.Sleep(time.Millisecond)
					continue
				}
				if _, _, err := filler.await(id); err != nil {
					t.Fatal(err)
				}
			}
			break
		}
		full++
	}
	eventually(t, "the put is parked", func() bool { return srv.main.Handlers.Growing() == 1 })
	// Another client's put waits too, and its session ends all the same.
	hasty.send(wire.AppendPut(nil, hasty.id(), wire.Put{Key: []byte("hasty"), Value: []byte(value)}))
	eventually(t, "two puts are parked", func() bool { return srv.main.Handlers.Growing() == 2 })
	hasty.close()
	eventually(t, "its session is forgotten", func() bool { return len(srv.main.Sessions.List()) == 2 && srv.main.Handlers.Growing() == 1 })

	from := srv.main.Counters.Beats.Load()
	for i := 0; srv.main.Counters.Beats.Load() < from+10; i++ {
		text := fmt.Sprintf("round %d", i)
		if err := p.put("small", text); err != nil {
			t.Fatal(err)
		}
		if r, err := p.get("small", 100); err != nil || string(r.Value) != text {
			t.Fatalf("%+v, %v", r, err)
		}
		if r, err := p.get("k0", 16<<10); err != nil || len(r.Value) != len(value) {
			t.Fatalf("%d bytes, %v", len(r.Value), err)
		}
		if err := p.ping(); err != nil {
			t.Fatal(err)
		}
		p.regions()
		if _, err := srv.Stats(); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case <-release:
		t.Fatal("released")
	default:
	}
	if srv.main.Handlers.Growing() != 1 {
		t.Error("the put did not wait")
	}
	open()
	h, body, err := filler.await(parked)
	if err == nil {
		err = wire.ReplyError(h, body)
	}
	if err != nil {
		t.Errorf("the put that waited: %v", err)
	}
	if st, _ := srv.Stats(); st.Store.NoMemory != 0 || st.Store.Slotless != 0 {
		t.Errorf("%d puts found no memory, %d keys have no slot", st.Store.NoMemory, st.Store.Slotless)
	}
}

// TestShutdownDuringRegistration: a node ends although puts wait for memory.
func TestShutdownDuringRegistration(t *testing.T) {
	cfg := testConfig()
	left, _ := twoCards(&cfg)
	cfg.DrainTimeout, cfg.Linger = 50*time.Millisecond, 10*time.Millisecond
	srv, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := srv.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	p := dial(t, srv, peerOptions{})
	release := make(chan struct{})
	left.atRegister(func(int) error { <-release; return nil })
	value := bytes.Repeat([]byte("x"), 12<<10)
	for i := 0; srv.main.Handlers.Growing() == 0 && i < 1000; i++ {
		n := srv.main.Store.Stats().Published
		p.send(wire.AppendPut(nil, p.id(), wire.Put{Key: fmt.Appendf(nil, "k%d", i), Value: value}))
		eventually(t, "the put is done or parked", func() bool { return srv.main.Store.Stats().Published > n || srv.main.Handlers.Growing() > 0 })
	}
	done := make(chan error, 1)
	go func() { done <- srv.Shutdown(context.Background()) }()
	eventually(t, "sessions are gone", func() bool { return len(srv.main.Sessions.List()) == 0 })
	close(release) // the region itself must be there before it can be taken away
	if err := <-done; err != nil {
		t.Error(err)
	}
	if left.slabs.Load() != 0 || left.open.Load() != 0 {
		t.Errorf("%d regions registered, %d devices open", left.slabs.Load(), left.open.Load())
	}
}

// TestListenersThatFail: one that must be had fails the start and is named; one
// that may be missed is left out, or another takes its place, and its device
// keeps nothing.
func TestListenersThatFail(t *testing.T) {
	broken := errors.New("the port is on fire")
	for _, tc := range []struct {
		name     string
		open     bool // the device cannot be opened; else the address cannot be listened on
		optional bool
		other    bool
		devices  string // that serve
		err      string
	}{
		{"must be opened", true, false, false, "", "listener cards at 127.0.0.2:0"},
		{"must listen", false, false, false, "", "listener cards at 127.0.0.2:0"},
		{"may be missed, cannot be opened", true, true, false, "cards/left", ""},
		{"may be missed, cannot listen", false, true, false, "cards/left", ""},
		{"has a substitute, cannot be opened", true, true, true, "cards/left iwarp/iwarp0", ""},
		{"has a substitute, cannot listen", false, true, true, "cards/left iwarp/iwarp0", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var log bytes.Buffer
			cfg := testConfig()
			cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
			left, right := twoCards(&cfg)
			if tc.open {
				right.openErr = broken
			} else {
				right.listenErr = broken
			}
			cfg.Listeners[1].Optional = tc.optional
			if tc.other {
				cfg.Listeners[1].Else = &Listener{Fabric: iwarp.New(iwarp.Options{}), Addr: "127.0.0.2:0"}
			}
			srv, err := New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			err = srv.Start(t.Context())
			if tc.err != "" {
				if !errors.Is(err, broken) || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("started: %v", err)
				}
				if left.slabs.Load() != 0 || left.open.Load() != 0 || right.slabs.Load() != 0 || right.open.Load() != 0 {
					t.Error("something is left open")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(srv.Devices(), " "); got != tc.devices {
				t.Errorf("serves on %s, want %s", got, tc.devices)
			}
			if right.slabs.Load() != 0 || right.open.Load() != 0 {
				t.Errorf("the device left out has %d regions, %d are open", right.slabs.Load(), right.open.Load())
			}
			for _, addr := range srv.Addrs() {
				p := dial(t, srv, peerOptions{via: addr.String()})
				if err := p.put("k", "a value to be found"); err != nil || !p.holds("a value to be found") {
					t.Errorf("%v: %v", addr, err)
				}
				p.close()
			}
			if err := srv.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
			if !strings.Contains(log.String(), "left out") || !strings.Contains(log.String(), broken.Error()) {
				t.Errorf("the log does not say so: %s", log.String())
			}
		})
	}
}

// TestNoListenerLeft: a node on which nothing listens is none.
func TestNoListenerLeft(t *testing.T) {
	cfg := testConfig()
	left, right := twoCards(&cfg)
	left.openErr, right.listenErr = errors.New("gone"), errors.New("taken")
	cfg.Listeners[0].Optional, cfg.Listeners[1].Optional = true, true
	srv, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := srv.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "no listener is left") {
		t.Errorf("started: %v", err)
	}
	if right.slabs.Load() != 0 || right.open.Load() != 0 {
		t.Error("something is left open")
	}
}

// TestDeviceTellsItsPath: the statistics of a device have the path of the session that was
// opened last.
func TestDeviceTellsItsPath(t *testing.T) {
	srv := startServer(t, nil)
	s, q := deafSession(t, srv, true)
	if got := snapshotRail(q.rail); got.LastPath == nil || got.LastPath.MTU != q.Info().Path.MTU || got.Sessions != 1 {
		t.Errorf("%+v", got)
	}
	endDeaf(t, s, q)
}
