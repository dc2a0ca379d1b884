package server

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/secret"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// A poolRig is a pool without workers, of which a test is each worker.
type poolRig struct {
	t *testing.T
	p *pool
}

func newPoolRig(t *testing.T, share func(*login) int) *poolRig {
	return &poolRig{t, newPool(poolScans, 0, share)}
}

func (g *poolRig) session(l *login) *session {
	s := &session{login: l}
	s.state.Store(uint32(stateOpen))
	return s
}

// send queues n requests of a session.
func (g *poolRig) send(s *session, n int) {
	for range n {
		g.p.submit(&request{s: s})
	}
}

// take is a worker that begins; nil if there is nothing that may run.
func (g *poolRig) take() *session {
	g.p.mu.Lock()
	none := g.p.ready.len() == 0
	g.p.mu.Unlock()
	if none {
		return nil
	}
	r, _ := g.p.next()
	return r.s
}

func poolTenant(name string) *login { return newLogin(Tenant{Name: name, MaxRequests: 1 << 20}) }

func fixed(n int) func(*login) int { return func(*login) int { return n } }

// TestPoolTakesTurns: however much one has sent, the next one waits behind one
// request of each other, login by login and within a login session by session; and
// what a session sends is done in the order in which it came.
func TestPoolTakesTurns(t *testing.T) {
	g := newPoolRig(t, fixed(100))
	flood, bob := poolTenant("flood"), poolTenant("bob")
	f1, f2, f3, b := g.session(flood), g.session(flood), g.session(flood), g.session(bob)
	g.send(f1, 50)
	g.send(f2, 50)
	g.send(b, 2)
	g.send(f3, 1)
	var got []*session
	for range 8 {
		got = append(got, g.take())
	}
	if want := []*session{f1, b, f2, b, f3, f1, f2, f1}; !slices.Equal(got, want) {
		names := map[*session]string{f1: "f1", f2: "f2", f3: "f3", b: "b"}
		for i := range got {
			t.Errorf("turn %d: %s, want %s", i, names[got[i]], names[want[i]])
		}
	}
	if w, r := g.p.load(); w != 103-8 || r != 8 {
		t.Errorf("%d wait, %d run", w, r)
	}
}

// TestPoolShare: a login never holds more workers than its share, and has the next
// one as soon as it gives one back; others are not concerned.
func TestPoolShare(t *testing.T) {
	g := newPoolRig(t, fixed(2))
	flood, bob := poolTenant("flood"), poolTenant("bob")
	f, b := g.session(flood), g.session(bob)
	g.send(f, 10)
	for i, want := range []*session{f, f, nil} {
		if g.take() != want {
			t.Fatalf("take %d: the share of a login is not two", i)
		}
	}
	g.send(b, 1)
	if g.take() != b || g.take() != nil {
		t.Fatal("another login is held up by the first")
	}
	g.p.done(bob)
	if g.take() != nil {
		t.Fatal("a worker that another has given back is taken")
	}
	g.p.done(flood)
	if g.take() != f || g.take() != nil {
		t.Fatal("a worker that was given back is not used")
	}
}

// TestPoolDropsWhatIsGone: the requests of a session that has ended leave at once,
// and nobody else's do; none comes in any more.
func TestPoolDropsWhatIsGone(t *testing.T) {
	g := newPoolRig(t, fixed(1))
	flood := poolTenant("flood")
	gone, stays := g.session(flood), g.session(flood)
	g.send(gone, 1000)
	g.send(stays, 1)
	if n := len(g.p.take(gone)); n != 1000 {
		t.Errorf("%d requests were dropped", n)
	}
	if w, _ := g.p.load(); w != 1 || flood.turns[poolScans].waiting != 1 {
		t.Errorf("%d wait, %d of the login", w, flood.turns[poolScans].waiting)
	}
	if g.take() != stays || g.take() != nil {
		t.Error("the other session lost its turn, or the one that is gone has one")
	}
	if len(g.p.take(stays)) != 0 || flood.turns[poolScans].listed {
		t.Error("something is left")
	}
}

