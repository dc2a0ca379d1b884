package cluster

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// storesOf are stores for so many nodes.
func storesOf(n int) (list [][16]byte) {
	for i := range n {
		list = append(list, [16]byte{byte(i), byte(i >> 8), 1})
	}
	return list
}

// TestProposeReplicasProperties: the replicas of a group are on different nodes, in different zones where there are enough; each node leads its share and
// has its share of replicas, as far as a node can have one of each group; the map is the same in whatever order the
// nodes are named, and comes back as it was.
func TestProposeReplicasProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		replicas := rapid.SampledFrom([]int{1, 3, 5}).Draw(t, "replicas")
		n := rapid.IntRange(replicas, 20).Draw(t, "nodes")
		shards := rapid.IntRange(1, 300).Draw(t, "shards")
		groups := rapid.IntRange(1, min(shards, MaxGroups)).Draw(t, "groups")
		zones := rapid.IntRange(1, 6).Draw(t, "zones")
		equal := rapid.Bool().Draw(t, "equal")
		want := Want{Replicas: replicas, Groups: groups, Stores: storesOf(n), Zones: make([]string, n)}
		var nodes []MapNode
		for i := range n {
			node := MapNode{ID: fmt.Sprintf("n%d", i), Weight: 1}
			if !equal {
				node.Weight = rapid.Uint32Range(1, 5).Draw(t, "weight")
			}
			nodes = append(nodes, node)
			want.Zones[i] = fmt.Sprint("z", i%zones)
		}
		m, err := ProposeReplicas(sampleID, "c", shards, nodes, want)
		if err != nil {
			t.Fatal(err)
		}
		has, leads := make([]int, n), make([]int, n)
		for i, g := range m.Replication.Groups {
			in := map[string]bool{}
			for j, p := range g.Replicas {
				has[p.Node]++
				if j == 0 {
					leads[p.Node]++
				}
				at := slices.IndexFunc(nodes, func(o MapNode) bool { return o.ID == m.Nodes[p.Node].ID })
				in[want.Zones[at]] = true
				if m.Replication.Stores[p.Node] != want.Stores[at] {
					t.Fatalf("node %s has the store of another", m.Nodes[p.Node].ID)
				}
			}
			if len(g.Replicas) != replicas || len(in) < min(replicas, min(zones, n)) {
				t.Fatalf("group %d has %d replicas in %d zones", g.ID, len(g.Replicas), len(in))
			}
			if len(m.Replication.ShardsOf(i)) < shards/groups {
				t.Fatalf("group %d has %d of %d shards", g.ID, len(m.Replication.ShardsOf(i)), shards)
			}
		}
		for i, lead := range shares(groups, m.Nodes) {
			if leads[i] != lead {
				t.Fatalf("node %s leads %d groups, its share is %d", m.Nodes[i].ID, leads[i], lead)
			}
		}
		if equal && zones == 1 {
			if d := slices.Max(has) - slices.Min(has); d > 2 {
				t.Fatalf("nodes have %v replicas", has)
			}
		}
		order := rapid.Permutation(indexes(n)).Draw(t, "order")
		other := Want{Replicas: replicas, Groups: groups}
		var named []MapNode
		for _, i := range order {
			named, other.Stores, other.Zones = append(named, nodes[i]), append(other.Stores, want.Stores[i]), append(other.Zones, want.Zones[i])
		}
		again, err := ProposeReplicas(sampleID, "c", shards, named, other)
		if err != nil || again.Digest() != m.Digest() {
			t.Fatalf("%v: another map in another order", err)
		}
		text := AppendMap(nil, m)
		if back, err := ParseMap(text); err != nil || !reflect.DeepEqual(back, m) || len(text) > MaxMap {
			t.Fatalf("%v: %+v of %d bytes", err, back, len(text))
		}
	})
}

func indexes(n int) (list []int) {
	for i := range n {
		list = append(list, i)
	}
	return list
}

