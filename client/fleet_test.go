package client_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/admin"
	"github.com/rdmakv/rdmakv/client/internal/clienttest"
	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// Every key goes to the node that owns it, and the nodes are connected when they
// are needed, once.
func TestFleetRoutes(t *testing.T) {
	nodes := clienttest.Cluster(t, 3, true)
	c := dialFakes(t, nodes, nil)
	ctx := clienttest.Within(t, 20*time.Second)
	if nodes[1].Dials.Load() != 0 || nodes[2].Dials.Load() != 0 {
		t.Error("nodes are connected before anything is asked of them")
	}
	for owner, keys := range clienttest.KeysOf(nodes[0].Map, 5) {
		for _, key := range keys {
			if err := c.Put(ctx, []byte(key), []byte("of "+owner)); err != nil {
				t.Fatal(err)
			}
			if v, err := c.Get(ctx, []byte(key)); err != nil || string(v) != "of "+owner {
				t.Fatalf("%s: %q, %v", key, v, err)
			}
		}
	}
	for _, n := range nodes {
		if len(n.Data) != 5 || n.Dials.Load() != 1 {
			t.Errorf("%s has %d keys and %d connections", n.ID, len(n.Data), n.Dials.Load())
		}
	}
	if k := c.Counters(); k.Puts != 15 || k.Gets != 15 || k.Connects != 3 {
		t.Errorf("sums: %d puts, %d gets, %d connects", k.Puts, k.Gets, k.Connects)
	}
	var ids []string
	for _, n := range admin.Of(c).Nodes() {
		ids = append(ids, n.ID())
		if n.Server().Node != n.ID() || n.Counters().Puts != 5 {
			t.Errorf("%s: %+v", n.ID(), n.Server())
		}
	}
	if !slices.Equal(ids, []string{"n1", "n2", "n3"}) {
		t.Error(ids)
	}
	if _, err := admin.Of(c).Node("n9"); !errors.Is(err, client.ErrUnknownNode) {
		t.Error(err)
	}
	info, err := admin.Of(c).Cluster(ctx)
	if err != nil || info.MapVersion != 1 || len(info.Owners) != clienttest.ClusterShards || len(info.Nodes) != 3 || info.Name != "fakes" ||
		info.Nodes[1].State != "alive" || info.Nodes[1].Endpoints[0].Addr != "node2:1" {
		t.Errorf("%+v, %v", info, err)
	}
}

// Nodes that have a newer map send the client around; each write is done once,
// and the client then goes by that map.
func TestFleetMoved(t *testing.T) {
	nodes := clienttest.Cluster(t, 2, true)
	c := dialFakes(t, nodes, nil)
	ctx := clienttest.Within(t, 20*time.Second)
	keys := clienttest.KeysOf(nodes[0].Map, 4)
	if err := c.Put(ctx, []byte(keys["n2"][0]), nil); err != nil { // both are connected
		t.Fatal(err)
	}
	next := clienttest.Swapped(nodes[0].Map)
	for _, n := range nodes {
		n.Set(func(n *clienttest.Node) { n.Map = next })
	}
	if err := c.Put(ctx, []byte(keys["n1"][0]), []byte("x")); err != nil {
		t.Fatal(err)
	}
	if v, err := c.Get(ctx, []byte(keys["n1"][0])); err != nil || string(v) != "x" || nodes[1].Puts[keys["n1"][0]] != 1 {
		t.Fatalf("%q, %v, %v", v, err, nodes[1].Puts)
	}
	if v := rt(c).Map().Version; v != 2 {
		t.Errorf("map version %d", v)
	}
	// Of a call with many keys only those that have moved are asked for again.
	third := clienttest.Swapped(next)
	for _, n := range nodes {
		n.Set(func(n *clienttest.Node) { n.Map = third })
	}
	var pairs []client.Pair
	for _, k := range append(slices.Clone(keys["n1"]), keys["n2"]...) {
		pairs = append(pairs, client.Pair{Key: []byte(k), Value: []byte("m " + k)})
	}
	if err := c.MultiPut(ctx, pairs); err != nil {
		t.Fatal(err)
	}
	var ask [][]byte
	for _, p := range pairs {
		ask = append(ask, p.Key)
		owner := nodes[0]
		if third.OwnerOf(cluster.ShardOf(p.Key, clienttest.ClusterShards)) == "n2" {
			owner = nodes[1]
		}
		if owner.Data[string(p.Key)] != string(p.Value) {
			t.Errorf("%s is not where it belongs", p.Key)
		}
	}
	got, err := c.MultiGet(ctx, append(ask, []byte("nobody has this")))
	if err != nil || !errors.Is(got[len(ask)].Err, client.ErrNotFound) {
		t.Fatal(err, got[len(ask)].Err)
	}
	for i, p := range pairs {
		if string(got[i].Value) != string(p.Value) {
			t.Errorf("%s: %q", p.Key, got[i].Value)
		}
	}
}

