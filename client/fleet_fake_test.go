package client

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// A fakeNode is a node of a cluster on the fake fabric: a map from key to value
// behind a shard map, for what real nodes would not do to each other.
type fakeNode struct {
	*fakeServer
	id, addr string

	mu       sync.Mutex
	view     *cluster.View
	m        *cluster.Map // in force
	promised *cluster.Map
	data     map[string]string
	puts     map[string]int // by key: how often it was put
	refuse   string         // answers MapPrepare with this text
	steps    []wire.MapStep
	asked    int // for the view
	noMap    bool
}

const fakeShards = 8

// fakeCluster makes nodes n1, n2, … with one map, each of which is named as what
// the others' gossip knows of it.
func fakeCluster(t *testing.T, n int, withMap bool) []*fakeNode {
	t.Helper()
	others := make(map[string]*fakeServer)
	var nodes []*fakeNode
	var in []cluster.MapNode
	view := cluster.View{Version: 1, Cluster: "fakes"}
	for i := range n {
		node := &fakeNode{
			fakeServer: newFakeServer(uint64(100 + i)), id: fmt.Sprintf("n%d", i+1), addr: fmt.Sprintf("node%d:1", i+1),
			data: map[string]string{}, puts: map[string]int{},
		}
		node.shards, node.others, others[node.addr] = fakeShards, others, node.fakeServer
		node.welcome = func(w *wire.Welcome) { w.Flags |= wire.WelcomeClustered }
		node.onRequest = node.answer
		nodes = append(nodes, node)
		in = append(in, cluster.MapNode{ID: node.id})
		view.Members = append(view.Members, cluster.Member{
			ID: node.id, Role: cluster.RoleServer, Incarnation: node.incarnation, State: cluster.Alive,
			Endpoints: []cluster.Endpoint{{Fabric: "fake", Addr: node.addr}},
		})
	}
	m, err := cluster.Propose([16]byte{1}, "fakes", fakeShards, in)
	if err != nil {
		t.Fatal(err)
	}
	for _, node := range nodes {
		v := view
		v.Self = node.id
		node.view = &v
		if withMap {
			node.m = m
		}
	}
	return nodes
}

// set changes what a node answers.
func (n *fakeNode) set(change func(*fakeNode)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	change(n)
}

func (n *fakeNode) answer(h wire.Header, msg []byte) ([]byte, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	out := n.answerLocked(h, wire.Body(msg))
	if out == nil {
		return nil, false
	}
	if h.Type != wire.TypePing {
		wire.SetCredits(out, 1)
	}
	return out, true
}

func (n *fakeNode) answerLocked(h wire.Header, body []byte) []byte {
	switch h.Type {
	case wire.TypeCluster:
		n.asked++
		req, err := wire.ParseClusterRequest(body)
		if err != nil {
			panic(err)
		}
		return n.tell(h, req)
	case wire.TypeMapChange:
		return n.change(h, body)
	case wire.TypePing:
		m, err := wire.ParsePing(body)
		if err != nil {
			panic(err)
		}
		return wire.AppendPingReply(nil, h.ID, wire.PingReply{Echo: m.Echo})
	case wire.TypePut:
		m, err := wire.ParsePut(body)
		if err != nil {
			panic(err)
		}
		if out := n.elsewhere(h, m.Key); out != nil {
			return out
		}
		n.data[string(m.Key)] = string(m.Value)
		n.puts[string(m.Key)]++
		return wire.AppendWriteReply(nil, h.Type, h.ID, wire.WriteReply{Version: 1, Applied: true})
	case wire.TypeGet:
		m, err := wire.ParseGet(body)
		if err != nil {
			panic(err)
		}
		if out := n.elsewhere(h, m.Key); out != nil {
			return out
		}
		value, ok := n.data[string(m.Key)]
		if !ok {
			return wire.AppendError(nil, h.Type, h.ID, wire.StatusNotFound, "")
		}
		return wire.AppendGetReply(nil, h.ID, wire.GetReply{Kind: wire.GetInline, ValueLen: uint32(len(value)), Version: 1, Value: []byte(value)})
	}
	return nil
}

// elsewhere refuses keys of others.
func (n *fakeNode) elsewhere(h wire.Header, key []byte) []byte {
	if n.m == nil || n.noMap {
		return wire.AppendError(nil, h.Type, h.ID, wire.StatusNoMap, "")
	}
	shard := cluster.ShardOf(key, fakeShards)
	if owner := n.m.OwnerOf(shard); owner != n.id {
		return wire.AppendMoved(nil, h.Type, h.ID, wire.Moved{MapVersion: n.m.Version, MapDigest: n.m.Digest(), Owner: []byte(owner)})
	}
	return nil
}

