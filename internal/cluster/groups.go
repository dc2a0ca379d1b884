package cluster

import (
	"cmp"
	"slices"

	"github.com/cespare/xxhash/v2"
)

// The groups that a cluster with replicas begins with. Which replicas make up a group later on, the group's own log says; the map says
// which shards a group has, for ever, and what the group began with.
//
//	shard ──Group──▶ group ──Replicas──▶ node, id of the replica there      the first one leads where it can

const (
	// MaxReplicas bounds the replicas of a group.
	MaxReplicas = 7
	// MaxGroups bounds the groups. More of them than nodes, several times over, cost syncs and win nothing.
	MaxGroups = 256
	// GroupsOfNode is how many groups there are for each node where nobody says, if there are as many shards. Two, so that those which a
	// dead node has led are shared by the others; not more, because each group makes entries of its own of the writes that come at a
	// time, and an entry costs the same whatever is in it (docs/decisions/2026-11-29-groups.md).
	GroupsOfNode = 2
)

// A Replication is how a cluster with replicas begins. It is immutable.
type Replication struct {
	// Stores are, by node, the stores that the nodes had then. A directory with another one has not promised what that
	// one has: it is no replica of the map (R18).
	Stores [][16]byte
	Group  []uint16 // by shard: index in Groups
	Groups []Group
}

// A Group is a group of shards.
type Group struct {
	ID uint32 // from 1, rising
	// Replicas are those that it begins with, on different nodes; the first one leads where it can.
	Replicas []Replica
}

// A Replica is a replica of a group at a node. Its id is never used twice in the group.
type Replica struct {
	Node uint16 // index in Map.Nodes
	ID   uint64 // from 1
}

// check holds a replication to its rules.
func (r *Replication) check(m *Map) error {
	switch {
	case len(r.Stores) != len(m.Nodes):
		return malformed("%d stores of %d nodes", len(r.Stores), len(m.Nodes))
	case len(r.Group) != len(m.Owner):
		return malformed("groups of %d shards, of %d", len(r.Group), len(m.Owner))
	case len(r.Groups) < 1 || len(r.Groups) > MaxGroups:
		return malformed("%d groups, 1 to %d are possible", len(r.Groups), MaxGroups)
	}
	for i, s := range r.Stores {
		if s == [16]byte{} || slices.Contains(r.Stores[:i], s) {
			return malformed("node %q has no store of its own", m.Nodes[i].ID)
		}
	}
	shards := make([]int, len(r.Groups))
	for shard, g := range r.Group {
		if int(g) >= len(r.Groups) {
			return malformed("shard %d belongs to group %d of %d", shard, g, len(r.Groups))
		}
		shards[g]++
		if m.Owner[shard] != r.Groups[g].first() {
			return malformed("shard %d belongs to node %d, and the first of its group is at another", shard, m.Owner[shard])
		}
	}
	for i := range r.Groups {
		g := &r.Groups[i]
		switch {
		case shards[i] == 0:
			return malformed("group %d has no shards", g.ID)
		case g.ID == 0 || i > 0 && g.ID <= r.Groups[i-1].ID:
			return malformed("group %d stands behind a group of that or a higher number", g.ID)
		case len(g.Replicas) < 1 || len(g.Replicas) > MaxReplicas:
			return malformed("group %d has %d replicas, 1 to %d are possible", g.ID, len(g.Replicas), MaxReplicas)
		}
		for j, p := range g.Replicas {
			if p.ID == 0 || int(p.Node) >= len(m.Nodes) {
				return malformed("group %d has replica %d at node %d of %d", g.ID, p.ID, p.Node, len(m.Nodes))
			}
			for _, o := range g.Replicas[:j] {
				if o.ID == p.ID || o.Node == p.Node {
					return malformed("group %d has replicas %d and %d at nodes %d and %d: both must differ", g.ID, o.ID, p.ID, o.Node, p.Node)
				}
			}
		}
	}
	return nil
}

// first is the node of the first replica; out of range of any map if there is none.
func (g *Group) first() uint16 {
	if len(g.Replicas) == 0 {
		return 1<<16 - 1
	}
	return g.Replicas[0].Node
}

// At returns the replica that a group has at a node; 0: none.
func (g *Group) At(node int) uint64 {
	for _, p := range g.Replicas {
		if int(p.Node) == node {
			return p.ID
		}
	}
	return 0
}

