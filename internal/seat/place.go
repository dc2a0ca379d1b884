package seat

import (
	"cmp"
	"maps"
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/rdmakv/rdmakv/internal/cluster"
)

// Where replicas go. Each node is to have its share of the replicas by weight, each group is to be in as many zones as it can, and among the
// nodes that are as good in both rendezvous hashing chooses, so that few groups move when nodes come and go.

// A placing is a draft in which replicas are moved at once, to find out where they are to go.
type placing struct {
	nodes  map[string]cluster.DraftNode // that may get replicas
	names  []string                     // of these, rising
	groups []cluster.DraftGroup         // with the replicas that do not leave
	has    map[string]int               // replicas of groups with shards, by node
	share  map[string]int
}

// newPlacing begins with what a draft comes to when all that leaves has left; out are nodes that are to have nothing.
func newPlacing(d *cluster.Draft, out ...string) *placing {
	p := &placing{nodes: maps.Clone(d.Nodes), has: make(map[string]int)}
	for _, n := range out {
		delete(p.nodes, n)
	}
	p.names = slices.Sorted(maps.Keys(p.nodes))
	for _, g := range d.Groups {
		g.Replicas = slices.DeleteFunc(slices.Clone(g.Replicas), func(r cluster.DraftReplica) bool { return r.Leaves })
		p.groups = append(p.groups, g)
		for _, r := range g.Replicas {
			if g.ID != 0 {
				p.has[r.Node]++
			}
		}
	}
	total := 0
	for _, g := range p.groups[1:] {
		total += len(g.Replicas)
	}
	p.share = shares(p.nodes, total, len(p.groups)-1, p.has) // a node has one replica of a group at most
	return p
}

// shares gives each node its share of so many things: by weight, rounded down or up (largest remainder, then who has more above that already, so that nothing goes from a node to
// another one for nothing, then the lower id), and never more than most.
func shares(nodes map[string]cluster.DraftNode, total, most int, has map[string]int) map[string]int {
	share := make(map[string]int, len(nodes))
	left := slices.Sorted(maps.Keys(nodes))
	for len(left) > 0 {
		var sum uint64
		for _, n := range left {
			sum += uint64(nodes[n].Weight)
		}
		part := func(n string) uint64 { return uint64(total) * uint64(nodes[n].Weight) }
		// Who would get more than most gets that, and the others share the rest.
		if i := slices.IndexFunc(left, func(n string) bool { return part(n) > uint64(most)*sum }); i >= 0 {
			share[left[i]] = most
			total -= most
			left = slices.Delete(left, i, i+1)
			continue
		}
		rest := total
		for _, n := range left {
			share[n] = int(part(n) / sum)
			rest -= share[n]
		}
		slices.SortStableFunc(left, func(a, b string) int {
			return cmp.Or(cmp.Compare(part(b)%sum, part(a)%sum), cmp.Compare(has[b]-share[b], has[a]-share[a]))
		})
		for _, n := range left[:rest] {
			share[n]++
		}
		break
	}
	return share
}

// mates is how many replicas of a group, but for the one at a node, are in the zone of a node. Those at nodes that are to have nothing do not count.
func (p *placing) mates(g *cluster.DraftGroup, node, but string) (n int) {
	for _, r := range g.Replicas {
		at, stays := p.nodes[r.Node]
		if stays && r.Node != but && r.Node != node && at.Zone == p.nodes[node].Zone {
			n++
		}
	}
	return n
}

// best is the node for another replica of a group, in the place of the one at a node (""; a replica more): in a zone that the group is not in, below its share,
// and among those the one that the hash likes best. What cannot be is left out in that order, from behind. "": no node is without a replica of it.
func (p *placing) best(g *cluster.DraftGroup, instead string) (node string) {
	type rank struct {
		zone, over int
		score      uint64
	}
	var most rank
	for _, n := range p.names {
		if g.At(n) != nil {
			continue
		}
		r := rank{zone: p.mates(g, n, instead), score: score(g.ID, n)}
		if g.ID != 0 {
			r.over = max(0, p.has[n]+1-p.share[n])
		}
		if node == "" || cmp.Or(cmp.Compare(r.zone, most.zone), cmp.Compare(r.over, most.over), cmp.Compare(most.score, r.score)) < 0 {
			node, most = n, r
		}
	}
	return node
}