// Nodes that contradict each other for ever end a call with ErrMoved, soon.
func TestFleetContradiction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := clienttest.Cluster(t, 2, true)
		c := dialFakes(t, nodes, nil)
		key := []byte(clienttest.KeysOf(nodes[0].Map, 1)["n1"][0])
		// n1 tells the client the map that it has, and goes by another one.
		nodes[0].Set(func(n *clienttest.Node) {
			right, wrong := n.Map, clienttest.Swapped(n.Map)
			n.OnRequest = func(h wire.Header, msg []byte) ([]byte, bool) {
				n.Set(func(n *clienttest.Node) {
					if n.Map = wrong; h.Type == wire.TypeDocument {
						n.Map = right
					}
				})
				return n.Answer(h, msg)
			}
		})
		_, err := c.Get(t.Context(), key)
		if !errors.Is(err, client.ErrMoved) && !errors.Is(err, client.ErrTimeout) {
			t.Fatal(err)
		}
		if err := c.Put(t.Context(), key, nil); !errors.Is(err, client.ErrMoved) && !errors.Is(err, client.ErrTimeout) {
			t.Fatal(err)
		}
		if nodes[0].Asked > 100 {
			t.Errorf("the node was asked %d times", nodes[0].Asked)
		}
		short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		if _, err := c.Get(short, key); err == nil {
			t.Error("an answer out of a contradiction")
		}
	})
}

// A client that has no map waits for one, and says so when the time is over; as soon as there
// is one, calls go on.
func TestFleetNoMap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := clienttest.Cluster(t, 2, false)
		waited := make(chan error, 1)
		c := dialFakes(t, nodes, func(cfg *client.Config) {
			cfg.OnWait = func(why error) {
				select {
				case waited <- why:
				default:
				}
			}
		})
		short := func() context.Context {
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			t.Cleanup(cancel)
			return ctx
		}
		for what, err := range map[string]error{
			"get": second(c.Get(short(), []byte("k"))), "put": c.Put(short(), []byte("k"), nil),
			"multi get": second(c.MultiGet(short(), [][]byte{[]byte("k")})), "ping": second(c.Ping(short())),
			"multi put": c.MultiPut(short(), []client.Pair{{Key: []byte("k")}}), "position": second(c.Position(short())),
		} {
			if !errors.Is(err, client.ErrNoMap) || !errors.Is(err, client.ErrTimeout) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v", what, err)
			}
		}
		for _, err := range c.Scan(short(), client.ScanOptions{}) {
			if !errors.Is(err, client.ErrNoMap) || !errors.Is(err, client.ErrTimeout) {
				t.Error(err)
			}
		}
		info, err := admin.Of(c).Cluster(t.Context())
		if err != nil || !info.Clustered || info.MapVersion != 0 || len(info.Nodes) != 2 {
			t.Errorf("%+v, %v", info, err)
		}
		m, err := cluster.Propose([16]byte{7}, "fakes", clienttest.ClusterShards, []cluster.MapNode{{ID: "n1"}, {ID: "n2"}})
		if err != nil {
			t.Fatal(err)
		}
		waits := func() {
			t.Helper()
			select {
			case why := <-waited:
				if !errors.Is(why, client.ErrNoMap) {
					t.Errorf("OnWait was told %v", why)
				}
			case <-time.After(20 * time.Second):
				t.Fatal("no call waits for a map")
			}
		}
		waits()
		// Calls that wait when the map comes are carried out.
		done := make(chan error, 2)
		go func() { done <- c.Put(t.Context(), []byte("k"), nil) }()
		go func() { done <- second(c.Ping(t.Context())) }()
		waits() // the channel holds one: a call waits now, or did a moment ago
		for _, n := range nodes {
			n.Set(func(n *clienttest.Node) { n.Map = m })
		}
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
}

