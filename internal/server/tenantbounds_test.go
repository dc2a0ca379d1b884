package server

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/secret"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// boundTenants are one of each kind: with a space of his own, in the node's space
// without a prefix, and with one.
func boundTenants() []Tenant {
	return []Tenant{
		{Name: "anna", Secret: secret.New(secretOf("anna")), MaxSessions: 1},
		{Name: "guest", Secret: secret.New(secretOf("guest")), Space: "main"},
		{Name: "clerk", Secret: secret.New(secretOf("clerk")), Prefix: "desk/"},
	}
}

func boundServer(t *testing.T) *Server {
	return startServer(t, func(c *Config) {
		c.Secret, c.MemoryLimit, c.RegionSize, c.IndexRegionSize = secretOf(""), 64<<20, 4<<20, 2<<20
		c.Tenants = boundTenants()
	})
}

func as(tenant string) peerOptions { return peerOptions{tenant: tenant, secret: secretOf(tenant)} }

// TestRevokeWhileSpacesOpen: a reload that opens spaces, which may take minutes,
// keeps nobody from being revoked.
func TestRevokeWhileSpacesOpen(t *testing.T) {
	srv := boundServer(t)
	p := dial(t, srv, as("guest"))
	srv.spaces.change.Lock() // as an opening holds it
	reloaded := make(chan error, 1)
	go func() {
		reloaded <- srv.SetTenants(context.Background(), append(boundTenants(), Tenant{Name: "late", Secret: secret.New(secretOf("late"))}))
	}()
	known := func() bool { return srv.logins.Find(wire.TenantOf("late")).Name == "late" }
	for end := time.Now().Add(10 * time.Second); !known() && time.Now().Before(end); {
		time.Sleep(5 * time.Millisecond)
	}
	if !known() {
		t.Error("the new tenants wait for spaces")
	}
	revoked := make(chan error, 1)
	go func() {
		_, err := srv.Revoke("guest")
		revoked <- err
	}()
	select {
	case err := <-revoked:
		if err != nil {
			t.Error(err)
		}
		if err := p.dead(); err == nil {
			t.Error("the session lives")
		}
	case <-time.After(10 * time.Second):
		t.Error("a revocation waits for a space that is being opened")
	}
	if _, err := tryDial(t, srv, as("late")); !errors.Is(err, wire.StatusBusy.Err()) {
		t.Errorf("the tenant of a space that is not open yet: %v", err)
	}
	srv.spaces.change.Unlock()
	if err := <-reloaded; err != nil {
		t.Fatal(err)
	}
	dial(t, srv, as("late"))
	if _, err := tryDial(t, srv, as("guest")); !errors.Is(err, wire.StatusAuth.Err()) {
		t.Errorf("the revoked tenant after the reload: %v", err)
	}
}

// TestNoTenantsOpenNoDoor: a list of tenants that is empty at the start, and no
// main secret, let nobody in; tenants that come later they do.
func TestNoTenantsOpenNoDoor(t *testing.T) {
	srv := startServer(t, func(c *Config) { c.Private = true })
	nobody := func(when string) {
		t.Helper()
		if _, err := tryDial(t, srv, peerOptions{}); !errors.Is(err, wire.StatusAuth.Err()) {
			t.Errorf("%s somebody without a secret: %v", when, err)
		}
	}
	nobody("without tenants")
	guest := []Tenant{{Name: "guest", Secret: secret.New(secretOf("guest")), Space: "main"}}
	for range 2 {
		if err := srv.SetTenants(context.Background(), guest); err != nil {
			t.Fatal(err)
		}
		dial(t, srv, as("guest"))
		nobody("with a tenant")
		if err := srv.SetTenants(context.Background(), nil); err != nil {
			t.Fatal(err)
		}
		nobody("with none left")
	}
}

