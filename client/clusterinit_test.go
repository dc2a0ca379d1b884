package client

import (
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/wire"
)

func weights(ids ...string) (list []NodeWeight) {
	for _, id := range ids {
		list = append(list, NodeWeight{ID: id})
	}
	return list
}

// The nodes agree once; again changes nothing, other nodes are too late.
func TestClusterInit(t *testing.T) {
	nodes := fakeCluster(t, 3, false)
	c := dialFakes(t, nodes, nil)
	// A node that is alive and forgotten would have nothing for good.
	if _, err := c.ClusterInit(t.Context(), weights("n1", "n2")); !errors.Is(err, ErrOptions) || !strings.Contains(err.Error(), "n3 is alive") || !strings.Contains(err.Error(), "n3:0") {
		t.Errorf("n3 is forgotten: %v", err)
	}
	info, err := c.ClusterInit(t.Context(), []NodeWeight{{ID: "n3", Weight: 2}, {ID: "n1", Weight: 1}, {ID: "n2"}})
	if err != nil || info.MapVersion != 1 || info.Name != "fakes" || len(info.ID) != 32 {
		t.Fatalf("%+v, %v", info, err)
	}
	for i, want := range []int{2, 2, 4} {
		if info.Nodes[i].Shards != want {
			t.Errorf("%s has %d shards", info.Nodes[i].ID, info.Nodes[i].Shards)
		}
	}
	for _, n := range nodes {
		if n.m == nil || n.m.Digest() != nodes[0].m.Digest() || !slices.Equal(n.steps, []wire.MapStep{wire.MapPrepare, wire.MapCommit}) {
			t.Errorf("%s: %v, steps %v", n.id, n.m, n.steps)
		}
	}
	again, err := c.ClusterInit(t.Context(), []NodeWeight{{ID: "n1", Weight: 1}, {ID: "n2", Weight: 1}, {ID: "n3", Weight: 2}})
	if err != nil || again.MapDigest != info.MapDigest {
		t.Errorf("again: %v", err)
	}
	if _, err := c.ClusterInit(t.Context(), weights("n1", "n2")); !errors.Is(err, ErrOtherMap) || !strings.Contains(err.Error(), "n1 n2 n3:2") {
		t.Errorf("with other nodes: %v", err)
	}
	if _, err := c.ClusterInit(t.Context(), weights("n1", "n7")); !errors.Is(err, ErrUnknownNode) {
		t.Errorf("with an unknown node: %v", err)
	}
	if _, err := c.ClusterInit(t.Context(), nil); !errors.Is(err, ErrOptions) {
		t.Errorf("with no nodes: %v", err)
	}
	if err := c.Put(t.Context(), []byte("k"), nil); err != nil {
		t.Error(err)
	}
}

// A node that refuses ends it, and the others' promises are taken back.
func TestClusterInitRefused(t *testing.T) {
	nodes := fakeCluster(t, 3, false)
	nodes[1].refuse = "the store has keys"
	c := dialFakes(t, nodes, nil)
	_, err := c.ClusterInit(t.Context(), weights("n1", "n2", "n3"))
	partial := (*PartialError)(nil)
	if !errors.As(err, &partial) || len(partial.Failures) != 1 || partial.Failures[0].Node != "n2" || !strings.Contains(err.Error(), "has keys") {
		t.Fatal(err)
	}
	for _, n := range nodes {
		if n.m != nil || n.promised != nil || n.steps[len(n.steps)-1] != wire.MapAbandon {
			t.Errorf("%s: %v, promised %v, steps %v", n.id, n.m, n.promised, n.steps)
		}
	}
	nodes[1].set(func(n *fakeNode) { n.refuse = "" })
	if _, err := c.ClusterInit(t.Context(), weights("n1", "n2", "n3")); err != nil {
		t.Error(err)
	}
}

