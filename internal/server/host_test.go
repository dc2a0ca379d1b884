package server

import (
	"fmt"
	"testing"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/store"
)

// TestHost: a node gives up the replica that a later map does not have there, and makes the one that it has, and leaves alone what is in both, which goes on.
func TestHost(t *testing.T) {
	r := startReplicas(t)
	moved, stays := r.m.Replication.Groups[0].ID, r.m.Replication.Groups[1].ID
	key := func(group int) string {
		for shard := range uint16(4) {
			if int(r.m.Replication.Group[shard]) == group {
				return keyOf(shard)
			}
		}
		t.Fatalf("group %d has no shard", group)
		return ""
	}
	r.put(key(0), "1")
	r.put(key(1), "1")
	change := func(m *cluster.Map, f func(d *cluster.Draft)) *cluster.Map {
		t.Helper()
		d := m.Draft()
		f(d)
		next, err := d.Map(m)
		if err != nil {
			t.Fatal(err)
		}
		return next
	}
	ids := map[string]uint64{} // of the replicas of the first group
	for _, p := range r.m.Draft().Group(moved).Replicas {
		ids[p.Node] = p.ID
	}
	lead := string(rune('a' + r.leader(r.shardOf(key(0)))))
	var followers []string
	for i := range r.nodes {
		if id := string(rune('a' + i)); id != lead {
			followers = append(followers, id)
		}
	}
	// Of the two followers one loses its replica before it gets another one, and one gets it at once.
	without, both := followers[0], followers[1]
	second := change(r.m, func(d *cluster.Draft) { d.Group(moved).Take(ids[without], 0) })
	third := change(second, func(d *cluster.Draft) {
		g := d.Group(moved)
		g.Add(without)
		g.Take(ids[both], 0)
		g.Add(both)
	})
	has := func(node string, m *cluster.Map) {
		t.Helper()
		srv := r.nodes[node[0]-'a']
		var want []string
		d := m.Draft()
		for _, g := range d.Groups[1:] {
			if p := g.At(node); p != nil {
				want = append(want, fmt.Sprint(g.ID, "/", p.ID))
			}
		}
		var got []string
		eventually(t, fmt.Sprintf("node %s has the replicas of map %d", node, m.Version), func() bool {
			got = nil
			for _, g := range store.ReplicasOf(srv.main.Store) {
				got = append(got, fmt.Sprint(uint32(g.ID), "/", uint64(g.Replica)))
			}
			return fmt.Sprint(got) == fmt.Sprint(want)
		})
	}
	for _, node := range []string{"a", "b", "c"} {
		has(node, r.m)
	}
	follow := func(node string, m *cluster.Map) {
		t.Helper()
		if err := r.nodes[node[0]-'a'].groups.InForce(m); err != nil {
			t.Fatal(err)
		}
	}
	follow(without, second)
	has(without, second)
	follow(without, r.m) // an older one changes nothing
	r.put(key(0), "2")   // two of three are left
	r.put(key(1), "2")
	has(without, second)
	follow(without, third)
	has(without, third)
	for _, g := range r.nodes[without[0]-'a'].groups.Status() {
		if g.ID == moved && g.Applied != 0 {
			t.Errorf("the new replica begins with entries up to %d, and not empty", g.Applied)
		}
		if g.ID == stays && g.Applied == 0 {
			t.Error("the replica that stays was made anew")
		}
	}
	r.want(key(0), "2")
	r.want(key(1), "2")
	follow(both, third) // the group has no majority from here on
	has(both, third)
	r.put(key(1), "3")
	r.want(key(1), "3")
}

// shardOf is the shard of a key.
func (r *replicas) shardOf(key string) uint16 {
	return cluster.ShardOf([]byte(key), len(r.m.Replication.Group))
}
