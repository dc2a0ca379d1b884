package cluster

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// Groups that begin with what nodes have.

// adopting is the map by which the nodes of a map without replicas get groups.
func adopting(t *testing.T, from *Map, groups int) *Map {
	t.Helper()
	want := Want{Groups: groups}
	for i := range from.Nodes {
		want.Stores = append(want.Stores, [16]byte{byte(i + 1)})
	}
	m, err := ProposeAdopting(from, want)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// fixedMap is a map of so many nodes and shards without replicas.
func fixedMap(t *testing.T, nodes, shards int) *Map {
	t.Helper()
	var list []MapNode
	for i := range nodes {
		list = append(list, MapNode{ID: fmt.Sprint("n", i), Weight: uint32(1 + i%2)})
	}
	m, err := Propose(sampleID, "c", shards, list)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestProposeAdopting: every shard stays where it is, in a group of one replica that is there, and no group has shards of two nodes; the map reads as it was written, and says for ever that its groups began so.
func TestProposeAdopting(t *testing.T) {
	for _, c := range []struct{ nodes, shards, groups, want int }{
		{1, 32, 6, 6}, {1, 4, 6, 4}, {1, 32, 0, 2}, {3, 32, 0, 6}, {5, 32, 3, 15}, {3, 4, 0, 4}, {200, 4096, 0, 200}, {128, 4096, 0, 256},
	} {
		from := fixedMap(t, c.nodes, c.shards)
		m := adopting(t, from, c.groups)
		r := m.Replication
		if len(r.Groups) != c.want || m.Version != 2 || !m.BornBy() || !r.Adopts || m.Form() != bornFormat {
			t.Errorf("%+v: %d groups, version %d", c, len(r.Groups), m.Version)
		}
		if !slices.Equal(m.Owner, from.Owner) || !slices.Equal(m.Nodes, from.Nodes) {
			t.Errorf("%+v: shards or nodes are elsewhere", c)
		}
		for shard, g := range r.Group {
			if of := &r.Groups[g]; len(of.Replicas) != 1 || of.Replicas[0].Node != from.Owner[shard] || !r.Founder(of, of.Replicas[0].ID) {
				t.Fatalf("%+v: shard %d is in %+v", c, shard, of)
			}
		}
		if again, err := ParseMap(AppendMap(nil, m)); err != nil || !reflect.DeepEqual(again, m) {
			t.Fatalf("%+v: %v, %+v", c, err, again)
		}
		if len(AppendMap(nil, m)) > MaxMap {
			t.Errorf("%+v: %d bytes, at most %d", c, len(AppendMap(nil, m)), MaxMap)
		}
	}
	for name, c := range map[string]struct {
		from *Map
		want Want
	}{
		"stores of others": {fixedMap(t, 3, 32), Want{Stores: [][16]byte{{1}}}},
		"zones of others":  {fixedMap(t, 1, 32), Want{Stores: [][16]byte{{1}}, Zones: []string{"a", "b"}}},
		"the same store":   {fixedMap(t, 2, 32), Want{Stores: [][16]byte{{1}, {1}}}},
		"too many groups":  {fixedMap(t, 3, 4096), Want{Stores: [][16]byte{{1}, {2}, {3}}, Groups: 100}},
		"groups":           {adopting(t, fixedMap(t, 1, 4), 0), Want{Stores: [][16]byte{{1}}}},
	} {
		if m, err := ProposeAdopting(c.from, c.want); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v, %v", name, m, err)
		}
	}
}

// TestCheckAdopts: which map may follow which, where groups begin with what nodes have.
func TestCheckAdopts(t *testing.T) {
	fixed := fixedMap(t, 3, 32)
	born := adopting(t, fixed, 0)
	edit := func(m *Map, f func(*Map, *Replication)) *Map {
		next, r := *m, *m.Replication
		r.Groups, r.Group = slices.Clone(r.Groups), slices.Clone(r.Group)
		for i := range r.Groups {
			r.Groups[i].Replicas = slices.Clone(r.Groups[i].Replicas)
		}
		next.Nodes, next.Owner, next.Replication = slices.Clone(m.Nodes), slices.Clone(m.Owner), &r
		f(&next, &r)
		return &next
	}
	d := born.Draft()
	d.Groups[1].Add("n1")
	moved, err := d.Map(born)
	if err != nil {
		t.Fatal(err)
	}
	if !moved.Replication.Adopts || moved.Replication.Born != 2 || moved.BornBy() {
		t.Errorf("what a draft makes of it forgets how its groups began: %+v", moved.Replication)
	}
	var nodes []MapNode
	want := Want{Replicas: 3}
	for i, n := range fixed.Nodes {
		nodes = append(nodes, n)
		want.Stores = append(want.Stores, [16]byte{byte(i + 1)})
	}
	empty, err := ProposeReplicas(sampleID, "c", 32, nodes, want)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		was, is *Map
		want    error
	}{
		"the upgrade":                     {fixed, born, nil},
		"again":                           {born, born, nil},
		"a later map":                     {born, moved, nil},
		"a later map, not heard of it":    {fixed, moved, nil},
		"groups that begin empty":         {fixed, edit(empty, func(m *Map, _ *Replication) { m.Version = 2 }), ErrNotYet},
		"the way back":                    {born, edit(fixedWith(fixed, 3), func(*Map, *Replication) {}), ErrFixed},
		"an upgrade of another map":       {fixed, edit(born, func(m *Map, r *Replication) { m.Version, r.Born = 3, 3 }), ErrNotYet},
		"shards elsewhere":                {fixed, edit(born, func(m *Map, r *Replication) { swapNodes(m, r) }), ErrFixed},
		"another weight":                  {fixed, edit(born, func(m *Map, _ *Replication) { m.Nodes[0].Weight++ }), ErrFixed},
		"another cluster":                 {fixed, edit(born, func(m *Map, _ *Replication) { m.Cluster[0]++ }), ErrOtherCluster},
		"it adopted, and says it no more": {moved, edit(moved, func(m *Map, r *Replication) { m.Version, r.Adopts, r.Born = 4, false, 2 }), ErrFixed},
		"it never began":                  {moved, edit(moved, func(m *Map, r *Replication) { m.Version, r.Adopts, r.Born = 4, false, 0 }), ErrFixed},
		"it began empty, and adopts":      {empty, edit(empty, func(m *Map, r *Replication) { m.Version, r.Adopts, r.Born = 3, true, 2 }), ErrFixed},
	} {
		if err := CheckChange(c.was, c.is); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	for name, c := range map[string]struct {
		m     *Map
		words string
	}{
		"two replicas at its birth": {edit(born, func(_ *Map, r *Replication) {
			r.Groups[0].Replicas = append(r.Groups[0].Replicas, Replica{Node: 1 - r.Groups[0].Replicas[0].Node%2, ID: 2})
			r.Groups[0].Top = 2
		}), "2 replicas"},
		"born later than it is":      {edit(born, func(_ *Map, r *Replication) { r.Born = 3 }), "begun by map 3"},
		"born by the first, empty":   {edit(born, func(_ *Map, r *Replication) { r.Born, r.Adopts = 1, false }), "begun by map 1"},
		"it adopts, and never began": {edit(born, func(_ *Map, r *Replication) { r.Born = 0 }), "begun by map 0"},
		"without a meta group":       {edit(born, func(_ *Map, r *Replication) { r.Meta = nil }), "without a meta group"},
	} {
		if err := c.m.Check(); !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), c.words) {
			t.Errorf("%s: %v, want %q", name, err, c.words)
		}
	}
	text := AppendMap(nil, born)
	for _, change := range []func(b []byte){
		func(b []byte) { b[len(b)-1] = 2 }, func(b []byte) { clear(b[len(b)-9 : len(b)-1]) }, func(b []byte) { b[0] = recoveredFormat }, func(b []byte) { b[0] = bornFormat + 1 },
	} {
		b := slices.Clone(text)
		change(b)
		if m, err := ParseMap(b); err == nil {
			t.Errorf("a map that cannot be is read: %v", m)
		}
	}
	// A group that was recovered is none that begins with what the shards' owner has.
	d = moved.Draft()
	id := d.Recover(1, moved.OwnerOf(slicesIndex(moved.Replication.Group, 0)), 1)
	next, err := d.Map(moved)
	if err != nil || id == 0 {
		t.Fatal(id, err)
	}
	for i := range next.Replication.Groups {
		if g := &next.Replication.Groups[i]; next.Replication.Founder(g, 1) == (g.ID == id) {
			t.Errorf("group %d, which was %d: a founder is %v", g.ID, g.Was, next.Replication.Founder(g, 1))
		}
	}
	if moved.Replication.Founder(&moved.Replication.Groups[0], 2) || empty.Replication.Founder(&empty.Replication.Groups[0], 1) {
		t.Error("a replica that comes later, or is of a cluster that began empty, begins with what its node has")
	}
}

// slicesIndex is the shard of a group.
func slicesIndex(groups []uint16, of uint16) uint16 { return uint16(slices.Index(groups, of)) }

// fixedWith is a map without replicas of another version, as one with an empty replication that edit can take.
func fixedWith(m *Map, version uint64) *Map {
	next := *m
	next.Version = version
	next.Replication = &Replication{Stores: [][16]byte{{1}, {2}, {3}}, Group: make([]uint16, len(m.Owner)), Groups: []Group{{ID: 1, Replicas: []Replica{{Node: 0, ID: 1}}}}}
	next.Owner = make([]uint16, len(m.Owner))
	return &next
}

// swapNodes gives the shards of node 0 to node 1, and the other way round.
func swapNodes(m *Map, r *Replication) {
	for i := range r.Groups {
		if n := &r.Groups[i].Replicas[0].Node; *n < 2 {
			*n = 1 - *n
		}
	}
	for i, n := range m.Owner {
		if n < 2 {
			m.Owner[i] = 1 - n
		}
	}
}
