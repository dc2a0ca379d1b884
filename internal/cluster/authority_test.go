package cluster

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// later is the next version of a map with replicas, which f has changed. Nothing of it is shared with m.
func later(m *Map, f func(m *Map, r *Replication)) *Map {
	next, r := *m, *m.Replication
	next.Version++
	next.Nodes, next.Owner = slices.Clone(m.Nodes), slices.Clone(m.Owner)
	r.Stores, r.Group, r.Groups = slices.Clone(r.Stores), slices.Clone(r.Group), slices.Clone(r.Groups)
	for i := range r.Groups {
		r.Groups[i].Replicas = slices.Clone(r.Groups[i].Replicas)
	}
	next.Replication = &r
	f(&next, &r)
	for shard, g := range r.Group { // as Check demands it
		next.Owner[shard] = r.Groups[g].first()
	}
	return &next
}

// addNode gives a map node-d, which stands behind all others.
func addNode(m *Map, r *Replication) {
	m.Nodes = append(m.Nodes, MapNode{ID: "node-d", Weight: 1})
	r.Stores = append(r.Stores, [16]byte{77})
}

// dropNode takes the first node out of a map. Its replicas go to the last node, under other ids.
func dropNode(m *Map, r *Replication) {
	for i := range r.Groups {
		for j, p := range r.Groups[i].Replicas {
			if p.Node == 0 {
				p = Replica{Node: uint16(len(m.Nodes) - 1), ID: p.ID + 10}
			}
			p.Node--
			r.Groups[i].Replicas[j] = p
		}
	}
	m.Nodes, r.Stores = m.Nodes[1:], r.Stores[1:]
}

