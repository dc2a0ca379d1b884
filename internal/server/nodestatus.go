package server

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/version"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/store/layout"
)

// NodeStatus is the node as its operator asks for it, over a session or on the
// admin port. It may be called from Start's return to Shutdown.
func (srv *Server) NodeStatus() (*wire.NodeStatus, error) {
	srv = srv.root
	if !srv.serving.Load() {
		return nil, errNotServing
	}
	now := time.Now()
	view, retired := srv.store.View(), srv.store.RetiredRegions()
	lag := srv.store.Lag()
	st := &wire.NodeStatus{
		Version: version.Of("kvserver").Version, Incarnation: hex64(srv.incarnation),
		Uptime: time.Duration(srv.now()).Seconds(), Time: now.UTC(), Ready: srv.Ready(), Filled: srv.Filled(),
		Map:     wire.MapStatus{State: wire.MapNone.String()},
		Shards:  wire.ShardStatus{Total: srv.shards, List: []uint16{}},
		Lag:     wire.LagStatus{Unpublished: lag.Unpublished, NotDurable: lag.NotDurable, NotPublished: lag.NotPublished},
		Spaces:  len(srv.everySpace()) - 1,
		Regions: wire.RegionStatus{Retired: len(retired), ViewVersion: view.Version},
		Memory:  wire.MemoryStatus{Limit: srv.cfg.MemoryLimit},
	}
	if !srv.cfg.LeaseOff {
		st.LeaseMS = srv.cfg.Lease.Milliseconds()
	}
	st.BeatAgeMS = srv.beatAge().Milliseconds()
	for _, r := range view.Regions {
		if r.Kind == layout.KindIndex {
			st.Regions.Index++
		} else {
			st.Regions.Items++
		}
		st.Regions.Bytes += r.Length
	}
	for _, l := range srv.logins.list() {
		if l.Name != "" {
			st.Tenants++
		}
	}
	used, _ := srv.regions.bytes()
	st.Memory.Used = uint64(used)
	srv.sessMu.Lock()
	st.Sessions = srv.opens
	srv.sessMu.Unlock()
	for _, p := range srv.portList() {
		st.Fabrics = append(st.Fabrics, p.dev.name()+" at "+p.ln.Addr().String()+p.dev.state())
	}
	if t := srv.RegionTable(srv.cfg.Name); t != nil {
		st.Table = wire.TableStatus{Version: t.Version, Digest: hex64(t.Digest()), Regions: len(t.Regions)}
	}
	if srv.cluster == nil {
		st.Shards.Owned = srv.shards
		for shard := range uint16(srv.shards) {
			st.Shards.List = append(st.Shards.List, shard)
		}
		st.Endpoints = endpointTexts(srv.endpoints(nil, ""))
		return st, nil
	}
	srv.cluster.status(st)
	return st, nil
}