// move notes that a replica is at another node now, in the same place of the order; from "": a replica more; to "": one less.
func (p *placing) move(g *cluster.DraftGroup, from, to string) {
	switch {
	case from == "":
		g.Replicas = append(g.Replicas, cluster.DraftReplica{Node: to})
	case to == "":
		g.Replicas = slices.DeleteFunc(g.Replicas, func(r cluster.DraftReplica) bool { return r.Node == from })
	default:
		g.At(from).Node = to
	}
	if g.ID != 0 {
		p.has[from]--
		p.has[to]++
	}
}

// A hop is a replica that goes from a node to another one.
type hop struct {
	g        *cluster.DraftGroup
	from, to string
	worse    int    // of even: see placing.worse
	score    uint64 // likewise
}

// crowd is how many replicas of a group are in each zone.
func (p *placing) crowd(g *cluster.DraftGroup) map[string]int {
	n := make(map[string]int, len(g.Replicas))
	for _, r := range g.Replicas {
		n[p.nodes[r.Node].Zone]++
	}
	return n
}

// worse is how many more replicas of a group, of which so many are in each zone, are in the zone of its replica at a node if that goes to another node.
func (p *placing) worse(crowd map[string]int, from, to string) int {
	zone, other := p.nodes[from].Zone, p.nodes[to].Zone
	if zone == other {
		return 0
	}
	return crowd[other] - (crowd[zone] - 1)
}

// even finds replicas that can go from a node above its share to one below it, in no worse zones: what is better for zones first, and of those that are as good what the
// hash likes best. Each can go as long as those before it have left it so (still).
func (p *placing) even() (list []hop) {
	var below []string
	for _, n := range p.names {
		if p.has[n] < p.share[n] {
			below = append(below, n)
		}
	}
	for i := range p.groups[1:] {
		g := &p.groups[1+i]
		crowd := p.crowd(g)
		for _, r := range g.Replicas {
			if p.has[r.Node] <= p.share[r.Node] {
				continue
			}
			for _, n := range below {
				if worse := p.worse(crowd, r.Node, n); worse <= 0 && g.At(n) == nil {
					list = append(list, hop{g, r.Node, n, worse, score(g.ID, n)})
				}
			}
		}
	}
	slices.SortStableFunc(list, func(a, b hop) int {
		return cmp.Or(cmp.Compare(a.worse, b.worse), cmp.Compare(b.score, a.score))
	})
	return list
}

// still says whether a hop of even is as good as it was.
func (p *placing) still(h *hop) bool {
	return p.has[h.from] > p.share[h.from] && p.has[h.to] < p.share[h.to] && h.g.At(h.from) != nil && h.g.At(h.to) == nil &&
		p.worse(p.crowd(h.g), h.from, h.to) <= h.worse
}

// chain finds the fewest replicas that have to go from a node above its share to a second one, from that to a third one and so on, up to one below its share, in no worse
// zones, where no single one can: the node below has a replica of each group already that the one above has. nil: there is no such chain.
func (p *placing) chain() (list []hop) {
	at := make(map[string][]*cluster.DraftGroup)           // groups, by node
	crowds := make(map[*cluster.DraftGroup]map[string]int) // by group
	for i := range p.groups[1:] {
		g := &p.groups[1+i]
		crowds[g] = p.crowd(g)
		for _, r := range g.Replicas {
			at[r.Node] = append(at[r.Node], g)
		}
	}
	by := make(map[string]hop) // how a node is reached; zero: from nowhere
	var queue []string
	for _, n := range slices.Sorted(maps.Keys(at)) {
		if p.has[n] > p.share[n] {
			by[n] = hop{}
			queue = append(queue, n)
		}
	}
	for len(queue) > 0 {
		from := queue[0]
		queue = queue[1:]
		for _, to := range p.names {
			if _, ok := by[to]; ok {
				continue
			}
			i := slices.IndexFunc(at[from], func(g *cluster.DraftGroup) bool {
				return p.worse(crowds[g], from, to) <= 0 && g.At(to) == nil
			})
			if i < 0 {
				continue
			}
			by[to] = hop{g: at[from][i], from: from, to: to}
			if p.has[to] >= p.share[to] {
				queue = append(queue, to)
				continue
			}
			for h := by[to]; h.g != nil; h = by[h.from] {
				list = append(list, h)
			}
			slices.Reverse(list)
			return list
		}
	}
	return nil
}

