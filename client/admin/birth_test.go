package admin_test

import (
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/admin"
	"github.com/rdmakv/rdmakv/client/internal/clienttest"
	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/wire"
)

func weights(ids ...string) (list []admin.NodeWeight) {
	for _, id := range ids {
		list = append(list, admin.NodeWeight{ID: id})
	}
	return list
}

// The nodes agree once; again changes nothing, other nodes are too late.
func TestClusterInit(t *testing.T) {
	nodes := clienttest.Cluster(t, 3, false)
	c := dialFakes(t, nodes, nil)
	// A node that is alive and forgotten would have nothing for good.
	if _, err := admin.Of(c).ClusterInit(t.Context(), weights("n1", "n2")); !errors.Is(err, client.ErrOptions) || !strings.Contains(err.Error(), "n3 is alive") || !strings.Contains(err.Error(), "n3:0") {
		t.Errorf("n3 is forgotten: %v", err)
	}
	info, err := admin.Of(c).ClusterInit(t.Context(), []admin.NodeWeight{{ID: "n3", Weight: 2}, {ID: "n1", Weight: 1}, {ID: "n2"}})
	if err != nil || info.MapVersion != 1 || info.Name != "fakes" || len(info.ID) != 32 {
		t.Fatalf("%+v, %v", info, err)
	}
	for i, want := range []int{2, 2, 4} {
		if info.Nodes[i].Shards != want {
			t.Errorf("%s has %d shards", info.Nodes[i].ID, info.Nodes[i].Shards)
		}
	}
	for _, n := range nodes {
		if n.Map == nil || n.Map.Digest() != nodes[0].Map.Digest() || !slices.Equal(n.Steps, []wire.DocumentKind{wire.MapPrepare, wire.MapCommit}) {
			t.Errorf("%s: %v, steps %v", n.ID, n.Map, n.Steps)
		}
	}
	again, err := admin.Of(c).ClusterInit(t.Context(), []admin.NodeWeight{{ID: "n1", Weight: 1}, {ID: "n2", Weight: 1}, {ID: "n3", Weight: 2}})
	if err != nil || again.MapDigest != info.MapDigest {
		t.Errorf("again: %v", err)
	}
	if _, err := admin.Of(c).ClusterInit(t.Context(), weights("n1", "n2")); !errors.Is(err, admin.ErrOtherMap) || !strings.Contains(err.Error(), "n1 n2 n3:2") {
		t.Errorf("with other nodes: %v", err)
	}
	if _, err := admin.Of(c).ClusterInit(t.Context(), weights("n1", "n7")); !errors.Is(err, client.ErrUnknownNode) {
		t.Errorf("with an unknown node: %v", err)
	}
	if _, err := admin.Of(c).ClusterInit(t.Context(), nil); !errors.Is(err, client.ErrOptions) {
		t.Errorf("with no nodes: %v", err)
	}
	if err := c.Put(t.Context(), []byte("k"), nil); err != nil {
		t.Error(err)
	}
}

// A node that refuses ends it, and the others' promises are taken back.
func TestClusterInitRefused(t *testing.T) {
	nodes := clienttest.Cluster(t, 3, false)
	nodes[1].Refuse = "the store has keys"
	c := dialFakes(t, nodes, nil)
	_, err := admin.Of(c).ClusterInit(t.Context(), weights("n1", "n2", "n3"))
	partial := (*client.PartialError)(nil)
	if !errors.As(err, &partial) || len(partial.Failures) != 1 || partial.Failures[0].Node != "n2" || !strings.Contains(err.Error(), "has keys") {
		t.Fatal(err)
	}
	for _, n := range nodes {
		if n.Map != nil || n.Promised != nil || n.Steps[len(n.Steps)-1] != wire.MapAbandon {
			t.Errorf("%s: %v, promised %v, steps %v", n.ID, n.Map, n.Promised, n.Steps)
		}
	}
	nodes[1].Set(func(n *clienttest.Node) { n.Refuse = "" })
	if _, err := admin.Of(c).ClusterInit(t.Context(), weights("n1", "n2", "n3")); err != nil {
		t.Error(err)
	}
}

