package read

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/client/internal/clienttest"
	"github.com/rdmakv/rdmakv/client/internal/route"
	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/store/layout"
)

// inCluster runs f with two nodes that have one shard map, and a router that knows it. Their
// memory says nothing, so gets go by SEND.
func inCluster(t *testing.T, f func(t *testing.T, n1, n2 *clienttest.Node, r *route.Router)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		nodes := clienttest.Cluster(t, 2, true)
		cfg := newConfig(nodes[0].Server)
		cfg.Servers = []string{nodes[0].Addr}
		r := dial(t, cfg, clienttest.NewClock())
		defer r.Close()
		f(t, nodes[0], nodes[1], r)
	})
}

// take gives a node a map and a value.
func take(n *clienttest.Node, m *cluster.Map, key, value string) {
	n.Set(func(n *clienttest.Node) { n.Map, n.Data[key] = m, value })
}

// A node that says that a key is another's is believed: the get goes there, by the newer map,
// and nothing of what the first node said counts.
func TestMovedRead(t *testing.T) {
	inCluster(t, func(t *testing.T, n1, n2 *clienttest.Node, r *route.Router) {
		key := clienttest.KeysOf(n1.Map, 1)["n1"][0]
		next := clienttest.Swapped(n1.Map)
		take(n1, next, key, "old")
		take(n2, next, key, "new")
		w := &Query{N: -1, Dst: []byte("before ")}
		if err := Get(t.Context(), r, "get", []byte(key), w); err != nil || string(w.Dst) != "before new" {
			t.Errorf("%q, %v", w.Dst, err)
		}
		other := clienttest.KeysOf(next, 1)["n1"][0]
		next = clienttest.Swapped(next)
		take(n1, next, key, "newer")
		take(n2, next, other, "theirs")
		results := make([]base.Result, 3)
		err := Many(t.Context(), r, [][]byte{[]byte(key), []byte(other), []byte("absent")}, results)
		if err != nil || string(results[0].Value) != "newer" || string(results[1].Value) != "theirs" || !errors.Is(results[2].Err, base.ErrNotFound) {
			t.Errorf("%q, %v", results, err)
		}
	})
}

// Nodes that send a get from one to the other are believed for a few rounds.
func TestReadThatNoNodeAnswers(t *testing.T) {
	inCluster(t, func(t *testing.T, n1, n2 *clienttest.Node, r *route.Router) {
		key := clienttest.KeysOf(n1.Map, 1)["n1"][0]
		take(n1, clienttest.Swapped(n1.Map), key, "here") // n1 says n2, n2 says n1
		w := &Query{N: -1}
		if err := Get(t.Context(), r, "get", []byte(key), w); !errors.Is(err, base.ErrMoved) || len(w.Dst) != 0 {
			t.Errorf("%q, %v", w.Dst, err)
		}
	})
}

// A miss counts only at the node that owns the shard: of another node's memory the client knows
// that the key is absent there, and asks.
func TestMissOfAnotherNode(t *testing.T) {
	inCluster(t, func(t *testing.T, n1, n2 *clienttest.Node, r *route.Router) {
		key := []byte(clienttest.KeysOf(n1.Map, 1)["n1"][0])
		c, err := r.Owner(key)
		if err != nil {
			t.Fatal(err)
		}
		shard := cluster.ShardOf(key, clienttest.ClusterShards)
		n1.Change(func(mem []byte) { // an index without keys
			n1.EmptySegment(mem, seg, shard)
			clienttest.PutWord(mem[clienttest.DirPlace.Byte():], layout.MakeDirEntry(seg, 0, 0))
			clienttest.PutWord(mem[4096+8*uint64(shard):], layout.MakeRoot(clienttest.DirPlace, 0))
		})
		if err := getKey(t.Context(), c, "get", key, &Query{N: -1}); !errors.Is(err, base.ErrNotFound) || c.Counters().OneSidedMisses != 1 {
			t.Errorf("%v; %+v", err, c.Counters())
		}
		next := clienttest.Swapped(n1.Map)
		r.Install(next)
		take(n1, next, "another key", "")
		err = getKey(t.Context(), c, "get", key, &Query{N: -1})
		if !errors.Is(err, base.ErrMoved) || c.Counters().OneSidedMisses != 1 {
			t.Errorf("%v; %+v", err, c.Counters())
		}
		results := make([]base.Result, 1)
		multiGetAt(t.Context(), r, c, [][]byte{key}, results, []int{0}, 0)
		if !errors.Is(results[0].Err, base.ErrMoved) || c.Counters().OneSidedMisses != 1 {
			t.Errorf("in a group: %v; %+v", results[0].Err, c.Counters())
		}
	})
}
