package server

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/store"
)

// A cluster without replicas gets groups, which begin with the keys of its nodes.

// startFixed starts three nodes of a cluster without replicas, with a key in each shard, and returns their map and the one by which they get groups.
func startFixed(t *testing.T) (r *replicas, from, next *cluster.Map) {
	t.Helper()
	r = startUnmapped(t)
	from = birth(t, r.nodes...)
	want := cluster.Want{Groups: 1}
	for _, n := range from.Nodes {
		want.Stores = append(want.Stores, r.nodes[n.ID[0]-'a'].main.Store.ID())
	}
	next, err := cluster.ProposeAdopting(from, want)
	if err != nil {
		t.Fatal(err)
	}
	r.m, r.anew = next, true
	for shard := range uint16(4) {
		r.atOwner(from, shard, func(p *peer) error { return p.put(keyOf(shard), "before") })
	}
	return r, from, next
}

// mustCommit puts a map in force at nodes. The session that asks for it is one that READs by the map before, so it may be ended before it has its answer; then it is asked again, as clients do.
func mustCommit(t *testing.T, m *cluster.Map, nodes ...*Server) {
	t.Helper()
	for _, srv := range nodes {
		eventually(t, "the map is in force", func() bool {
			p, err := tryDial(t, srv, peerOptions{anew: true})
			if err != nil {
				return false
			}
			defer p.close()
			got, err := p.change(wire.MapCommit, m)
			if err == nil && len(got.Text) > 0 {
				t.Fatalf("%q", got.Text)
			}
			return err == nil && got.State == wire.MapCommitted && got.Digest == m.Digest()
		})
	}
}

// atOwner asks the node that has a shard by a map without replicas.
func (r *replicas) atOwner(m *cluster.Map, shard uint16, ask func(*peer) error) {
	r.t.Helper()
	p := dial(r.t, r.nodes[m.OwnerOf(shard)[0]-'a'], peerOptions{})
	defer p.close()
	if err := ask(p); err != nil {
		r.t.Fatalf("shard %d at node %s: %v", shard, m.OwnerOf(shard), err)
	}
}

// servesBy has each node serve by a map without replicas.
func (r *replicas) servesBy(m *cluster.Map, when string) {
	r.t.Helper()
	for shard := range uint16(4) {
		r.atOwner(m, shard, func(p *peer) error {
			if err := p.put(keyOf(shard), when); err != nil {
				return err
			}
			got, err := p.get(keyOf(shard), 100)
			if err == nil && string(got.Value) != when {
				err = fmt.Errorf("%q, want %q", got.Value, when)
			}
			return err
		})
	}
	for _, srv := range r.nodes {
		if own := srv.owned.Shards(); own.Map.Digest() != m.Digest() {
			r.t.Errorf("%s: node %s goes by %v", when, srv.cfg.Cluster.NodeID, own.Map)
		}
	}
}

// TestUpgradeMissed: all nodes have promised the map by which they get groups, and serve by the one before it, also over a start. Who asks for a group is told to come again. The commit comes to one node alone: the others ask for the
// map by themselves, and every key is there, in groups that number on.
func TestUpgradeMissed(t *testing.T) {
	r, from, next := startFixed(t)
	var before []uint64
	for shard := range uint16(4) {
		r.atOwner(from, shard, func(p *peer) error {
			got, err := p.get(keyOf(shard), 100)
			before = append(before, got.Version)
			return err
		})
	}
	scan := func(id uint64) []byte { return wire.AppendScan(nil, id, wire.Scan{Group: 1, Limit: 1}) }
	p := dial(t, r.nodes[1], peerOptions{})
	if _, err := p.call(scan); wire.StatusOf(err) != wire.StatusBadRequest {
		t.Errorf("a scan of a group that nobody has heard of: %v", err)
	}
	mustChange(t, wire.MapPrepare, next, r.nodes...)
	if _, err := p.call(scan); wire.StatusOf(err) != wire.StatusNotLeader {
		t.Errorf("a scan of a group that another node may have told of: %v", err)
	}
	p.close()
	r.servesBy(from, "promised")
	r.stop(2)
	r.start(2)
	eventually(t, "all nodes know of each other", func() bool {
		return !slices.ContainsFunc(r.nodes, func(srv *Server) bool { return len(srv.member.Members().View().Members) < 3 })
	})
	r.servesBy(from, "started again")
	if got := r.nodes[2].member; got.Ownership().Awaited.Load() == nil {
		t.Error("the promise is forgotten")
	}
	mustCommit(t, next, r.nodes[0])
	eventually(t, "all nodes have the map in force", func() bool {
		return !slices.ContainsFunc(r.nodes, func(srv *Server) bool { m := srv.owned.Shards().Map; return m.Version < next.Version })
	})
	for shard := range uint16(4) {
		r.want(keyOf(shard), "started again")
		if lead := r.leader(shard); r.nodes[lead].cfg.Cluster.NodeID != from.OwnerOf(shard) {
			t.Errorf("shard %d is led by node %c, and was at %s", shard, 'a'+lead, from.OwnerOf(shard))
		}
		r.put(keyOf(shard), "after")
		r.do(shard, "get", func(p *peer) error {
			got, err := p.get(keyOf(shard), 100)
			if err == nil && got.Version <= before[shard] {
				err = fmt.Errorf("version %d, and it had %d", got.Version, before[shard])
			}
			return err
		})
	}
	for _, srv := range r.nodes {
		if srv.owned.Awaited.Load() != nil {
			t.Errorf("node %s still waits for the map", srv.cfg.Cluster.NodeID)
		}
	}
}

