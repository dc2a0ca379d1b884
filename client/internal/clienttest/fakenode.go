package clienttest

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"sync"
	"testing"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// A Node is a node of a cluster on the fake fabric: a map from key to value
// behind a shard map, for what real nodes would not do to each other.
type Node struct {
	*Server
	ID, Addr string

	mu       sync.Mutex
	View     *cluster.View
	Map      *cluster.Map // in force
	Promised *cluster.Map
	Data     map[string]string
	Puts     map[string]int // by key: how often it was put
	Refuse   string         // answers MapPrepare with this text
	Steps    []wire.DocumentKind
	Store    string                 // that its status tells
	Status   func(*wire.NodeStatus) // if set, changes what its status tells
	seat     *Seat
	answered []byte // to the last question about the cluster, or step of a map
	Asked    int    // for the view
	noMap    bool
	serial   uint32 // of the last document
	argument []byte // what has come of the next one's
}

const ClusterShards = 8

// Cluster makes nodes n1, n2, … with one map, each of which is named as what
// the others' gossip knows of it.
func Cluster(t *testing.T, n int, withMap bool) []*Node {
	t.Helper()
	others := make(map[string]*Server)
	var nodes []*Node
	var in []cluster.MapNode
	view := cluster.View{Version: 1, Cluster: "fakes"}
	for i := range n {
		node := &Node{
			Server: NewServer(uint64(100 + i)), ID: fmt.Sprintf("n%d", i+1), Addr: fmt.Sprintf("node%d:1", i+1),
			Data: map[string]string{}, Puts: map[string]int{},
		}
		node.Shards, node.Others, others[node.Addr] = ClusterShards, others, node.Server
		node.Welcome = func(w *wire.Welcome) { w.Flags |= wire.WelcomeClustered }
		node.OnRequest = node.Answer
		nodes = append(nodes, node)
		in = append(in, cluster.MapNode{ID: node.ID})
		view.Members = append(view.Members, cluster.Member{
			ID: node.ID, Role: cluster.RoleServer, Incarnation: node.Incarnation, State: cluster.Alive,
			Endpoints: []cluster.Endpoint{{Fabric: "fake", Addr: node.Addr}},
		})
	}
	m, err := cluster.Propose([16]byte{1}, "fakes", ClusterShards, in)
	if err != nil {
		t.Fatal(err)
	}
	for _, node := range nodes {
		v := view
		v.Self = node.ID
		node.View = &v
		if withMap {
			node.Map = m
		}
	}
	return nodes
}

// Set changes what a node answers.
func (n *Node) Set(change func(*Node)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	change(n)
}

// mapNow is the map in force at a node.
func (n *Node) mapNow() *cluster.Map {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.Map
}

func (n *Node) Answer(h wire.Header, msg []byte) ([]byte, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	out := n.answerLocked(h, wire.Body(msg))
	if out == nil {
		return nil, false
	}
	if h.Type != wire.TypePing && len(out) > 0 {
		wire.SetCredits(out, 1)
	}
	return out, true
}

func (n *Node) answerLocked(h wire.Header, body []byte) []byte {
	switch h.Type {
	case wire.TypeDocument:
		m, err := wire.ParseDocument(body)
		if err != nil {
			panic(err)
		}
		return n.document(h, m)
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
		n.Data[string(m.Key)] = string(m.Value)
		n.Puts[string(m.Key)]++
		return wire.AppendWriteReply(nil, h.Type, h.ID, wire.WriteReply{Version: 1, Applied: true})
	case wire.TypeGet:
		m, err := wire.ParseGet(body)
		if err != nil {
			panic(err)
		}
		if out := n.elsewhere(h, m.Key); out != nil {
			return out
		}
		value, ok := n.Data[string(m.Key)]
		if !ok {
			return wire.AppendError(nil, h.Type, h.ID, wire.StatusNotFound, "")
		}
		return wire.AppendGetReply(nil, h.ID, wire.GetReply{Kind: wire.GetInline, ValueLen: uint32(len(value)), Version: 1, Value: []byte(value)})
	}
	return nil
}

// elsewhere refuses keys of others.
func (n *Node) elsewhere(h wire.Header, key []byte) []byte {
	if n.Map == nil || n.noMap {
		return wire.AppendError(nil, h.Type, h.ID, wire.StatusNoMap, "")
	}
	shard := cluster.ShardOf(key, ClusterShards)
	if owner := n.Map.OwnerOf(shard); owner != n.ID {
		return wire.AppendMoved(nil, h.Type, h.ID, wire.Moved{MapVersion: n.Map.Version, MapDigest: n.Map.Digest(), Owner: []byte(owner)})
	}
	return nil
}

