package server

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/secret"
	"github.com/rdmakv/rdmakv/internal/server/auth"
	"github.com/rdmakv/rdmakv/internal/server/base"
	"github.com/rdmakv/rdmakv/internal/server/work"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// A heldWorker is a job that keeps its worker until it is let go.
type heldWorker struct {
	held    *atomic.Int32 // how many have begun
	release chan struct{}
}

func (j heldWorker) Run() {
	j.held.Add(1)
	<-j.release
}

func (j heldWorker) Drop()        {}
func (j heldWorker) Refuse()      {}
func (j heldWorker) Again() bool  { return true }
func (j heldWorker) AddGrant(int) {}

// endless is a session that never ends.
type endless struct{}

func (endless) Ended() bool { return false }
func (endless) Flush()      {}

// heldWorkers keeps as many workers of the node's scans as a login may have, and
// returns what lets them go. No test of the queue depends on how fast a scan is.
func heldWorkers(t *testing.T, srv *Server, tenant string) (release func()) {
	t.Helper()
	o, line := &loginOf(srv, tenant).Turns, new(work.Line)
	line.Init(o, endless{})
	j := heldWorker{new(atomic.Int32), make(chan struct{})}
	release = sync.OnceFunc(func() { close(j.release) })
	t.Cleanup(release)
	n := srv.main.Scans.Share(o)
	for range n {
		srv.main.Scans.Submit(line, j)
	}
	eventually(t, "the workers are held", func() bool { return int(j.held.Load()) == n })
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

func loginOf(srv *Server, tenant string) *auth.Login {
	if tenant == "" {
		return srv.logins.Find(wire.Tenant{})
	}
	return srv.logins.Find(wire.TenantOf(tenant))
}

func queuedOf(srv *Server, tenant string) int { return sources{srv}.Queued(loginOf(srv, tenant)) }

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
			for _, p := range [...]*work.Pool{srv.main.Gets, srv.main.Scans, srv.clusters, srv.admins} {
				if p.Share(&loginOf(srv, name).Turns) < 1 {
					t.Errorf("%d workers: %q has none of %s", workers, name, p.Kind())
				}
			}
			if n := srv.main.Scans.Share(&loginOf(srv, name).Turns); n >= scans || name != "" && n > max(1, scans/4) {
				t.Errorf("%d workers: %q may hold %d of %d that scan", workers, name, n, scans)
			}
		}
		sp := srv.spaces.of("anna")
		if n := sp.Scans.Share(&loginOf(srv, "anna").Turns); n < 1 || n >= max(2, sp.Config.Workers/4) {
			t.Errorf("%d workers: in a space the tenant may hold %d that scan", workers, n)
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
	if _, err := main.call(documentOf(wire.DocumentStats, "")); err != nil {
		t.Errorf("statistics: %v", err)
	}
	// His own scans do not hold up the operator either.
	heldWorkers(t, srv, "")
	if _, err := main.call(documentOf(wire.AdminTenants, "")); err != nil {
		t.Errorf("the operator: %v", err)
	}
	// Not even who fills the queue is kept from what a client must know first.
	_, err := hog.call(documentOf(wire.DocumentView, ""))
	wantStatus(t, err, wire.StatusUnsupported)
	if n := queuedOf(srv, "clerk"); n != 7 {
		t.Errorf("%d scans wait", n)
	}
	release()
	eventually(t, "they are done", func() bool { return loginOf(srv, "clerk").Requests.Load() == 0 })
}

// TestQueueIsBounded: what is over the bound is refused at once and counted, for
// the tenant and for the node; a session of his that has nothing there is let in.
func TestQueueIsBounded(t *testing.T) {
	srv := floodServer(t, func(c *Config) { c.Tenants[1].MaxRequests = 1000 })
	clerk := loginOf(srv, "clerk")
	clerk.MaxQueued = 5 // before he has a session
	hog, other := dial(t, srv, as("clerk")), dial(t, srv, as("clerk"))
	release := heldWorkers(t, srv, "clerk")
	hog.flood(5)
	eventually(t, "five scans wait", func() bool { return queuedOf(srv, "clerk") == 5 })
	_, err := hog.call(scanOf("desk/"))
	wantStatus(t, err, wire.StatusOverloaded)
	if n := srv.bounds.Hits[base.BoundLoginQueue].Load(); n != 1 || clerk.Hits[base.BoundLoginQueue].Load() != 1 {
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
		return queuedOf(srv, "clerk") == 0 && clerk.Requests.Load() == 0 && clerk.Sessions.Load() == 0
	})
	if st, err := srv.Stats(); err != nil || st.Requests[wire.TypeScan.String()].Count != 0 {
		t.Errorf("scans were answered: %+v, %v", st.Requests, err)
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
	_, err := dial(t, srv, as("")).call(documentOf(wire.AdminRevoke, "clerk"))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("revoked in %v", time.Since(begun))
	if mine, _ := srv.main.Scans.Backlog(&clerk.Turns); mine != 0 || queuedOf(srv, "clerk") != 0 {
		t.Errorf("%d of his requests wait", mine)
	}
	for _, hog := range hogs {
		if err := hog.dead(); err == nil {
			t.Error("a session lives")
		}
	}
	eventually(t, "nothing of him is in flight", func() bool { return clerk.Requests.Load() == 0 })
}

// TestShutdownRefusesScans: what waits is answered that the server is closing, and
// is not waited for.
func TestShutdownRefusesScans(t *testing.T) {
	srv := floodServer(t, func(c *Config) { c.DrainTimeout = 5 * time.Minute })
	hog := dial(t, srv, as("clerk"))
	release := heldWorkers(t, srv, "clerk")
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
	release()
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
