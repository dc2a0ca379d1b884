package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
)

// sampleSpaces is a map of format 6: three nodes, spaces "blue" of two groups and "red" of one.
func sampleSpaces() *Map {
	m := sampleReplicas()
	d := m.Draft()
	d.AddSpace(m, "blue", 2, 1<<20)
	d.AddSpace(m, "red", 1, 0)
	next, err := d.Map(m)
	if err != nil {
		panic(err)
	}
	return next
}

// redrawn is the next map, of what f makes of a draft.
func redrawn(t *testing.T, m *Map, f func(d *Draft)) *Map {
	t.Helper()
	d := m.Draft()
	f(d)
	next, err := d.Map(m)
	if err != nil {
		t.Fatal(err)
	}
	return next
}

// TestSpaces: a space has groups at the nodes of those beside which they run, of numbers that nothing had; the map reads as it was written; a space that is made again has other numbers.
func TestSpaces(t *testing.T) {
	m := sampleSpaces()
	r := m.Replication
	if m.Form() != spacesFormat || len(AppendMap(nil, m)) > MaxMap {
		t.Errorf("format %d, %d bytes", m.Form(), len(AppendMap(nil, m)))
	}
	taken := map[uint32]bool{0: true}
	for i := range r.Groups {
		taken[r.Groups[i].ID] = true
	}
	for i := range r.Spaces {
		s := &r.Spaces[i]
		if taken[s.ID] {
			t.Errorf("space %q has number %d, which is another's", s.Name, s.ID)
		}
		taken[s.ID] = true
		for j := range s.Groups {
			g, beside := &s.Groups[j], r.Beside(j)
			if taken[g.ID] {
				t.Errorf("group %d is another one, too", g.ID)
			}
			taken[g.ID] = true
			if len(g.Replicas) != len(beside.Replicas) || g.Top != uint64(len(g.Replicas)) {
				t.Errorf("group %d has %+v, and runs beside %+v", g.ID, g, beside)
			}
			for k, p := range g.Replicas {
				if p.ID != uint64(k+1) || p.Node != beside.Replicas[k].Node || g.Founds(p.ID) != (k == 0) {
					t.Errorf("group %d: %+v beside %+v", g.ID, p, beside.Replicas[k])
				}
			}
		}
		for shard := range m.Owner {
			if s.Group(uint16(shard)) != &s.Groups[shard%len(s.Groups)] {
				t.Errorf("shard %d of space %q is in another group", shard, s.Name)
			}
		}
	}
	if again, err := ParseMap(AppendMap(nil, m)); err != nil || !reflect.DeepEqual(again, m) {
		t.Fatalf("%v\n%+v\n%+v", err, again, m)
	}
	was := *r.Space("blue")
	dropped := redrawn(t, m, func(d *Draft) {
		if !d.DropSpace("blue") || d.DropSpace("blue") || d.DropSpace("green") {
			t.Error("what is dropped is what was there")
		}
	})
	if dropped.Replication.Space("blue") != nil || dropped.Replication.Space("red") == nil || dropped.Form() != spacesFormat {
		t.Errorf("%+v", dropped.Replication.Spaces)
	}
	none := redrawn(t, dropped, func(d *Draft) { d.DropSpace("red") })
	if again, err := ParseMap(AppendMap(nil, none)); err != nil || !reflect.DeepEqual(again, none) || none.Form() != spacesFormat || none.Replication.Last != r.Last {
		t.Errorf("the map forgets which numbers there were: %v, %+v", err, again)
	}
	again := redrawn(t, none, func(d *Draft) { d.AddSpace(none, "blue", 2, 0) })
	is := again.Replication.Space("blue")
	if is.ID <= r.Last || is.Groups[0].ID <= r.Last || is.ID == was.ID {
		t.Errorf("space %+v is made again as %+v", was, *is)
	}
	for _, step := range [][2]*Map{{m, dropped}, {dropped, none}, {none, again}, {m, again}, {sampleReplicas(), m}, {sampleReplicas(), again}} {
		if err := CheckChange(step[0], step[1]); err != nil {
			t.Error(err)
		}
	}
}

