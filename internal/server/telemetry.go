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
	"github.com/rdmakv/rdmakv/internal/server/space"
	"github.com/rdmakv/rdmakv/internal/server/telemetry"
	"github.com/rdmakv/rdmakv/internal/server/work"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/store"
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
	return statsOf(srv, sources{srv}.Main)
}

// statsOf reads those that the clients of a space may ask for.
func statsOf(srv *Server, of func() *telemetry.Space) (Stats, error) {
	sp := of()
	if !sp.Serving {
		return Stats{}, space.ErrNotServing
	}
	return telemetry.StatsOf(sources{srv}, sp), nil
}

// NodeStatus is the node as its operator asks for it, over a session or on the admin
// port. It may be called from Start's return to Shutdown.
func (srv *Server) NodeStatus() (*wire.NodeStatus, error) {
	if !srv.main.Serving.Load() {
		return nil, space.ErrNotServing
	}
	return telemetry.StatusOf(sources{srv}), nil
}

// Spaces describes the spaces of the node, by name.
func (srv *Server) Spaces() []SpaceStat { return telemetry.Spaces(sources{srv}) }

// Tenants lists the logins of the node by name, the main one first.
func (srv *Server) Tenants() []TenantStat { return telemetry.Tenants(sources{srv}) }

// Limits lists the bounds on peers. Those of single tenants are in Tenants.
func (srv *Server) Limits() []LimitStat { return sources{srv}.Limits() }

// statsJSON is the document wire.DocumentStats of a space for a login. The spaces are those
// of tenants: who they are is for administrators to see.
func statsJSON(srv *Server, of func() *telemetry.Space, l *auth.Login) ([]byte, error) {
	st, err := statsOf(srv, of)
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
	if !n.srv.main.Serving.Load() {
		return nil, space.ErrNotServing
	}
	return telemetry.Status(n, what)
}

func (n sources) Main() *telemetry.Space {
	s := n.space(n.srv.main)
	n.tellNode(s)
	return s
}

