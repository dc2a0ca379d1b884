package cluster

import (
	"cmp"
	"slices"

	"github.com/cespare/xxhash/v2"
)

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
	r.Zones, r.Meta = p.zones, p.meta()
	p.share = shares(groups*want.Replicas, lead.Nodes)
	r.Groups = p.place(groups)
	m := &Map{Cluster: id, Name: name, Version: 1, Nodes: lead.Nodes, Owner: make([]uint16, shards), Replication: r}
	for shard := range m.Owner {
		g := shard % groups
		r.Group[shard], m.Owner[shard] = uint16(g), lead.Owner[g]
	}
	return m, m.Check()
}

// ProposeAdopting draws up the map by which the shards of nodes that have keys become groups, which begin with these keys: the next one of a map without replicas, or, where a node has none, which has
// version 0 then, the first one of that node alone. The shards stay where they are. Each node gets so many groups (0: GroupsOfNode), or one for each of its shards if there are fewer; want.Replicas does not count.
//
// ErrMalformed for what cannot be.
func ProposeAdopting(from *Map, want Want) (*Map, error) {
	if from.Replication != nil || len(want.Stores) != len(from.Nodes) || want.Zones != nil && len(want.Zones) != len(from.Nodes) {
		return nil, malformed("%d stores and %d zones of %d nodes, of a map that has no groups", len(want.Stores), len(want.Zones), len(from.Nodes))
	}
	p := placing{m: from, want: want, zones: make([]string, len(from.Nodes))}
	if want.Zones != nil {
		copy(p.zones, want.Zones)
	}
	r := &Replication{Stores: slices.Clone(want.Stores), Zones: p.zones, Group: make([]uint16, len(from.Owner)), Born: from.Version + 1, Adopts: true, Meta: p.meta()}
	groups := cmp.Or(want.Groups, max(1, min(GroupsOfNode, MaxGroups/max(1, len(from.Nodes)))))
	for i, n := range from.Nodes {
		shards := from.Shards(n.ID)
		for j := range min(groups, len(shards)) {
			g := uint16(len(r.Groups))
			r.Groups = append(r.Groups, Group{ID: uint32(g) + 1, Top: 1, Replicas: []Replica{{Node: uint16(i), ID: 1}}})
			for k := j; k < len(shards); k += groups {
				r.Group[shards[k]] = g
			}
		}
	}
	m := *from
	m.Version, m.Replication = from.Version+1, r
	return &m, m.Check()
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
		list[g] = Group{ID: uint32(g + 1), Top: uint64(p.want.Replicas), Replicas: []Replica{{Node: p.m.Owner[g], ID: 1}}}
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

// meta draws the meta group: its replicas are in different zones, as far as there are enough, and at the nodes that the hash likes best.
func (p *placing) meta() *Group {
	g := &Group{}
	for want := MetaReplicas(len(p.m.Nodes)); len(g.Replicas) < want; {
		best := -1
		for i := range p.m.Nodes {
			if g.At(i) != 0 {
				continue
			}
			if best < 0 || cmp.Or(cmp.Compare(p.mates(g, i, -1), p.mates(g, best, -1)), cmp.Compare(groupScore(0, p.m.Nodes[best].ID), groupScore(0, p.m.Nodes[i].ID))) < 0 {
				best = i
			}
		}
		g.Top++
		g.Replicas = append(g.Replicas, Replica{Node: uint16(best), ID: g.Top})
	}
	return g
}

// MetaReplicas is how many replicas the meta group of so many nodes has: as many as are of use, and not more than five, because each change
// waits for a majority.
func MetaReplicas(nodes int) int {
	switch {
	case nodes < 3:
		return 1
	case nodes < 5:
		return 3
	}
	return 5
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