// TestProposeReplicasBad: what cannot be is refused, and says what can.
func TestProposeReplicasBad(t *testing.T) {
	three := []MapNode{{ID: "a"}, {ID: "b"}, {ID: "c"}}
	for _, c := range []struct {
		want   string
		shards int
		nodes  []MapNode
		w      Want
	}{
		{"an even number", 8, three, Want{Replicas: 2, Stores: storesOf(3)}},
		{"1, 3, 5 or 7", 8, three, Want{Replicas: 9, Stores: storesOf(3)}},
		{"1, 3, 5 or 7", 8, three, Want{Stores: storesOf(3)}},
		{"3 nodes for 5 replicas", 8, three, Want{Replicas: 5, Stores: storesOf(3)}},
		{"9 groups of 8 shards", 8, three, Want{Replicas: 3, Groups: 9, Stores: storesOf(3)}},
		{"-1 groups", 8, three, Want{Replicas: 3, Groups: -1, Stores: storesOf(3)}},
		{"2 stores", 8, three, Want{Replicas: 3, Stores: storesOf(2)}},
		{"1 zones", 8, three, Want{Replicas: 3, Stores: storesOf(3), Zones: []string{"z"}}},
		{"no store of its own", 8, three, Want{Replicas: 3, Stores: append(storesOf(2), storesOf(1)...)}},
		{"named twice", 8, []MapNode{{ID: "a"}, {ID: "b"}, {ID: "a"}}, Want{Replicas: 3, Stores: storesOf(3)}},
		{"shards", 0, three, Want{Replicas: 3, Stores: storesOf(3)}},
	} {
		if _, err := ProposeReplicas(sampleID, "c", c.shards, c.nodes, c.w); !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("want an error with %q, got %v", c.want, err)
		}
	}
	for _, c := range []struct{ nodes, shards, groups int }{{3, 32, 6}, {5, 32, 10}, {3, 4, 4}, {200, 1000, MaxGroups}} {
		var nodes []MapNode
		for i := range c.nodes {
			nodes = append(nodes, MapNode{ID: fmt.Sprint("n", i)})
		}
		m, err := ProposeReplicas(sampleID, "c", c.shards, nodes, Want{Replicas: 3, Stores: storesOf(c.nodes)})
		if err != nil || len(m.Replication.Groups) != c.groups {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// TestMapOfReplicasHostile: maps that break a rule of their replicas are refused.
func TestMapOfReplicasHostile(t *testing.T) {
	for name, f := range map[string]func(m *Map, r *Replication){
		"a store less":        func(_ *Map, r *Replication) { r.Stores = r.Stores[:2] },
		"a store twice":       func(_ *Map, r *Replication) { r.Stores[1] = r.Stores[0] },
		"no store":            func(_ *Map, r *Replication) { r.Stores[1] = [16]byte{} },
		"a shard in no group": func(_ *Map, r *Replication) { r.Group[3] = uint16(len(r.Groups)) },
		"a group without shards": func(_ *Map, r *Replication) {
			r.Groups = append(r.Groups, Group{ID: 99, Replicas: r.Groups[0].Replicas})
		},
		"no groups":                  func(_ *Map, r *Replication) { r.Groups = nil },
		"group 0":                    func(_ *Map, r *Replication) { r.Groups[0].ID = 0 },
		"a group twice":              func(_ *Map, r *Replication) { r.Groups[1].ID = r.Groups[0].ID },
		"no replicas":                func(_ *Map, r *Replication) { r.Groups[1].Replicas = nil },
		"too many replicas":          func(_ *Map, r *Replication) { r.Groups[1].Replicas = make([]Replica, MaxReplicas+1) },
		"replica 0":                  func(_ *Map, r *Replication) { r.Groups[1].Replicas[1].ID = 0 },
		"a replica twice":            func(_ *Map, r *Replication) { r.Groups[1].Replicas[1].ID = r.Groups[1].Replicas[0].ID },
		"a node twice":               func(_ *Map, r *Replication) { r.Groups[1].Replicas[1].Node = r.Groups[1].Replicas[0].Node },
		"a node that is none":        func(_ *Map, r *Replication) { r.Groups[1].Replicas[1].Node = 3 },
		"a meta group with an id":    func(_ *Map, r *Replication) { r.Meta.ID = 7 },
		"a meta group of nobody":     func(_ *Map, r *Replication) { r.Meta.Replicas = nil },
		"a zone less":                func(_ *Map, r *Replication) { r.Zones = r.Zones[:2] },
		"an id that never was":       func(_ *Map, r *Replication) { r.Groups[1].Top = 1 },
		"zones without a meta group": func(_ *Map, r *Replication) { r.Meta = nil },
		"an owner that is no first":  func(m *Map, r *Replication) { m.Owner[0] = r.Groups[r.Group[0]].Replicas[1].Node },
	} {
		m := sampleReplicas()
		f(m, m.Replication)
		if err := m.Check(); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
		if name != "a zone less" && name != "zones without a meta group" { // which have no encoding
			if _, err := ParseMap(AppendMap(nil, m)); !errors.Is(err, ErrMalformed) {
				t.Errorf("%s, encoded: %v", name, err)
			}
		}
	}
	text := AppendMap(nil, sampleReplicas())
	for i := range text {
		if _, err := ParseMap(text[:i]); !errors.Is(err, ErrMalformed) {
			t.Fatalf("%d bytes of it: %v", i, err)
		}
	}
}

// fixed takes out of a map what only format 3 has.
func fixed(m *Map) *Map {
	r := m.Replication
	r.Meta, r.Zones = nil, nil
	for i := range r.Groups {
		r.Groups[i].Top = 0
	}
	return m
}

// sampleLive is a map that has been changed: a replica of group 2 goes to another node, in another zone.
func sampleLive() *Map {
	m := sampleReplicas()
	d := m.Draft()
	d.Nodes["node-d"] = DraftNode{Weight: 1, Store: [16]byte{9}, Zone: "rack-2"}
	d.Group(2).Replica(2).Leaves = true
	d.Group(2).Add("node-d")
	m, err := d.Map(m)
	if err != nil {
		panic(err)
	}
	return m
}

// TestDraft: a draft that nothing was changed in is the map of a version later; a node that comes moves the indexes of others and nothing
// else; what no map can be is refused.
func TestDraft(t *testing.T) {
	m := sampleReplicas()
	same, err := m.Draft().Map(m)
	if err != nil || same.Version != 2 {
		t.Fatalf("%v, %v", same, err)
	}
	if same.Version = 1; !reflect.DeepEqual(same, m) {
		t.Errorf("%+v\n%+v", same, m)
	}
	d := m.Draft()
	d.Nodes["a-first-one"] = DraftNode{Weight: 3, Store: [16]byte{7}, Zone: "z"}
	if id := d.Group(3).Add("a-first-one"); id != 4 {
		t.Errorf("the replica has id %d", id)
	}
	d.Group(3).Replica(1).Leaves = true
	next, err := d.Map(m)
	if err != nil {
		t.Fatal(err)
	}
	for shard := range m.Owner {
		if next.OwnerOf(uint16(shard)) != m.OwnerOf(uint16(shard)) {
			t.Errorf("shard %d goes from %s to %s", shard, m.OwnerOf(uint16(shard)), next.OwnerOf(uint16(shard)))
		}
	}
	if again := next.Draft(); !reflect.DeepEqual(again, d) {
		t.Errorf("%+v\n%+v", again, d)
	}
	if _, err := next.Draft().Map(next); err != nil {
		t.Error(err)
	}
	d = next.Draft()
	d.Group(3).Take(1, 0)
	if d.Group(3).Replica(1) != nil || d.Group(3).Add("a-first-one") != 5 {
		t.Errorf("%+v", d.Group(3))
	}
	if _, err := d.Map(next); !errors.Is(err, ErrMalformed) {
		t.Errorf("two replicas at one node: %v", err)
	}
	for name, f := range map[string]func(*Draft){
		"a node that is not there": func(d *Draft) { d.Group(1).Add("nobody") },
		"a node too few":           func(d *Draft) { delete(d.Nodes, "node-a") },
		"nobody stays": func(d *Draft) {
			for i := range d.Group(1).Replicas {
				d.Group(1).Replicas[i].Leaves = true
			}
		},
		"no meta group": func(d *Draft) { d.Groups[0].Replicas = nil },
		"a bad zone":    func(d *Draft) { d.Nodes["x"] = DraftNode{Weight: 1, Store: [16]byte{8}, Zone: "a b"} },
		"an id twice": func(d *Draft) {
			d.Group(1).Replicas[1].ID = 1
		},
		"an id above the highest": func(d *Draft) { d.Group(1).Top = 2 },
	} {
		d := m.Draft()
		f(d)
		if _, err := d.Map(m); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if fixed(sampleReplicas()).Draft() != nil {
		t.Error("a map without a meta group has a draft")
	}
}

// TestDraftRecover: a group that is recovered is another one, of an id that none had, and has all the shards; others are as they were, and the map comes back as it was.
func TestDraftRecover(t *testing.T) {
	m := sampleReplicas()
	m.Version = 2
	for range 3 { // and that one is recovered again
		d := m.Draft()
		was := d.Groups[2].ID
		node := d.Groups[2].Replicas[1].Node
		for _, bad := range []uint32{0, 77} {
			if id := d.Recover(bad, node, bad); id != 0 {
				t.Errorf("group %d is recovered as %d", bad, id)
			}
		}
		if id := d.Recover(was, "nobody", was); id != 0 {
			t.Errorf("group %d is recovered from nobody, as %d", was, id)
		}
		id := d.Recover(was, node, was)
		next, err := d.Map(m)
		if err != nil {
			t.Fatal(err)
		}
		for shard, g := range m.Replication.Group {
			before, after := m.Replication.Groups[g].ID, next.Replication.Groups[next.Replication.Group[shard]].ID
			if before == was && (after != id || next.OwnerOf(uint16(shard)) != node) || before != was && after != before {
				t.Errorf("shard %d goes from group %d to group %d of node %s", shard, before, after, next.OwnerOf(uint16(shard)))
			}
		}
		b := AppendMap(nil, next)
		got, err := ParseMap(b)
		if err != nil || b[0] != recoveredFormat || !reflect.DeepEqual(got, next) {
			t.Fatalf("%v: %+v\n%+v", err, got, next)
		}
		if err := CheckChange(m, next); err != nil {
			t.Error(err)
		}
		if !reflect.DeepEqual(next.Draft(), d) {
			t.Errorf("%+v\n%+v", next.Draft(), d)
		}
		m = next
		m.Draft().Group(id).Add(m.Nodes[0].ID)
	}
	// The last one is lost again: another node has kept what it had of the one before.
	last := m.Draft().Groups[len(m.Draft().Groups)-1]
	for was, ok := range map[uint32]bool{last.Was: true, last.Was - 1: false, last.ID + 1: false} {
		d := m.Draft()
		id := d.Recover(last.ID, m.Nodes[0].ID, was)
		if (id != 0) != ok {
			t.Errorf("it is made of group %d, as %d", was, id)
		}
		if !ok {
			continue
		}
		next, err := d.Map(m)
		if err == nil {
			err = CheckChange(m, next)
		}
		if g := d.Group(id); err != nil || g.Was != last.Was || g.Times != last.Times+1 || len(g.Replicas) != 1 || g.Replicas[0].Node != m.Nodes[0].ID {
			t.Errorf("%+v, %v", g, err)
		}
	}
	if id := m.Draft().Recover(1, m.Nodes[0].ID, 0); id != 0 {
		t.Errorf("a group that was never another one is made of one, as %d", id)
	}
	full := m.Draft()
	full.Groups[len(full.Groups)-1].ID = math.MaxUint32
	if id := full.Recover(full.Groups[1].ID, full.Groups[1].Replicas[0].Node, full.Groups[1].ID); id != 0 {
		t.Errorf("behind the last id comes %d", id)
	}
}

// TestWasIsChecked: a map that says nonsense of what its groups were is none, and neither is one of a format that it does not need.
func TestWasIsChecked(t *testing.T) {
	good := func() *Map {
		m := sampleReplicas()
		d := m.Draft()
		d.Recover(2, m.Nodes[m.Replication.Groups[1].Replicas[0].Node].ID, 2)
		next, err := d.Map(m)
		if err != nil {
			t.Fatal(err)
		}
		return next
	}
	for name, f := range map[string]func(m *Map, r *Replication){
		"itself":            func(_ *Map, r *Replication) { r.Groups[3].Was = r.Groups[3].ID },
		"a later one":       func(_ *Map, r *Replication) { r.Groups[3].Was = 99 },
		"one that is there": func(_ *Map, r *Replication) { r.Groups[3].Was = 1 },
		"what another was":  func(_ *Map, r *Replication) { r.Groups[2].Was, r.Groups[3].Was = 2, 2 },
		"never":             func(_ *Map, r *Replication) { r.Groups[3].Times = 0 },
		"a time of nothing": func(_ *Map, r *Replication) { r.Groups[0].Times = 1 },
		"no such phase":     func(_ *Map, r *Replication) { r.Groups[3].Phase = Settled + 1 },
		"a phase of none":   func(_ *Map, r *Replication) { r.Groups[0].Phase = Stands },
		"the meta group's":  func(_ *Map, r *Replication) { r.Meta.Phase = Stands },
		"in a first map":    func(m *Map, _ *Replication) { m.Version = 1 },
		"the meta group":    func(_ *Map, r *Replication) { r.Meta.Was = 1 },
		"no meta group":     func(_ *Map, r *Replication) { r.Meta, r.Zones = nil, nil },
	} {
		m := good()
		f(m, m.Replication)
		if err := m.Check(); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	b := AppendMap(nil, good())
	b[0] = liveFormat
	if _, err := ParseMap(b); !errors.Is(err, ErrMalformed) {
		t.Errorf("as format 3: %v", err)
	}
	b = AppendMap(nil, sampleReplicas())
	b[0] = recoveredFormat
	if _, err := ParseMap(b); !errors.Is(err, ErrMalformed) {
		t.Errorf("format 3 as format 4: %v", err)
	}
}

// TestMetaReplicas: the meta group is in as many zones as there are, and has as many replicas as its nodes are worth.
func TestMetaReplicas(t *testing.T) {
	for n, want := range map[int]int{1: 1, 2: 1, 3: 3, 4: 3, 5: 5, 9: 5} {
		var nodes []MapNode
		w := Want{Replicas: 1, Groups: n, Stores: storesOf(n)}
		for i := range n {
			nodes = append(nodes, MapNode{ID: fmt.Sprint("n", i)})
			w.Zones = append(w.Zones, fmt.Sprint("z", i%3))
		}
		m, err := ProposeReplicas(sampleID, "c", 32, nodes, w)
		if err != nil {
			t.Fatal(err)
		}
		zones := map[string]bool{}
		for _, p := range m.Replication.Meta.Replicas {
			zones[m.Replication.Zones[p.Node]] = true
		}
		if got := len(m.Replication.Meta.Replicas); got != want || len(zones) != min(want, 3) {
			t.Errorf("%d nodes: %d replicas in %d zones", n, got, len(zones))
		}
	}
}

func sampleReplicas() *Map {
	m, err := ProposeReplicas(sampleID, "demo", 8, []MapNode{{ID: "node-a"}, {ID: "node-b"}, {ID: "node-c", Weight: 2}}, Want{Replicas: 3, Groups: 4, Stores: storesOf(3)})
	if err != nil {
		panic(err)
	}
	return m
}
