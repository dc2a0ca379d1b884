package server

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/server/base"
	"github.com/rdmakv/rdmakv/internal/server/handle"
	"github.com/rdmakv/rdmakv/internal/server/memory"
	"github.com/rdmakv/rdmakv/internal/server/space"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/store/layout"
)

// quick makes leases, and what follows from them, short.
func quick(c *Config) {
	c.Lease, c.Beat = 200*time.Millisecond, 20*time.Millisecond
	c.Keepalive, c.Idle, c.SendTimeout = time.Second, 20*time.Second, 10*time.Second
	c.RegionSize, c.IndexRegionSize = 2<<20, 1<<20
}

// speak tells the server that READs go by a view of that version from now on.
func (p *peer) speak(version uint64) error {
	p.t.Helper()
	_, err := p.call(func(id uint64) []byte { return wire.AppendPing(nil, id, wire.Ping{View: version}) })
	return err
}

// follow does what a client does: it takes each new table and says so.
func (p *peer) follow(srv *Server, over func() bool) {
	p.t.Helper()
	eventually(p.t, "the rotation ends", func() bool {
		view, _ := p.regions()
		if err := p.speak(view.Version); err != nil {
			p.t.Fatal(err)
		}
		return over()
	})
}

func rotated(sp *space.Space) func() bool {
	return func() bool { return !sp.RotationStat().Running }
}

// TestRotation: every region gets a new rkey on the same memory; the old ones
// stay good until the session has said that it does without them, however long
// that takes, and are refused afterwards.
func TestRotation(t *testing.T) {
	srv := startServer(t, quick)
	p := dial(t, srv, peerOptions{})
	if err := p.put("key", strings.Repeat("v", 100)); err != nil {
		t.Fatal(err)
	}
	_, old := p.regions()
	table := srv.RegionTable("n1")
	if err := srv.main.StartRotation(); err != nil {
		t.Fatal(err)
	}
	if err := srv.main.StartRotation(); !errors.Is(err, memory.ErrRotating) {
		t.Errorf("a second rotation beside the first: %v", err)
	}
	eventually(t, "a region has been renewed", func() bool { return srv.main.RotationStat().Renewed > 0 })
	// Many leases, in which the session does not say a word about it.
	for range 50 {
		if err := p.speak(0); err != nil {
			t.Fatal(err)
		}
		for _, r := range old {
			if b, err := p.read(r.Addr, r.RKey, layout.PageSize); err != nil || len(b) == 0 {
				t.Fatalf("region %d under its old rkey: %v", r.ID, err)
			}
		}
		time.Sleep(20 * time.Millisecond)
	}
	if st := srv.main.RotationStat(); !st.Running || st.Waiting != 1 || st.Old != 1 {
		t.Errorf("it waits for nobody: %+v", st)
	}
	p.follow(srv, rotated(srv.main))
	st := srv.main.RotationStat()
	_, now := p.regions()
	if st.Renewed != len(old) || st.Error != "" || st.Old != 0 || len(now) != len(old) {
		t.Errorf("%d regions before, %d now: %+v", len(old), len(now), st)
	}
	for i, r := range now {
		if r.RKey == old[i].RKey {
			t.Errorf("region %d kept its rkey", r.ID)
		}
		if _, err := p.read(r.Addr, r.RKey, layout.PageSize); err != nil {
			t.Fatalf("region %d under its new rkey: %v", r.ID, err)
		}
	}
	if !p.holds(strings.Repeat("v", 100)) {
		t.Error("the value is not found under the new rkeys")
	}
	if after := srv.RegionTable("n1"); after.Version <= table.Version || after.Check() != nil {
		t.Errorf("the table told to the cluster: version %d, before %d: %v", after.Version, table.Version, after.Check())
	}
	if again, first := srv.RegionTable("n1"), srv.RegionTable("n1"); again != first {
		t.Error("a table that has not changed is made anew")
	}
	// Deliberately stale: refused, and that connection's end alone.
	other := dial(t, srv, peerOptions{})
	if _, err := p.read(old[0].Addr, old[0].RKey, layout.PageSize); err == nil {
		t.Error("an old rkey still reads")
	}
	p.dead()
	if err := other.ping(); err != nil {
		t.Errorf("another session: %v", err)
	}
}

