package client_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/admin"
	"github.com/rdmakv/rdmakv/client/internal/clienttest"
	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/store/layout"
)

// A node that cannot be reached costs the calls for its own shards alone.
func TestFleetNodeAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := clienttest.Cluster(t, 3, true)
		nodes[1].Connect = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() } // a machine that is gone without a word
		c := dialFakes(t, nodes, func(cfg *client.Config) { cfg.Timeout, cfg.DialTimeout = time.Second, 500*time.Millisecond })
		keys := clienttest.KeysOf(nodes[0].Map, 3)
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
			t.Error("an answer from a node that is away")
		}
		// Calls with many keys bring what the others have.
		var ask [][]byte
		var pairs []client.Pair
		for _, k := range slices.Concat(keys["n1"], keys["n2"], keys["n3"]) {
			ask, pairs = append(ask, []byte(k)), append(pairs, client.Pair{Key: []byte(k), Value: []byte(k)})
		}
		err := c.MultiPut(t.Context(), pairs)
		partial := (*client.PartialError)(nil)
		if !errors.As(err, &partial) || !errors.Is(err, client.ErrUnavailable) || partial.Total != 9 || len(partial.Failures) != 3 {
			t.Fatal(err)
		}
		for _, f := range partial.Failures {
			if f.Node != "n2" || f.Index < 3 || f.Index > 5 || !errors.Is(f.Err, client.ErrUnavailable) {
				t.Errorf("%+v", f)
			}
		}
		got, err := c.MultiGet(t.Context(), ask)
		if partial = nil; !errors.As(err, &partial) || len(partial.Failures) != 3 {
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
	})
}

// Any of Config.Servers will do to begin with, and to begin anew with, when no
// node is where it was.
func TestFleetServers(t *testing.T) {
	nodes := clienttest.Cluster(t, 2, true)
	gone := clienttest.NewServer(1)
	gone.Connect = func(context.Context) error { return errors.New("nobody") }
	nodes[0].Others["gone:1"] = gone
	c := dialFakes(t, nodes, func(cfg *client.Config) { cfg.Servers = []string{"gone:1", nodes[1].Addr} })
	keys := clienttest.KeysOf(nodes[0].Map, 1)
	for _, id := range []string{"n1", "n2"} {
		if err := c.Put(t.Context(), []byte(keys[id][0]), nil); err != nil {
			t.Fatal(err)
		}
	}
	// n1 goes elsewhere, and n2, which would have told, goes for good; only n1's
	// new address in Config.Servers can help.
	moved := nodes[0].Server
	nodes[0].Set(func(n *clienttest.Node) {
		v := *n.View
		v.Version, v.Members = 2, slices.Clone(v.Members)
		v.Members[0].Endpoints = []cluster.Endpoint{{Fabric: "fake", Addr: "new:1"}}
		n.View = &v
	})
	hole := clienttest.NewServer(1)
	hole.Connect = gone.Connect
	rt(c).Config().Servers[0] = "new:1"
	nodes[1].Connect = gone.Connect
	nodes[1].Others["new:1"], nodes[1].Others[nodes[0].Addr] = moved, hole
	for _, n := range nodes {
		n.LastQP().Die(errors.New("cut"))
	}
	clienttest.Eventually(t, "n1 is found", func() bool { return c.Put(t.Context(), []byte(keys["n1"][0]), nil) == nil })
}

