package cluster

import (
	"cmp"
	"maps"
	"math"
	"slices"
)

// A Draft is a map with a meta group that is being changed: nodes are named in it, where a map has indexes, which move with every node that comes
// or goes. It is not safe for concurrent use.
type Draft struct {
	Nodes  map[string]DraftNode // by id
	Groups []DraftGroup         // the meta group first, then by id, rising; which there are changes by Recover alone
}

// A DraftNode is a node of a draft.
type DraftNode struct {
	Weight uint32
	Store  [16]byte
	Zone   string
}

// A DraftGroup is a group of a draft.
type DraftGroup struct {
	ID       uint32
	Was      uint32 // as in Group, and likewise the next two
	Times    uint16
	Phase    Phase
	Top      uint64
	Replicas []DraftReplica // the preferred leader first
}

// A DraftReplica is a replica of a draft.
type DraftReplica struct {
	Node   string
	ID     uint64
	Leaves bool
}

// Draft returns the map as a draft. It shares no memory with it. nil: the map has no meta group, and can never be changed.
func (m *Map) Draft() *Draft {
	r := m.Replication
	if r == nil || r.Meta == nil {
		return nil
	}
	d := &Draft{Nodes: make(map[string]DraftNode, len(m.Nodes))}
	for i, n := range m.Nodes {
		d.Nodes[n.ID] = DraftNode{Weight: n.Weight, Store: r.Stores[i], Zone: r.Zones[i]}
	}
	for _, g := range append([]Group{*r.Meta}, r.Groups...) {
		one := DraftGroup{ID: g.ID, Was: g.Was, Times: g.Times, Phase: g.Phase, Top: g.Top}
		for _, p := range g.Replicas {
			one.Replicas = append(one.Replicas, DraftReplica{Node: m.Nodes[p.Node].ID, ID: p.ID, Leaves: p.Leaves})
		}
		d.Groups = append(d.Groups, one)
	}
	return d
}

// Map returns what the draft makes of the map that it was drawn from, one version later. ErrMalformed: what the draft says no map can.
func (d *Draft) Map(from *Map) (*Map, error) {
	m := &Map{Cluster: from.Cluster, Name: from.Name, Version: from.Version + 1, Owner: make([]uint16, len(from.Owner))}
	r := &Replication{Group: make([]uint16, len(from.Replication.Group)), Lives: slices.Clone(from.Replication.Lives), Born: from.Replication.Born, Adopts: from.Replication.Adopts}
	index := make(map[string]uint16, len(d.Nodes))
	for _, id := range slices.Sorted(maps.Keys(d.Nodes)) {
		n := d.Nodes[id]
		index[id] = uint16(len(m.Nodes))
		m.Nodes = append(m.Nodes, MapNode{ID: id, Weight: n.Weight})
		r.Stores, r.Zones = append(r.Stores, n.Store), append(r.Zones, n.Zone)
	}
	if len(m.Nodes) > MaxNodes {
		return nil, malformed("a shard map of %d nodes, 1 to %d are possible", len(m.Nodes), MaxNodes)
	}
	for i := range d.Groups {
		one := &d.Groups[i]
		g := Group{ID: one.ID, Was: one.Was, Times: one.Times, Phase: one.Phase, Top: one.Top}
		for _, p := range one.Replicas {
			at, ok := index[p.Node]
			if !ok {
				return nil, malformed("group %d has a replica at node %q, which is not in the shard map", one.ID, clip(p.Node))
			}
			g.Replicas = append(g.Replicas, Replica{Node: at, ID: p.ID, Leaves: p.Leaves})
		}
		if i == 0 {
			r.Meta = &g
		} else {
			r.Groups = append(r.Groups, g)
		}
	}
	at := make([]int, len(from.Replication.Groups)) // where a group of before is now
	for i := range from.Replication.Groups {
		id := from.Replication.Groups[i].ID
		if at[i] = slices.IndexFunc(r.Groups, func(g Group) bool { return g.ID == id }); at[i] < 0 {
			at[i] = slices.IndexFunc(r.Groups, func(g Group) bool { return g.follows(&from.Replication.Groups[i]) })
		}
	}
	for shard, was := range from.Replication.Group {
		g := at[was]
		if g < 0 {
			return nil, malformed("shard %d belongs to group %d, which is gone", shard, from.Replication.Groups[was].ID)
		}
		r.Group[shard] = uint16(g)
		m.Owner[shard] = r.Groups[g].first()
	}
	m.Replication = r
	return m, m.Check()
}

// Group returns the group of an id; nil: there is none.
func (d *Draft) Group(id uint32) *DraftGroup {
	i, ok := slices.BinarySearchFunc(d.Groups, id, func(g DraftGroup, id uint32) int { return cmp.Compare(g.ID, id) })
	if !ok {
		return nil
	}
	return &d.Groups[i]
}

// Recover has a new group take the place of one, with its shards, whose only replica is at a node, and returns its id. It is made of what the node has of group was: of the one whose place it takes, of
// which the node has a replica by the draft; or, if that one was made of another group and is lost again, of what the node has kept of the group before (Group.Was). 0: there is no such group with
// shards, or no such replica, or no id is left.
func (d *Draft) Recover(id uint32, node string, was uint32) uint32 {
	i := slices.IndexFunc(d.Groups, func(g DraftGroup) bool { return g.ID == id && id != 0 })
	if i < 0 || d.Groups[len(d.Groups)-1].ID == math.MaxUint32 || d.Groups[i].Times == math.MaxUint16 {
		return 0
	}
	g := &d.Groups[i]
	if _, in := d.Nodes[node]; !in || was == id && g.At(node) == nil || was != id && (g.Was == 0 || was < g.Was || was > id) {
		return 0
	}
	next := DraftGroup{ID: d.Groups[len(d.Groups)-1].ID + 1, Was: was, Times: g.Times + 1}
	next.Add(node)
	d.Groups = append(slices.Delete(d.Groups, i, i+1), next)
	return next.ID
}

// At returns the replica that a group has at a node; nil: none.
func (g *DraftGroup) At(node string) *DraftReplica {
	for i := range g.Replicas {
		if g.Replicas[i].Node == node {
			return &g.Replicas[i]
		}
	}
	return nil
}

// Replica returns the replica of an id; nil: the group has none of that id now.
func (g *DraftGroup) Replica(id uint64) *DraftReplica {
	for i := range g.Replicas {
		if g.Replicas[i].ID == id {
			return &g.Replicas[i]
		}
	}
	return nil
}

// Add gives a group another replica, of an id that none of it ever had, and returns that id.
func (g *DraftGroup) Add(node string) uint64 {
	g.Top++
	g.Replicas = append(g.Replicas, DraftReplica{Node: node, ID: g.Top})
	return g.Top
}

// Take takes a replica out. If it was the preferred leader, heir is that from now on; 0: the next one is.
func (g *DraftGroup) Take(id, heir uint64) {
	first := len(g.Replicas) > 0 && g.Replicas[0].ID == id
	g.Replicas = slices.DeleteFunc(g.Replicas, func(p DraftReplica) bool { return p.ID == id })
	if i := slices.IndexFunc(g.Replicas, func(p DraftReplica) bool { return p.ID == heir }); first && i > 0 {
		p := g.Replicas[i]
		g.Replicas = slices.Insert(slices.Delete(g.Replicas, i, i+1), 0, p)
	}
}
