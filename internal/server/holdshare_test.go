package server

import (
	"errors"
	"math"
	"sync"
	"testing"

	"github.com/zeebo/xxh3"

	"github.com/rdmakv/rdmakv/internal/secret"
	"github.com/rdmakv/rdmakv/internal/server/auth"
	"github.com/rdmakv/rdmakv/internal/server/base"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/store/layout"
)

// putBig puts a large value, whose bytes are the peer's sink's.
func (p *peer) putBig(key string, n int) {
	p.t.Helper()
	if err := p.putLargeSoon([]byte(key), n, xxh3.Hash(p.sink()[:n])); err != nil {
		p.t.Fatal(err)
	}
}

// TestHoldShares: a tenant has a share of the held places, which one answer alone
// may exceed; whoever comes beside him is answered. A tenant who is alone in his
// space has all of it.
func TestHoldShares(t *testing.T) {
	clerk := func(name string) Tenant {
		return Tenant{Name: name, Secret: secret.New(secretOf(name)), Prefix: "desk/"}
	}
	srv := startServer(t, func(c *Config) {
		c.Secret, c.MemoryLimit, c.RegionSize = secretOf(""), 48<<20, 16<<20
		c.Tenants = []Tenant{clerk("clerk"), clerk("clerk2"), {Name: "anna", Secret: secret.New(secretOf("anna"))}}
	})
	_, limit := srv.main.Store.HoldUse() // a quarter of the memory
	share := int(limit / base.ShareParts)
	if srv.main.Handlers.HoldShare() != int64(share) || srv.spaces.of("anna").Handlers.HoldShare() != math.MaxInt64 {
		t.Errorf("shares of %d and %d", srv.main.Handlers.HoldShare(), srv.spaces.of("anna").Handlers.HoldShare())
	}
	open := func(name string) *peer {
		o := as(name)
		o.sink = int(limit)
		return dial(t, srv, o)
	}
	first, other := open("clerk"), open("clerk2")
	first.putBig("desk/huge", 3*share) // more than a share
	first.putBig("desk/large", 2*share/3)
	other.putBig("desk/small", 64<<10)
	held := func(p *peer, key string) (wire.GetReply, error) {
		r, err := p.get(key, 0)
		if err == nil && r.Kind != wire.GetHeld {
			t.Fatalf("%s: answered with kind %v", key, r.Kind)
		}
		return r, err
	}
	overloaded := func(err error) bool { return errors.Is(err, wire.StatusOverloaded.Err()) }
	// One alone, however large; nothing beside it.
	huge, err := held(first, "desk/huge")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := held(first, "desk/huge"); !overloaded(err) {
		t.Errorf("a second answer beyond the share: %v", err)
	}
	if _, err := held(open("clerk"), "desk/large"); !overloaded(err) {
		t.Errorf("another session of the same tenant: %v", err)
	}
	// The budget of all has a quarter left: the other tenant finds his.
	if _, err := held(other, "desk/small"); err != nil {
		t.Errorf("another tenant: %v", err)
	}
	if st := srv.Tenants()[tenantAt(srv, "clerk")]; st.Refused["tenant_holds"] != 2 {
		t.Errorf("refusals: %v", st.Refused)
	}
	if _, err := first.call(func(id uint64) []byte { return wire.AppendRelease(nil, id, wire.Release{ID: huge.Hold.ID}) }); err != nil {
		t.Fatal(err)
	}
	if n := first.tenant(srv, "clerk").Held.Load(); n != 0 {
		t.Errorf("%d bytes are counted as held after the release", n)
	}
	if _, err := held(first, "desk/large"); err != nil {
		t.Errorf("after the release: %v", err)
	}
	// The end of a session gives back what it held.
	first.close()
	eventually(t, "nothing is held", func() bool { return other.tenant(srv, "clerk").Held.Load() == 0 })
}

func (p *peer) tenant(srv *Server, name string) *auth.Login {
	return srv.logins.Find(wire.TenantOf(name))
}

func tenantAt(srv *Server, name string) int {
	for i, st := range srv.Tenants() {
		if st.Name == name {
			return i
		}
	}
	return -1
}

// TestRefusedHoldsCountForNothing: answers that are refused, at the same time, take
// nothing from the share; and of those that fit it one at a time, one is let in.
func TestRefusedHoldsCountForNothing(t *testing.T) {
	const share = 100
	l := new(auth.Login)
	if !l.Hold(3*share, share) || l.Hold(1, share) {
		t.Error("one alone may exceed the share, nothing beside it")
	}
	l.Held.Store(1)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if l.Hold(share, share) {
					t.Error("more than the share was let in")
					return
				}
			}
		})
	}
	refused := 0
	for range 200_000 {
		if !l.Hold(share-1, share) {
			refused++
			continue
		}
		l.Held.Add(1 - share)
	}
	close(stop)
	wg.Wait()
	if refused > 0 || l.Held.Load() != 1 {
		t.Errorf("%d answers within the share were refused, %d bytes are held", refused, l.Held.Load())
	}
}

// TestHeldAsideForWhoKnowsIt: a large answer for which registered memory has no room
// stands in no region. A client that may READ is told so only if it has said that it
// knows it: else it would look for a region that there is not.
func TestHeldAsideForWhoKnowsIt(t *testing.T) {
	srv := startServer(t, func(c *Config) {
		c.Secret, c.MemoryLimit, c.RegionSize, c.IndexRegionSize = secretOf(""), 16<<20, 4<<20, 2<<20
		c.Tenants = []Tenant{{Name: "clerk", Secret: secret.New(secretOf("clerk")), Prefix: "desk/"}}
	})
	const size = 20 << 20 // more than all of it
	open := func(name string, features uint16) *peer {
		o := as(name)
		o.sink = size
		o.connect = wire.AppendConnect(nil, o.secret, wire.Connect{
			Min: wire.VersionMin, Max: wire.VersionMax, Features: features, Tenant: wire.TenantOf(name), Nonce: wire.Nonce{byte(features), byte(len(name))},
		})
		return dial(t, srv, o)
	}
	knows := open("", wire.FeatureAside)
	knows.putBig("desk/large", size)
	for name, p := range map[string]*peer{"knows it": knows, "may not READ": open("clerk", 0)} {
		r, err := p.get("desk/large", 0)
		if err != nil || r.Kind != wire.GetHeld || r.Hold.Place != uint64(layout.Nowhere) {
			t.Fatalf("who %s: %+v, %v", name, r, err)
		}
		if _, err := p.call(func(id uint64) []byte { return wire.AppendRelease(nil, id, wire.Release{ID: r.Hold.ID}) }); err != nil {
			t.Fatal(err)
		}
	}
	if r, err := open("", 0).get("desk/large", 0); !errors.Is(err, wire.StatusOverloaded.Err()) {
		t.Errorf("who does not know it: %+v, %v", r, err)
	}
}