func (n sources) Spaces() (list []*telemetry.Space) {
	for _, sp := range n.srv.spaces.tenants() {
		list = append(list, n.space(sp))
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
	node := &telemetry.Node{Logins: srv.logins.All(), Bounds: srv.bounds, Member: srv.member, Owned: srv.owned, Groups: srv.groups.Status, Meta: srv.change.Status, StoodDown: srv.main.Fence.StoodDown()}
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
	if sp := n.srv.spaces.of(l.Space); sp != nil && sp.Serving.Load() { // else its pools are being made
		list = append(list, sp.Gets, sp.Scans)
	}
	for _, w := range list {
		if w != nil { // else Start was not called
			mine, _ := w.Backlog(&l.Turns)
			queued += mine
		}
	}
	return queued
}

// space is what telemetry reads of a space.
func (n sources) space(sp *space.Space) *telemetry.Space {
	s := snapshot(sp)
	for i, r := range sp.Rails.All() {
		if !s.Serving {
			break // Start is still making the rest
		}
		s.Devices = append(s.Devices, snapshotRail(r))
		for _, p := range n.srv.devices.listening() {
			if p.dev.Device == r.Device {
				s.Devices[i].Listen = append(s.Devices[i].Listen, p.ln.Addr().String())
			}
		}
	}
	return s
}

// tellNode adds what the node tells together with its main space: the connections of
// all spaces, the node's own workers, and whether its devices reach themselves.
func (n sources) tellNode(s *telemetry.Space) {
	srv := n.srv
	s.Setups, s.Opens = srv.registry.Counts()
	if !s.Serving {
		return
	}
	s.Pools = append(s.Pools, poolsOf(srv.clusters, srv.admins)...)
	for i := range s.Devices {
		for _, d := range srv.devices.all() {
			if cm := d.cm.Load(); cm != nil && d.Device == s.Devices[i].Device {
				s.Devices[i].Tried, s.Devices[i].Answered = true, cm.err == nil
			}
		}
	}
}

// snapshot is what a space tells of itself.
func snapshot(sp *space.Space) *telemetry.Space {
	cfg := &sp.Config.Store
	s := &telemetry.Space{
		Name: sp.Name,
		Fixed: telemetry.Fixed{
			Node: sp.Config.Sessions.Name, Mode: cfg.Mode, Lease: cfg.Lease, LeaseOff: cfg.NoLease,
			HugePages: sp.Config.Memory.Huge.String(), MemoryLimit: cfg.MemoryLimit,
		},
		State: telemetry.State{
			Serving: sp.Serving.Load(), Ready: sp.Ready(), Closing: sp.Draining.Load(), Filled: sp.Filled(),
			Uptime: time.Duration(sp.Clock.Now()), Err: sp.Err(),
		},
		Counters: sp.Counters, Fill: sp.Fill.Last.Load(),
	}
	s.Blocked, _ = sp.Sessions.Gate.Waiting()
	s.Opens = sp.Sessions.Opened()
	if !s.Serving {
		return s // Start is still making the rest
	}
	s.Incarnation, s.Shards = sp.Incarnation, sp.Shards
	s.Store, s.Regions, s.Turnover, s.Staging = sp.Store, sp.Regions, sp.Turnover, sp.Staging
	s.Rotation, s.BeatAge = sp.RotationStat(), sp.BeatAge()
	s.Watches, s.Held = sp.Handlers.Watches(), sp.Handlers.Held()
	s.Growing, s.Slowed = sp.Handlers.Growing(), sp.Handlers.Slowed()
	s.Credits = sp.Sessions.Credits()
	s.Pools = poolsOf(sp.Gets, sp.Scans)
	s.Kept = keptStat(sp)
	return s
}

// keptStat is what became of the memory of the process before, and of that of this one.
func keptStat(sp *space.Space) *telemetry.KeptStat {
	if sp.Config.Keeping == nil {
		return nil
	}
	st := store.KeptStatsOf(sp.Store)
	k := &telemetry.KeptStat{Keeper: true, Bytes: st.Bytes, Believed: st.Believed, Dropped: st.Dropped, Done: st.Bytes == 0 || st.Took > 0}
	select {
	case <-sp.Config.Keeping.Keeper.Gone():
		k.Keeper = false
	default:
	}
	return k
}

func poolsOf(list ...*work.Pool) (out []telemetry.Pool) {
	for _, p := range list {
		queued, running := p.Load()
		out = append(out, telemetry.Pool{Name: p.Kind().String(), Queued: queued, Running: running})
	}
	return out
}

// snapshotRail is what telemetry reads of a rail.
func snapshotRail(r *session.Rail) telemetry.Device {
	out := telemetry.Device{Device: r.Device, Shared: r.Shared, Lanes: r.Lanes(), Sessions: r.Opens(), LastPath: r.LastPath()}
	out.Spins, out.Responder = r.Spins()
	for i, n := range r.Buffers() {
		out.Buffers[i].Total, out.Buffers[i].Used = n.Total, n.Used
	}
	return out
}

// Limits lists the bounds on peers. Those of single tenants are in Tenants.
func (n sources) Limits() []telemetry.LimitStat {
	srv, main := n.srv, n.srv.main
	setups, opens := srv.registry.Counts()
	hostSetups, hostOpens := srv.registry.Fullest()
	c := &srv.cfg
	hit := func(k base.Bound) uint64 { return srv.bounds.Hits[k].Load() }
	staging, _ := srv.line.InUse()
	queued := 0 // by the tenant that has most
	held, holdLimit := main.Store.HoldUse()
	results, maxResults, evicted := main.Store.ResultUse()
	mostHeld, mostReceives := int64(0), int64(0)
	for _, l := range srv.logins.All() {
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
		limit(telemetry.LimitSetupTime, int64(c.SetupTimeout/time.Millisecond), 0, main.Counters.Ends[base.CauseSetup].Load()),
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
		limit(base.BoundLoginStaging.String(), srv.stagingShare(), srv.line.Most(), hit(base.BoundLoginStaging)),
		limit(base.BoundStaging.String(), 0, 0, hit(base.BoundStaging)),
		limit(base.BoundLoginReceives.String(), min(main.Sessions.ReceiveShare(), c.ReceiveBytes/int64(c.RequestSize)), mostReceives, hit(base.BoundLoginReceives)),
		limit(base.BoundReceives.String(), 0, 0, hit(base.BoundReceives)),
		limit("results", int64(maxResults), int64(results), evicted),
		limit(base.BoundHolds.String(), holdLimit, held, hit(base.BoundHolds)),
		limit(base.BoundLoginHolds.String(), min(main.Handlers.HoldShare(), holdLimit), mostHeld, hit(base.BoundLoginHolds)),
	}
}