// spread finds a replica of a group that goes to a zone in which fewer of the others are; "": there is none. A move to a node that has its share already is followed by one
// that evens it out.
func (p *placing) spread(g *cluster.DraftGroup) (from, to string) {
	for _, r := range g.Replicas {
		at := p.mates(g, r.Node, "")
		if at == 0 {
			continue
		}
		if n := p.best(g, r.Node); n != "" && p.mates(g, n, r.Node) < at {
			return r.Node, n
		}
	}
	return "", ""
}

// least is the replica that a group can best do without: in a zone with others, at a node above its share, and not the preferred leader.
func (p *placing) least(g *cluster.DraftGroup) (node string) {
	type rank struct{ zone, over, last int }
	var most rank
	for i, r := range g.Replicas {
		k := rank{p.mates(g, r.Node, ""), p.has[r.Node] - p.share[r.Node], i}
		if node == "" || cmp.Or(cmp.Compare(k.zone, most.zone), cmp.Compare(k.over, most.over), cmp.Compare(k.last, most.last)) > 0 {
			node, most = r.Node, k
		}
	}
	return node
}

// score is the rendezvous score of a group and a node.
func score(group uint32, node string) uint64 {
	b := append([]byte{byte(group), byte(group >> 8), byte(group >> 16), byte(group >> 24), 'm'}, node...)
	return xxhash.Sum64(b)
}

// leaders gives each node its share of the groups to lead, by changing who of a group's replicas comes first, in few groups. It moves nothing. A node that leads too many gives
// a group to one that leads too few, or to a third one that gives one of its own on.
func leaders(d *cluster.Draft) (changed bool) {
	leads := make(map[string]int)
	first := func(g *cluster.DraftGroup) string {
		return g.Replicas[slices.IndexFunc(g.Replicas, func(r cluster.DraftReplica) bool { return !r.Leaves })].Node
	}
	for i := range d.Groups[1:] {
		leads[first(&d.Groups[1+i])]++
	}
	share := shares(d.Nodes, len(d.Groups)-1, len(d.Groups)-1, leads)
	next := func() (last string, by map[string]hop) { // "": nobody leads too many, or nobody can take from them
		by = make(map[string]hop)
		var queue []string
		for _, n := range slices.Sorted(maps.Keys(leads)) {
			if leads[n] > share[n] {
				by[n] = hop{}
				queue = append(queue, n)
			}
		}
		for len(queue) > 0 {
			from := queue[0]
			queue = queue[1:]
			for i := range d.Groups[1:] {
				g := &d.Groups[1+i]
				if first(g) != from {
					continue
				}
				for _, r := range g.Replicas {
					if _, ok := by[r.Node]; ok || r.Leaves {
						continue
					}
					by[r.Node] = hop{g: g, from: from, to: r.Node}
					if leads[r.Node] < share[r.Node] {
						return r.Node, by
					}
					queue = append(queue, r.Node)
				}
			}
		}
		return "", nil
	}
	for last, by := next(); last != ""; last, by = next() {
		leads[last]++
		for h := by[last]; h.g != nil; last, h = h.from, by[h.from] {
			i := slices.IndexFunc(h.g.Replicas, func(r cluster.DraftReplica) bool { return r.Node == h.to })
			r := h.g.Replicas[i]
			h.g.Replicas = slices.Insert(slices.Delete(h.g.Replicas, i, i+1), 0, r)
		}
		leads[last]--
		changed = true
	}
	return changed
}