// What was interrupted anywhere is finished by another run, with the same map;
// a promise of some other run at one node only is given up when it is in the way.
func TestClusterInitResumed(t *testing.T) {
	propose := func(id byte) *cluster.Map {
		m, err := cluster.Propose([16]byte{id}, "fakes", fakeShards, []cluster.MapNode{{ID: "n1"}, {ID: "n2"}, {ID: "n3"}})
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	a, b := propose(1), propose(2)
	for name, tc := range map[string]struct {
		at   func([]*fakeNode)
		want *cluster.Map // nil: any
		runs int
	}{
		"one has promised":           {func(n []*fakeNode) { n[1].promised = a }, a, 1},
		"all have promised":          {func(n []*fakeNode) { n[0].promised, n[1].promised, n[2].promised = a, a, a }, a, 1},
		"one has committed":          {func(n []*fakeNode) { n[0].promised, n[1].m, n[2].promised = a, a, a }, a, 1},
		"all but one have committed": {func(n []*fakeNode) { n[0].m, n[1].m, n[2].promised = a, a, a }, a, 1},
		// Two runs that died: the first one after them gives up one of the two.
		"two were begun": {func(n []*fakeNode) { n[0].promised, n[1].promised = a, b }, nil, 2},
	} {
		t.Run(name, func(t *testing.T) {
			nodes := fakeCluster(t, 3, false)
			tc.at(nodes)
			c := dialFakes(t, nodes, nil)
			var err error
			for range tc.runs {
				_, err = c.ClusterInit(t.Context(), weights("n1", "n2", "n3"))
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, n := range nodes {
				if n.m == nil || n.m.Digest() != nodes[0].m.Digest() || tc.want != nil && n.m.Digest() != tc.want.Digest() {
					t.Errorf("%s has %v", n.id, n.m)
				}
			}
		})
	}
}

// A node that cannot be reached leaves the promises as they are.
func TestClusterInitUnreachable(t *testing.T) {
	nodes := fakeCluster(t, 2, false)
	var deaf atomic.Bool
	deaf.Store(true)
	nodes[1].onRequest = func(h wire.Header, msg []byte) ([]byte, bool) {
		if h.Type == wire.TypeMapChange && deaf.Load() { // never answered
			return []byte{}, true
		}
		return nodes[1].answer(h, msg)
	}
	c := dialFakes(t, nodes, func(cfg *Config) { cfg.Timeout = 300 * time.Millisecond })
	if _, err := c.ClusterInit(t.Context(), weights("n1", "n2")); !errors.Is(err, ErrTimeout) {
		t.Fatal(err)
	}
	if nodes[0].promised == nil || nodes[0].m != nil {
		t.Error("the promise is gone, or was taken for a map")
	}
	promised := nodes[0].promised.Digest()
	deaf.Store(false)
	if _, err := c.ClusterInit(t.Context(), weights("n1", "n2")); err != nil || nodes[1].m.Digest() != promised {
		t.Error(err)
	}
}

// TestClusterInitLeavesOut: a node that is named so gets no shard, is not asked,
// and is no part of the map.
func TestClusterInitLeavesOut(t *testing.T) {
	nodes := fakeCluster(t, 3, false)
	c := dialFakes(t, nodes, nil)
	want := append(weights("n1", "n2"), NodeWeight{ID: "n3", Out: true})
	info, err := c.ClusterInit(t.Context(), want)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range info.Nodes {
		if (n.ID == "n3") != (n.Shards == 0) || n.ID == "n3" && n.Weight != 0 {
			t.Errorf("%+v", n)
		}
	}
	// Once that is law, the two alone are all that it takes.
	if _, err := c.ClusterInit(t.Context(), weights("n1", "n2")); err != nil {
		t.Errorf("again: %v", err)
	}
}

// TestClusterInitForgetsNobody: whom any of the named nodes believes alive is. Gossip
// may not have told the others yet, or told them what is over.
func TestClusterInitForgetsNobody(t *testing.T) {
	for name, spoil := range map[string]func(nodes []*fakeNode){
		"n1, which is asked first, does not know it": func(nodes []*fakeNode) { nodes[0].view.Members = nodes[0].view.Members[:2:2] },
		"n2, which is asked last, believes it dead": func(nodes []*fakeNode) {
			nodes[1].view.Members = slices.Clone(nodes[1].view.Members)
			nodes[1].view.Members[2].State = cluster.Dead
		},
	} {
		nodes := fakeCluster(t, 3, false)
		spoil(nodes)
		c := dialFakes(t, nodes, nil)
		if _, err := c.ClusterInit(t.Context(), weights("n1", "n2")); !errors.Is(err, ErrOptions) || !strings.Contains(err.Error(), "n3 is alive") {
			t.Errorf("%s: %v", name, err)
		}
		for _, n := range nodes {
			if n.m != nil || n.promised != nil {
				t.Errorf("%s: %s has %v, promised %v", name, n.id, n.m, n.promised)
			}
		}
	}
}

// TestNodeWithoutMapLeadsOn: a node that the map does not name knows by gossip who
// has it, and is as good an address as any for a client.
func TestNodeWithoutMapLeadsOn(t *testing.T) {
	nodes := fakeCluster(t, 3, false)
	m, err := cluster.Propose([16]byte{1}, "fakes", fakeShards, []cluster.MapNode{{ID: "n1"}, {ID: "n2"}})
	if err != nil {
		t.Fatal(err)
	}
	nodes[0].m, nodes[1].m = m, m
	members := slices.Clone(nodes[2].view.Members)
	members[0].MapVersion, members[1].MapVersion = 1, 1
	nodes[2].view.Members = members
	c := dialFakes(t, nodes, func(cfg *Config) { cfg.Servers = []string{nodes[2].addr} })
	for id, keys := range keysOf(m, 1) {
		if err := c.Put(t.Context(), []byte(keys[0]), []byte("v")); err != nil {
			t.Errorf("a key of %s: %v", id, err)
		}
	}
	if info, err := c.Cluster(t.Context()); err != nil || info.MapVersion != 1 {
		t.Errorf("%+v, %v", info, err)
	}
}