// TestPoolRandomly: whatever comes, goes and is dropped, every request ends once,
// counts come out at zero, and nobody with work is forgotten.
func TestPoolRandomly(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	g := newPoolRig(t, fixed(3))
	var all []*session
	for i := range 5 {
		l := poolTenant(fmt.Sprint("tenant", i))
		for range 4 {
			all = append(all, g.session(l))
		}
	}
	sent, done := 0, 0
	var running []*session
	for range 20000 {
		s := all[rnd.IntN(len(all))]
		switch rnd.IntN(6) {
		case 0, 1, 2:
			n := rnd.IntN(4)
			g.send(s, n)
			sent += n
		case 3:
			if rnd.IntN(20) == 0 {
				done += len(g.p.take(s))
			}
		case 4:
			if s := g.take(); s != nil {
				running = append(running, s)
			}
		case 5:
			if len(running) > 0 {
				i := rnd.IntN(len(running))
				g.p.done(running[i].login)
				running = slices.Delete(running, i, i+1)
				done++
			}
		}
		for _, s := range all {
			if n := s.login.turns[poolScans].running; n > 3 {
				t.Fatalf("a login runs %d", n)
			}
		}
	}
	for len(running) > 0 || g.p.waiting > 0 {
		if s := g.take(); s != nil {
			running = append(running, s)
			continue
		}
		if len(running) == 0 {
			t.Fatalf("%d requests are forgotten", g.p.waiting)
		}
		g.p.done(running[0].login)
		running = running[1:]
		done++
	}
	if w, r := g.p.load(); sent != done || w != 0 || r != 0 {
		t.Errorf("%d sent, %d done; %d wait, %d run", sent, done, w, r)
	}
}

// TestFifo: memory is used again, whatever the pattern.
func TestFifo(t *testing.T) {
	var f fifo[int]
	for i := range 10_000 { // never empty, as under a load that does not end
		f.push(i)
		if i >= 3 {
			if v := f.pop(); v != i-3 {
				t.Fatalf("got %d, want %d", v, i-3)
			}
		}
	}
	if f.len() != 3 || cap(f.items) > 16 {
		t.Errorf("%d of 3, room for %d", f.len(), cap(f.items))
	}
	f.remove(9998)
	f.remove(5)
	if f.pop() != 9997 || f.pop() != 9999 || f.len() != 0 {
		t.Error("remove took another one")
	}
}

// heldWorkers keeps as many workers of the node's scans as a login may have, and
// returns what lets them go. No test of the queue depends on how fast a scan is.
func heldWorkers(t *testing.T, srv *Server, tenant string) (release func()) {
	t.Helper()
	l, p := loginOf(srv, tenant), srv.scans
	p.mu.Lock()
	n := p.share(l)
	l.turns[p.kind].running += n
	p.mu.Unlock()
	var once sync.Once
	release = func() {
		once.Do(func() {
			p.mu.Lock()
			l.turns[p.kind].running -= n
			p.list(l)
			p.mu.Unlock()
		})
	}
	t.Cleanup(release)
	return release
}

func floodServer(t *testing.T, change func(*Config)) *Server {
	return startServer(t, func(c *Config) {
		c.Secret, c.MaxSessions = secretOf(""), 64
		c.Tenants = []Tenant{
			{Name: "guest", Secret: secret.New(secretOf("guest")), Space: "main", SendOnly: true},
			{Name: "clerk", Secret: secret.New(secretOf("clerk")), Prefix: "desk/"},
		}
		if change != nil {
			change(c)
		}
	})
}

func scanOf(prefix string) func(id uint64) []byte {
	return func(id uint64) []byte {
		return wire.AppendScan(nil, id, wire.Scan{Prefix: []byte(prefix), KeysOnly: true, Limit: 10})
	}
}

// flood has n scans of a session wait; its workers are held.
func (p *peer) flood(n int) {
	for range n {
		p.send(scanOf("desk/")(p.id()))
	}
}

func loginOf(srv *Server, tenant string) *login {
	if tenant == "" {
		return srv.logins.find(wire.Tenant{})
	}
	return srv.logins.find(wire.TenantOf(tenant))
}

func queuedOf(srv *Server, tenant string) int { return srv.queued(loginOf(srv, tenant)) }

