package server

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/server/base"
	"github.com/rdmakv/rdmakv/internal/server/deaf"
	"github.com/rdmakv/rdmakv/internal/server/session"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/store/layout"
)

// startPlugs starts a node on cards that can be pulled out, with regions of 4 MiB,
// which opens them again soon.
func startPlugs(t *testing.T, change func(*Config), plugs ...*plug) *Server {
	t.Helper()
	cfg := testConfig()
	cfg.Fabric, cfg.AdminListen = nil, "127.0.0.1:0"
	for i, p := range plugs {
		cfg.Listeners = append(cfg.Listeners, Listener{Fabric: p, Addr: fmt.Sprintf("127.0.0.%d:0", i+1)})
	}
	cfg.RegionSize, cfg.IndexRegionSize = 4<<20, 2<<20
	if change != nil {
		change(&cfg)
	}
	srv, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	srv.devices.reopenFirst = 5 * time.Millisecond
	if err := srv.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := srv.Shutdown(t.Context()); err != nil && srv.Err() == nil {
			t.Errorf("shutdown: %v", err)
		}
	})
	return srv
}

// leftBehind checks that nothing of a card is in use when the node has ended.
func leftBehind(t *testing.T, plugs ...*plug) {
	t.Helper()
	for _, p := range plugs {
		if p.slabs.Load() != 0 || p.open.Load() != 0 {
			t.Errorf("%s: %d regions registered and %d devices open after the end", p.name, p.slabs.Load(), p.open.Load())
		}
	}
}

func isAway(srv *Server, i int) func() bool {
	return func() bool { return srv.devices.all()[i].Away() != nil }
}

func isBack(srv *Server, i int) func() bool {
	return func() bool { return srv.devices.all()[i].Away() == nil }
}

// TestDevicePulled: a device goes while clients use it, and comes back after some
// vain attempts to open it. Its sessions end, the other device goes on, what is
// written meanwhile (in new regions too) is read by the device that is back, in the
// node and in a space, and every region is registered with it once.
func TestDevicePulled(t *testing.T) {
	for name, tells := range map[string]bool{"CQs die": true, "listeners end": false} {
		t.Run(name, func(t *testing.T) {
			left, right := newPlug("left"), newPlug("right")
			srv := startPlugs(t, func(c *Config) { c.Spaces = []SpaceConfig{{Name: "a"}} }, left, right)
			addrs := srv.Addrs()
			l := dial(t, srv, peerOptions{via: addrs[0].String()})
			r := dial(t, srv, peerOptions{via: addrs[1].String()})
			if err := r.put("before", "written through the device that goes"); err != nil {
				t.Fatal(err)
			}
			before := srv.RegionTable("")
			right.set(func(p *plug) { p.refuse = 1 << 30 })
			right.current().pull(tells)
			r.dead()
			eventually(t, "it is tried to open it", func() bool { return right.tried() >= 3 })
			if right.slabs.Load() != 0 || right.open.Load() != 0 {
				t.Errorf("%d regions are registered with the device that is gone, %d devices are open", right.slabs.Load(), right.open.Load())
			}
			code, text := httpGet(t, srv, "/readyz")
			if code != http.StatusOK || !strings.Contains(text, "device cards/right: away since") || !strings.Contains(text, "no such device") || strings.Contains(text, "cards/left") {
				t.Errorf("/readyz: %d %q", code, text)
			}
			_, regions := l.regions()
			filler := strings.Repeat("x", 12<<10)
			for i := 0; ; i++ {
				if err := l.put(fmt.Sprintf("filler%d", i), filler); err != nil {
					t.Fatal(err)
				}
				if i%32 != 0 {
					continue
				}
				if _, now := l.regions(); len(now) > len(regions)+1 {
					break
				}
			}
			if err := l.put("meanwhile", "written while it was away"); err != nil || !l.holds("written while it was away") {
				t.Errorf("the other device: %v", err)
			}
			setSpaces(t, srv, SpaceConfig{Name: "a"}, SpaceConfig{Name: "later"})
			right.set(func(p *plug) { p.refuse = 0 })
			eventually(t, "the device is back", isBack(srv, 1))
			again := dial(t, srv, peerOptions{via: addrs[1].String()})
			for _, text := range []string{"written through the device that goes", "written while it was away"} {
				if !again.holds(text) {
					t.Errorf("%q is not in the memory that the device shows", text)
				}
			}
			if err := again.put("after", "written when it was back"); err != nil || !l.holds("written when it was back") {
				t.Errorf("a put by the device that is back: %v", err)
			}
			spaces := 0
			for _, sp := range srv.spaces.tenants() {
				own := sp.Rails.Of(srv.devices.all()[1].Device)
				if own == nil || own.PD == nil || own.PD == srv.main.Rails.All()[1].PD || own.Lanes() == 0 {
					t.Errorf("space %s has nothing on the device that is back", sp.Name)
				}
				for _, reg := range sp.Store.View().Regions {
					if _, ok := sp.Regions.Wire(1, reg); !ok {
						t.Errorf("space %s: region %d is not registered with it", sp.Name, reg.ID)
					}
				}
				spaces += len(sp.Store.View().Regions)
			}
			_, all := again.regions()
			if n := int64(len(all) + spaces); right.slabs.Load() != n || left.slabs.Load() != n {
				t.Errorf("%d regions: %d are registered on the left, %d on the right", n, left.slabs.Load(), right.slabs.Load())
			}
			table := srv.RegionTable("")
			if table.Version <= before.Version {
				t.Error("the other nodes are not told of the new rkeys")
			}
			for _, reg := range table.Regions {
				if len(reg.Keys) != 2 {
					t.Errorf("region %d has %d keys in the table", reg.ID, len(reg.Keys))
				}
			}
			if _, text := httpGet(t, srv, "/readyz"); strings.Contains(text, "away") {
				t.Errorf("/readyz when it is back: %q", text)
			}
			l.close()
			again.close()
			if err := srv.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
			leftBehind(t, left, right)
		})
	}
}