// TestUpgradeNeverCommitted: one node has not promised, so nobody puts the map in force; the others find out that nobody has it, and serve on.
func TestUpgradeNeverCommitted(t *testing.T) {
	r, from, next := startFixed(t)
	mustChange(t, wire.MapPrepare, next, r.nodes[:2]...)
	for _, srv := range r.nodes[:2] {
		for _, other := range next.Nodes {
			if other.ID == srv.cfg.Cluster.NodeID {
				continue
			}
			// The node that has promised says that it has none; the other one does not speak with nodes.
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			if err := srv.change.Learn(ctx, other.ID); (err != nil) != (other.ID == "c") {
				t.Errorf("node %s asks node %s: %v", srv.cfg.Cluster.NodeID, other.ID, err)
			}
			cancel()
		}
	}
	r.servesBy(from, "nobody has it in force")
}

// TestUpgradeAbandoned: a promise that is taken back leaves nothing, so that another one may be given; and a node that has promised nothing puts nothing in force.
func TestUpgradeAbandoned(t *testing.T) {
	r, from, next := startFixed(t)
	mustChange(t, wire.MapPrepare, next, r.nodes[:2]...)
	p := dial(t, r.nodes[2], peerOptions{})
	for _, step := range []wire.DocumentKind{wire.MapCommit, wire.MapFollow} {
		if got, err := p.change(step, next); err != nil || !bytes.Contains(got.Text, []byte("not prepared here")) {
			t.Errorf("%v at a node that has promised nothing: %+v %q, %v", step, got, got.Text, err)
		}
	}
	p.close()
	for _, srv := range r.nodes[:2] {
		p := dial(t, srv, peerOptions{})
		if got, err := p.change(wire.MapAbandon, next); err != nil || len(got.Text) > 0 || got.State != wire.MapCommitted || got.Digest != from.Digest() {
			t.Errorf("%+v %q, %v", got, got.Text, err)
		}
		if _, err := p.document(wire.DocumentPromise, nil, 0); wire.StatusOf(err) != wire.StatusNoMap {
			t.Errorf("the promise that was taken back: %v", err)
		}
		p.close()
		if srv.owned.Awaited.Load() != nil {
			t.Error("the node waits for a map that it has not promised")
		}
	}
	r.servesBy(from, "abandoned")
	other := *next
	groups := *next.Replication
	groups.Zones = []string{"x", "y", "z"}
	other.Replication = &groups
	mustChange(t, wire.MapPrepare, &other, r.nodes...)
	mustCommit(t, &other, r.nodes...)
	r.m = &other
	for shard := range uint16(4) {
		r.want(keyOf(shard), "abandoned")
	}
}

// TestUpgradeEndsReaders: a client that READs a node's memory, and does not leave when it is asked to, is ended before a group begins with the node's keys: it would take what it READs for the newest when the group is led elsewhere.
func TestUpgradeEndsReaders(t *testing.T) {
	r, _, next := startFixed(t)
	reader := dial(t, r.nodes[0], peerOptions{})
	defer reader.close()
	_, regions := reader.regions()
	at := regions[0]
	if _, err := reader.read(at.Addr, at.RKey, 8); err != nil {
		t.Fatal(err)
	}
	mustChange(t, wire.MapPrepare, next, r.nodes...)
	if _, err := reader.read(at.Addr, at.RKey, 8); err != nil {
		t.Fatal("a promise takes the right to READ: ", err)
	}
	mustCommit(t, next, r.nodes...)
	for deadline := time.Now().Add(time.Minute); len(store.ReplicasOf(r.nodes[0].main.Store)) == 0; {
		if time.Now().After(deadline) {
			t.Fatal("the group does not begin")
		}
		time.Sleep(100 * time.Microsecond)
	}
	if _, err := reader.read(at.Addr, at.RKey, 8); err == nil {
		t.Error("the group has begun, and a client from before it READs the node's memory")
	}
}