// Gossip cannot lead a client astray (I28): an address that belongs to another
// node gets no session, whatever the view says, and harms no call to others.
func TestFleetWrongNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := clienttest.Cluster(t, 3, true)
		for _, n := range nodes {
			members := slices.Clone(n.View.Members)
			members[1].Endpoints = []cluster.Endpoint{{Fabric: "fake", Addr: nodes[2].Addr}} // n2 is said to be where n3 is
			n.View.Members = members
		}
		c := dialFakes(t, nodes, func(cfg *client.Config) { cfg.Timeout = 300 * time.Millisecond })
		keys := clienttest.KeysOf(nodes[0].Map, 1)
		nodes[2].Set(func(n *clienttest.Node) { n.Data[keys["n2"][0]] = "not from you" })
		_, err := c.Get(t.Context(), []byte(keys["n2"][0]))
		if !errors.Is(err, client.ErrUnavailable) {
			t.Errorf("got from the wrong node: %v", err)
		}
		if err := c.Put(t.Context(), []byte(keys["n2"][0]), nil); !errors.Is(err, client.ErrUnavailable) || !strings.Contains(err.Error(), `"n3" answers`) {
			t.Errorf("put to the wrong node: %v", err)
		}
		for _, id := range []string{"n1", "n3"} {
			if err := c.Put(t.Context(), []byte(keys[id][0]), nil); err != nil {
				t.Errorf("%s: %v", id, err)
			}
		}
		// When gossip knows better, so does the client.
		for _, n := range nodes {
			n.Set(func(n *clienttest.Node) {
				v := *n.View
				v.Version++
				v.Members = slices.Clone(v.Members)
				v.Members[1].Endpoints = []cluster.Endpoint{{Fabric: "fake", Addr: nodes[1].Addr}}
				n.View = &v
			})
		}
		clienttest.Eventually(t, "n2 is found", func() bool { return c.Put(t.Context(), []byte(keys["n2"][0]), nil) == nil })
		if nodes[2].Puts[keys["n2"][0]] != 0 {
			t.Error("a put went to the wrong node")
		}
	})
}

// A server with another cluster's map, or another map of the same version, is
// not used.
func TestFleetOtherCluster(t *testing.T) {
	nodes := clienttest.Cluster(t, 3, true)
	ours := nodes[0].Map
	theirs := *ours
	theirs.Cluster = [16]byte{9}
	same := clienttest.Swapped(ours)
	same.Version = ours.Version
	nodes[1].Map, nodes[2].Map = &theirs, same
	c := dialFakes(t, nodes, nil)
	for _, id := range []string{"n2", "n3"} {
		if err := c.Put(t.Context(), []byte(clienttest.KeysOf(ours, 1)[id][0]), nil); !errors.Is(err, client.ErrOtherCluster) {
			t.Errorf("%s: %v", id, err)
		}
	}
	if len(nodes[1].Data)+len(nodes[2].Data) != 0 {
		t.Error("a foreign node was written to")
	}
	if m := rt(c).Map(); m.Digest() != ours.Digest() {
		t.Errorf("the client uses %v", m)
	}
	// A newer map of another cluster is no newer map; an older one of ours neither.
	next := clienttest.Swapped(ours)
	nodes[0].Set(func(n *clienttest.Node) { n.Map = next })
	if _, err := admin.Of(c).Cluster(t.Context()); err != nil {
		t.Fatal(err)
	}
	nodes[0].Set(func(n *clienttest.Node) { n.Map = ours })
	if info, err := admin.Of(c).Cluster(t.Context()); err != nil || info.MapVersion != next.Version {
		t.Errorf("version %d, %v", info.MapVersion, err)
	}
}