// TestOldKeysRest: an old registration stays for a lease after the new one came,
// although no session knows of it: the network may carry READs yet.
func TestOldKeysRest(t *testing.T) {
	cfg := testConfig()
	quick(&cfg)
	cfg.Lease = 2 * time.Second
	_, right := twoCards(&cfg)
	srv, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := srv.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer srv.Shutdown(t.Context())
	var begun atomic.Int64 // when the first of a wave was registered
	have := right.slabs.Load()
	right.atRegister(func(int) error {
		begun.CompareAndSwap(0, srv.main.Clock.Now())
		return nil
	})
	if err := srv.main.StartRotation(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a second registration", func() bool { return srv.main.RotationStat().Renewed > 0 })
	eventually(t, "its end", func() bool { return right.slabs.Load() == have })
	if rested := time.Duration(srv.main.Clock.Now() - begun.Load()); rested < cfg.Lease {
		t.Errorf("an old registration went after %v, the lease is %v", rested, cfg.Lease)
	}
}

// TestRotationOfSilentSession: one that never takes the new table is told to
// connect again, and does not hold up the rotation for ever.
func TestRotationOfSilentSession(t *testing.T) {
	var srv *Server
	var p *peer
	// A machine that stalls leaves a reply in the fabric for longer than the node waits: then the
	// session ended before its time came, and there is another attempt.
	for try := 1; try == 1 || try <= 3 && srv.main.Counters.Ends[base.CauseSlow].Load() > 0; try++ {
		srv = startServer(t, func(c *Config) {
			quick(c)
			c.Keepalive, c.Idle, c.SendTimeout = 100*time.Millisecond, 3*time.Second, 500*time.Millisecond // a ping may take its time
		})
		p = dial(t, srv, peerOptions{})
		p.regions()
		fresh := dial(t, srv, peerOptions{}) // has no table: nobody waits for it
		if err := srv.main.StartRotation(); err != nil {
			t.Fatal(err)
		}
		for p.ping() == nil && fresh.ping() == nil { // it lives, and says nothing of its table
			time.Sleep(20 * time.Millisecond)
		}
	}
	if bye := p.goodbye(); !errors.Is(bye, wire.StatusClosing.Err()) {
		t.Errorf("Goodbye says %v", bye)
	}
	if n := srv.main.Counters.Ends[base.CauseTable].Load(); n != 1 {
		eventually(t, "the session is counted among those that did not take the table", func() bool { return srv.main.Counters.Ends[base.CauseTable].Load() == 1 })
	}
	eventually(t, "the rotation ends", rotated(srv.main))
	if st := srv.main.RotationStat(); st.Error != "" || st.Renewed != st.Regions {
		t.Errorf("%+v", st)
	}
}

// TestRotationWithoutRoom: where the device registers nothing more, the old
// registrations stay as they are and the error is told; where it has room for
// one, that is enough.
func TestRotationWithoutRoom(t *testing.T) {
	short := errors.New("no memlock")
	for room := range 3 {
		t.Run(fmt.Sprint(room), func(t *testing.T) {
			cfg := testConfig()
			quick(&cfg)
			left, right := twoCards(&cfg)
			srv, err := New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			if err := srv.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			defer srv.Shutdown(t.Context())
			p := dial(t, srv, peerOptions{})
			for i := range 12 { // some regions
				if err := p.put(fmt.Sprint(i), strings.Repeat("v", 12000)); err != nil {
					t.Fatal(err)
				}
			}
			_, old := p.regions()
			have := right.slabs.Load()
			var most atomic.Int64
			right.atRegister(func(int) error {
				if n := right.slabs.Load(); n >= have+int64(room) {
					return short
				} else if n >= most.Load() {
					most.Store(n + 1)
				}
				return nil
			})
			if err := srv.main.StartRotation(); err != nil {
				t.Fatal(err)
			}
			p.follow(srv, rotated(srv.main))
			st := srv.main.RotationStat()
			_, now := p.regions()
			if room == 0 {
				if !strings.Contains(st.Error, short.Error()) || st.Renewed != 0 {
					t.Errorf("%+v", st)
				}
				for i, r := range now {
					if b, err := p.read(r.Addr, r.RKey, 4096); err != nil || len(b) == 0 || r != old[i] {
						t.Errorf("region %d, before %+v, now %+v: %v", r.ID, old[i], r, err)
					}
				}
			} else if st.Error != "" || st.Renewed != len(old) || most.Load() > have+int64(room) {
				t.Errorf("%d registrations at most, %d at first: %+v", most.Load(), have, st)
			}
			if left.slabs.Load() != have || right.slabs.Load() != have {
				t.Errorf("%d and %d regions are registered, %d before", left.slabs.Load(), right.slabs.Load(), have)
			}
		})
	}
}

// TestRotationBesideGrowth: regions that are added while rkeys are renewed are
// in the table with an rkey that is good.
func TestRotationBesideGrowth(t *testing.T) {
	srv := startServer(t, quick)
	p := dial(t, srv, peerOptions{})
	value := strings.Repeat("v", 12000)
	n := 0
	for range 3 {
		if err := srv.main.StartRotation(); err != nil {
			t.Fatal(err)
		}
		p.follow(srv, func() bool {
			for range 20 {
				n++
				if err := p.put(fmt.Sprint("key", n), value); err != nil {
					t.Fatal(err)
				}
			}
			_, all := p.regions()
			for _, r := range all {
				if _, err := p.read(r.Addr, r.RKey, 4096); err != nil {
					t.Fatalf("region %d of %d: %v", r.ID, len(all), err)
				}
			}
			return rotated(srv.main)()
		})
		if st := srv.main.RotationStat(); st.Error != "" {
			t.Fatal(st.Error)
		}
	}
	if view, _ := p.regions(); int(view.Total) < 3 {
		t.Errorf("only %d regions: nothing was added", view.Total)
	}
}

// TestAdminRotate: what an operator is answered.
func TestAdminRotate(t *testing.T) {
	srv := startServer(t, quick)
	p := dial(t, srv, peerOptions{})
	ask := func(op wire.DocumentKind, name string) (string, error) {
		text, err := p.document(op, []byte(name), len(name))
		return string(text), err
	}
	p.regions()
	if text, err := ask(wire.AdminRotate, "start"); err != nil || !strings.Contains(text, `"running":true`) || !strings.Contains(text, `"space":"main"`) {
		t.Errorf("%s %v", text, err)
	}
	if _, err := ask(wire.AdminRotate, ""); !errors.Is(err, wire.StatusOverloaded.Err()) || !strings.Contains(err.Error(), "under way") {
		t.Errorf("a second one: %v", err)
	}
	if _, err := ask(wire.AdminRotate, "stop"); !errors.Is(err, wire.StatusBadRequest.Err()) {
		t.Errorf("stop: %v", err)
	}
	if _, err := ask(200, ""); !errors.Is(err, wire.StatusUnsupported.Err()) {
		t.Errorf("an operation that does not exist: %v", err)
	}
	p.follow(srv, rotated(srv.main))
	if text, err := ask(wire.AdminRotate, "status"); err != nil || !strings.Contains(text, `"running":false`) || !strings.Contains(text, `"old":0`) {
		t.Errorf("%s %v", text, err)
	}
	// A version that nobody was told of is no word that counts.
	view, _ := p.regions()
	if err := p.speak(view.Version + 1000); err == nil {
		t.Error("a view that does not exist was believed")
	}
}

// TestRotationByAge: rkeys are renewed without being asked, those of the tenants'
// spaces too; and at a word of the operator in all of them.
func TestRotationByAge(t *testing.T) {
	srv := startServer(t, func(c *Config) {
		quick(c)
		c.RKeyMaxAge = time.Second
		c.Spaces = []SpaceConfig{{Name: "tenant", MemoryLimit: 16 << 20}}
	})
	p := dial(t, srv, peerOptions{})
	_, old := p.regions()
	p.follow(srv, func() bool {
		_, now := p.regions()
		for i := range now {
			if now[i].RKey == old[i].RKey {
				return false
			}
		}
		return srv.main.Turnover.Renewed.Load() >= uint64(len(old)) && srv.spaces.of("tenant").Turnover.Renewed.Load() > 0
	})
	if st, err := srv.Stats(); err != nil || st.RKeys.Regions != len(old) || st.RKeys.Space != "main" {
		t.Errorf("%+v %v", st.RKeys, err)
	}
	p.follow(srv, func() bool { // the ones that run end first
		p.follow(srv, func() bool { return rotated(srv.main)() && rotated(srv.spaces.of("tenant"))() })
		answer, err := srv.adminRotate(handle.Asker{Peer: "test"}, "start")
		if err != nil {
			return false // their age was faster
		}
		return strings.Contains(fmt.Sprintf("%+v", answer), "Space:tenant Running:true")
	})
}

// TestRetiredRegion: a region without items leaves the table, is told to the
// cluster as retired, stays readable until the session is past it, and is then
// gone, with its memory.
func TestRetiredRegion(t *testing.T) {
	var changes atomic.Int32
	srv := startServer(t, func(c *Config) {
		quick(c)
		c.RegionIdle = 200 * time.Millisecond
	})
	srv.main.Regions.OnChange(func() { changes.Add(1) })
	p := dial(t, srv, peerOptions{replySize: 64 << 10})
	p.put("stays", "v")
	_, before := p.regions()
	bytes, _ := srv.main.Regions.Bytes()
	for i := range 400 {
		if err := p.put(fmt.Sprint("goes", i), strings.Repeat("v", 12000)); err != nil {
			t.Fatal(err)
		}
	}
	view, grown := p.regions()
	if err := p.speak(view.Version); err != nil {
		t.Fatal(err)
	}
	for i := range 400 {
		// The log may want its next file, which is being made: a client asks again then.
		eventually(t, "a key is deleted", func() bool {
			_, err := p.call(func(id uint64) []byte {
				return wire.AppendDelete(nil, id, wire.Delete{Key: fmt.Append(nil, "goes", i)})
			})
			if err != nil && !errors.Is(err, wire.StatusOverloaded.Err()) {
				t.Fatal(err)
			}
			return err == nil
		})
	}
	eventually(t, "a region is retired", func() bool { return p.ping() == nil && len(srv.main.Store.RetiredRegions()) > 0 })
	gone := srv.main.Store.RetiredRegions()[0]
	if r := srv.RegionTable("n1").Region(gone.ID); r == nil || r.State != cluster.Retired || len(r.Keys) != 1 {
		t.Errorf("the cluster is told %+v of region %d", r, gone.ID)
	}
	// The session has not said that it is past it.
	for range 20 {
		for _, r := range grown {
			if _, err := p.read(r.Addr, r.RKey, 4096); err != nil {
				t.Fatalf("region %d, retired, with a session that knows it: %v", r.ID, err)
			}
		}
		time.Sleep(20 * time.Millisecond)
	}
	var after []wire.Region
	p.follow(srv, func() bool {
		_, after = p.regions()
		now, _ := srv.main.Regions.Bytes()
		return len(after) <= len(before)+1 && len(srv.main.Store.RetiredRegions()) == 0 && now <= bytes+2<<20
	})
	if srv.RegionTable("n1").Region(gone.ID) != nil || changes.Load() == 0 {
		t.Errorf("region %d is still told; %d changes", gone.ID, changes.Load())
	}
	if !p.holds("v") {
		t.Error("what stays is gone")
	}
	// What comes next is another region, in another place.
	for i := range 400 {
		if err := p.put(fmt.Sprint("again", i), strings.Repeat("w", 12000)); err != nil {
			t.Fatal(err)
		}
	}
	view, again := p.regions()
	if err := p.speak(view.Version); err != nil {
		t.Fatal(err)
	}
	for _, r := range again {
		for _, o := range grown {
			if r.ID == o.ID && r.Base != o.Base || r.ID != o.ID && r.Base == o.Base {
				t.Errorf("region %d at %d was region %d at %d", r.ID, r.Base, o.ID, o.Base)
			}
		}
	}
	for _, r := range grown {
		if r.ID == gone.ID {
			if _, err := p.read(r.Addr, r.RKey, 4096); err == nil {
				t.Error("a region that was given back can be read")
			}
		}
	}
}