// ShardsOf returns the shards of the group at an index, rising.
func (r *Replication) ShardsOf(group int) (shards []uint16) {
	for shard, g := range r.Group {
		if int(g) == group {
			shards = append(shards, uint16(shard))
		}
	}
	return shards
}

// appendReplication appends what a map of format 2 has behind its owners:
//
//	┌groups┐  per node: ┌store┐  per shard: ┌group┐  per group: ┌id┬many┬ per replica: node, id ┐
//	└2     ┘            └16   ┘             └2    ┘             └4 ┴1   ┴ 2 + 8 each            ┘
func appendReplication(dst []byte, r *Replication) []byte {
	dst = le.AppendUint16(dst, uint16(len(r.Groups)))
	for i := range r.Stores {
		dst = append(dst, r.Stores[i][:]...)
	}
	for _, g := range r.Group {
		dst = le.AppendUint16(dst, g)
	}
	for i := range r.Groups {
		g := &r.Groups[i]
		dst = append(le.AppendUint32(dst, g.ID), byte(len(g.Replicas)))
		for _, p := range g.Replicas {
			dst = le.AppendUint64(le.AppendUint16(dst, p.Node), p.ID)
		}
	}
	return dst
}

// maxReplication bounds its bytes.
const maxReplication = 2 + MaxNodes*16 + MaxShards*2 + MaxGroups*(5+MaxReplicas*10)

// replication reads it, of a map of so many nodes and shards.
func (f *fields) replication(nodes, shards int) *Replication {
	r := &Replication{}
	groups := int(f.u16())
	if groups > MaxGroups {
		f.fail(malformed("a shard map of %d groups, at most %d", groups, MaxGroups))
	}
	if f.room(nodes, 16) {
		r.Stores = make([][16]byte, nodes)
		for i := range r.Stores {
			copy(r.Stores[i][:], f.take(16))
		}
	}
	if f.room(shards, 2) {
		r.Group = make([]uint16, shards)
		for i := range r.Group {
			r.Group[i] = f.u16()
		}
	}
	for i := 0; i < groups && f.err == nil; i++ {
		g := Group{ID: f.u32()}
		many := int(f.u8())
		if many > MaxReplicas {
			f.fail(malformed("group %d of %d replicas, at most %d", g.ID, many, MaxReplicas))
		}
		for j := 0; j < many && f.err == nil; j++ {
			g.Replicas = append(g.Replicas, Replica{Node: f.u16(), ID: f.u64()})
		}
		r.Groups = append(r.Groups, g)
	}
	return r
}

// A Want is what a cluster with replicas is to be like.
type Want struct {
	Replicas int        // of each group, on different nodes
	Groups   int        // 0: GroupsOfNode for each node, or one for each shard if there are fewer
	Stores   [][16]byte // by node, in the order of the nodes that are handed over
	Zones    []string   // likewise: replicas of a group are in different ones, as far as there are enough; nil: all are in one
}

// ProposeReplicas draws up the first map of a cluster with replicas, the same for the same nodes in whatever order they are named.
// Shards go to groups in turn. Each node leads its fair share of the groups, as it would own shards (Propose), and has its fair share
// of the replicas, both by weight; which groups, rendezvous hashing says, within what zones ask for.
//
// ErrMalformed as of Propose, and for fewer nodes than replicas, or more groups than shards.
func ProposeReplicas(id [16]byte, name string, shards int, nodes []MapNode, want Want) (*Map, error) {
	switch {
	case want.Replicas < 1 || want.Replicas > MaxReplicas || want.Replicas%2 == 0:
		return nil, malformed("%d replicas: 1, 3, 5 or 7 are possible, because an even number bears no more losses than one less", want.Replicas)
	case len(nodes) < want.Replicas:
		return nil, malformed("%d nodes for %d replicas: each replica of a group is on a node of its own", len(nodes), want.Replicas)
	case len(want.Stores) != len(nodes) || want.Zones != nil && len(want.Zones) != len(nodes):
		return nil, malformed("%d stores and %d zones of %d nodes", len(want.Stores), len(want.Zones), len(nodes))
	}
	groups := cmp.Or(want.Groups, min(GroupsOfNode*len(nodes), MaxGroups, shards))
	if groups < 1 || groups > min(MaxGroups, shards) {
		return nil, malformed("%d groups of %d shards: 1 to %d are possible", groups, shards, min(MaxGroups, shards))
	}
	byID := make([]int, len(nodes)) // as the map has them
	for i := range byID {
		byID[i] = i
	}
	slices.SortFunc(byID, func(a, b int) int { return cmp.Compare(nodes[a].ID, nodes[b].ID) })
	// Who leads is drawn as who owns, with groups in the place of shards.
	lead, err := propose(id, name, groups, nodes)
	if err != nil {
		return nil, err
	}
	p := placing{m: lead, want: want, zones: make([]string, len(nodes)), has: make([]int, len(nodes))}
	r := &Replication{Group: make([]uint16, shards)}
	for i, from := range byID {
		r.Stores = append(r.Stores, want.Stores[from])
		if want.Zones != nil {
			p.zones[i] = want.Zones[from]
		}
	}
	p.share = shares(groups*want.Replicas, lead.Nodes)
	r.Groups = p.place(groups)
	m := &Map{Cluster: id, Name: name, Version: 1, Nodes: lead.Nodes, Owner: make([]uint16, shards), Replication: r}
	for shard := range m.Owner {
		g := shard % groups
		r.Group[shard], m.Owner[shard] = uint16(g), lead.Owner[g]
	}
	return m, m.Check()
}