// TestCheckChangeOfReplicas: a later map with replicas may change nodes, where replicas are and who leads at first, and nothing else.
func TestCheckChangeOfReplicas(t *testing.T) {
	first := fixed(sampleReplicas()) // without a meta group, so that ids need no highest one
	four := later(first, addNode)
	keep := func(*Map, *Replication) {}
	for name, tc := range map[string]struct {
		previous, next *Map
		want           error
		text           string
	}{
		"a version more":          {first, later(first, keep), nil, ""},
		"three versions more":     {first, later(first, func(m *Map, _ *Replication) { m.Version += 2 }), nil, ""},
		"the same again":          {four, later(first, addNode), nil, ""},
		"a node more":             {first, four, nil, ""},
		"another node, by and by": {four, later(four, dropNode), nil, ""},
		"another node, at once":   {first, later(later(first, addNode), dropNode), nil, ""},
		"another leader": {first, later(first, func(_ *Map, r *Replication) {
			slices.Reverse(r.Groups[0].Replicas)
		}), nil, ""},
		"other weights":  {first, later(first, func(m *Map, _ *Replication) { m.Nodes[0].Weight = 7 }), nil, ""},
		"a replica less": {first, later(first, func(_ *Map, r *Replication) { r.Groups[1].Replicas = r.Groups[1].Replicas[:2] }), nil, ""},
		"a replica anew": {first, later(first, func(_ *Map, r *Replication) { r.Groups[1].Replicas[2].ID += 5 }), nil, ""},
		"a replica anew in another store": {first, later(first, func(m *Map, r *Replication) {
			r.Stores[1] = [16]byte{78}
			for i := range r.Groups {
				for j := range r.Groups[i].Replicas {
					if p := &r.Groups[i].Replicas[j]; p.Node == 1 {
						p.ID += 10
					}
				}
			}
		}), nil, ""},

		"an older one":  {four, first, ErrOtherMap, ""},
		"another":       {four, later(first, keep), ErrOtherMap, ""},
		"other cluster": {first, later(first, func(m *Map, _ *Replication) { m.Cluster[2]++ }), ErrOtherCluster, ""},
		"other name":    {first, later(first, func(m *Map, _ *Replication) { m.Name = "other" }), ErrOtherCluster, ""},
		"malformed":     {first, later(first, func(_ *Map, r *Replication) { r.Groups[0].Replicas[1].ID = 0 }), ErrMalformed, ""},
		"no replicas any more": {first, func() *Map {
			m := later(first, keep)
			m.Replication = nil
			return m
		}(), ErrNotYet, ""},
		"replicas, of a map without": {func() *Map {
			m := later(first, keep)
			m.Version, m.Replication = 1, nil
			return m
		}(), later(first, keep), ErrNotYet, ""},
		"late first": {nil, later(first, keep), ErrNotYet, ""},

		"more shards": {first, later(first, func(m *Map, r *Replication) {
			m.Owner, r.Group = append(m.Owner, 0), append(r.Group, 0)
		}), ErrFixed, "8 shards become 9"},
		"fewer groups": {first, later(first, func(_ *Map, r *Replication) {
			r.Groups = r.Groups[:3]
			for shard, g := range r.Group {
				r.Group[shard] = g % 3
			}
		}), ErrFixed, "4 groups become 3"},
		"another id of a group": {first, later(first, func(_ *Map, r *Replication) { r.Groups[3].ID = 9 }), ErrFixed, "shard 3 goes from group 4 to group 9, which was group 0"},
		"a shard of another group": {first, later(first, func(_ *Map, r *Replication) {
			r.Group[0], r.Group[1] = r.Group[1], r.Group[0]
		}), ErrFixed, "shard 0 goes from group 1 to group 2"},
		"a replica elsewhere under its id": {four, later(four, func(_ *Map, r *Replication) { r.Groups[2].Replicas[1].Node = 3 }), ErrFixed, "it needs another id there"},
		"replicas that swap nodes": {first, later(first, func(_ *Map, r *Replication) {
			p := r.Groups[0].Replicas
			p[0].Node, p[1].Node = p[1].Node, p[0].Node
		}), ErrFixed, "it needs another id there"},
		"another store": {first, later(first, func(_ *Map, r *Replication) { r.Stores[2] = [16]byte{78} }), ErrFixed, "in another store"},
		"an id that falls": {
			later(first, func(_ *Map, r *Replication) { r.Groups[1].Replicas[2].ID = 9 }),
			later(later(first, keep), func(_ *Map, r *Replication) { r.Groups[1].Replicas[2].ID = 8 }), ErrFixed, "ids rise",
		},
	} {
		err := CheckChange(tc.previous, tc.next)
		if !errors.Is(err, tc.want) || (err == nil) != (tc.want == nil) || err != nil && !strings.Contains(err.Error(), tc.text) {
			t.Errorf("%s: %v, want %v with %q", name, err, tc.want, tc.text)
		}
	}
}