// TestShares: no login may have all workers that scan, and every one has some of
// each kind; also in a space, and where there is one processor.
func TestShares(t *testing.T) {
	for _, workers := range []int{1, 8, 16, 512} {
		srv := floodServer(t, func(c *Config) {
			c.Workers, c.MemoryLimit, c.RegionSize, c.IndexRegionSize = workers, 64<<20, 4<<20, 2<<20
			c.Tenants = append(c.Tenants, Tenant{Name: "anna", Secret: secret.New(secretOf("anna")), MemoryLimit: 16 << 20})
		})
		scans := max(2, workers/4)
		for _, name := range []string{"", "clerk", "guest"} {
			for _, p := range [...]*pool{srv.pool, srv.scans, srv.clusters, srv.admins} {
				if p.share(loginOf(srv, name)) < 1 {
					t.Errorf("%d workers: %q has none of %s", workers, name, poolNames[p.kind])
				}
			}
			if n := srv.scans.share(loginOf(srv, name)); n >= scans || name != "" && n > max(1, scans/4) {
				t.Errorf("%d workers: %q may hold %d of %d that scan", workers, name, n, scans)
			}
		}
		sp := srv.spaceOf("anna")
		if n := sp.scans.share(loginOf(srv, "anna")); sp.clusters != nil || sp.admins != nil || n < 1 || n >= max(2, sp.cfg.Workers/4) {
			t.Errorf("%d workers: in a space the tenant may hold %d that scan, or it has workers that are the node's", workers, n)
		}
	}
}

// TestScansOfOthers: while a tenant's scans wait, those of others are answered, and
// so is what the operator asks and what a client of a cluster must know.
func TestScansOfOthers(t *testing.T) {
	srv := floodServer(t, nil)
	hog := dial(t, srv, as("clerk"))
	release := heldWorkers(t, srv, "clerk")
	hog.flood(7) // one credit is left
	eventually(t, "seven scans wait", func() bool { return queuedOf(srv, "clerk") == 7 })
	if _, err := dial(t, srv, as("guest")).call(scanOf("")); err != nil {
		t.Errorf("another tenant's scan: %v", err)
	}
	main := dial(t, srv, as(""))
	if _, err := main.call(func(id uint64) []byte { return wire.AppendStats(nil, id, wire.StatsRequest{}) }); err != nil {
		t.Errorf("statistics: %v", err)
	}
	// His own scans do not hold up the operator either.
	heldWorkers(t, srv, "")
	if _, err := main.call(func(id uint64) []byte { return wire.AppendAdmin(nil, id, wire.Admin{Op: wire.AdminTenants}) }); err != nil {
		t.Errorf("the operator: %v", err)
	}
	// Not even who fills the queue is kept from what a client must know first.
	_, err := hog.call(func(id uint64) []byte { return wire.AppendClusterRequest(nil, id, wire.ClusterRequest{}) })
	wantStatus(t, err, wire.StatusUnsupported)
	if n := queuedOf(srv, "clerk"); n != 7 {
		t.Errorf("%d scans wait", n)
	}
	release()
	eventually(t, "they are done", func() bool { return loginOf(srv, "clerk").requests.Load() == 0 })
}

// TestQueueIsBounded: what is over the bound is refused at once and counted, for
// the tenant and for the node; a session of his that has nothing there is let in.
func TestQueueIsBounded(t *testing.T) {
	srv := floodServer(t, func(c *Config) { c.Tenants[1].MaxRequests = 1000 })
	clerk := loginOf(srv, "clerk")
	clerk.maxQueued = 5 // before he has a session
	hog, other := dial(t, srv, as("clerk")), dial(t, srv, as("clerk"))
	release := heldWorkers(t, srv, "clerk")
	hog.flood(5)
	eventually(t, "five scans wait", func() bool { return queuedOf(srv, "clerk") == 5 })
	_, err := hog.call(scanOf("desk/"))
	wantStatus(t, err, wire.StatusOverloaded)
	if n := srv.met.limits[limitLoginQueue].Load(); n != 1 || clerk.hits[limitLoginQueue].Load() != 1 {
		t.Errorf("counted %d times", n)
	}
	for _, st := range srv.Tenants() {
		if st.Name == "clerk" && (st.Queued != 5 || st.MaxQueued != 5 || st.Refused["tenant_queue"] != 1) {
			t.Errorf("%+v", st)
		}
	}
	// The refusal came without its credit, which comes with the last of those that wait.
	had := hog.credits
	id := other.id()
	other.send(scanOf("desk/")(id))
	eventually(t, "the other session waits too", func() bool { return queuedOf(srv, "clerk") == 6 })
	release()
	if _, _, err := other.await(id); err != nil {
		t.Error(err)
	}
	for id := hog.nextID - 5; id < hog.nextID; id++ {
		if _, _, err := hog.await(id); err != nil {
			t.Error(err)
		}
	}
	if hello := 8; had != hello || hog.credits != hello+6 {
		t.Errorf("%d credits came until the refusal, %d in all", had, hog.credits)
	}
}