// A node that is no longer in the map is left, with its peer; calls under way
// there end with an answer or are made again.
func TestFleetNodeLeaves(t *testing.T) {
	nodes := clienttest.Cluster(t, 3, true)
	c := dialFakes(t, nodes, nil)
	keys := clienttest.KeysOf(nodes[0].Map, 1)
	for _, id := range []string{"n1", "n2", "n3"} {
		if err := c.Put(t.Context(), []byte(keys[id][0]), nil); err != nil {
			t.Fatal(err)
		}
	}
	puts := c.Counters().Puts
	next := *nodes[0].Map
	next.Version, next.Nodes, next.Owner = 2, next.Nodes[:2], nil
	for i := range clienttest.ClusterShards {
		next.Owner = append(next.Owner, uint16(i%2))
	}
	for _, n := range nodes {
		n.Set(func(n *clienttest.Node) { n.Map = &next })
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
	clienttest.Eventually(t, "the peer is closed", func() bool {
		nodes[2].Server.Mu.Lock()
		defer nodes[2].Server.Mu.Unlock()
		return len(admin.Of(c).Nodes()) == 2 && nodes[2].QPs[0].Err() != nil
	})
	if n := c.Counters().Puts - puts; n < 400 {
		t.Errorf("%d puts are counted", n)
	}
}

// A write that may have taken effect at one node is not sent to another.
func TestFleetLostAndMoved(t *testing.T) {
	nodes := clienttest.Cluster(t, 2, true)
	c := dialFakes(t, nodes, nil)
	key := []byte(clienttest.KeysOf(nodes[0].Map, 1)["n1"][0])
	next := clienttest.Swapped(nodes[0].Map)
	nodes[0].Set(func(n *clienttest.Node) {
		n.OnRequest = func(h wire.Header, msg []byte) ([]byte, bool) {
			if h.Type != wire.TypePut || n.Puts[string(key)] > 0 {
				return n.Answer(h, msg)
			}
			n.Answer(h, msg) // takes effect, and is never told
			for _, n := range nodes {
				n.Set(func(n *clienttest.Node) { n.Map = next })
			}
			go nodes[0].LastQP().Die(errors.New("cut"))
			return []byte{}, true
		}
	})
	if err := c.Put(t.Context(), key, []byte("x")); !errors.Is(err, client.ErrOutcomeUnknown) {
		t.Fatal(err)
	}
	if nodes[1].Puts[string(key)] != 0 {
		t.Error("the write went to the other node, too")
	}
	if err := c.Put(t.Context(), key, []byte("y")); err != nil || nodes[1].Puts[string(key)] != 1 {
		t.Error(err, nodes[1].Puts)
	}
}

// A miss that was READ at a node which does not own the shard proves nothing:
// its index is true of its own shards only.
func TestFleetMissOfAnother(t *testing.T) {
	nodes := clienttest.Cluster(t, 2, true)
	key := ""
	for _, k := range clienttest.KeysOf(nodes[0].Map, 20)["n1"] {
		if cluster.ShardOf([]byte(k), clienttest.ClusterShards) == nodes[0].Map.Shards("n1")[0] {
			key = k
			break
		}
	}
	shard := nodes[0].Map.Shards("n1")[0]
	nodes[0].Server.Change(func(mem []byte) {
		nodes[0].EmptySegment(mem, clienttest.SegmentPlace, shard)
		clienttest.PutWord(mem[clienttest.DirPlace.Byte():], layout.MakeDirEntry(clienttest.SegmentPlace, 0, 0))
		clienttest.PutWord(mem[4096+8*uint64(shard):], layout.MakeRoot(clienttest.DirPlace, 0))
	})
	c := dialFakes(t, nodes, nil)
	if _, err := c.Get(t.Context(), []byte(key)); !errors.Is(err, client.ErrNotFound) || c.Counters().OneSidedMisses != 1 {
		t.Fatalf("%v; the miss was not read: %+v", err, c.Counters())
	}
	// While the index is READ the shard goes to n2, which has the key.
	next := clienttest.Swapped(nodes[0].Map)
	nodes[1].Set(func(n *clienttest.Node) { n.Map, n.Data[key] = next, "here" })
	for _, many := range []bool{false, true} {
		nodes[0].Server.Mu.Lock()
		nodes[0].OnRead = func(place uint64, dst []byte) {
			copy(dst, nodes[0].Mem[place:])
			nodes[0].Set(func(n *clienttest.Node) { n.Map = next })
			if rt(c).Map().Version != next.Version {
				rt(c).Install(next)
			}
		}
		nodes[0].Server.Mu.Unlock()
		var v []byte
		var err error
		if many {
			var r []client.Result
			r, err = c.MultiGet(t.Context(), [][]byte{[]byte(key)})
			v = r[0].Value
		} else {
			v, err = c.Get(t.Context(), []byte(key))
		}
		if err != nil || string(v) != "here" || c.Counters().OneSidedMisses != 1 {
			t.Fatalf("many %v: %q, %v, %d misses believed", many, v, err, c.Counters().OneSidedMisses)
		}
		if !many { // back to where we were
			rt(c).Install(nodes[0].FirstMap())
		}
	}
}

// A tool that asks one node directly is told of no other.
func TestFleetDirect(t *testing.T) {
	nodes := clienttest.Cluster(t, 2, true)
	c := dialFakes(t, nodes, func(cfg *client.Config) { cfg.Direct = true })
	keys := clienttest.KeysOf(nodes[0].Map, 1)
	if err := c.Put(t.Context(), []byte(keys["n1"][0]), nil); err != nil {
		t.Error(err)
	}
	for what, err := range map[string]error{
		"put": c.Put(t.Context(), []byte(keys["n2"][0]), nil), "get": second(c.Get(t.Context(), []byte(keys["n2"][0]))),
	} {
		if !errors.Is(err, client.ErrMoved) {
			t.Errorf("%s: %v", what, err)
		}
	}
	info, err := admin.Of(c).Cluster(t.Context())
	if err != nil || !info.Clustered || info.Teller != "n1" || len(info.Owners) != clienttest.ClusterShards {
		t.Errorf("%+v, %v", info, err)
	}
	if nodes[1].Dials.Load() != 0 {
		t.Error("another node was connected")
	}
	if _, err := admin.Of(c).ClusterInit(t.Context(), []admin.NodeWeight{{ID: "n1"}}); !errors.Is(err, client.ErrUnsupported) {
		t.Error(err)
	}
}

// A client that learns of a newer view version by a READ of the beat learns of the
// cluster what is new, without asking for anything else.
func TestFleetNewsByBeat(t *testing.T) {
	nodes := clienttest.Cluster(t, 2, true)
	clock := clienttest.NewClock()
	c := dialFakesAt(t, nodes, clock, nil)
	next := clienttest.Swapped(nodes[0].Map)
	nodes[0].Set(func(n *clienttest.Node) {
		n.Map = next
		v := *n.View
		v.Version, v.Members = 2, slices.Clone(v.Members)
		v.Members[1].State = cluster.Suspect
		n.View = &v
	})
	f := nodes[0].Server
	f.Mu.Lock()
	f.View++ // the server raises it when its view of the cluster changes
	f.BeatLocked(2)
	f.Mu.Unlock()
	clienttest.Eventually(t, "the client has the news", func() bool {
		if n, err := admin.Of(c).Node("n1"); err != nil {
			t.Fatal(err)
		} else if _, err := n.PingRead(t.Context()); err != nil {
			t.Fatal(err)
		}
		_, m, members := rt(c).Seen()
		return m.Version == next.Version && slices.ContainsFunc(members, func(m cluster.Member) bool { return m.ID == "n2" && m.State == cluster.Suspect })
	})
}