// A placing is a proposal on its way.
type placing struct {
	m     *Map // of groups in the place of shards: who leads
	want  Want
	zones []string // by node
	share []int    // by node: of all replicas
	has   []int
}

// place draws the replicas of so many groups: the leaders', then each group's second, and so on, so that a group finds as much to
// choose from as another.
func (p *placing) place(groups int) []Group {
	list := make([]Group, groups)
	for g := range list {
		list[g] = Group{ID: uint32(g + 1), Replicas: []Replica{{Node: p.m.Owner[g], ID: 1}}}
		p.has[p.m.Owner[g]]++
	}
	for n := 1; n < p.want.Replicas; n++ {
		for g := range list {
			node := p.best(&list[g])
			p.has[node]++
			list[g].Replicas = append(list[g].Replicas, Replica{Node: uint16(node), ID: uint64(n + 1)})
		}
	}
	for p.even(list) {
	}
	return list
}

// even moves one replica that follows from a node above its share to one below it, where no zone speaks against it; false: there is none.
// Groups that come last find only nodes that are full, and take more of them than need be.
func (p *placing) even(list []Group) bool {
	for g := range list {
		for n := 1; n < len(list[g].Replicas); n++ {
			from := int(list[g].Replicas[n].Node)
			if p.has[from] <= p.share[from] {
				continue
			}
			for to := range p.m.Nodes {
				if p.has[to] < p.share[to] && list[g].At(to) == 0 && p.mates(&list[g], to, from) <= p.mates(&list[g], from, from) {
					list[g].Replicas[n].Node = uint16(to)
					p.has[from]--
					p.has[to]++
					return true
				}
			}
		}
	}
	return false
}

// mates is how many replicas of a group, but for the one at a node, are in the zone of a node.
func (p *placing) mates(g *Group, node, but int) (n int) {
	for _, o := range g.Replicas {
		if int(o.Node) != but && p.zones[o.Node] == p.zones[node] {
			n++
		}
	}
	return n
}

// best is the node for another replica of a group: in a zone that the group is not in, below its share, and among those the one that
// the hash likes best. What cannot be is left out in that order, from behind.
func (p *placing) best(g *Group) (node int) {
	type rank struct {
		zone, full, over int
		score            uint64
	}
	better := func(a, b rank) bool {
		return cmp.Or(cmp.Compare(a.zone, b.zone), cmp.Compare(a.full, b.full), cmp.Compare(a.over, b.over), cmp.Compare(b.score, a.score)) < 0
	}
	node = -1
	var most rank
	for i := range p.m.Nodes {
		if g.At(i) != 0 {
			continue
		}
		r := rank{score: groupScore(g.ID, p.m.Nodes[i].ID), zone: p.mates(g, i, -1)}
		if r.over = max(0, p.has[i]+1-p.share[i]); r.over > 0 {
			r.full = 1
		}
		if node < 0 || better(r, most) {
			node, most = i, r
		}
	}
	return node
}

// groupScore is the rendezvous score of a group and a node.
func groupScore(group uint32, node string) uint64 {
	var buf [4 + 1 + MaxName]byte
	le.PutUint32(buf[:], group)
	buf[4] = 'g'
	n := copy(buf[5:], node)
	return xxhash.Sum64(buf[:5+n])
}
