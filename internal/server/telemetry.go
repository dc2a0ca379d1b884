package server

import (
	"encoding/json"
	"maps"
	"time"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/server/auth"
	"github.com/rdmakv/rdmakv/internal/server/base"
	"github.com/rdmakv/rdmakv/internal/server/memory"
	"github.com/rdmakv/rdmakv/internal/server/session"
	"github.com/rdmakv/rdmakv/internal/server/telemetry"
	"github.com/rdmakv/rdmakv/internal/server/work"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// What a node tells of itself, as package telemetry puts it into words.

type (
	// Stats is the node in numbers.
	Stats = telemetry.Stats
	// SpaceStat is one space as the node's operator sees it.
	SpaceStat = telemetry.SpaceStat
	// TenantStat is one tenant: what it may, and what it uses of it.
	TenantStat = telemetry.TenantStat
	// LimitStat is one bound of the node.
	LimitStat = telemetry.LimitStat
	// RotationStat is how far the rotation of rkeys is, in one space of the node.
	RotationStat = memory.RotationStat
)

// Name is what this node calls itself: in a cluster its id.
func (srv *Server) Name() string { return srv.cfg.Name }

// Stats reads the numbers. It may be called from Start's return to Shutdown.
func (srv *Server) Stats() (Stats, error) {
	if !srv.serving.Load() {
		return Stats{}, errNotServing
	}
	return telemetry.StatsOf(sources{srv.root}, snapshot(srv)), nil
}

// NodeStatus is the node as its operator asks for it, over a session or on the admin
// port. It may be called from Start's return to Shutdown.
func (srv *Server) NodeStatus() (*wire.NodeStatus, error) {
	if !srv.root.serving.Load() {
		return nil, errNotServing
	}
	return telemetry.StatusOf(sources{srv.root}), nil
}

// Spaces describes the spaces of the node, by name.
func (srv *Server) Spaces() []SpaceStat { return telemetry.Spaces(sources{srv.root}) }

// Tenants lists the logins of the node by name, the main one first.
func (srv *Server) Tenants() []TenantStat { return telemetry.Tenants(sources{srv.root}) }

// Limits lists the bounds on peers. Those of single tenants are in Tenants.
func (srv *Server) Limits() []LimitStat { return sources{srv.root}.Limits() }

// statsJSON is the document wire.DocumentStats of a space for a login. The spaces are those
// of tenants: who they are is for administrators to see.
func statsJSON(srv *Server, l *auth.Login) ([]byte, error) {
	st, err := srv.Stats()
	if err != nil {
		return nil, err
	}
	if !l.Admin {
		st.Spaces = nil
	}
	return json.Marshal(st)
}

// sources are a node as telemetry reads it.
type sources struct{ srv *Server }

var _ telemetry.Sources = sources{}

// status is the document wire.AdminStatus.
func (n sources) status(what string) (any, error) {
	if !n.srv.serving.Load() {
		return nil, errNotServing
	}
	return telemetry.Status(n, what)
}

func (n sources) Main() *telemetry.Space { return snapshot(n.srv) }

func (n sources) Spaces() (list []*telemetry.Space) {
	for _, sp := range n.srv.spaces.every()[1:] {
		list = append(list, snapshot(sp))
	}
	return list
}

func (n sources) Failed() map[string]error {
	n.srv.spaces.mu.RLock()
	defer n.srv.spaces.mu.RUnlock()
	return maps.Clone(n.srv.spaces.failed)
}

func (n sources) Node() *telemetry.Node {
	srv := n.srv
	node := &telemetry.Node{Logins: srv.logins.All(), Bounds: srv.bounds, Member: srv.member, Owned: srv.owned, StoodDown: srv.fence.StoodDown()}
	for _, p := range srv.devices.listening() {
		node.Ports = append(node.Ports, telemetry.Port{Device: p.dev.Device, Addr: p.ln.Addr().String(), State: p.dev.state()})
	}
	return node
}

func (n sources) RegionTable() *cluster.Table { return n.srv.RegionTable(n.srv.cfg.Name) }

func (n sources) Endpoints() []cluster.Endpoint { return clusterNode{n.srv}.Endpoints(nil, "") }

// Queued counts in all pools that a login has requests in.
func (n sources) Queued(l *auth.Login) (queued int) {
	list := []*work.Pool{n.srv.clusters, n.srv.admins}
	if sp := n.srv.spaces.of(l.Space); sp != nil {
		list = append(list, sp.pool, sp.scans)
	}
	for _, w := range list {
		if w != nil { // else it is starting
			mine, _ := w.Backlog(&l.Turns)
			queued += mine
		}
	}
	return queued
}

// snapshot is what telemetry reads of the node's own keys, or of a space.
func snapshot(srv *Server) *telemetry.Space {
	cfg := &srv.cfg
	sp := &telemetry.Space{
		Name: srv.space,
		Fixed: telemetry.Fixed{
			Node: cfg.Name, Mode: cfg.Mode, Lease: cfg.Lease, LeaseOff: cfg.LeaseOff,
			HugePages: cfg.HugePages.String(), MemoryLimit: cfg.MemoryLimit,
		},
		State: telemetry.State{
			Serving: srv.serving.Load(), Ready: srv.Ready(), Closing: srv.draining.Load(), Filled: srv.Filled(),
			Uptime: time.Duration(srv.now()), Err: srv.Err(),
		},
		Counters: srv.met, Fill: srv.fill.last.Load(),
	}
	sp.Blocked, _ = srv.sessions.Gate.Waiting()
	sp.Setups, sp.Opens = srv.connections()
	if !sp.Serving {
		return sp // Start is still making the rest
	}
	sp.Incarnation, sp.Shards = srv.incarnation, srv.shards
	sp.Store, sp.Regions, sp.Turnover, sp.Staging = srv.store, srv.regions, srv.turnover, srv.staging
	sp.Rotation, sp.BeatAge = srv.rotationStat(), srv.beatAge()
	sp.Watches, sp.Held, sp.Growing = srv.handlers.Watches(), srv.handlers.Held(), srv.handlers.Growing()
	sp.Credits = srv.sessions.Credits()
	for _, p := range [...]*work.Pool{srv.pool, srv.scans, srv.clusters, srv.admins} {
		if p != nil { // else it is the node's, and this is a space
			queued, running := p.Load()
			sp.Pools = append(sp.Pools, telemetry.Pool{Name: p.Kind().String(), Queued: queued, Running: running})
		}
	}
	ports := srv.root.devices.listening()
	for _, d := range srv.devices.all() {
		sp.Devices = append(sp.Devices, d.snapshot(ports))
	}
	return sp
}

// snapshot is what telemetry reads of a device.
func (d *device) snapshot(ports []*port) telemetry.Device {
	out := telemetry.Device{Device: d.Device, Shared: d.Shared, Lanes: d.Lanes(), Sessions: d.Opens(), LastPath: d.LastPath()}
	out.Spins, out.Responder = d.Spins()
	if cm := d.cm.Load(); cm != nil {
		out.Tried, out.Answered = true, cm.err == nil
	}
	for _, p := range ports {
		if p.dev.Device == d.Device {
			out.Listen = append(out.Listen, p.ln.Addr().String())
		}
	}
	for i, n := range d.Buffers() {
		out.Buffers[i].Total, out.Buffers[i].Used = n.Total, n.Used
	}
	return out
}

// Limits lists the bounds on peers. Those of single tenants are in Tenants.
func (n sources) Limits() []telemetry.LimitStat {
	root := n.srv
	setups, opens := root.registry.Counts()
	hostSetups, hostOpens := root.registry.Fullest()
	c := &root.cfg
	hit := func(k base.Bound) uint64 { return root.bounds.Hits[k].Load() }
	staging, _ := root.staging.Line().InUse()
	queued := 0 // by the tenant that has most
	held, holdLimit := root.store.HoldUse()
	results, maxResults, evicted := root.store.ResultUse()
	mostHeld, mostReceives := int64(0), int64(0)
	for _, l := range root.logins.All() {
		if l.Name != "" {
			queued = max(queued, n.Queued(l))
		}
		mostHeld, mostReceives = max(mostHeld, l.Held.Load()), max(mostReceives, l.Receives.Load())
	}
	limit := func(name string, most, used int64, hits uint64) telemetry.LimitStat {
		return telemetry.LimitStat{Name: name, Max: most, Used: used, Hits: hits}
	}
	return []telemetry.LimitStat{
		limit(base.BoundSetups.String(), int64(c.MaxUnauthenticated), int64(setups), hit(base.BoundSetups)),
		limit(base.BoundHostSetups.String(), int64(c.MaxSetupsPerHost), int64(hostSetups), hit(base.BoundHostSetups)),
		limit(telemetry.LimitSetupTime, int64(c.SetupTimeout/time.Millisecond), 0, root.met.Ends[base.CauseSetup].Load()),
		limit(base.BoundSessions.String(), int64(min(c.MaxSessions, c.MaxConnections)), int64(setups+opens), hit(base.BoundSessions)),
		limit(base.BoundHostSessions.String(), int64(c.MaxSessionsPerHost), int64(hostOpens), hit(base.BoundHostSessions)),
		limit(base.BoundLoginSessions.String(), 0, 0, hit(base.BoundLoginSessions)),
		limit(base.BoundLoginRequests.String(), 0, 0, hit(base.BoundLoginRequests)),
		limit(base.BoundLoginBytes.String(), 0, 0, hit(base.BoundLoginBytes)),
		limit(base.BoundLoginQueue.String(), auth.TenantQueued, int64(queued), hit(base.BoundLoginQueue)),
		limit("session_credits", int64(c.Credits), 0, 0),
		limit("session_reads", int64(session.MaxReadDepth), 0, 0),
		limit("receive_bytes", c.ReceiveBytes, 0, 0),
		limit("reply_bytes", c.ReplyBytes, 0, 0),
		limit("staging_bytes", c.StagingBytes, int64(staging), 0),
		limit(base.BoundLoginStaging.String(), root.stagingShare(), root.staging.Line().Most(), hit(base.BoundLoginStaging)),
		limit(base.BoundStaging.String(), 0, 0, hit(base.BoundStaging)),
		limit(base.BoundLoginReceives.String(), min(root.sessions.ReceiveShare(), c.ReceiveBytes/int64(c.RequestSize)), mostReceives, hit(base.BoundLoginReceives)),
		limit(base.BoundReceives.String(), 0, 0, hit(base.BoundReceives)),
		limit("results", int64(maxResults), int64(results), evicted),
		limit(base.BoundHolds.String(), holdLimit, held, hit(base.BoundHolds)),
		limit(base.BoundLoginHolds.String(), min(root.handlers.HoldShare(), holdLimit), mostHeld, hit(base.BoundLoginHolds)),
	}
}
