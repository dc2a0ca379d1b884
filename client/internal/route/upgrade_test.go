package route

import (
	"slices"
	"testing"

	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/client/internal/peer"
	"github.com/rdmakv/rdmakv/client/internal/session"
	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/world"
)

// A cluster without replicas gets groups while a client uses it.

// upgraded is a router whose cluster gets groups, by the map that it returns beside the one before it.
func upgraded(t *testing.T) (f *Router, from, next *cluster.Map) {
	t.Helper()
	b := newBeliever(t, 3, 2)
	f = newRouter(b.cfg, world.World{})
	t.Cleanup(func() { f.Close() })
	from, err := cluster.Propose([16]byte{1}, "c", 12, []cluster.MapNode{{ID: "n1"}, {ID: "n2"}, {ID: "n3"}})
	if err != nil {
		t.Fatal(err)
	}
	next, err = cluster.ProposeAdopting(from, cluster.Want{Stores: [][16]byte{{1}, {2}, {3}}})
	if err != nil {
		t.Fatal(err)
	}
	f.Install(from)
	return f, from, next
}

// TestPeersOfBefore: a call that was led to a node before the cluster had groups names its write there as before, because the node knows the client by another name; and a write of which it is not known whether it took effect is made
// at no group, which would know nothing of it.
func TestPeersOfBefore(t *testing.T) {
	f, _, next := upgraded(t)
	key := []byte("k")
	p, err := f.Owner(key)
	if err != nil {
		t.Fatal(err)
	}
	f.Install(next)
	if p.Led() || p.Names(key) != p.IDs {
		t.Error("a peer of before has the names of groups, under the name of another client")
	}
	q, err := f.Owner(key)
	if err != nil {
		t.Fatal(err)
	}
	if q == p || !q.Led() || q.Names(key) == p.IDs || q.Names(key) == q.IDs || q.ClientID() == p.ClientID() {
		t.Error("a peer of groups names its writes as one of before")
	}
	ctx := t.Context()
	for _, why := range []error{base.ErrLost, &session.NotLeader{Group: 1}, base.ErrClosed} {
		unknown := base.Because(base.ErrOutcomeUnknown, why)
		if f.Again(ctx, new(Reroute), p, key, unknown) != nil {
			t.Errorf("%v: the write is made again, under another name", unknown)
		}
		if again, _, _ := f.table.Load().failed(ctx, []int{0}, map[*peer.Peer][]int{p: {0}}, new(Reroute), func(int) []byte { return key }, func(int) *error { return &unknown }); len(again) > 0 {
			t.Errorf("%v: the write is made again with others, under another name", unknown)
		}
		if got := f.table.Load().heed(ctx, p, key, why); got != stepMap {
			t.Errorf("%v: a call at a peer of before goes on by step %d", why, got)
		}
	}
}

// TestSharesBecame: what a scan asks of a node it goes on to ask of the groups that its shards have become, all of them, and of no other one.
func TestSharesBecame(t *testing.T) {
	f, from, next := upgraded(t)
	shares, err := Shares(t.Context(), f)
	if err != nil || len(shares) != 3 {
		t.Fatal(len(shares), err)
	}
	if got := shares[0].Became(t.Context(), f, base.ErrNotFound); got != nil {
		t.Errorf("%v without groups", got)
	}
	f.Install(next)
	var all []uint32
	for _, s := range shares {
		for _, g := range s.Became(t.Context(), f, base.ErrClosed) {
			all = append(all, g.Group)
			of := slices.IndexFunc(next.Replication.Groups, func(of cluster.Group) bool { return of.ID == g.Group })
			for _, shard := range next.Replication.ShardsOf(of) {
				if from.OwnerOf(shard) != s.Node() {
					t.Errorf("group %d is asked in the place of node %s, and has shard %d of %s", g.Group, s.Node(), shard, from.OwnerOf(shard))
				}
			}
			if g.Became(t.Context(), f, base.ErrClosed) != nil {
				t.Error("the share of a group becomes another one")
			}
		}
	}
	slices.Sort(all)
	if len(all) != len(next.Replication.Groups) || len(slices.Compact(all)) != len(all) {
		t.Errorf("groups %v are asked", all)
	}
}