// status fills in what a node of a cluster has beside.
func (c *clustered) status(st *wire.NodeStatus) {
	st.NodeID, st.ClusterName = c.id.Node, c.id.Cluster
	state, digest := c.mapState()
	st.Map.State = state.String()
	if m := cmp.Or(c.book.Map(), c.book.Promised()); m != nil {
		st.Map.Version, st.Map.Digest = m.Version, hex64(digest)
		st.ClusterID = fmt.Sprintf("%x", m.Cluster)
	}
	if own := c.owned.Load(); own != nil {
		st.Shards.List = append(st.Shards.List, own.m.Shards(c.id.Node)...)
		st.Shards.Owned = len(st.Shards.List)
	}
	v, s, keys := c.members.View(), c.members.Stats(), c.gossipKeys()
	st.View.Version = v.Version
	g := &wire.GossipStatus{
		Addr: c.gossipAddr(), Encrypted: len(keys.Keys) > 0, KeyDigests: keys.Keys,
		WrongKey: s.WrongKey, WrongCluster: s.WrongCluster, NotAllowed: s.NotAllowed, Conflicts: s.Conflicts,
		JoinErrors: s.JoinErrors, Health: s.Health, Tables: s.Tables,
	}
	g.Unproved = s.Unproved
	for _, x := range s.Open {
		g.Open = append(g.Open, wire.ConflictStatus{Node: x.Node, Addrs: x.Addrs, Proved: x.Proved, Over: x.Over, First: x.First, Last: x.Last})
	}
	if r := s.LastRefused; r.Why != "" {
		g.LastRefused = fmt.Sprintf("%s %s: %s", r.Time.UTC().Format(time.RFC3339), r.Addr, r.Why)
	}
	if r := s.LastConflict; r.Why != "" {
		g.LastConflict = fmt.Sprintf("%s %s: %s", r.Time.UTC().Format(time.RFC3339), r.Addr, r.Why)
	}
	for i := range v.Members {
		m := &v.Members[i]
		if m.ID == v.Self {
			st.Endpoints = endpointTexts(m.Endpoints)
		}
		g.Members = append(g.Members, wire.MemberStatus{
			ID: m.ID, State: m.State.String(), Since: m.Since, Gossip: m.Gossip, Incarnation: hex64(m.Incarnation),
			Endpoints: endpointTexts(m.Endpoints), MapVersion: m.MapVersion, MapDigest: hex64(m.MapDigest), Regions: m.Regions,
			TableVersion: m.TableVersion, TableDigest: hex64(m.TableDigest),
		})
	}
	st.Gossip = g
}

// stat is the short form, for Stats; nil on a server that is alone.
func (c *clustered) stat() *ClusterStat {
	if c == nil {
		return nil
	}
	state, digest := c.mapState()
	st := &ClusterStat{Node: c.id.Node, Cluster: c.id.Cluster, Map: state.String(), MapDigest: hex64(digest), Members: make(map[string]int)}
	if own := c.owned.Load(); own != nil {
		st.MapVersion, st.Shards = own.m.Version, len(own.m.Shards(c.id.Node))
	}
	for state, n := range c.members.Stats().Members {
		st.Members[state.String()] = n
	}
	return st
}

func hex64(v uint64) string { return fmt.Sprintf("%016x", v) }

func endpointTexts(list []cluster.Endpoint) []string {
	out := make([]string, 0, len(list))
	for _, e := range list {
		out = append(out, e.String())
	}
	return out
}

// adminStatus is wire.AdminStatus: "" asks for the node, "table NODE" for the
// region table that it has of a node.
func (srv *Server) adminStatus(what string) (any, error) {
	node, ok := strings.CutPrefix(what, "table ")
	switch {
	case what == "":
		return srv.NodeStatus()
	case !ok:
		return nil, refuseAdmin(wire.StatusBadRequest, "%q: want nothing, or table NODE", what)
	}
	t := srv.RegionTable(srv.cfg.Name)
	if c := srv.cluster; c != nil {
		t = c.members.Table(node)
	}
	if t == nil || t.Node != node {
		return nil, refuseAdmin(wire.StatusNotFound, "this node has no region table of %q", node)
	}
	out := wire.TableAnswer{
		Node: t.Node, Incarnation: hex64(t.Incarnation), Version: t.Version, Digest: hex64(t.Digest()),
		Devices: t.Devices, Regions: make([]wire.TableRegion, 0, len(t.Regions)),
	}
	for _, r := range t.Regions {
		reg := wire.TableRegion{ID: r.ID, Kind: r.Kind, State: r.State.String(), Base: r.Base, Length: r.Length, Keys: []wire.TableKey{}}
		for _, k := range r.Keys {
			reg.Keys = append(reg.Keys, wire.TableKey{Device: k.Device, Addr: k.Addr, RKey: k.RKey})
		}
		out.Regions = append(out.Regions, reg)
	}
	return out, nil
}

// clusterOp returns the operation of that number; nil if it is none of these.
func clusterOp(op wire.AdminOp) func(srv *Server, name string) (any, error) {
	switch op {
	case wire.AdminStatus:
		return (*Server).adminStatus
	case wire.AdminGossipKeys:
		return (*Server).adminGossipKeys
	}
	return nil
}

// Name is what this node calls itself: in a cluster its id.
func (srv *Server) Name() string { return srv.cfg.Name }