// TestSpaceNumbers: a group that is recovered gets a number above those of spaces; a meta group that is made anew leaves numbers out, those of spaces that came first then, too; where no number is left, nothing comes.
func TestSpaceNumbers(t *testing.T) {
	m := sampleSpaces()
	last := m.Replication.Last
	for _, id := range []uint32{2, m.Replication.Space("blue").Groups[0].ID} {
		at := m.Draft().Group(id).Replicas[1].Node
		var made uint32
		next := redrawn(t, m, func(d *Draft) { made = d.Recover(id, at, id) })
		d := next.Draft()
		if made != last+1 || next.Replication.Last != made || d.Group(id) != nil || d.Group(made).Was != id {
			t.Errorf("group %d is recovered as %d: %+v", id, made, d.Group(made))
		}
		if err := CheckChange(m, next); err != nil {
			t.Error(err)
		}
		if g := next.Replication.Space("blue").Groups[0]; id != 2 && g.ID != made {
			t.Errorf("the position of group %d has group %d", made, g.ID)
		}
	}
	d := m.Draft()
	if !d.Gap() || d.Last != last+numbersOfGeneration || d.AddSpace(m, "green", 1, 0).ID != d.Last-1 {
		t.Errorf("numbers of the next generation begin at %d, and %d was the last", d.Last, last)
	}
	older := *sampleLive()
	older.Version, older.Replication.Lives = 3<<32, []uint64{1, 2, 3}
	d = older.Draft()
	if d.Gap(); d.Last != 0 {
		t.Errorf("a map without spaces has numbers of spaces: %d", d.Last)
	}
	if s := d.AddSpace(&older, "green", 1, 0); s == nil || s.ID < 3*numbersOfGeneration {
		t.Errorf("the first space of generation 3: %+v", s)
	}
	d = m.Draft()
	d.Last = 1<<32 - 3
	if d.Gap() {
		t.Error("there are numbers for another generation")
	}
	if d.AddSpace(m, "green", 2, 0) != nil {
		t.Error("a space comes, for whose second group no number is left")
	}
	if id := d.Recover(2, d.Group(2).Replicas[0].Node, 2); id != 0 {
		t.Errorf("group 2 is recovered as %d", id)
	}
	if d := m.Draft(); d.AddSpace(m, "red", 1, 0) != nil || d.AddSpace(m, "green", 0, 0) != nil || d.AddSpace(m, "green", len(m.Owner)+1, 0) != nil {
		t.Error("a space comes twice, without groups, or with more than shards")
	}
}

// spaced changes the spaces of a map, in a copy.
func spaced(m *Map, f func(m *Map, r *Replication)) *Map {
	return later(m, func(m *Map, r *Replication) {
		r.Spaces = slices.Clone(r.Spaces)
		for i := range r.Spaces {
			r.Spaces[i].Groups = slices.Clone(r.Spaces[i].Groups)
			for j := range r.Spaces[i].Groups {
				g := &r.Spaces[i].Groups[j]
				g.Replicas = slices.Clone(g.Replicas)
			}
		}
		f(m, r)
	})
}

