package seat

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/meta"
)

// drawn are the nodes of a cluster, in so many zones, with weights or without.
func drawn(t *rapid.T, least, zones int, weights bool) (nodes []Node) {
	for i := range rapid.IntRange(least, 9).Draw(t, "nodes") {
		n := named(fmt.Sprint("n", i), fmt.Sprint("z", i%zones))
		if weights {
			n.Weight = rapid.Uint32Range(1, 5).Draw(t, "weight")
		}
		nodes = append(nodes, n)
	}
	return nodes
}

// pairs is how many pairs of replicas of a group are in one zone, of all groups.
func pairs(m *cluster.Map) (n int) {
	d := m.Draft()
	for _, g := range d.Groups {
		for i, p := range g.Replicas {
			for _, o := range g.Replicas[:i] {
				if d.Nodes[p.Node].Zone == d.Nodes[o.Node].Zone {
					n++
				}
			}
		}
	}
	return n
}

// inShares fails if a node has more or less than its share, but for the rounding.
func inShares(t *rapid.T, s *meta.State) {
	d, count, total := s.Map.Draft(), has(s), 0
	for _, n := range count {
		total += n
	}
	share := shares(d.Nodes, total, len(d.Groups)-1, count)
	if !maps.Equal(share, count) {
		t.Fatalf("nodes have %v, their shares are %v", count, share)
	}
}

// TestSharesProperties: shares add up, none is above the most that a node can have, and of those below it each is within one of what its weight says.
func TestSharesProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes, had := map[string]cluster.DraftNode{}, map[string]int{}
		for i := range rapid.IntRange(1, 12).Draw(t, "nodes") {
			id := fmt.Sprint("n", i)
			nodes[id] = cluster.DraftNode{Weight: rapid.Uint32Range(1, 100).Draw(t, "weight")}
			had[id] = rapid.IntRange(0, 20).Draw(t, "has")
		}
		most := rapid.IntRange(1, 50).Draw(t, "most")
		total := rapid.IntRange(0, most*len(nodes)).Draw(t, "total")
		share, sum, left, weights := shares(nodes, total, most, had), 0, total, 0
		for n, k := range share {
			sum += k
			if k > most || k < 0 {
				t.Fatalf("node %s gets %d of at most %d", n, k, most)
			}
			if k == most {
				left -= k
			} else {
				weights += int(nodes[n].Weight)
			}
		}
		if sum != total || len(share) != len(nodes) {
			t.Fatalf("%v add up to %d, not %d", share, sum, total)
		}
		for n, k := range share {
			if w := int(nodes[n].Weight); k < most && (k*weights > (left+len(nodes))*w+weights || (k+1)*weights < left*w-weights*len(nodes)) {
				t.Fatalf("node %s of weight %d gets %d of %d", n, w, k, total)
			}
			for o, j := range share {
				if nodes[n].Weight == nodes[o].Weight && (k > j+1 || k == j+1 && had[n] < had[o]) {
					t.Fatalf("nodes %s and %s, which weigh as much and have %d and %d, get %d and %d", n, o, had[n], had[o], k, j)
				}
				if nodes[n].Weight > nodes[o].Weight && k < j {
					t.Fatalf("node %s weighs more than %s, and gets less", n, o)
				}
			}
		}
	})
}

