package client

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/store/layout"
)

// A node that cannot be reached costs the calls for its own shards alone.
func TestFleetNodeAway(t *testing.T) {
	nodes := fakeCluster(t, 3, true)
	nodes[1].connect = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() } // a machine that is gone without a word
	c := dialFakes(t, nodes, func(cfg *Config) { cfg.Timeout, cfg.DialTimeout = time.Second, 500*time.Millisecond })
	keys := keysOf(nodes[0].m, 3)
	hung := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { hung <- second(c.Get(ctx, []byte(keys["n2"][0]))) }()
	for range 50 {
		for _, id := range []string{"n1", "n3"} {
			if err := c.Put(t.Context(), []byte(keys[id][0]), nil); err != nil {
				t.Fatalf("%s: %v", id, err)
			}
		}
	}
	cancel()
	if err := <-hung; err == nil {
		t.Error("an answer from nobody")
	}
	// Calls with many keys bring what the others have.
	var ask [][]byte
	var pairs []Pair
	for _, k := range slices.Concat(keys["n1"], keys["n2"], keys["n3"]) {
		ask, pairs = append(ask, []byte(k)), append(pairs, Pair{Key: []byte(k), Value: []byte(k)})
	}
	err := c.MultiPut(t.Context(), pairs)
	partial, multi := (*PartialError)(nil), (*MultiError)(nil)
	if !errors.As(err, &partial) || !errors.As(err, &multi) || !errors.Is(err, ErrUnavailable) || partial.Total != 9 || multi.Failed != 3 {
		t.Fatal(err)
	}
	for _, f := range partial.Failures {
		if f.Node != "n2" || f.Index < 3 || f.Index > 5 || multi.Errs[f.Index] != f.Err {
			t.Errorf("%+v", f)
		}
	}
	got, err := c.MultiGet(t.Context(), ask)
	if partial = nil; !errors.As(err, &partial) || len(partial.Failures) != 3 || errors.As(err, &multi) {
		t.Fatal(err)
	}
	for i, r := range got {
		if mine := i < 3 || i > 5; mine != (r.Err == nil) || mine && string(r.Value) != string(ask[i]) {
			t.Errorf("%s: %q, %v", ask[i], r.Value, r.Err)
		}
	}
	if _, err := c.Ping(t.Context()); !errors.As(err, &partial) || partial.Failures[0].Node != "n2" || len(partial.Failures) != 1 {
		t.Error(err)
	}
}

// Any of Config.Servers will do to begin with, and to begin anew with, when no
// node is where it was.
func TestFleetServers(t *testing.T) {
	nodes := fakeCluster(t, 2, true)
	gone := newFakeServer(1)
	gone.connect = func(context.Context) error { return errors.New("nobody") }
	nodes[0].others["gone:1"] = gone
	c := dialFakes(t, nodes, func(cfg *Config) { cfg.Servers = []string{"gone:1", nodes[1].addr} })
	keys := keysOf(nodes[0].m, 1)
	for _, id := range []string{"n1", "n2"} {
		if err := c.Put(t.Context(), []byte(keys[id][0]), nil); err != nil {
			t.Fatal(err)
		}
	}
	// n1 goes elsewhere, and n2, which would have told, goes for good; only n1's
	// new address in Config.Servers can help.
	moved := nodes[0].fakeServer
	nodes[0].set(func(n *fakeNode) {
		v := *n.view
		v.Version, v.Members = 2, slices.Clone(v.Members)
		v.Members[0].Endpoints = []cluster.Endpoint{{Fabric: "fake", Addr: "new:1"}}
		n.view = &v
	})
	hole := newFakeServer(1)
	hole.connect = gone.connect
	c.fleet.mu.Lock()
	c.fleet.cfg.Servers[0] = "new:1"
	c.fleet.mu.Unlock()
	nodes[1].connect = gone.connect
	nodes[1].others["new:1"], nodes[1].others[nodes[0].addr] = moved, hole
	for _, n := range nodes {
		n.lastQP().die(errors.New("cut"))
	}
	eventually(t, "n1 is found", func() bool { return c.Put(t.Context(), []byte(keys["n1"][0]), nil) == nil })
}