// What was interrupted anywhere is finished by another run, with the same map;
// a promise of some other run at one node only is given up when it is in the way.
func TestClusterInitResumed(t *testing.T) {
	propose := func(id byte) *cluster.Map {
		m, err := cluster.Propose([16]byte{id}, "fakes", clienttest.ClusterShards, []cluster.MapNode{{ID: "n1"}, {ID: "n2"}, {ID: "n3"}})
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	a, b := propose(1), propose(2)
	for name, tc := range map[string]struct {
		at   func([]*clienttest.Node)
		want *cluster.Map // nil: any
		runs int
	}{
		"one has promised":           {func(n []*clienttest.Node) { n[1].Promised = a }, a, 1},
		"all have promised":          {func(n []*clienttest.Node) { n[0].Promised, n[1].Promised, n[2].Promised = a, a, a }, a, 1},
		"one has committed":          {func(n []*clienttest.Node) { n[0].Promised, n[1].Map, n[2].Promised = a, a, a }, a, 1},
		"all but one have committed": {func(n []*clienttest.Node) { n[0].Map, n[1].Map, n[2].Promised = a, a, a }, a, 1},
		// Two runs that died: the first one after them gives up one of the two.
		"two were begun": {func(n []*clienttest.Node) { n[0].Promised, n[1].Promised = a, b }, nil, 2},
	} {
		t.Run(name, func(t *testing.T) {
			nodes := clienttest.Cluster(t, 3, false)
			tc.at(nodes)
			c := dialFakes(t, nodes, nil)
			var err error
			for range tc.runs {
				_, err = admin.Of(c).ClusterInit(t.Context(), weights("n1", "n2", "n3"))
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, n := range nodes {
				if n.Map == nil || n.Map.Digest() != nodes[0].Map.Digest() || tc.want != nil && n.Map.Digest() != tc.want.Digest() {
					t.Errorf("%s has %v", n.ID, n.Map)
				}
			}
		})
	}
}

// A node that cannot be reached leaves the promises as they are.
func TestClusterInitUnreachable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := clienttest.Cluster(t, 2, false)
		var deaf atomic.Bool
		deaf.Store(true)
		nodes[1].OnRequest = func(h wire.Header, msg []byte) ([]byte, bool) {
			if h.Type == wire.TypeDocument && wire.KindOf(wire.Body(msg)) == wire.MapPrepare && deaf.Load() { // never answered
				return []byte{}, true
			}
			return nodes[1].Answer(h, msg)
		}
		c := dialFakes(t, nodes, func(cfg *client.Config) { cfg.Timeout = 300 * time.Millisecond })
		if _, err := admin.Of(c).ClusterInit(t.Context(), weights("n1", "n2")); !errors.Is(err, client.ErrTimeout) {
			t.Fatal(err)
		}
		if nodes[0].Promised == nil || nodes[0].Map != nil {
			t.Error("the promise is gone, or was taken for a map")
		}
		promised := nodes[0].Promised.Digest()
		deaf.Store(false)
		if _, err := admin.Of(c).ClusterInit(t.Context(), weights("n1", "n2")); err != nil || nodes[1].Map.Digest() != promised {
			t.Error(err)
		}
	})
}

// TestClusterInitLeavesOut: a node that is named so gets no shard, is not asked,
// and is no part of the map.
func TestClusterInitLeavesOut(t *testing.T) {
	nodes := clienttest.Cluster(t, 3, false)
	c := dialFakes(t, nodes, nil)
	want := append(weights("n1", "n2"), admin.NodeWeight{ID: "n3", Out: true})
	info, err := admin.Of(c).ClusterInit(t.Context(), want)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range info.Nodes {
		if (n.ID == "n3") != (n.Shards == 0) || n.ID == "n3" && n.Weight != 0 {
			t.Errorf("%+v", n)
		}
	}
	// Once that is law, the two alone are all that it takes.
	if _, err := admin.Of(c).ClusterInit(t.Context(), weights("n1", "n2")); err != nil {
		t.Errorf("again: %v", err)
	}
}

// TestClusterInitForgetsNoNode: a node that any of the named ones believes alive is alive.
// Gossip may not have told the others yet, or told them what is over.
func TestClusterInitForgetsNoNode(t *testing.T) {
	for name, spoil := range map[string]func(nodes []*clienttest.Node){
		"n1, which is asked first, does not know it": func(nodes []*clienttest.Node) { nodes[0].View.Members = nodes[0].View.Members[:2:2] },
		"n2, which is asked last, believes it dead": func(nodes []*clienttest.Node) {
			nodes[1].View.Members = slices.Clone(nodes[1].View.Members)
			nodes[1].View.Members[2].State = cluster.Dead
		},
	} {
		nodes := clienttest.Cluster(t, 3, false)
		spoil(nodes)
		c := dialFakes(t, nodes, nil)
		if _, err := admin.Of(c).ClusterInit(t.Context(), weights("n1", "n2")); !errors.Is(err, client.ErrOptions) || !strings.Contains(err.Error(), "n3 is alive") {
			t.Errorf("%s: %v", name, err)
		}
		for _, n := range nodes {
			if n.Map != nil || n.Promised != nil {
				t.Errorf("%s: %s has %v, promised %v", name, n.ID, n.Map, n.Promised)
			}
		}
	}
}

// TestNodeWithoutMapLeadsOn: a node that the map does not name knows by gossip which
// node has it, and is as good an address as any for a client.
func TestNodeWithoutMapLeadsOn(t *testing.T) {
	nodes := clienttest.Cluster(t, 3, false)
	m, err := cluster.Propose([16]byte{1}, "fakes", clienttest.ClusterShards, []cluster.MapNode{{ID: "n1"}, {ID: "n2"}})
	if err != nil {
		t.Fatal(err)
	}
	nodes[0].Map, nodes[1].Map = m, m
	members := slices.Clone(nodes[2].View.Members)
	members[0].MapVersion, members[1].MapVersion = 1, 1
	nodes[2].View.Members = members
	c := dialFakes(t, nodes, func(cfg *client.Config) { cfg.Servers = []string{nodes[2].Addr} })
	for id, keys := range clienttest.KeysOf(m, 1) {
		if err := c.Put(t.Context(), []byte(keys[0]), []byte("v")); err != nil {
			t.Errorf("a key of %s: %v", id, err)
		}
	}
	if info, err := admin.Of(c).Cluster(t.Context()); err != nil || info.MapVersion != 1 {
		t.Errorf("%+v, %v", info, err)
	}
}