// TestRebalanceProperties: whatever a cluster is like, a rebalance brings each node of one zone to its share exactly, and the groups of several zones into as many as they can be in;
// a second one of one zone moves nothing, and with more zones the moves end.
func TestRebalanceProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		zones := rapid.SampledFrom([]int{1, 1, 2, 3}).Draw(t, "zones")
		replicas := rapid.SampledFrom([]int{1, 3, 5}).Draw(t, "replicas")
		s := shuffled(t, born(t, drawn(t, replicas, zones, rapid.Bool().Draw(t, "weights")), replicas, rapid.IntRange(1, 12).Draw(t, "groups")), replicas)
		before := pairs(s.Map)
		s, _ = planned(t, s, Request{Kind: meta.Rebalance})
		if pairs(s.Map) > before {
			t.Fatalf("%d pairs of replicas share a zone, %d did", pairs(s.Map), before)
		}
		if zones == 1 {
			inShares(t, s)
		}
		d := s.Map.Draft()
		for _, g := range d.Groups {
			in := map[string]int{}
			for _, p := range g.Replicas {
				in[d.Nodes[p.Node].Zone]++
			}
			all := map[string]bool{}
			for _, n := range d.Nodes {
				all[n.Zone] = true
			}
			if len(in) != min(len(all), len(g.Replicas)) {
				t.Fatalf("group %d is in %d zones of %d", g.ID, len(in), len(all))
			}
		}
		// Where zones keep a node from its share, what is left over may be another node's next time.
		for again := 1; ; again++ {
			var task *meta.Task
			if s, task = planned(t, s, Request{Kind: meta.Rebalance}); len(task.Moves) == 0 {
				break
			}
			if zones == 1 || again > 5 {
				t.Fatalf("another one moves %+v", task.Moves)
			}
		}
	})
}

// shuffled has the replicas of all groups at nodes by chance.
func shuffled(t *rapid.T, s *meta.State, replicas int) *meta.State {
	d := s.Map.Draft()
	names := slices.Sorted(maps.Keys(d.Nodes))
	for i := range d.Groups {
		g := &d.Groups[i]
		for j, n := range rapid.Permutation(names).Draw(t, "order")[:len(g.Replicas)] {
			g.Replicas[j].Node = n
		}
	}
	m, err := d.Map(s.Map)
	if err != nil {
		t.Fatalf("%v", err)
	}
	m.Version = 1
	return meta.Begin(m)
}

// TestAddAndRemoveProperties: a node that comes gets its share, no other replica moves, and the zones get no worse; when it goes, the others have as many as before.
func TestAddAndRemoveProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		replicas := rapid.SampledFrom([]int{1, 3, 5}).Draw(t, "replicas")
		groups := rapid.IntRange(1, 16).Draw(t, "groups")
		s := born(t, drawn(t, replicas, 1, false), replicas, groups)
		s, _ = planned(t, s, Request{Kind: meta.Rebalance})
		was := has(s)
		id := rapid.SampledFrom([]string{"a", "n5b", "z"}).Draw(t, "id") // before, between and behind the others
		after, task := planned(t, s, Request{Kind: meta.Add, Nodes: []Node{named(id, "z0")}})
		inShares(t, after)
		moves := 0
		for _, m := range task.Moves {
			if m.Group != 0 {
				moves++
			}
		}
		// Where the new node can take each of its replicas from a node that has too many, only those move.
		if got := has(after)[id]; moves != got || got > (replicas*groups+len(was))/(len(was)+1) {
			t.Fatalf("%d moves, and the node has %d of %d, with %d others", moves, got, replicas*groups, len(was))
		}
		back, task := planned(t, after, Request{Kind: meta.Remove, Nodes: []Node{{ID: id}}})
		if back.Map.Has(id) {
			t.Fatalf("%s is there still", id)
		}
		inShares(t, back)
		if a, b := slices.Sorted(maps.Values(was)), slices.Sorted(maps.Values(has(back))); !slices.Equal(a, b) {
			t.Fatalf("nodes had %v, and have %v: %+v", a, b, task.Moves)
		}
		again, _ := planned(t, back, Request{Kind: meta.Add, Nodes: []Node{named(id, "z0")}})
		inShares(t, again)
	})
}

