package client

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// Every key goes to the node that owns it, and the nodes are connected when they
// are needed, once.
func TestFleetRoutes(t *testing.T) {
	nodes := fakeCluster(t, 3, true)
	c := dialFakes(t, nodes, nil)
	ctx := within(t, 20*time.Second)
	if nodes[1].dials.Load() != 0 || nodes[2].dials.Load() != 0 {
		t.Error("nodes are connected before anything is asked of them")
	}
	for owner, keys := range keysOf(nodes[0].m, 5) {
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
		if len(n.data) != 5 || n.dials.Load() != 1 {
			t.Errorf("%s has %d keys and %d connections", n.id, len(n.data), n.dials.Load())
		}
	}
	if k := c.Counters(); k.Puts != 15 || k.Gets != 15 || k.Connects != 3 {
		t.Errorf("sums: %d puts, %d gets, %d connects", k.Puts, k.Gets, k.Connects)
	}
	var ids []string
	for _, n := range c.Nodes() {
		ids = append(ids, n.ID())
		if n.Server().Node != n.ID() || n.Counters().Puts != 5 {
			t.Errorf("%s: %+v", n.ID(), n.Server())
		}
	}
	if !slices.Equal(ids, []string{"n1", "n2", "n3"}) {
		t.Error(ids)
	}
	if _, err := c.Node("n9"); !errors.Is(err, ErrUnknownNode) {
		t.Error(err)
	}
	info, err := c.Cluster(ctx)
	if err != nil || info.MapVersion != 1 || len(info.Owners) != fakeShards || len(info.Nodes) != 3 || info.Name != "fakes" ||
		info.Nodes[1].State != "alive" || info.Nodes[1].Endpoints[0].Addr != "node2:1" {
		t.Errorf("%+v, %v", info, err)
	}
}