// TestCheckChangeBurns: a group may give way to a new one, with all its shards, and its id never comes back; whichever versions a node has missed.
func TestCheckChangeBurns(t *testing.T) {
	later := func(m *Map, f func(*Map, *Replication)) *Map {
		next, r := *m, *m.Replication
		next.Version++
		next.Owner, r.Group, r.Groups, next.Replication = slices.Clone(m.Owner), slices.Clone(r.Group), slices.Clone(r.Groups), &r
		f(&next, &r)
		return &next
	}
	keep := func(*Map, *Replication) {}
	first := sampleReplicas()
	burnt := later(first, burns(2, 5))
	again, stands := later(burnt, burns(5, 6)), later(burnt, func(_ *Map, r *Replication) { r.Groups[3].Phase = Stands })
	for name, tc := range map[string]struct {
		previous, next *Map
		want           error
		text           string
	}{
		"once":      {first, burnt, nil, ""},
		"by and by": {burnt, later(burnt, burns(5, 6)), nil, ""},
		"at once":   {first, later(burnt, burns(5, 6)), nil, ""},
		"two":       {first, later(burnt, burns(3, 6)), nil, ""},

		"lost again":                    {burnt, later(burnt, burnsAs(5, 6, 2)), nil, ""},
		"lost again, and heard of late": {first, later(later(burnt, burnsAs(5, 6, 2)), keep), nil, ""},
		"and recovered of the second":   {burnt, later(later(burnt, burnsAs(5, 6, 2)), burns(6, 7)), nil, ""},
		"it stands":                     {burnt, stands, nil, ""},

		"back":                          {burnt, later(later(first, keep), keep), ErrFixed, "shard 1 goes from group 5 to group 2, which was group 0"},
		"another under the same id":     {burnt, later(later(first, keep), burns(3, 5)), ErrFixed, "goes"},
		"of another one":                {burnt, later(later(burnt, keep), func(_ *Map, r *Replication) { r.Groups[3].Was, r.Groups[3].Times = 0, 0 }), ErrFixed, "group 5, which was group 2, is said to have been group 0"},
		"made of one that is there":     {first, later(first, burnsAs(2, 5, 1)), ErrMalformed, "group 1, which is there"},
		"made of one before that":       {again, later(again, burnsAs(6, 7, 2)), ErrFixed, "shard 1 goes from group 6 to group 7, which was group 2"},
		"as often as before":            {burnt, later(burnt, func(m *Map, r *Replication) { burns(5, 6)(m, r); r.Groups[3].Times = 1 }), ErrFixed, "shard 1 goes from group 5 to group 6"},
		"another time":                  {burnt, later(burnt, func(_ *Map, r *Replication) { r.Groups[3].Times++ }), ErrFixed, "group 5, which was group 2, is said"},
		"a phase back":                  {stands, later(burnt, keep), ErrOtherMap, ""},
		"a phase back, later":           {stands, later(later(burnt, keep), keep), ErrFixed, "group 5 goes from phase 1 to phase 0"},
		"a new one that was nothing":    {first, later(first, burnsAs(2, 5, 0)), ErrFixed, "shard 1 goes from group 2 to group 5, which was group 0"},
		"shards of two, of one of them": {first, later(first, func(m *Map, r *Replication) { burns(2, 5)(m, r); r.Group[0], m.Owner[0] = r.Group[1], m.Owner[1] }), ErrFixed, "shards of group 1 go to groups"},
		"some of its shards": {first, later(first, func(m *Map, r *Replication) {
			burns(2, 5)(m, r)
			r.Group[1], m.Owner[1] = r.Group[0], m.Owner[0]
		}), ErrFixed, "shard 1 goes from group 2 to group 1"},
	} {
		err := CheckChange(tc.previous, tc.next)
		if !errors.Is(err, tc.want) || (err == nil) != (tc.want == nil) || err != nil && !strings.Contains(err.Error(), tc.text) {
			t.Errorf("%s: %v, want %v with %q", name, err, tc.want, tc.text)
		}
	}
}

// burns has a group of the map be replaced by another one, whose only replica is where the first of the old one is.
func burns(id, next uint32) func(*Map, *Replication) { return burnsAs(id, next, id) }

// burnsAs is burns of a map that says that the new group was another one.
func burnsAs(id, next, was uint32) func(*Map, *Replication) {
	return func(m *Map, r *Replication) {
		i := slices.IndexFunc(r.Groups, func(g Group) bool { return g.ID == id })
		g := Group{ID: next, Was: was, Times: r.Groups[i].Times + 1, Top: 1, Replicas: []Replica{{Node: r.Groups[i].Replicas[0].Node, ID: 1}}}
		if was == 0 {
			g.Times = 0
		}
		r.Groups = append(slices.Delete(slices.Clone(r.Groups), i, i+1), g)
		for shard, at := range r.Group {
			switch {
			case int(at) == i:
				r.Group[shard] = uint16(len(r.Groups) - 1)
			case int(at) > i:
				r.Group[shard]--
			}
			m.Owner[shard] = r.Groups[r.Group[shard]].Replicas[0].Node
		}
	}
}