func (n *fakeNode) tell(h wire.Header, req wire.ClusterRequest) []byte {
	var text []byte
	var version uint64
	switch m := map[wire.ClusterWhat]*cluster.Map{wire.ClusterMap: n.m, wire.ClusterPromise: n.promised}[req.What]; {
	case req.What == wire.ClusterView:
		text, version = cluster.AppendView(nil, n.view), n.view.Version
	case m == nil:
		return wire.AppendError(nil, h.Type, h.ID, wire.StatusNoMap, "")
	default:
		text, version = cluster.AppendMap(nil, m), m.Version
	}
	part := text[req.Offset:min(int(req.Offset)+100, len(text))] // in small parts
	return wire.AppendClusterReply(nil, h.ID, wire.ClusterReply{Total: uint32(len(text)), Offset: req.Offset, Version: version, Data: part})
}

func (n *fakeNode) change(h wire.Header, body []byte) []byte {
	c, err := wire.ParseMapChange(body)
	if err != nil {
		panic(err)
	}
	m, err := cluster.ParseMap(c.Data) // one part
	if err != nil {
		panic(err)
	}
	n.steps = append(n.steps, c.Step)
	r := wire.MapChangeReply{}
	switch c.Step {
	case wire.MapPrepare:
		switch {
		case n.refuse != "":
			r.Text = []byte(n.refuse)
		case n.m != nil && n.m.Digest() != m.Digest(), n.promised != nil && n.promised.Digest() != m.Digest():
			r.Text = []byte("another map is promised")
		case n.m == nil:
			n.promised = m
		}
	case wire.MapCommit:
		if n.promised != nil && n.promised.Digest() == m.Digest() {
			n.m, n.promised = n.promised, nil
		} else if n.m == nil {
			r.Text = []byte("it was not promised")
		}
	case wire.MapAbandon:
		if n.promised != nil && n.promised.Digest() == m.Digest() {
			n.promised = nil
		}
	}
	switch {
	case n.m != nil:
		r.State, r.Digest = wire.MapCommitted, n.m.Digest()
	case n.promised != nil:
		r.State, r.Digest = wire.MapPromised, n.promised.Digest()
	}
	return wire.AppendMapChangeReply(nil, h.ID, r)
}

// dialFakes connects by the first of the nodes.
func dialFakes(t *testing.T, nodes []*fakeNode, change func(*Config)) *Client {
	t.Helper()
	return nodes[0].dial(t, nil, func(cfg *Config) {
		cfg.Servers = []string{nodes[0].addr}
		cfg.Timeout, cfg.DialTimeout = 2*time.Second, time.Second
		if change != nil {
			change(cfg)
		}
	})
}

// keysOf returns n keys of each node's shards, by node.
func keysOf(m *cluster.Map, n int) map[string][]string {
	keys := make(map[string][]string)
	for i := 0; len(keys) < len(m.Nodes) || !all(maps.Values(keys), func(k []string) bool { return len(k) >= n }); i++ {
		key := fmt.Sprintf("key%d", i)
		owner := m.OwnerOf(cluster.ShardOf([]byte(key), len(m.Owner)))
		if len(keys[owner]) < n {
			keys[owner] = append(keys[owner], key)
		}
	}
	return keys
}

func all[T any](seq func(func(T) bool), ok func(T) bool) bool {
	for v := range seq {
		if !ok(v) {
			return false
		}
	}
	return true
}

// swapped is the next map, in which the nodes have exchanged their shards.
func swapped(m *cluster.Map) *cluster.Map {
	next := *m
	next.Version++
	next.Owner = nil
	for _, i := range m.Owner {
		next.Owner = append(next.Owner, uint16((int(i)+1)%len(m.Nodes)))
	}
	return &next
}

func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// firstMap is the map that fakeCluster made.
func (n *fakeNode) firstMap() *cluster.Map {
	var in []cluster.MapNode
	for _, m := range n.view.Members {
		in = append(in, cluster.MapNode{ID: m.ID})
	}
	m, err := cluster.Propose([16]byte{1}, "fakes", fakeShards, in)
	if err != nil {
		panic(err)
	}
	return m
}

func putWord(b []byte, v uint64) { binary.LittleEndian.PutUint64(b, v) }
