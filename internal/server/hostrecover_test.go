package server

import (
	"fmt"
	"testing"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/store"
)

// TestHostRecovers: of a group that gives way to a new one the node that the map names makes that of its replica, with all keys; the others keep theirs until the map says that they need not; and a node that has none any more makes no empty group of nothing.
func TestHostRecovers(t *testing.T) {
	r := startReplicas(t)
	old, other := r.m.Replication.Groups[0].ID, r.m.Replication.Groups[1].ID
	keys := map[uint32]string{}
	for shard := range uint16(4) {
		keys[r.m.Replication.Groups[r.m.Replication.Group[shard]].ID] = keyOf(shard)
	}
	r.put(keys[old], "1")
	r.put(keys[other], "1")
	lead := r.leader(r.shardOf(keys[old]))
	at, gone := (lead+1)%3, (lead+2)%3 // one that follows, and one that has lost what it had
	name := func(i int) string { return string(rune('a' + i)) }
	recovered := func(m *cluster.Map, id uint32, node string) (*cluster.Map, uint32) {
		t.Helper()
		d := m.Draft()
		made := d.Recover(id, node, id)
		next, err := d.Map(m)
		if err != nil {
			t.Fatal(err)
		}
		return next, made
	}
	follow := func(i int, m *cluster.Map) {
		t.Helper()
		if err := r.nodes[i].groups.InForce(m); err != nil {
			t.Fatal(err)
		}
	}
	has := func(i int, want ...uint32) {
		t.Helper()
		eventually(t, fmt.Sprintf("node %s has groups %v", name(i), want), func() bool {
			var got []uint32
			for _, g := range store.ReplicasOf(r.nodes[i].main.Store) {
				got = append(got, uint32(g.ID))
			}
			return fmt.Sprint(got) == fmt.Sprint(want)
		})
	}
	second, made := recovered(r.m, old, name(at))
	follow(at, second)
	has(at, other, made)
	// The others keep what they have of it, and run it no more, until the new one has its replicas.
	kept := func(i int, want ...uint32) {
		t.Helper()
		eventually(t, fmt.Sprintf("node %s keeps groups %v", name(i), want), func() bool {
			var got []uint32
			for _, k := range (clusterNode{r.nodes[i]}).kept() {
				got = append(got, k.Group)
			}
			return fmt.Sprint(got) == fmt.Sprint(want)
		})
	}
	phase := func(m *cluster.Map, p cluster.Phase) *cluster.Map {
		t.Helper()
		d := m.Draft()
		d.Group(made).Phase = p
		next, err := d.Map(m)
		if err != nil {
			t.Fatal(err)
		}
		return next
	}
	for _, i := range []int{lead, gone} {
		follow(i, second)
		has(i, old, other)
		kept(i, old)
	}
	stands := phase(second, cluster.Stands)
	for i := range 3 {
		follow(i, stands)
	}
	has(lead, old, other)
	second = phase(stands, cluster.Settled)
	for i := range 3 {
		follow(i, second)
	}
	for _, i := range []int{lead, gone} {
		has(i, other)
		kept(i)
	}
	r.m = second
	r.want(keys[old], "1")
	r.put(keys[old], "2")
	r.want(keys[old], "2")
	r.put(keys[other], "2")

	// A map that has the next group begin where no replica of this one is.
	third, next := recovered(second, made, name(at))
	for i := range third.Replication.Groups {
		if g := &third.Replication.Groups[i]; g.ID == next {
			g.Replicas[0].Node = uint16(third.IndexOf(name(gone)))
			for shard, of := range third.Replication.Group {
				if int(of) == i {
					third.Owner[shard] = g.Replicas[0].Node
				}
			}
		}
	}
	follow(gone, third)
	// Each map behind it is looked at when the node is done with the one before.
	m := third
	later := func(f func(g *cluster.DraftGroup)) {
		t.Helper()
		d := m.Draft()
		f(d.Group(other))
		var err error
		if m, err = d.Map(m); err != nil {
			t.Fatal(err)
		}
		follow(gone, m)
	}
	take := func(g *cluster.DraftGroup) { g.Take(g.At(name(gone)).ID, 0) }
	later(take)
	has(gone)
	later(func(g *cluster.DraftGroup) { g.Add(name(gone)) })
	has(gone, other)
	later(take)
	has(gone)
	for _, g := range r.nodes[gone].groups.Status() {
		if g.ID == next && (g.State != "waits" || g.Last != 0) {
			t.Errorf("a group is made of nothing: %+v", g)
		}
	}
}