// TestTwoMetas: no map of another meta group than the one in force follows, whichever version is higher; a node that has heard of neither follows any.
func TestTwoMetas(t *testing.T) {
	of := func(version uint64, lives ...uint64) *Map {
		m, r := *sampleReplicas(), *sampleReplicas().Replication
		r.Lives, m.Replication, m.Version = lives, &r, version
		return &m
	}
	const generation = 1 << 32
	old := sampleReplicas()
	for name, tc := range map[string]struct {
		previous, next *Map
		want           error
	}{
		"made anew":                    {old, of(generation, 7), nil},
		"made anew twice":              {old, of(2*generation+4, 7, 8), nil},
		"once more":                    {of(generation+5, 7), of(2*generation, 7, 8), nil},
		"the same again":               {of(generation, 7), of(generation, 7), nil},
		"goes on":                      {of(generation, 7), of(generation+1, 7), nil},
		"another one":                  {of(generation, 7), of(generation+1, 8), ErrTwoMetas},
		"another one, of that version": {of(generation, 7), of(generation, 8), ErrTwoMetas},
		"another one, that is behind":  {of(generation+9, 7), of(generation+1, 8), ErrTwoMetas},
		"what came behind another one": {of(generation, 7), of(2*generation, 8, 9), ErrTwoMetas},
		"one before it":                {of(2*generation, 7, 9), of(generation, 8), ErrTwoMetas},
		"the one of before":            {of(generation, 7), old, ErrOtherMap},
		"no number":                    {old, of(generation), ErrMalformed},
		"a number too many":            {old, of(generation, 7, 8), ErrMalformed},
		"the number 0":                 {old, of(generation, 0), ErrMalformed},
		"of the first generation":      {old, of(9, 7), ErrMalformed},
	} {
		err := CheckChange(tc.previous, tc.next)
		if !errors.Is(err, tc.want) || (err == nil) != (tc.want == nil) || err != nil && strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %v", name, err, tc.want)
		}
	}
	last := of(MaxGenerations*generation, make([]uint64, MaxGenerations)...)
	for i := range last.Replication.Lives {
		last.Replication.Lives[i] = uint64(i) + 1
	}
	if err := last.Check(); err != nil || last.NextGeneration() != 0 || last.Life() != MaxGenerations || old.Life() != 0 {
		t.Errorf("%v; behind the last generation comes %d, life %d", err, last.NextGeneration(), last.Life())
	}
	last.Version += generation
	last.Replication.Lives = append(last.Replication.Lives, 99)
	if err := last.Check(); !errors.Is(err, ErrMalformed) {
		t.Errorf("a generation too many: %v", err)
	}
}

// TestBurnt: a node keeps what it has of a group that gave way to another one until that one stands, and then as long as it has to have no replica of it and the others are not enough.
func TestBurnt(t *testing.T) {
	m := sampleReplicas()
	d := m.Draft()
	from := d.Group(2).Replicas[0].Node
	id := d.Recover(2, from, 2)
	next, err := d.Map(m)
	if err != nil {
		t.Fatal(err)
	}
	shard := uint16(slices.Index(m.Replication.Group, 1))
	g := &next.Replication.Groups[len(next.Replication.Groups)-1]
	if g.ID != id {
		t.Fatalf("%+v", g)
	}
	with := int(g.Replicas[0].Node)
	without := (with + 1) % len(m.Nodes)
	for phase, want := range map[Phase][2]bool{Begins: {true, true}, Stands: {false, true}, Settled: {false, false}} {
		g.Phase = phase
		if got := [2]bool{next.Burnt(shard, with), next.Burnt(shard, without)}; got != want {
			t.Errorf("phase %d: %v, want %v", phase, got, want)
		}
		if next.Burnt(shard, -1) || next.Burnt(shard+1, with) || next.Burnt(1<<12, with) || m.Burnt(shard, with) {
			t.Errorf("phase %d: something is kept that is not to be", phase)
		}
	}
}
