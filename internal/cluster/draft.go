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
	Spaces []DraftSpace         // by number, rising
	Last   uint32               // as in Replication
}

// A DraftSpace is a space of a draft.
type DraftSpace struct {
	ID     uint32
	Name   string
	Memory uint64
	Groups []DraftGroup // by position
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
	d.Groups, d.Last = append(m.drafts([]Group{*r.Meta}), m.drafts(r.Groups)...), r.Last
	for i := range r.Spaces {
		s := &r.Spaces[i]
		d.Spaces = append(d.Spaces, DraftSpace{ID: s.ID, Name: s.Name, Memory: s.Memory, Groups: m.drafts(s.Groups)})
	}
	return d
}

// drafts are groups of the map with its nodes named.
func (m *Map) drafts(groups []Group) (list []DraftGroup) {
	for _, g := range groups {
		one := DraftGroup{ID: g.ID, Was: g.Was, Times: g.Times, Phase: g.Phase, Top: g.Top}
		for _, p := range g.Replicas {
			one.Replicas = append(one.Replicas, DraftReplica{Node: m.Nodes[p.Node].ID, ID: p.ID, Leaves: p.Leaves})
		}
		list = append(list, one)
	}
	return list
}

// Map returns what the draft makes of the map that it was drawn from, one version later. ErrMalformed: what the draft says no map can.
func (d *Draft) Map(from *Map) (*Map, error) {
	m := &Map{Cluster: from.Cluster, Name: from.Name, Version: from.Version + 1, Owner: make([]uint16, len(from.Owner))}
	r := &Replication{Group: make([]uint16, len(from.Replication.Group)), Lives: slices.Clone(from.Replication.Lives), Born: from.Replication.Born, Adopts: from.Replication.Adopts, Last: d.Last}
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
	groups, err := placed(d.Groups, index)
	if err != nil {
		return nil, err
	}
	r.Meta, r.Groups = &groups[0], groups[1:]
	for i := range d.Spaces {
		one := &d.Spaces[i]
		s := Space{ID: one.ID, Name: one.Name, Memory: one.Memory}
		if s.Groups, err = placed(one.Groups, index); err != nil {
			return nil, err
		}
		r.Spaces = append(r.Spaces, s)
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

// placed are groups of a draft with nodes by their index.
func placed(groups []DraftGroup, index map[string]uint16) (list []Group, err error) {
	for i := range groups {
		one := &groups[i]
		g := Group{ID: one.ID, Was: one.Was, Times: one.Times, Phase: one.Phase, Top: one.Top}
		for _, p := range one.Replicas {
			at, ok := index[p.Node]
			if !ok {
				return nil, malformed("group %d has a replica at node %q, which is not in the shard map", one.ID, clip(p.Node))
			}
			g.Replicas = append(g.Replicas, Replica{Node: at, ID: p.ID, Leaves: p.Leaves})
		}
		list = append(list, g)
	}
	return list, nil
}

// Group returns the group of an id, one of a space among them; nil: there is none.
func (d *Draft) Group(id uint32) *DraftGroup {
	i, ok := slices.BinarySearchFunc(d.Groups, id, func(g DraftGroup, id uint32) int { return cmp.Compare(g.ID, id) })
	if ok {
		return &d.Groups[i]
	}
	for i := range d.Spaces {
		for j := range d.Spaces[i].Groups {
			if g := &d.Spaces[i].Groups[j]; g.ID == id {
				return g
			}
		}
	}
	return nil
}

// Space returns the space of a name; nil: there is none.
func (d *Draft) Space(name string) *DraftSpace {
	for i := range d.Spaces {
		if d.Spaces[i].Name == name {
			return &d.Spaces[i]
		}
	}
	return nil
}

// numbersOfGeneration is how many numbers of groups and spaces are left out when the meta group is made anew: those that the lost replicas have given out behind what is known are below.
const numbersOfGeneration = 1 << 16

// Gap leaves numbers of groups and spaces out, because the meta group is made anew. false: none are left.
func (d *Draft) Gap() bool {
	if d.Last > math.MaxUint32-2*numbersOfGeneration {
		return false
	}
	if d.Last != 0 { // else AddSpace does it, which begins the row
		d.Last += numbersOfGeneration
	}
	return true
}

// number is one that no group and no space ever had; 0: none is left.
func (d *Draft) number() uint32 {
	last := max(d.Last, d.Groups[len(d.Groups)-1].ID)
	if last == math.MaxUint32 {
		return 0
	}
	if d.Last != 0 {
		d.Last = last + 1
	}
	return last + 1
}

// AddSpace has a space of a name come into a draft of a map, with so many groups, whose replicas are where those are that stay of the groups beside which they run. nil: there is one of that name, or no number is left. Whether
// name and number are possible Map says.
func (d *Draft) AddSpace(m *Map, name string, groups int, memory uint64) *DraftSpace {
	if d.Space(name) != nil || groups < 1 || groups > len(m.Owner) {
		return nil
	}
	if d.Last == 0 {
		last := uint64(d.Groups[len(d.Groups)-1].ID) + uint64(m.Generation())*numbersOfGeneration
		if last > math.MaxUint32 {
			return nil
		}
		d.Last = uint32(last)
	}
	s := DraftSpace{ID: d.number(), Name: name, Memory: memory}
	for k := range groups {
		g := DraftGroup{ID: d.number()}
		if g.ID == 0 {
			return nil
		}
		for _, p := range d.Beside(m, k).Replicas {
			if !p.Leaves {
				g.Add(p.Node)
			}
		}
		s.Groups = append(s.Groups, g)
	}
	d.Spaces = append(d.Spaces, s)
	return &d.Spaces[len(d.Spaces)-1]
}

// Beside is as Replication.Beside of the map that the draft was drawn from, or of one whose shards have the same groups.
func (d *Draft) Beside(m *Map, position int) *DraftGroup {
	return d.Group(m.Replication.Beside(position).ID)
}

// DropSpace takes a space out; false: there is none of that name.
func (d *Draft) DropSpace(name string) bool {
	before := len(d.Spaces)
	d.Spaces = slices.DeleteFunc(d.Spaces, func(s DraftSpace) bool { return s.Name == name })
	return len(d.Spaces) < before
}

// Recover has a new group take the place of one, with its shards, whose only replica is at a node, and returns its id. It is made of what the node has of group was: of the one whose place it takes, of
// which the node has a replica by the draft; or, if that one was made of another group and is lost again, of what the node has kept of the group before (Group.Was). 0: there is no such group with
// shards, or no such replica, or no id is left.
func (d *Draft) Recover(id uint32, node string, was uint32) uint32 {
	g := d.Group(id)
	if g == nil || id == 0 || g.Times == math.MaxUint16 {
		return 0
	}
	if _, in := d.Nodes[node]; !in || was == id && g.At(node) == nil || was != id && (g.Was == 0 || was < g.Was || was > id) {
		return 0
	}
	next := DraftGroup{ID: d.number(), Was: was, Times: g.Times + 1}
	if next.ID == 0 {
		return 0
	}
	next.Add(node)
	if i := slices.IndexFunc(d.Groups, func(g DraftGroup) bool { return g.ID == id }); i >= 0 {
		d.Groups = append(slices.Delete(d.Groups, i, i+1), next)
	} else {
		*g = next // a group of a space keeps its position
	}
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