// TestSpacesAreChecked: what no map can say of spaces is refused, by Check and by the parser.
func TestSpacesAreChecked(t *testing.T) {
	m := sampleSpaces()
	if err := spaced(m, func(*Map, *Replication) {}).Check(); err != nil {
		t.Fatal(err)
	}
	blue := m.Replication.Space("blue")
	for name, f := range map[string]func(m *Map, r *Replication){
		"no name":                     func(_ *Map, r *Replication) { r.Spaces[0].Name = "" },
		"a path":                      func(_ *Map, r *Replication) { r.Spaces[0].Name = "../red" },
		"the node's own":              func(_ *Map, r *Replication) { r.Spaces[0].Name = "main" },
		"a name twice":                func(_ *Map, r *Replication) { r.Spaces[0].Name = "red" },
		"a number twice":              func(_ *Map, r *Replication) { r.Spaces[1].ID = blue.ID },
		"no number":                   func(_ *Map, r *Replication) { r.Spaces[0].ID = 0 },
		"the number of a group":       func(_ *Map, r *Replication) { r.Spaces[0].ID = 1 },
		"a number above the last":     func(_ *Map, r *Replication) { r.Spaces[1].ID, r.Spaces[1].Groups[0].ID = r.Last+1, r.Last+2 },
		"numbers that fall":           func(_ *Map, r *Replication) { slices.Reverse(r.Spaces) },
		"a last number that is below": func(_ *Map, r *Replication) { r.Last-- },
		"no last number":              func(_ *Map, r *Replication) { r.Last = 0 },
		"one below the groups":        func(_ *Map, r *Replication) { r.Spaces, r.Last = nil, 1 },
		"the group of another space":  func(_ *Map, r *Replication) { r.Spaces[1].Groups[0].ID = blue.Groups[1].ID },
		"a group twice":               func(_ *Map, r *Replication) { r.Spaces[0].Groups[1].ID = blue.Groups[0].ID },
		"a group of the node":         func(_ *Map, r *Replication) { r.Spaces[0].Groups[1].ID = 2 },
		"a group below its space":     func(_ *Map, r *Replication) { r.Last += 5; r.Spaces[1].ID = r.Last },
		"no groups":                   func(_ *Map, r *Replication) { r.Spaces[0].Groups = nil },
		"more groups than shards": func(m *Map, r *Replication) {
			r.Last += uint32(len(m.Owner)) + 1
			for i := range len(m.Owner) + 1 {
				g := r.Spaces[1].Groups[0]
				g.ID = m.Replication.Last + uint32(i) + 1
				r.Spaces[1].Groups = append(r.Spaces[1].Groups, g)
			}
		},
		"a group without replicas": func(_ *Map, r *Replication) { r.Spaces[0].Groups[0].Replicas = nil },
		"a node that is not there": func(_ *Map, r *Replication) { r.Spaces[0].Groups[0].Replicas[0].Node = 77 },
		"an id above the highest":  func(_ *Map, r *Replication) { r.Spaces[0].Groups[0].Top = 1 },
		"a group that was itself":  func(_ *Map, r *Replication) { g := &r.Spaces[0].Groups[0]; g.Was, g.Times = g.ID, 1 },
		"a group that was a group": func(_ *Map, r *Replication) { g := &r.Spaces[0].Groups[1]; g.Was, g.Times = blue.Groups[0].ID, 1 },
		"a group of before":        func(_ *Map, r *Replication) { g := &r.Spaces[0].Groups[1]; g.Was, g.Times = 1, 1 },
		"two that were one": func(_ *Map, r *Replication) {
			for j := range r.Spaces[0].Groups {
				g := &r.Spaces[0].Groups[j]
				g.ID, g.Was, g.Times = r.Last+1, blue.Groups[0].ID, 1
				r.Last++
			}
		},
		"no meta group":      func(_ *Map, r *Replication) { r.Meta, r.Zones = nil, nil },
		"the first map":      func(m *Map, _ *Replication) { m.Version = 1 },
		"a number of times":  func(_ *Map, r *Replication) { r.Spaces[0].Groups[0].Times = 1 },
		"a phase of nothing": func(_ *Map, r *Replication) { r.Spaces[0].Groups[0].Phase = Stands },
	} {
		bad := spaced(m, f)
		if err := bad.Check(); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
		if bad.Replication.Meta == nil || bad.Replication.Last == 0 {
			continue // it has another format
		}
		if _, err := ParseMap(AppendMap(nil, bad)); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s, parsed: %v", name, err)
		}
	}
	many := m.Draft()
	for i := range MaxSpaces - 1 {
		many.AddSpace(m, fmt.Sprint("s", i), 1, 0)
	}
	if _, err := many.Map(m); !errors.Is(err, ErrMalformed) {
		t.Errorf("%d spaces: %v", len(many.Spaces), err)
	}
}