// TestSessionTakesItsWorkWithIt: requests of a session that is gone are not carried
// out, and keep neither the session nor anybody else.
func TestSessionTakesItsWorkWithIt(t *testing.T) {
	srv := floodServer(t, nil)
	hog := dial(t, srv, as("clerk"))
	heldWorkers(t, srv, "clerk") // to the end: nothing of it is ever done
	hog.flood(8)
	eventually(t, "eight scans wait", func() bool { return queuedOf(srv, "clerk") == 8 })
	hog.close()
	clerk := loginOf(srv, "clerk")
	eventually(t, "nothing waits, and the session is over", func() bool {
		return queuedOf(srv, "clerk") == 0 && clerk.requests.Load() == 0 && clerk.sessions.Load() == 0
	})
	if n := srv.met.opStat(wire.TypeScan).Count; n != 0 {
		t.Errorf("%d scans were answered", n)
	}
}

// TestRevokeDropsQueue: a tenant whose work fills the queue is revoked at once, and
// his work goes with him. The operator's request comes over a session, as it does
// from kvclient.
func TestRevokeDropsQueue(t *testing.T) {
	srv := floodServer(t, nil)
	var hogs []*peer
	for range 8 {
		hogs = append(hogs, dial(t, srv, as("clerk")))
	}
	heldWorkers(t, srv, "clerk")
	for _, hog := range hogs {
		hog.flood(8)
	}
	eventually(t, "64 scans wait", func() bool { return queuedOf(srv, "clerk") == 64 })
	clerk := loginOf(srv, "clerk")
	begun := time.Now()
	_, err := dial(t, srv, as("")).call(func(id uint64) []byte {
		return wire.AppendAdmin(nil, id, wire.Admin{Op: wire.AdminRevoke, Name: []byte("clerk")})
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("revoked in %v", time.Since(begun))
	if n := queuedOf(srv, "clerk"); n != 0 || clerk.turns[poolScans].waiting != 0 {
		t.Errorf("%d of his requests wait", clerk.turns[poolScans].waiting)
	}
	for _, hog := range hogs {
		if err := hog.dead(); err == nil {
			t.Error("a session lives")
		}
	}
	eventually(t, "nothing of him is in flight", func() bool { return clerk.requests.Load() == 0 })
}

// TestShutdownRefusesScans: what waits is answered that the server is closing, and
// is not waited for.
func TestShutdownRefusesScans(t *testing.T) {
	srv := floodServer(t, func(c *Config) { c.DrainTimeout = 5 * time.Minute })
	hog := dial(t, srv, as("clerk"))
	heldWorkers(t, srv, "clerk")
	hog.flood(7)
	id := hog.id()
	hog.send(scanOf("desk/")(id))
	eventually(t, "eight scans wait", func() bool { return queuedOf(srv, "clerk") == 8 })
	ended := make(chan error, 1)
	go func() { ended <- srv.Shutdown(t.Context()) }()
	h, body, err := hog.await(id)
	if err == nil {
		err = wire.ReplyError(h, body)
	}
	if !errors.Is(err, wire.StatusClosing.Err()) {
		t.Errorf("what waited: %v", err)
	}
	hog.close()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(60 * time.Second):
		t.Fatalf("the end waits for %s", srv.Ending())
	}
	if what := srv.Ending(); what != "" {
		t.Errorf("it has ended and waits for %q", what)
	}
}