// A node that is no longer in the map is left, with its peer; calls under way
// there end with an answer or are made again.
func TestFleetNodeLeaves(t *testing.T) {
	nodes := fakeCluster(t, 3, true)
	c := dialFakes(t, nodes, nil)
	keys := keysOf(nodes[0].m, 1)
	for _, id := range []string{"n1", "n2", "n3"} {
		if err := c.Put(t.Context(), []byte(keys[id][0]), nil); err != nil {
			t.Fatal(err)
		}
	}
	puts := c.Counters().Puts
	next := *nodes[0].m
	next.Version, next.Nodes, next.Owner = 2, next.Nodes[:2], nil
	for i := range fakeShards {
		next.Owner = append(next.Owner, uint16(i%2))
	}
	for _, n := range nodes {
		n.set(func(n *fakeNode) { n.m = &next })
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				if err := c.Put(t.Context(), []byte(keys["n3"][0]), nil); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	eventually(t, "the peer is closed", func() bool {
		nodes[2].fakeServer.mu.Lock()
		defer nodes[2].fakeServer.mu.Unlock()
		return len(c.Nodes()) == 2 && nodes[2].qps[0].Err() != nil
	})
	if n := c.Counters().Puts - puts; n < 400 {
		t.Errorf("%d puts are counted", n)
	}
}

// A write that may have taken effect at one node is not sent to another.
func TestFleetLostAndMoved(t *testing.T) {
	nodes := fakeCluster(t, 2, true)
	c := dialFakes(t, nodes, nil)
	key := []byte(keysOf(nodes[0].m, 1)["n1"][0])
	next := swapped(nodes[0].m)
	nodes[0].set(func(n *fakeNode) {
		n.onRequest = func(h wire.Header, msg []byte) ([]byte, bool) {
			if h.Type != wire.TypePut || n.puts[string(key)] > 0 {
				return n.answer(h, msg)
			}
			n.answer(h, msg) // takes effect, and is never told
			for _, n := range nodes {
				n.set(func(n *fakeNode) { n.m = next })
			}
			go nodes[0].lastQP().die(errors.New("cut"))
			return []byte{}, true
		}
	})
	if err := c.Put(t.Context(), key, []byte("x")); !errors.Is(err, ErrOutcomeUnknown) {
		t.Fatal(err)
	}
	if nodes[1].puts[string(key)] != 0 {
		t.Error("the write went to the other node, too")
	}
	if err := c.Put(t.Context(), key, []byte("y")); err != nil || nodes[1].puts[string(key)] != 1 {
		t.Error(err, nodes[1].puts)
	}
}

// A miss that was READ at a node which does not own the shard proves nothing:
// its index is true of its own shards only.
func TestFleetMissOfAnother(t *testing.T) {
	nodes := fakeCluster(t, 2, true)
	key := ""
	for _, k := range keysOf(nodes[0].m, 20)["n1"] {
		if cluster.ShardOf([]byte(k), fakeShards) == nodes[0].m.Shards("n1")[0] {
			key = k
			break
		}
	}
	shard := nodes[0].m.Shards("n1")[0]
	nodes[0].fakeServer.change(func(mem []byte) {
		nodes[0].emptySegment(mem, fakeSegment, shard)
		putWord(mem[fakeDir.Byte():], layout.MakeDirEntry(fakeSegment, 0, 0))
		putWord(mem[4096+8*uint64(shard):], layout.MakeRoot(fakeDir, 0))
	})
	c := dialFakes(t, nodes, nil)
	if _, err := c.Get(t.Context(), []byte(key)); !errors.Is(err, ErrNotFound) || c.Counters().OneSidedMisses != 1 {
		t.Fatalf("%v; the miss was not read: %+v", err, c.Counters())
	}
	// While the index is READ the shard goes to n2, which has the key.
	next := swapped(nodes[0].m)
	nodes[1].set(func(n *fakeNode) { n.m, n.data[key] = next, "here" })
	for _, many := range []bool{false, true} {
		nodes[0].fakeServer.mu.Lock()
		nodes[0].onRead = func(place uint64, dst []byte) {
			copy(dst, nodes[0].mem[place:])
			nodes[0].set(func(n *fakeNode) { n.m = next })
			c.fleet.mu.Lock()
			defer c.fleet.mu.Unlock()
			if c.fleet.routing.Load().m.Version != next.Version {
				c.fleet.installLocked(next)
			}
		}
		nodes[0].fakeServer.mu.Unlock()
		var v []byte
		var err error
		if many {
			var r []Result
			r, err = c.MultiGet(t.Context(), [][]byte{[]byte(key)})
			v = r[0].Value
		} else {
			v, err = c.Get(t.Context(), []byte(key))
		}
		if err != nil || string(v) != "here" || c.Counters().OneSidedMisses != 1 {
			t.Fatalf("many %v: %q, %v, %d misses believed", many, v, err, c.Counters().OneSidedMisses)
		}
		if !many { // back to where we were
			c.fleet.mu.Lock()
			c.fleet.installLocked(nodes[0].firstMap())
			c.fleet.mu.Unlock()
		}
	}
}

// A tool that asks one node directly is told of no other.
func TestFleetDirect(t *testing.T) {
	nodes := fakeCluster(t, 2, true)
	c := dialFakes(t, nodes, func(cfg *Config) { cfg.Direct = true })
	keys := keysOf(nodes[0].m, 1)
	if err := c.Put(t.Context(), []byte(keys["n1"][0]), nil); err != nil {
		t.Error(err)
	}
	for what, err := range map[string]error{
		"put": c.Put(t.Context(), []byte(keys["n2"][0]), nil), "get": second(c.Get(t.Context(), []byte(keys["n2"][0]))),
	} {
		if !errors.Is(err, ErrMoved) {
			t.Errorf("%s: %v", what, err)
		}
	}
	info, err := c.Cluster(t.Context())
	if err != nil || !info.Clustered || info.Teller != "n1" || len(info.Owners) != fakeShards {
		t.Errorf("%+v, %v", info, err)
	}
	if nodes[1].dials.Load() != 0 {
		t.Error("another node was connected")
	}
	if _, err := c.ClusterInit(t.Context(), []NodeWeight{{ID: "n1"}}); !errors.Is(err, ErrUnsupported) {
		t.Error(err)
	}
}

// Who learns of a newer view version by a READ of the beat, learns of the cluster
// what is new, without asking for anything else.
func TestFleetNewsByBeat(t *testing.T) {
	nodes := fakeCluster(t, 2, true)
	clock := newFakeClock()
	c := dialFakes(t, nodes, func(cfg *Config) { cfg.clock = clock.now })
	next := swapped(nodes[0].m)
	nodes[0].set(func(n *fakeNode) {
		n.m = next
		v := *n.view
		v.Version, v.Members = 2, slices.Clone(v.Members)
		v.Members[1].State = cluster.Suspect
		n.view = &v
	})
	f := nodes[0].fakeServer
	f.mu.Lock()
	f.view++ // the server raises it when its view of the cluster changes
	f.beatLocked(2)
	f.mu.Unlock()
	eventually(t, "the client has the news", func() bool {
		if n, err := c.Node("n1"); err != nil {
			t.Fatal(err)
		} else if _, err := n.PingRead(t.Context()); err != nil {
			t.Fatal(err)
		}
		info := c.fleet.info()
		return info.MapVersion == next.Version && info.Nodes[1].State == "suspect"
	})
}