// TestCheckChangeOfSpaces: what stays for ever of spaces, and what may come and go.
func TestCheckChangeOfSpaces(t *testing.T) {
	m := sampleSpaces()
	blue := m.Replication.Space("blue")
	top := m.Replication.Last
	for name, c := range map[string]struct {
		want error
		f    func(m *Map, r *Replication)
	}{
		"nothing":              {nil, func(*Map, *Replication) {}},
		"more memory":          {nil, func(_ *Map, r *Replication) { r.Spaces[0].Memory++ }},
		"a space goes":         {nil, func(_ *Map, r *Replication) { r.Spaces = r.Spaces[1:] }},
		"all go":               {nil, func(_ *Map, r *Replication) { r.Spaces = nil }},
		"a replica comes":      {nil, func(_ *Map, r *Replication) { g := &r.Spaces[0].Groups[0]; g.Replicas[0].Leaves, g.Top = true, 9 }},
		"all numbers are lost": {ErrFixed, func(_ *Map, r *Replication) { r.Spaces, r.Last = nil, 0 }},
		"numbers are lost":     {ErrFixed, func(_ *Map, r *Replication) { r.Spaces = r.Spaces[:1]; r.Last = blue.Groups[1].ID }},
		"another name":         {ErrFixed, func(_ *Map, r *Replication) { r.Spaces[0].Name = "green" }},
		"a group less":         {ErrFixed, func(_ *Map, r *Replication) { r.Spaces[0].Groups = r.Spaces[0].Groups[:1] }},
		"groups change places": {ErrFixed, func(_ *Map, r *Replication) { slices.Reverse(r.Spaces[0].Groups) }},
		"another group":        {ErrFixed, func(_ *Map, r *Replication) { r.Last++; r.Spaces[0].Groups[0].ID = r.Last }},
		"a replica in another store": {ErrFixed, func(_ *Map, r *Replication) { // a space runs in it beside the node's own
			r.Groups, r.Group = r.Groups[:0:0], slices.Clone(r.Group)
			for i, g := range m.Replication.Groups { // all of the node's own are others there, and the space's are not
				g.ID, g.Was, g.Times, g.Top, g.Replicas = r.Last+1, g.ID, 1, 1, []Replica{{Node: uint16(i % 3), ID: 1}}
				r.Last++
				r.Groups = append(r.Groups, g)
			}
			r.Meta = &Group{Top: 99, Replicas: []Replica{{Node: 0, ID: 97}}}
			r.Stores[2] = [16]byte{99}
		}},
		"a group that took its place": {nil, func(_ *Map, r *Replication) {
			r.Last++
			g := &r.Spaces[0].Groups[0]
			g.Was, g.Times, g.ID = g.ID, 1, r.Last
		}},
		"groups that took each other's places": {ErrFixed, func(_ *Map, r *Replication) {
			for j := range r.Spaces[0].Groups {
				r.Last++
				g := &r.Spaces[0].Groups[j]
				g.ID, g.Was, g.Times = r.Last, blue.Groups[1-j].ID, 1
			}
		}},
		"a group without the one that it was": {ErrFixed, func(_ *Map, r *Replication) {
			g := &r.Spaces[0].Groups[0]
			g.Was, g.Times = 0, 0
			g.ID = r.Last + 1
			r.Last++
		}},
		"a replica at another node": {ErrFixed, func(_ *Map, r *Replication) {
			g := &r.Spaces[0].Groups[0]
			g.Replicas[0].Node, g.Replicas[1].Node = g.Replicas[1].Node, g.Replicas[0].Node
		}},
		"the space again": {nil, func(_ *Map, r *Replication) {
			s := r.Spaces[1]
			s.ID, s.Groups[0].ID, r.Last = top+1, top+2, top+2
			r.Spaces[1] = s
		}},
		"another space of a number that was": {ErrFixed, func(_ *Map, r *Replication) {
			r.Spaces[1].ID, r.Spaces[1].Groups[0].ID = top, top+1
			r.Last = top + 1
		}},
	} {
		if err := CheckChange(m, spaced(m, c.f)); !errors.Is(err, c.want) || (c.want == nil) != (err == nil) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	// A node that has not heard of the space before hears of it when its group was recovered already.
	recovered := redrawn(t, m, func(d *Draft) {
		id := d.Space("blue").Groups[0].ID
		d.Recover(id, d.Group(id).Replicas[0].Node, id)
	})
	if err := CheckChange(sampleReplicas(), recovered); err != nil {
		t.Error(err)
	}
}

// TestMapOf: what is seen of a map by those who have to do with one space is a map of before spaces: it has the groups of that space, says nothing of others, and one follows the other for as long as the space is there.
func TestMapOf(t *testing.T) {
	plain := sampleReplicas()
	if plain.Of("") != plain || plain.Of("blue") != nil || sampleMap().Of("blue") != nil {
		t.Error("a map without spaces is seen as it is, by all but those of a space")
	}
	m := sampleSpaces()
	before := map[string]*Map{}
	for step := range 5 {
		if step > 0 {
			m = redrawn(t, m, func(d *Draft) {
				switch blue := d.Space("blue"); step {
				case 1:
					id := blue.Groups[0].ID
					d.Recover(id, blue.Groups[0].Replicas[1].Node, id)
				case 2:
					blue.Groups[1].Replicas[0].Leaves = true
					d.Nodes["node-d"] = DraftNode{Weight: 1, Store: [16]byte{77}}
					blue.Groups[1].Add("node-d")
				case 3:
					blue.Groups[1].Take(1, 4)
					d.Recover(2, d.Group(2).Replicas[0].Node, 2)
				case 4:
					d.DropSpace("red")
				}
			})
		}
		for _, name := range []string{"", "blue", "red"} {
			seen := m.Of(name)
			if name == "red" && step == 4 {
				if seen != nil {
					t.Error("a space is seen that was dropped")
				}
				continue
			}
			if err := seen.Check(); err != nil {
				t.Fatalf("step %d, space %q: %v", step, name, err)
			}
			b := AppendMap(nil, seen)
			if again, err := ParseMap(b); err != nil || !reflect.DeepEqual(again, seen) || seen.Form() >= spacesFormat || bytes.Contains(b, []byte("red")) || bytes.Contains(b, []byte("blue")) {
				t.Errorf("step %d, space %q: format %d, %v\n%x", step, name, seen.Form(), err, b)
			}
			for shard := range m.Owner {
				g := &m.Replication.Groups[m.Replication.Group[shard]]
				if name != "" {
					g = m.Replication.Space(name).Group(uint16(shard))
				}
				if is := &seen.Replication.Groups[seen.Replication.Group[shard]]; !reflect.DeepEqual(is, g) {
					t.Errorf("step %d, space %q: shard %d is in %+v, and seen in %+v", step, name, shard, g, is)
				}
			}
			if was := before[name]; was != nil {
				if err := CheckChange(was, seen); err != nil {
					t.Errorf("step %d, space %q: %v", step, name, err)
				}
			}
			before[name] = seen
		}
	}
	// One that was made again is another one, whoever saw the first.
	again := redrawn(t, m, func(d *Draft) { d.AddSpace(m, "red", 1, 0) })
	if err := CheckChange(before["red"], again.Of("red")); !errors.Is(err, ErrFixed) {
		t.Errorf("a space that was made again is taken for the first one: %v", err)
	}
}
