package write

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/client/internal/clienttest"
	"github.com/rdmakv/rdmakv/client/internal/route"
	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma"
)

// inCluster runs f with two nodes that have one shard map, and a router that knows it.
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

// take gives a node a map.
func take(n *clienttest.Node, m *cluster.Map) { n.Set(func(n *clienttest.Node) { n.Map = m }) }

// putTo stores a value under a key.
func putTo(t *testing.T, r *route.Router, key string) error {
	w, err := NewPut([]byte(key), []byte("v"), wire.Terms{})
	if err != nil {
		t.Fatal(err)
	}
	return Do(t.Context(), r, "put", &w)
}

// A node that says that the key is another's has changed nothing: the client asks for the map
// and takes the write there, under a name of that node's peer.
func TestMovedWrite(t *testing.T) {
	inCluster(t, func(t *testing.T, n1, n2 *clienttest.Node, r *route.Router) {
		key := clienttest.KeysOf(n1.Map, 1)["n1"][0]
		if err := putTo(t, r, key); err != nil || n1.Puts[key] != 1 {
			t.Fatalf("%d puts, %v", n1.Puts[key], err)
		}
		next := clienttest.Swapped(n1.Map)
		take(n1, next)
		take(n2, next)
		age := uint32(77)
		n2.OnRequest = func(h wire.Header, msg []byte) ([]byte, bool) {
			if c, ok := parse(h, wire.Body(msg)); ok {
				age = c.id.AgeMillis
			}
			return n2.Answer(h, msg)
		}
		if err := putTo(t, r, key); err != nil || n1.Puts[key] != 1 || n2.Puts[key] != 1 {
			t.Errorf("%d and %d puts, %v", n1.Puts[key], n2.Puts[key], err)
		}
		if age != 0 {
			t.Errorf("the first copy under the new name is %d ms old", age)
		}
		if v := r.Map().Version; v != next.Version {
			t.Errorf("the map in force is version %d", v)
		}
		list := []base.Pair{{Key: []byte(key)}, {Key: []byte(clienttest.KeysOf(next, 1)["n1"][0])}}
		take(n1, clienttest.Swapped(next))
		take(n2, clienttest.Swapped(next))
		if err := Many(t.Context(), r, list); err != nil || n1.Puts[key] != 2 || n2.Puts[string(list[1].Key)] != 1 {
			t.Errorf("many: %d and %d puts, %v", n1.Puts[key], n2.Puts[string(list[1].Key)], err)
		}
	})
}

// Nodes that send a write from one to the other are believed for a few rounds.
func TestWriteThatNoNodeTakes(t *testing.T) {
	inCluster(t, func(t *testing.T, n1, n2 *clienttest.Node, r *route.Router) {
		key := clienttest.KeysOf(n1.Map, 1)["n1"][0]
		take(n1, clienttest.Swapped(n1.Map)) // n1 says n2, n2 says n1
		asked := 0
		for _, n := range []*clienttest.Node{n1, n2} {
			n.OnRequest = func(h wire.Header, msg []byte) ([]byte, bool) {
				if h.Type == wire.TypePut {
					asked++
				}
				return n.Answer(h, msg)
			}
		}
		err := putTo(t, r, key)
		if !errors.Is(err, base.ErrMoved) || errors.Is(err, base.ErrOutcomeUnknown) {
			t.Error(err)
		}
		if asked < 2 || asked > 20 || len(n1.Puts)+len(n2.Puts) != 0 {
			t.Errorf("asked %d times", asked)
		}
	})
}

// A write that may have taken effect at one node is never taken to another one: there it
// would have another name, and might take effect again.
func TestLostThenMoved(t *testing.T) {
	inCluster(t, func(t *testing.T, n1, n2 *clienttest.Node, r *route.Router) {
		key := clienttest.KeysOf(n1.Map, 1)["n1"][0]
		copies := 0
		n1.OnRequest = func(h wire.Header, msg []byte) ([]byte, bool) {
			if h.Type != wire.TypePut {
				return n1.Answer(h, msg)
			}
			if copies++; copies > 1 {
				return n1.Answer(h, msg)
			}
			n1.Answer(h, msg) // it takes effect, and no reply comes
			next := clienttest.Swapped(n1.Map)
			take(n1, next)
			take(n2, next)
			go n1.LastQP().Die(rdma.ErrPeerGone)
			return nil, true
		}
		if err := putTo(t, r, key); !errors.Is(err, base.ErrOutcomeUnknown) {
			t.Error(err)
		}
		if copies != 2 || n1.Puts[key] != 1 || n2.Puts[key] != 0 {
			t.Errorf("%d copies; %d and %d took effect", copies, n1.Puts[key], n2.Puts[key])
		}
	})
}