// TestTasksProperties: any sequence of requests leaves each group with as many replicas as were asked for, on different nodes, and no node that was to go.
func TestTasksProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		replicas := rapid.SampledFrom([]int{1, 3}).Draw(t, "replicas")
		s := born(t, drawn(t, replicas, rapid.IntRange(1, 3).Draw(t, "zones"), true), replicas, rapid.IntRange(1, 8).Draw(t, "groups"))
		for range rapid.IntRange(1, 6).Draw(t, "requests") {
			any := func(label string) string { return fmt.Sprint("n", rapid.IntRange(0, 11).Draw(t, label)) }
			node := func(id string) Node { return named(id, "z"+id[1:2]) }
			r := Request{Kind: rapid.SampledFrom([]meta.Kind{meta.Add, meta.Remove, meta.Replace, meta.Rebalance, meta.Replicas}).Draw(t, "kind")}
			switch r.Kind {
			case meta.Add:
				r.Nodes = []Node{node(any("node"))}
			case meta.Remove:
				r.Nodes = []Node{{ID: any("node")}}
			case meta.Replace:
				r.Old, r.Nodes = any("old"), []Node{node(any("node"))}
			case meta.Replicas:
				r.Replicas = rapid.SampledFrom([]int{1, 3, 5, 7}).Draw(t, "size")
			}
			if _, _, err := Plan(s, r, 1); err != nil {
				continue
			}
			if s, _ = planned(t, s, r); r.Kind == meta.Replicas {
				replicas = r.Replicas
			}
			if r.Kind == meta.Remove && s.Map.Has(r.Nodes[0].ID) || r.Kind == meta.Replace && s.Map.Has(r.Old) {
				t.Fatalf("%+v: the node is there still", r)
			}
			d := s.Map.Draft()
			for i, g := range d.Groups {
				want := replicas
				if i == 0 {
					want = len(g.Replicas)
					if r.Kind == meta.Add || r.Kind == meta.Remove || r.Kind == meta.Rebalance {
						want = cluster.MetaReplicas(len(d.Nodes))
					}
				}
				if len(g.Replicas) != want {
					t.Fatalf("%+v: group %d has %d replicas, not %d", r, g.ID, len(g.Replicas), want)
				}
			}
		}
	})
}

// TestLeadersProperties: as many groups are led by nodes within their shares as can be, compared with the largest matching of groups and places.
func TestLeadersProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		replicas := rapid.SampledFrom([]int{1, 3, 5}).Draw(t, "replicas")
		s := shuffled(t, born(t, drawn(t, replicas, 1, rapid.Bool().Draw(t, "weights")), replicas, rapid.IntRange(1, 16).Draw(t, "groups")), replicas)
		d := s.Map.Draft()
		leads := map[string]int{}
		for _, g := range d.Groups[1:] {
			leads[g.Replicas[0].Node]++
		}
		share := shares(d.Nodes, len(d.Groups)-1, len(d.Groups)-1, leads)
		// place gives a group a place at a node, and moves others to their other nodes if it has to.
		at := map[string][]int{} // groups, by node
		var place func(g int, seen map[string]bool) bool
		place = func(g int, seen map[string]bool) bool {
			for _, r := range d.Groups[g].Replicas {
				if seen[r.Node] {
					continue
				}
				seen[r.Node] = true
				if len(at[r.Node]) < share[r.Node] {
					at[r.Node] = append(at[r.Node], g)
					return true
				}
				for i, o := range at[r.Node] {
					if place(o, seen) {
						at[r.Node][i] = g
						return true
					}
				}
			}
			return false
		}
		most := 0
		for g := range d.Groups[1:] {
			if place(1+g, map[string]bool{}) {
				most++
			}
		}
		before := s.Map.Draft()
		changed := leaders(d)
		clear(leads)
		moved := 0
		for i, g := range d.Groups[1:] {
			leads[g.Replicas[0].Node]++
			if g.Replicas[0] != before.Groups[1+i].Replicas[0] {
				moved++
			}
			for _, p := range before.Groups[1+i].Replicas {
				if o := g.At(p.Node); o == nil || *o != p || len(g.Replicas) != len(before.Groups[1+i].Replicas) {
					t.Fatalf("group %d has other replicas", g.ID)
				}
			}
		}
		within := 0
		for n, k := range leads {
			within += min(k, share[n])
		}
		if within != most || changed != (moved > 0) {
			t.Fatalf("%d groups are led within shares, %d can be; %d have changed (%v)", within, most, moved, changed)
		}
		if within == len(d.Groups)-1 && leaders(d) { // else others may be next to get what is left over
			t.Fatalf("a second time something changes")
		}
	})
}
