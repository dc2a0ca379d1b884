package handle

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rdmakv/rdmakv/internal/secret"
	"github.com/rdmakv/rdmakv/internal/server/auth"
	"github.com/rdmakv/rdmakv/internal/server/base"
	"github.com/rdmakv/rdmakv/internal/server/deaf"
	"github.com/rdmakv/rdmakv/internal/server/memory"
	"github.com/rdmakv/rdmakv/internal/server/session"
	"github.com/rdmakv/rdmakv/internal/server/work"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma/mem"
	"github.com/rdmakv/rdmakv/store"
)

// TestMain fails if a goroutine is left.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A rig is the handlers of a space without a node: a store without a disk, and sessions
// over a device with nobody at the other end.
type rig struct {
	*Handlers
	t      *testing.T
	rail   *session.Rail
	logins *auth.Logins
}

// newRig makes one. change may set what the handlers are given.
func newRig(t *testing.T, change func(*Env), tenants ...auth.Tenant) *rig {
	t.Helper()
	log, bounds := base.NewLog(slog.New(slog.DiscardHandler)), new(base.Bounds)
	g := session.NewGroup(session.Config{
		Lease: time.Second, Beat: 100 * time.Millisecond, Keepalive: time.Minute,
		Idle: 5 * time.Minute, SendTimeout: 5 * time.Minute, SetupTimeout: 5 * time.Minute,
		Credits: 8, InitialCredits: 4, RequestSize: session.MinReplySize, ReplySize: session.MinReplySize,
		ReceiveBytes: 64 * session.MinReplySize, ReplyBytes: 64 * session.MinReplySize,
		MaxSessions: 8, Lanes: 1, MemoryKind: mem.Heap,
	}, session.Env{
		Registry: session.NewRegistry(session.RegistryLimits{Sessions: 8, PerHost: 8, Setups: 8, SetupsPerHost: 8}, bounds),
		Counters: new(base.Counters), Bounds: bounds, Log: log, Clock: base.NewClock(), Fence: base.NewFence(),
		Draining: new(atomic.Bool), Fatal: func(err error) { t.Errorf("fatal: %v", err) }, Shared: func() bool { return false },
	})
	// The lanes end before the store that their sessions use.
	ctx, cancel := context.WithCancel(context.Background())
	opened := base.NewDevice(nil, "", deaf.Device{}, func() bool { return false }, func(*base.Device, error) {})
	rail, err := session.NewRail(ctx, g, opened, 0)
	if err == nil {
		err = rail.MakeLanes(1)
	}
	if err != nil {
		t.Fatal(err)
	}
	regions := memory.NewRegions(memory.RegionsConfig{Kind: mem.Heap}, log)
	st, err := store.Open(t.Context(), store.Config{
		Mode: store.Cache, Lease: 20 * time.Millisecond, BeatInterval: 5 * time.Millisecond, PredecessorGone: true, Shards: 4, Memory: regions,
		MemoryLimit: 64 << 20, RegionSize: 4 << 20, IndexRegionSize: 2 << 20, WatchBytes: 1 << 20,
		OnCommit: g.Published, OnView: regions.Changed,
	})
	if err != nil {
		t.Fatal(err)
	}
	env := Env{
		Store: st, Shards: 4, Regions: regions, Followers: new(memory.Followers), Sessions: g, Shared: g.Shared,
		Fence: g.Fence, Clock: g.Clock, Counters: g.Counters, Bounds: bounds, Makers: new(Makers),
		Gets: work.New(work.Gets, 2, 2, 1), Scans: work.New(work.Scans, 2, 2, 1),
		Clusters: work.New(work.Cluster, 2, 2, 1), Admins: work.New(work.Admin, 2, 2, 1),
		Lease: 20 * time.Millisecond, MaxPoll: time.Minute, MaxWatches: 8, TenantWatches: 4,
	}
	if change != nil {
		change(&env)
	}
	h := New(env)
	g.Handler = h
	rail.RunLanes()
	var loops sync.WaitGroup
	loops.Go(func() { g.Run(ctx) })
	loops.Go(func() { h.Run(ctx) })
	t.Cleanup(func() {
		h.Refuse()
		for _, p := range [...]*work.Pool{env.Gets, env.Scans, env.Clusters, env.Admins} {
			p.Close()
		}
		cancel()
		loops.Wait()
		if err := rail.Close(); err != nil {
			t.Error(err)
		}
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	return &rig{h, t, rail, auth.NewLogins(auth.LoginsConfig{Secret: []byte("secret of the main login"), MaxSessions: 8, MaxRequests: 64, Tenants: tenants})}
}

// tenant is one who may do everything in the space that others use.
func tenant(name string) auth.Tenant {
	return auth.Tenant{Name: name, Secret: secret.New([]byte("secret of " + name)), Space: auth.MainSpace}.WithDefaults(8)
}

// open opens a session of a tenant, or of the main login for "". end ends it, and returns
// when nothing of it is left.
func (g *rig) open(name string) (s *session.Session, q *deaf.QP, end func()) {
	g.t.Helper()
	place, err := g.Sessions.Registry.Admit(session.SourceOf("192.0.2.1:1"))
	if place == nil {
		g.t.Fatal(err)
	}
	login := g.logins.Find(wire.TenantOf(name))
	req := deaf.NewRequest()
	k := session.Knock{ConnRequest: req, Connect: deaf.Connect, Version: wire.VersionMax, Login: login, Place: place, Incarnation: g.Store.Incarnation()}
	if s, err = g.Sessions.Begin(g.rail.Pick(), k); err != nil {
		g.t.Fatal(err)
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		s.Serve(context.Background(), k)
	}()
	q = req.Accepted(g.t, login.Secret.Reveal())
	q.Open(g.t, session.MinReplySize, func() bool { return !s.Busy() })
	end = sync.OnceFunc(func() {
		q.End()
		<-over
	})
	g.t.Cleanup(end)
	return s, q, end
}

// feed lets one message arrive and waits until its handler is done.
func feed(t *testing.T, s *session.Session, q *deaf.QP, msg []byte) {
	t.Helper()
	q.Feed(t, msg, func() bool { return !s.Busy() })
}

// eventually waits until is says yes.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not so: %s", what)
		}
	}
}