// TestOnlyDevicePulled: a node on which nothing listens any more says that it is not
// ready, and which device it misses; it does not end by that.
func TestOnlyDevicePulled(t *testing.T) {
	card := newPlug("only")
	srv := startPlugs(t, nil, card)
	for round := range 3 {
		card.set(func(p *plug) { p.refuse = 1 << 30 })
		card.current().pull(true)
		eventually(t, "it is away", isAway(srv, 0))
		code, text := httpGet(t, srv, "/readyz")
		if code != http.StatusServiceUnavailable || !strings.Contains(text, "no device is left") || !strings.Contains(text, "device cards/only: away since") {
			t.Errorf("/readyz: %d %q", code, text)
		}
		if code, text := httpGet(t, srv, "/healthz"); code != http.StatusOK || !strings.Contains(text, "cards/only: away") {
			t.Errorf("/healthz: %d %q", code, text)
		}
		if _, text := httpGet(t, srv, "/metrics"); !strings.Contains(text, `rdmakv_device_up{device="only",fabric="cards"} 0`) {
			t.Error("the metric does not say that it is away")
		}
		card.set(func(p *plug) { p.refuse = 2 })
		eventually(t, "it is back", isBack(srv, 0))
		if code, text := httpGet(t, srv, "/readyz"); code != http.StatusOK {
			t.Errorf("/readyz when it is back: %d %q", code, text)
		}
		p := dial(t, srv, peerOptions{})
		if err := p.put("key", fmt.Sprint("round ", round)); err != nil {
			t.Error(err)
		}
		p.close()
	}
	if err := srv.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	leftBehind(t, card)
}

// TestPulledWhileASpaceOpens: a device goes while spaces are being changed, which may
// take minutes. The store gets regions meanwhile, of the device that is left.
func TestPulledWhileASpaceOpens(t *testing.T) {
	left, right := newPlug("left"), newPlug("right")
	srv := startPlugs(t, nil, left, right)
	srv.spaces.change.Lock()
	unlock := sync.OnceFunc(srv.spaces.change.Unlock)
	defer unlock()
	right.current().pull(true)
	eventually(t, "it is away", isAway(srv, 1))
	const region = 1 << 20 // none has that number
	eventually(t, "a region", func() bool {
		_, err := srv.main.Regions.Alloc(region, layout.KindItems, 1<<20)
		return err == nil
	})
	if err := srv.main.Regions.Free(region); err != nil {
		t.Error(err)
	}
	unlock()
	eventually(t, "it is back", isBack(srv, 1))
}

// TestPulledUnderAPut: the READs of a large put that are in flight when the device
// goes never complete; the put ends all the same, and its memory is given back.
func TestPulledUnderAPut(t *testing.T) {
	card := newPlug("only")
	srv := startPlugs(t, func(c *Config) { c.SendTimeout = time.Hour }, card)
	via, stop := stuckLink(t, srv)
	p := dial(t, srv, peerOptions{via: via})
	stop()
	p.send(wire.AppendPutLarge(nil, p.id(), wire.PutLarge{Key: []byte("never"), ValueLen: 8 << 20, RKey: p.mr.RKey(), Addr: p.mr.Addr()}))
	eventually(t, "it READs", func() bool { used, _ := srv.main.Staging.InUse(); return used > 0 })
	old := srv.devices.all()[0]
	card.current().pull(true)
	eventually(t, "the device is another", func() bool { return srv.devices.all()[0] != old })
	if used, waiting := srv.main.Staging.InUse(); used != 0 || waiting != 0 {
		t.Errorf("staging: %d bytes in use, %d wait", used, waiting)
	}
}