// document answers what clients ask of the cluster, in small parts.
func (n *Node) document(h wire.Header, m wire.Document) []byte {
	serial := m.Serial
	if serial == 0 {
		n.serial++
		serial = n.serial
	}
	argument := append(n.argument, m.Argument...)
	if n.argument = nil; len(argument) < int(m.Total) {
		n.argument = argument
		return wire.AppendDocumentReply(nil, h.ID, wire.DocumentReply{Serial: serial, Wants: true})
	}
	next := m.Serial != 0 && len(m.Argument) == 0 // part of an answer that was made before
	var text []byte
	switch m.Kind {
	case wire.DocumentView:
		n.Asked++
		text = cluster.AppendView(nil, n.View)
	case wire.DocumentMap, wire.DocumentPromise:
		n.Asked++
		said := n.Map
		if m.Kind == wire.DocumentPromise {
			said = n.Promised
		}
		if said == nil {
			return wire.AppendError(nil, h.Type, h.ID, wire.StatusNoMap, "")
		}
		text = cluster.AppendMap(nil, said)
	case wire.AdminStatus:
		text, _ = json.Marshal(n.status())
	case wire.AdminCluster:
		if n.seat == nil {
			return wire.AppendError(nil, h.Type, h.ID, wire.StatusUnsupported, "")
		}
		if !next {
			n.answered = n.seat.answer(n, argument)
		}
		if text = n.answered; len(text) == 0 {
			return Silent
		}
	case wire.MapPrepare, wire.MapCommit, wire.MapAbandon, wire.MapFollow:
		if !next {
			n.answered = n.change(m.Kind, argument)
		}
		text = n.answered
	default:
		return wire.AppendError(nil, h.Type, h.ID, wire.StatusUnsupported, "")
	}
	part := text[m.From:min(int(m.From)+100, len(text))]
	return wire.AppendDocumentReply(nil, h.ID, wire.DocumentReply{Total: uint32(len(text)), Offset: m.From, Serial: serial, Data: part})
}

// status is what the node says of itself.
func (n *Node) status() wire.NodeStatus {
	st := wire.NodeStatus{NodeID: n.ID, ClusterName: n.View.Cluster, Shards: wire.ShardStatus{Total: ClusterShards}, NodeReplicas: wire.NodeReplicas{Store: n.Store}}
	if n.Map != nil {
		st.ClusterID = fmt.Sprintf("%x", n.Map.Cluster)
	}
	if n.Status != nil {
		n.Status(&st)
	}
	return st
}

func (n *Node) change(step wire.DocumentKind, text []byte) []byte {
	m, err := cluster.ParseMap(text)
	if err != nil {
		panic(err)
	}
	n.Steps = append(n.Steps, step)
	r := wire.MapAnswer{}
	switch step {
	case wire.MapPrepare:
		switch {
		case n.Refuse != "":
			r.Text = []byte(n.Refuse)
		case n.Map != nil && n.Map.Digest() != m.Digest(), n.Promised != nil && n.Promised.Digest() != m.Digest():
			r.Text = []byte("another map is promised")
		case n.Map == nil:
			n.Promised = m
		}
	case wire.MapCommit:
		if n.Promised != nil && n.Promised.Digest() == m.Digest() {
			n.Map, n.Promised = n.Promised, nil
		} else if n.Map == nil {
			r.Text = []byte("it was not promised")
		}
	case wire.MapFollow:
		if n.Refuse != "" {
			r.Text = []byte(n.Refuse)
		} else {
			r.Text = []byte(n.follow(m))
		}
	case wire.MapAbandon:
		if n.Promised != nil && n.Promised.Digest() == m.Digest() {
			n.Promised = nil
		}
	}
	switch {
	case n.Map != nil:
		r.State, r.Digest = wire.MapCommitted, n.Map.Digest()
	case n.Promised != nil:
		r.State, r.Digest = wire.MapPromised, n.Promised.Digest()
	}
	return wire.AppendMapAnswer(nil, r)
}

// KeysOf returns n keys of each node's shards, by node.
func KeysOf(m *cluster.Map, n int) map[string][]string {
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

// Swapped is the next map, in which the nodes have exchanged their shards.
func Swapped(m *cluster.Map) *cluster.Map {
	next := *m
	next.Version++
	next.Owner = nil
	for _, i := range m.Owner {
		next.Owner = append(next.Owner, uint16((int(i)+1)%len(m.Nodes)))
	}
	return &next
}

// FirstMap is the map that fakeCluster made.
func (n *Node) FirstMap() *cluster.Map {
	var in []cluster.MapNode
	for _, m := range n.View.Members {
		in = append(in, cluster.MapNode{ID: m.ID})
	}
	m, err := cluster.Propose([16]byte{1}, "fakes", ClusterShards, in)
	if err != nil {
		panic(err)
	}
	return m
}

// PutWord writes one word as memory has it.
func PutWord(b []byte, v uint64) { binary.LittleEndian.PutUint64(b, v) }
