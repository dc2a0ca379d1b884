package server

import (
	"context"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/secret"
	"github.com/rdmakv/rdmakv/internal/server/base"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// hungry puts and says that it had to wait for credits.
func (p *peer) hungry(key string) {
	p.t.Helper()
	if _, err := p.call(func(id uint64) []byte {
		msg := wire.AppendPut(nil, id, wire.Put{Key: []byte(key), Value: []byte("v")})
		wire.SetFlags(msg, wire.FlagWantCredits)
		return msg
	}); err != nil {
		p.t.Fatal(err)
	}
}

// owned returns how many receives the sessions of a tenant have, each.
func owned(srv *Server, tenant string) (list []int) {
	for _, s := range srv.main.Sessions.List() {
		if s.Login.Name == tenant {
			list = append(list, s.Receives())
		}
	}
	return list
}

// creditServer has 512 receives for the main login and a clerk: a share is 128.
func creditServer(t *testing.T, change func(*Config)) *Server {
	return startServer(t, func(c *Config) {
		c.Secret, c.Lanes, c.ReceiveBytes = secretOf(""), 1, 512*16<<10
		c.Tenants = []Tenant{{Name: "clerk", Secret: secret.New(secretOf("clerk")), Prefix: "desk/"}}
		change(c)
	})
}

// TestReceiveShares: the sessions of one tenant grow to his share and no further, so
// that those of another grow to what the server allows, however idle the first are.
func TestReceiveShares(t *testing.T) {
	eachQueue(t, func(t *testing.T, change func(*Config)) {
		srv := creditServer(t, change)
		var all []*peer
		for range 20 {
			p := dial(t, srv, as("clerk"))
			for range 4 {
				p.hungry("desk/k")
			}
			all = append(all, p)
		}
		clerk := srv.logins.Find(wire.TenantOf("clerk"))
		// Beyond the share is one more of each who came when it was used up.
		if n := clerk.Receives.Load(); n > 128+20 {
			t.Errorf("the clerk's sessions have grown to %d receives: %v", n, owned(srv, "clerk"))
		}
		if clerk.Hits[base.BoundLoginReceives].Load() == 0 {
			t.Error("not counted")
		}
		p := dial(t, srv, as(""))
		for range 6 {
			p.hungry("k")
		}
		if got := owned(srv, ""); len(got) != 1 || got[0] != srv.cfg.Credits+1 {
			t.Errorf("a session of another tenant has %v receives", got)
		}
		for _, p := range all {
			if err := p.ping(); err != nil {
				t.Error(err)
			}
			p.close()
		}
		eventually(t, "their share is free again", func() bool { return clerk.Receives.Load() == 0 })
	})
}

// TestIdleGivesReceivesBack: credits that a client gives back are receives for others,
// on a queue of its own as messages arrive.
func TestIdleGivesReceivesBack(t *testing.T) {
	eachQueue(t, func(t *testing.T, change func(*Config)) {
		srv := creditServer(t, change)
		main := srv.logins.Find(wire.Tenant{})
		p := dial(t, srv, as(""))
		for range 6 {
			p.hungry("k")
		}
		grown := main.Receives.Load()
		if _, err := p.call(func(id uint64) []byte { return wire.AppendPing(nil, id, wire.Ping{Return: 60}) }); err != nil {
			t.Fatal(err)
		}
		for range 60 {
			if err := p.ping(); err != nil {
				t.Fatal(err)
			}
		}
		if got := main.Receives.Load(); grown != int64(srv.cfg.Credits) || got != grown-60 {
			t.Errorf("%d receives were taken, %d are left", grown, got)
		}
		if !srv.main.Rails.All()[0].Shared {
			if used := srv.main.Rails.All()[0].Buffers()[0].Used; used > 6 {
				t.Errorf("%d receives are with the fabric", used)
			}
		}
		for range 6 { // it may come back
			p.hungry("k")
		}
		if got := owned(srv, ""); got[0] != srv.cfg.Credits+1 {
			t.Errorf("after that it has %v", got)
		}
	})
}

// TestKeptCredits: a session that keeps what it does not use is shown out when others
// find too little, and not before.
func TestKeptCredits(t *testing.T) {
	eachQueue(t, func(t *testing.T, change func(*Config)) {
		t.Parallel() // both wait, for longer than a machine stalls
		srv := startServer(t, func(c *Config) {
			c.Lanes, c.ReceiveBytes, c.Idle, c.Keepalive = 1, 160*16<<10, 4*time.Second, 500*time.Millisecond
			change(c)
		})
		keeper := dial(t, srv, peerOptions{})
		for range 6 {
			keeper.hungry("k")
		}
		deadline := time.Now().Add(srv.cfg.Idle * 5 / 4)
		for time.Now().Before(deadline) {
			if err := keeper.ping(); err != nil {
				t.Fatalf("while there is enough: %v", err)
			}
			time.Sleep(time.Millisecond)
		}
		other := dial(t, srv, peerOptions{})
		for range 6 {
			other.hungry("k")
		}
		if !srv.main.Rails.All()[0].Scarce() {
			t.Fatal("receives are not scarce")
		}
		id := keeper.id()
		keeper.send(wire.AppendPing(nil, id, wire.Ping{}))
		wantStatus(t, keeper.goodbye(), wire.StatusIdle)
		ended(t, srv, base.CauseIdle, 1)
		if n := srv.bounds.Hits[base.BoundReceives].Load(); n != 1 {
			t.Errorf("counted %d times", n)
		}
		// The other one works, and is not idle.
		for range 3 {
			other.hungry("k")
			if err := other.ping(); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestShareShrinks: when others come whose share it is, credits of who has grown
// beyond his own are not renewed until he is within it.
func TestShareShrinks(t *testing.T) {
	eachQueue(t, func(t *testing.T, change func(*Config)) {
		srv := startServer(t, func(c *Config) {
			c.Secret, c.Lanes, c.ReceiveBytes, c.Lease = secretOf(""), 1, 160*16<<10, 400*time.Millisecond
			change(c)
		})
		p := dial(t, srv, as(""))
		for range 6 {
			p.hungry("k")
		}
		if got := owned(srv, ""); got[0] != srv.cfg.Credits+1 {
			t.Fatalf("alone it has %v", got)
		}
		if err := srv.SetTenants(context.Background(), []Tenant{{Name: "clerk", Secret: secret.New(secretOf("clerk")), Prefix: "desk/"}}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the share is known", func() bool { return srv.main.Sessions.Share() == 40 })
		for range 100 {
			p.hungry("k")
		}
		// The first receive is not counted, and the last to be renewed was within it.
		if got := owned(srv, ""); got[0] > 41 || got[0] < srv.cfg.InitialCredits {
			t.Errorf("beside others it has %v", got)
		}
	})
}
