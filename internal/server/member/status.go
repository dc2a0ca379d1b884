package member

import (
	"cmp"
	"fmt"
	"time"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// A Stat is a node's part in its cluster.
type Stat struct {
	Node       string         `json:"node"`
	Cluster    string         `json:"cluster"`
	Map        string         `json:"map"` // none, prepared, committed
	MapVersion uint64         `json:"map_version"`
	MapDigest  string         `json:"map_digest"`
	Shards     int            `json:"shards_owned"`
	Members    map[string]int `json:"members"` // by state, as gossip sees them
}

// Status fills in what a node of a cluster has beside.
func (c *Member) Status(st *wire.NodeStatus) {
	st.NodeID, st.ClusterName = c.id.Node, c.id.Cluster
	state, digest := c.MapState()
	st.Map.State = state.String()
	if m := cmp.Or(c.book.Map(), c.book.Promised()); m != nil {
		st.Map.Version, st.Map.Digest = m.Version, wire.Hex64(digest)
		st.ClusterID = fmt.Sprintf("%x", m.Cluster)
	}
	if own := c.owned.Shards(); own != nil {
		st.Shards.List = append(st.Shards.List, own.Map.Shards(c.id.Node)...)
		st.Shards.Owned = len(st.Shards.List)
	}
	v, s, keys := c.members.View(), c.members.Stats(), c.keyDigests()
	st.View.Version = v.Version
	g := &wire.GossipStatus{
		Addr: c.Addr(), Encrypted: len(keys.Keys) > 0, KeyDigests: keys.Keys,
		WrongKey: s.WrongKey, WrongCluster: s.WrongCluster, NotAllowed: s.NotAllowed, Conflicts: s.Conflicts,
		JoinErrors: s.JoinErrors, TCPOnly: s.TCPOnly, Health: s.Health, Tables: s.Tables,
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
			st.Endpoints = EndpointTexts(m.Endpoints)
		}
		g.Members = append(g.Members, wire.MemberStatus{
			ID: m.ID, State: m.State.String(), Since: m.Since, Gossip: m.Gossip, Incarnation: wire.Hex64(m.Incarnation),
			Endpoints: EndpointTexts(m.Endpoints), MapVersion: m.MapVersion, MapDigest: wire.Hex64(m.MapDigest), Regions: m.Regions,
			TableVersion: m.TableVersion, TableDigest: wire.Hex64(m.TableDigest), Reads: m.Reads,
		})
	}
	st.Gossip, st.Levels = g, c.Levels.status()
}

// Stat is the short form, for Stats; nil on a server that is alone.
func (c *Member) Stat() *Stat {
	if c == nil {
		return nil
	}
	state, digest := c.MapState()
	st := &Stat{Node: c.id.Node, Cluster: c.id.Cluster, Map: state.String(), MapDigest: wire.Hex64(digest), Members: make(map[string]int)}
	if own := c.owned.Shards(); own != nil {
		st.MapVersion, st.Shards = own.Map.Version, len(own.Map.Shards(c.id.Node))
	}
	for state, n := range c.members.Stats().Members {
		st.Members[state.String()] = n
	}
	return st
}

// EndpointTexts are endpoints as people read them.
func EndpointTexts(list []cluster.Endpoint) []string {
	out := make([]string, 0, len(list))
	for _, e := range list {
		out = append(out, e.String())
	}
	return out
}