// TestReopenFails: a device that is back and cannot be used yet (its address is not
// there, or a region cannot be registered) is let go of and tried again.
func TestReopenFails(t *testing.T) {
	card := newPlug("only")
	srv := startPlugs(t, func(c *Config) { c.Spaces = []SpaceConfig{{Name: "a"}} }, card)
	card.set(func(p *plug) { p.busy = errors.New("the address is not there yet") })
	registered := 0
	card.atRegister(func(int) error {
		if registered++; registered == 2 || registered == 5 {
			return errors.New("locked memory is short")
		}
		return nil
	})
	card.current().pull(false)
	eventually(t, "it has been tried", func() bool { return card.tried() >= 3 })
	eventually(t, "the reason is told", func() bool {
		_, text := httpGet(t, srv, "/readyz")
		return strings.Contains(text, "the address is not there yet")
	})
	card.set(func(p *plug) { p.busy = nil })
	eventually(t, "it is back", isBack(srv, 0))
	if n := int64(len(srv.main.Store.View().Regions) + len(srv.spaces.of("a").Store.View().Regions)); card.slabs.Load() != n || card.open.Load() != 1 {
		t.Errorf("%d regions: %d are registered; %d devices are open", n, card.slabs.Load(), card.open.Load())
	}
	p := dial(t, srv, peerOptions{})
	if err := p.put("key", "value"); err != nil {
		t.Error(err)
	}
	p.close()
	if err := srv.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	leftBehind(t, card)
}

// TestShutdownWhileAway: the node ends at whatever point its device is, and leaves
// nothing.
func TestShutdownWhileAway(t *testing.T) {
	for name, wait := range map[string]func(srv *Server, p *plug) func() bool{
		"pulled":      func(srv *Server, _ *plug) func() bool { return isAway(srv, 0) },
		"being tried": func(_ *Server, p *plug) func() bool { return func() bool { return p.tried() > 2 } },
		"opened": func(_ *Server, p *plug) func() bool {
			p.set(func(p *plug) { p.refuse = 0 })
			return func() bool { return p.tried() > 1 && p.open.Load() == 1 }
		},
	} {
		t.Run(name, func(t *testing.T) {
			card := newPlug("only")
			srv := startPlugs(t, func(c *Config) { c.Spaces = []SpaceConfig{{Name: "a"}} }, card)
			dial(t, srv, peerOptions{})
			card.set(func(p *plug) { p.refuse = 1 << 30 })
			card.current().pull(true)
			eventually(t, name, wait(srv, card))
			if err := srv.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
			leftBehind(t, card)
		})
	}
}

// TestRenewedThenPulled: registrations that a rotation has replaced go with their
// device, and those of the other device stay until their time.
func TestRenewedThenPulled(t *testing.T) {
	left, right := newPlug("left"), newPlug("right")
	srv := startPlugs(t, quick, left, right)
	p := dial(t, srv, peerOptions{})
	_, regions := p.regions()
	n := int64(len(regions))
	if err := srv.main.StartRotation(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a wave is renewed, and waits for the session", func() bool { return srv.main.RotationStat().Old > 0 })
	wave := int64(srv.main.RotationStat().Old)
	right.set(func(p *plug) { p.refuse = 1 << 30 })
	right.current().pull(true)
	eventually(t, "nothing of it is left", func() bool { return right.open.Load() == 0 })
	if left.slabs.Load() != n+wave || right.slabs.Load() != 0 {
		t.Errorf("%d regions, %d renewed: %d registrations on the left, %d on the right", n, wave, left.slabs.Load(), right.slabs.Load())
	}
	p.follow(srv, rotated(srv.main))
	if st := srv.main.RotationStat(); st.Error != "" || left.slabs.Load() != n {
		t.Errorf("%d registrations are left: %+v", left.slabs.Load(), st)
	}
}

// TestNoPlaceOnWhatIsAway: who closes a device waits until nobody has a place on its
// lanes, so nobody may get one any more.
func TestNoPlaceOnWhatIsAway(t *testing.T) {
	srv := startPlugs(t, nil, newPlug("only"))
	lost := 0
	opened := base.NewDevice(nil, "", deaf.Device{}, srv.main.Draining.Load, func(*base.Device, error) { lost++ })
	d, err := session.NewRail(srv.run, srv.main.Sessions, opened, 0)
	if err == nil {
		err = d.MakeLanes(1)
	}
	if err != nil {
		t.Fatal(err)
	}
	if l := d.Pick(); l == nil {
		t.Fatal("no place on a device that is there")
	} else {
		l.GiveUp()
	}
	d.Lose(errPulled)
	d.Lose(errors.New("again"))
	if l := d.Pick(); l != nil {
		t.Error("a place on a device that is away")
	}
	if n := d.End(errPulled); n != 0 {
		t.Errorf("%d places are taken", n)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if a := d.Away(); lost != 1 || !errors.Is(a.Why, errPulled) {
		t.Errorf("told %d times; %v", lost, a)
	}
}

var _ rdma.PortWatcher = (*plugDevice)(nil)