// Nodes that have a newer map send the client around; each write is done once,
// and the client then goes by that map.
func TestFleetMoved(t *testing.T) {
	nodes := fakeCluster(t, 2, true)
	c := dialFakes(t, nodes, nil)
	ctx := within(t, 20*time.Second)
	keys := keysOf(nodes[0].m, 4)
	if err := c.Put(ctx, []byte(keys["n2"][0]), nil); err != nil { // both are connected
		t.Fatal(err)
	}
	next := swapped(nodes[0].m)
	for _, n := range nodes {
		n.set(func(n *fakeNode) { n.m = next })
	}
	if err := c.Put(ctx, []byte(keys["n1"][0]), []byte("x")); err != nil {
		t.Fatal(err)
	}
	if v, err := c.Get(ctx, []byte(keys["n1"][0])); err != nil || string(v) != "x" || nodes[1].puts[keys["n1"][0]] != 1 {
		t.Fatalf("%q, %v, %v", v, err, nodes[1].puts)
	}
	if v := c.fleet.routing.Load().m.Version; v != 2 {
		t.Errorf("map version %d", v)
	}
	// Of a call with many keys only those that have moved are asked for again.
	third := swapped(next)
	for _, n := range nodes {
		n.set(func(n *fakeNode) { n.m = third })
	}
	var pairs []Pair
	for _, k := range append(slices.Clone(keys["n1"]), keys["n2"]...) {
		pairs = append(pairs, Pair{Key: []byte(k), Value: []byte("m " + k)})
	}
	if err := c.MultiPut(ctx, pairs); err != nil {
		t.Fatal(err)
	}
	var ask [][]byte
	for _, p := range pairs {
		ask = append(ask, p.Key)
		owner := nodes[0]
		if third.OwnerOf(cluster.ShardOf(p.Key, fakeShards)) == "n2" {
			owner = nodes[1]
		}
		if owner.data[string(p.Key)] != string(p.Value) {
			t.Errorf("%s is not where it belongs", p.Key)
		}
	}
	got, err := c.MultiGet(ctx, append(ask, []byte("nobody has this")))
	if err != nil || !errors.Is(got[len(ask)].Err, ErrNotFound) {
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
	nodes := fakeCluster(t, 2, true)
	c := dialFakes(t, nodes, nil)
	key := []byte(keysOf(nodes[0].m, 1)["n1"][0])
	// n1 tells the client the map that it has, and goes by another one.
	nodes[0].set(func(n *fakeNode) {
		right, wrong := n.m, swapped(n.m)
		n.onRequest = func(h wire.Header, msg []byte) ([]byte, bool) {
			n.set(func(n *fakeNode) {
				if n.m = wrong; h.Type == wire.TypeCluster {
					n.m = right
				}
			})
			return n.answer(h, msg)
		}
	})
	_, err := c.Get(t.Context(), key)
	if !errors.Is(err, ErrMoved) && !errors.Is(err, ErrTimeout) {
		t.Fatal(err)
	}
	if err := c.Put(t.Context(), key, nil); !errors.Is(err, ErrMoved) && !errors.Is(err, ErrTimeout) {
		t.Fatal(err)
	}
	if nodes[0].asked > 100 {
		t.Errorf("the node was asked %d times", nodes[0].asked)
	}
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := c.Get(short, key); err == nil {
		t.Error("an answer out of a contradiction")
	}
}

// Who has no map waits for one, and says so when the time is over; as soon as there
// is one, calls go on.
func TestFleetNoMap(t *testing.T) {
	nodes := fakeCluster(t, 2, false)
	waited := make(chan error, 1)
	c := dialFakes(t, nodes, func(cfg *Config) {
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
		"multi put": c.MultiPut(short(), []Pair{{Key: []byte("k")}}), "position": second(c.Position(short())),
	} {
		if !errors.Is(err, ErrNoMap) || !errors.Is(err, ErrTimeout) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, err := range c.Scan(short(), ScanOptions{}) {
		if !errors.Is(err, ErrNoMap) || !errors.Is(err, ErrTimeout) {
			t.Error(err)
		}
	}
	info, err := c.Cluster(t.Context())
	if err != nil || !info.Clustered || info.MapVersion != 0 || len(info.Nodes) != 2 {
		t.Errorf("%+v, %v", info, err)
	}
	m, err := cluster.Propose([16]byte{7}, "fakes", fakeShards, []cluster.MapNode{{ID: "n1"}, {ID: "n2"}})
	if err != nil {
		t.Fatal(err)
	}
	waits := func() {
		t.Helper()
		select {
		case why := <-waited:
			if !errors.Is(why, ErrNoMap) {
				t.Errorf("OnWait was told %v", why)
			}
		case <-time.After(20 * time.Second):
			t.Fatal("nobody waits for a map")
		}
	}
	waits()
	// Calls that wait when the map comes are carried out.
	done := make(chan error, 2)
	go func() { done <- c.Put(t.Context(), []byte("k"), nil) }()
	go func() { done <- second(c.Ping(t.Context())) }()
	waits() // the channel holds one: somebody waits now, or did a moment ago
	for _, n := range nodes {
		n.set(func(n *fakeNode) { n.m = m })
	}
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// Gossip cannot lead a client astray (I28): an address that belongs to another
// node gets no session, whatever the view says, and harms nobody else.
func TestFleetWrongNode(t *testing.T) {
	nodes := fakeCluster(t, 3, true)
	for _, n := range nodes {
		members := slices.Clone(n.view.Members)
		members[1].Endpoints = []cluster.Endpoint{{Fabric: "fake", Addr: nodes[2].addr}} // n2 is said to be where n3 is
		n.view.Members = members
	}
	c := dialFakes(t, nodes, func(cfg *Config) { cfg.Timeout = 300 * time.Millisecond })
	keys := keysOf(nodes[0].m, 1)
	nodes[2].set(func(n *fakeNode) { n.data[keys["n2"][0]] = "not from you" })
	_, err := c.Get(t.Context(), []byte(keys["n2"][0]))
	if !errors.Is(err, ErrUnavailable) {
		t.Errorf("got from the wrong node: %v", err)
	}
	if err := c.Put(t.Context(), []byte(keys["n2"][0]), nil); !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), `"n3" answers`) {
		t.Errorf("put to the wrong node: %v", err)
	}
	for _, id := range []string{"n1", "n3"} {
		if err := c.Put(t.Context(), []byte(keys[id][0]), nil); err != nil {
			t.Errorf("%s: %v", id, err)
		}
	}
	// When gossip knows better, so does the client.
	for _, n := range nodes {
		n.set(func(n *fakeNode) {
			v := *n.view
			v.Version++
			v.Members = slices.Clone(v.Members)
			v.Members[1].Endpoints = []cluster.Endpoint{{Fabric: "fake", Addr: nodes[1].addr}}
			n.view = &v
		})
	}
	eventually(t, "n2 is found", func() bool { return c.Put(t.Context(), []byte(keys["n2"][0]), nil) == nil })
	if nodes[2].puts[keys["n2"][0]] != 0 {
		t.Error("a put went to the wrong node")
	}
}

// A server with another cluster's map, or another map of the same version, is
// not used.
func TestFleetOtherCluster(t *testing.T) {
	nodes := fakeCluster(t, 3, true)
	ours := nodes[0].m
	theirs := *ours
	theirs.Cluster = [16]byte{9}
	same := swapped(ours)
	same.Version = ours.Version
	nodes[1].m, nodes[2].m = &theirs, same
	c := dialFakes(t, nodes, nil)
	for _, id := range []string{"n2", "n3"} {
		if err := c.Put(t.Context(), []byte(keysOf(ours, 1)[id][0]), nil); !errors.Is(err, ErrOtherCluster) {
			t.Errorf("%s: %v", id, err)
		}
	}
	if len(nodes[1].data)+len(nodes[2].data) != 0 {
		t.Error("a foreign node was written to")
	}
	if m := c.fleet.routing.Load().m; m.Digest() != ours.Digest() {
		t.Errorf("the client uses %v", m)
	}
	// A newer map of another cluster is no newer map; an older one of ours neither.
	next := swapped(ours)
	nodes[0].set(func(n *fakeNode) { n.m = next })
	if _, err := c.Cluster(t.Context()); err != nil {
		t.Fatal(err)
	}
	nodes[0].set(func(n *fakeNode) { n.m = ours })
	if info, err := c.Cluster(t.Context()); err != nil || info.MapVersion != next.Version {
		t.Errorf("version %d, %v", info.MapVersion, err)
	}
}