// TestStatsNameNoTenants: the names of spaces, which are those of tenants, are for
// administrators.
func TestStatsNameNoTenants(t *testing.T) {
	srv := boundServer(t)
	for tenant, want := range map[string]int{"": 1, "guest": 0, "anna": 0} {
		p := dial(t, srv, as(tenant))
		text, err := p.document(wire.DocumentStats, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		var st Stats
		if err := json.Unmarshal(text, &st); err != nil || len(st.Spaces) != want {
			t.Errorf("tenant %q sees spaces %+v (%v), want %d", tenant, st.Spaces, err, want)
		}
		p.close()
	}
}

// TestNumbersAreTenantsOwn: who has seen another's client id, which travels in the
// clear, cannot use up his numbers: both writes are done.
func TestNumbersAreTenantsOwn(t *testing.T) {
	srv := boundServer(t)
	same := func(tenant string) *peer {
		o := as(tenant)
		o.client = [16]byte{1, 2, 3}
		return dial(t, srv, o)
	}
	thief, owner := same("clerk"), same("guest")
	numbered := func(p *peer, key string, seq uint64) error {
		_, err := p.call(func(id uint64) []byte {
			return wire.AppendPut(nil, id, wire.Put{Key: []byte(key), Value: []byte(key), Terms: wire.Terms{ID: wire.RequestID{Slot: 3, Seq: seq}}})
		})
		return err
	}
	for seq, key := range []string{"one", "two"} {
		if err := numbered(thief, "desk/"+key, uint64(1+5*seq)); err != nil {
			t.Fatal(err)
		}
		if err := numbered(owner, key, uint64(1+seq)); err != nil {
			t.Errorf("the owner's write %d: %v", 1+seq, err)
		}
		if _, err := owner.get(key, 100); err != nil {
			t.Errorf("a write that was answered was not done: %v", err)
		}
	}
	// His own numbers are the same in every session.
	if err := numbered(same("guest"), "three", 2); err != nil {
		t.Error(err)
	}
	if _, err := owner.get("three", 100); !errors.Is(err, wire.StatusNotFound.Err()) {
		t.Errorf("a number that was used up was used again: %v", err)
	}
}

// TestWatchesOfOneTenant: one tenant of the node's own space does not take every
// place for watches.
func TestWatchesOfOneTenant(t *testing.T) {
	srv := startServer(t, func(c *Config) {
		c.Secret, c.Tenants, c.MaxWatches = secretOf(""), boundTenants()[1:], 4
	})
	watch := func(from wire.Cursor, millis uint32) func(id uint64) []byte {
		return func(id uint64) []byte {
			return wire.AppendWatch(nil, id, wire.Watch{From: from, WaitMillis: millis, Prefix: []byte("desk/")})
		}
	}
	p := dial(t, srv, as("clerk"))
	body, err := p.call(watch(wire.Cursor{}, 50))
	if err != nil {
		t.Fatal(err)
	}
	now, err := wire.ParseWatchReply(body)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		p.send(watch(now.Next, 10_000)(p.id()))
	}
	for end := time.Now().Add(4 * time.Second); srv.main.Handlers.Watches() < 2 && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	if _, err := p.call(watch(now.Next, 50)); !errors.Is(err, wire.StatusOverloaded.Err()) {
		t.Errorf("the tenant's third: %v", err)
	}
	if _, err := dial(t, srv, as("")).call(watch(now.Next, 50)); err != nil {
		t.Errorf("somebody else's: %v", err)
	}
	p.close()
	for end := time.Now().Add(10 * time.Second); srv.main.Handlers.Watches() > 0 && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	p = dial(t, srv, as("clerk"))
	if _, err := p.call(watch(now.Next, 50)); err != nil {
		t.Errorf("when they are over: %v", err)
	}
}

// TestReportWithinPrefix: who is limited to a prefix reports damage of his own
// keys alone, and no reads, which he cannot have made.
func TestReportWithinPrefix(t *testing.T) {
	srv := boundServer(t)
	p := dial(t, srv, as("clerk"))
	var damages []wire.Damage
	for _, key := range []string{"desk/1", "safe/1", "d", "desk"} {
		damages = append(damages, wire.Damage{Shard: cluster.ShardOf([]byte(key), srv.main.Shards), Key: []byte(key)})
	}
	touches := wire.Touches(nil).Append(wire.Touch{Hash: 1, Count: 9})
	if _, err := p.call(func(id uint64) []byte { return wire.AppendReport(nil, id, touches, damages) }); err != nil {
		t.Fatal(err)
	}
	if got := srv.main.Counters.DamageReports.Load(); got != 1 {
		t.Errorf("%d reports of damage are taken, want 1", got)
	}
	if got := srv.main.Counters.Touches.Load(); got != 0 {
		t.Errorf("%d touches are taken of one who cannot READ", got)
	}
}

// TestNoRightsBeyondLimit: a session that is one too many does not READ while it
// is being shown out.
func TestNoRightsBeyondLimit(t *testing.T) {
	srv := boundServer(t)
	first := dial(t, srv, as("anna"))
	_, table := first.regions()
	for round := range 60 {
		p, err := tryDial(t, srv, as("anna"))
		if !errors.Is(err, wire.StatusBusy.Err()) {
			t.Fatalf("round %d: a session beyond the limit: %v", round, err)
		}
		if _, err := p.read(table[0].Addr, table[0].RKey, 4096); err == nil {
			t.Fatalf("round %d: a session that was refused has READ", round)
		}
		p.close()
	}
	if _, err := first.read(table[0].Addr, table[0].RKey, 4096); err != nil {
		t.Error(err)
	}
}

// TestLimitsAreShown: the bounds that tenants share have their lines.
func TestLimitsAreShown(t *testing.T) {
	srv := boundServer(t)
	shown := make(map[string]int64)
	for _, l := range srv.Limits() {
		shown[l.Name] = l.Max
	}
	for _, name := range []string{"tenant_staging", "tenant_holds", "hold_bytes", "tenant_receives", "results"} {
		if shown[name] <= 0 {
			t.Errorf("limit %q is %d", name, shown[name])
		}
	}
}
