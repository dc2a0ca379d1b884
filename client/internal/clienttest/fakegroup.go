package clienttest

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma"
)

// Replicas are what the replicas of fake nodes have agreed on: who leads each group, what was
// written, and under which names. A test says who leads; nothing is elected.
type Replicas struct {
	Nodes []*Node
	Map   *cluster.Map
	Page  uint32 // entries of a page of a scan, at most; 0: as many as are asked for

	mu      sync.Mutex
	lead    map[uint32]Led
	data    map[string]string
	done    map[string]int // by key: how often a write took effect
	results map[groupSlot]wire.RequestID
	copies  []Copied
	events  map[uint32][]wire.Event // by group: all there were
	forgot  map[string]int          // by node: how many it does not have any more, of each group
	clients map[[16]byte]bool
	down    map[string]bool
	fate    func(c Copied) Fate

	// fakecells.go
	voters []string
	told   map[string]*Told
	infos  int

	// fakemaps.go
	lives  map[uint32]*lived  // by group; nil: groups are what the map says
	keyed  map[string]int     // by key: its places
	memory map[[2]string]kept // by node and key
}

// Led is who leads a group.
type Led struct {
	Node string // "": nobody
	Term uint64
}

// A groupSlot is where a group keeps the last result of a slot.
type groupSlot struct {
	group uint32
	slot  uint16
}

// A Copied is a request as a fake node has seen it.
type Copied struct {
	Node  string
	Type  wire.Type
	Key   string // of a scan, that behind which its page begins
	Group uint32
	ID    wire.RequestID // of a write
	RKey  uint32         // of a large one
}

// IsWrite reports whether it changes something.
func (c Copied) IsWrite() bool {
	return c.isOfKey() && c.Type != wire.TypeGet && c.Type != wire.TypeExists
}

// isOfKey reports whether it names a key, and not a group.
func (c Copied) isOfKey() bool { return c.Type != wire.TypeScan && c.Type != wire.TypeWatch }

// A Fate is what becomes of a request.
type Fate struct {
	Undone bool        // it takes no effect
	Silent bool        // no reply comes
	Cut    bool        // the node's connections end; no reply comes
	Status wire.Status // in place of an answer
	Reply  []byte      // in place of an answer; the header's id is set
}

// ReplicaCluster makes nodes of a cluster with so many replicas and groups. The first replica of each
// group leads it, in term 1.
func ReplicaCluster(t *testing.T, nodes, replicas, groups int) *Replicas {
	t.Helper()
	return ReplicaClusterBut(t, nodes, 0, replicas, groups)
}

// ReplicaClusterBut is ReplicaCluster without the last nodes, so many of them, of which gossip knows and which have no map.
func ReplicaClusterBut(t *testing.T, nodes, but, replicas, groups int) *Replicas {
	t.Helper()
	r := &Replicas{
		Nodes: Cluster(t, nodes, false), lead: map[uint32]Led{}, data: map[string]string{}, done: map[string]int{},
		results: map[groupSlot]wire.RequestID{}, clients: map[[16]byte]bool{}, down: map[string]bool{},
		events: map[uint32][]wire.Event{}, forgot: map[string]int{},
	}
	var in []cluster.MapNode
	want := cluster.Want{Replicas: replicas, Groups: groups}
	for i, n := range r.Nodes {
		if i < nodes-but {
			in = append(in, cluster.MapNode{ID: n.ID})
			want.Stores = append(want.Stores, [16]byte{byte(i + 1)})
		}
		n.OnRequest = func(h wire.Header, msg []byte) ([]byte, bool) { return r.answer(n, h, msg) }
		n.Connect = func(context.Context) error {
			r.mu.Lock()
			defer r.mu.Unlock()
			if r.down[n.ID] {
				return rdma.ErrPeerGone
			}
			return nil
		}
	}
	var err error
	if r.Map, err = cluster.ProposeReplicas([16]byte{1}, "fakes", ClusterShards, in, want); err != nil {
		t.Fatal(err)
	}
	// Without a meta group, as older versions have made it: what a later one has is changed here by hand.
	l := r.Map.Replication
	l.Meta, l.Zones = nil, nil
	for i := range l.Groups {
		l.Groups[i].Top = 0
	}
	for _, g := range r.Map.Replication.Groups {
		r.lead[g.ID] = Led{Node: r.Map.Nodes[g.Replicas[0].Node].ID, Term: 1}
	}
	for _, n := range r.Nodes[:nodes-but] {
		n.Map = r.Map
	}
	return r
}

// ShardOf is the shard of a key.
func (r *Replicas) ShardOf(key string) uint16 { return cluster.ShardOf([]byte(key), ClusterShards) }

// GroupOf is the group of a key.
func (r *Replicas) GroupOf(key string) *cluster.Group {
	m := r.Map.Replication
	return &m.Groups[m.Group[cluster.ShardOf([]byte(key), ClusterShards)]]
}

// At are the nodes of a key's replicas, in the order of the map.
func (r *Replicas) At(key string) (at []*Node) {
	for _, p := range r.GroupOf(key).Replicas {
		at = append(at, r.Nodes[slices.IndexFunc(r.Nodes, func(n *Node) bool { return n.ID == r.Map.Nodes[p.Node].ID })])
	}
	return at
}

// Elect has a node lead the group of a key, in the next term; nil: nobody.
func (r *Replicas) Elect(key string, n *Node) {
	id := r.GroupOf(key).ID
	r.mu.Lock()
	defer r.mu.Unlock()
	l := Led{Term: r.lead[id].Term + 1}
	if n != nil {
		l.Node = n.ID
	}
	r.lead[id] = l
}

// Leader is the node that leads the group of a key; "": none does.
func (r *Replicas) Leader(key string) string {
	id := r.GroupOf(key).ID
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lead[id].Node
}

// LeaderLocked is the node that leads a group, for a fate.
func (r *Replicas) LeaderLocked(group uint32) string { return r.lead[group].Node }

// FallLocked has the next replica of a group lead it, in the next term, for a fate.
func (r *Replicas) FallLocked(group uint32) {
	for _, g := range r.Map.Replication.Groups {
		if g.ID != group {
			continue
		}
		of := func(i int) string { return r.Map.Nodes[g.Replicas[i%len(g.Replicas)].Node].ID }
		i := 0
		for of(i) != r.lead[group].Node {
			i++
		}
		r.lead[group] = Led{Node: of(i + 1), Term: r.lead[group].Term + 1}
	}
}

// Draw says what becomes of requests. It is called with a lock held.
func (r *Replicas) Draw(fate func(Copied) Fate) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fate, r.copies = fate, nil
}

// Copies are the requests since the last Draw.
func (r *Replicas) Copies() []Copied {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.copies)
}

// Done is how often a write of the key took effect, and Value what it has.
func (r *Replicas) Done(key string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.done[key]
}

// Value is what a key has.
func (r *Replicas) Value(key string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.data[key]
}

// Set gives a key a value.
func (r *Replicas) Set(key, value string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.data[key] = value
}

// Clients are how many client ids the nodes have been told.
func (r *Replicas) Clients() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.clients)
}

// Stop ends the connections of a node, and refuses others. Start takes that back.
func (r *Replicas) Stop(n *Node) {
	r.mu.Lock()
	r.down[n.ID] = true
	r.mu.Unlock()
	n.Cut()
}

// Start has a node take connections again.
func (r *Replicas) Start(n *Node) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.down, n.ID)
}

// Cut ends all connections of a node.
func (n *Node) Cut() {
	n.Mu.Lock()
	qps := slices.Clone(n.QPs)
	n.Mu.Unlock()
	for _, q := range qps {
		q.Die(rdma.ErrPeerGone)
	}
}

func (r *Replicas) answer(n *Node, h wire.Header, msg []byte) ([]byte, bool) {
	body := wire.Body(msg)
	if h.Type == wire.TypeHello {
		if m, err := wire.ParseHello(body); err == nil {
			r.mu.Lock()
			r.clients[m.ClientID] = true
			r.mu.Unlock()
		}
	}
	if h.Type == wire.TypeGroupInfo {
		return r.groupInfo(n, h, body), true
	}
	c, value, ok := asked(h, body)
	if !ok {
		return n.Answer(h, msg)
	}
	if c.Type == wire.TypeWatch {
		time.Sleep(20 * time.Millisecond) // as a server waits for the next event
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.Node = n.ID; c.isOfKey() {
		c.Group = r.GroupOf(c.Key).ID
	}
	r.copies = append(r.copies, c)
	var f Fate
	if r.fate != nil {
		f = r.fate(c)
	}
	out := r.serveLocked(n, h, body, c, value, f)
	wire.SetCredits(out, 1)
	switch {
	case f.Cut:
		go n.Cut()
		return nil, true
	case f.Silent:
		return nil, true
	}
	return out, true
}

// serveLocked does what a node does, and returns its reply.
func (r *Replicas) serveLocked(n *Node, h wire.Header, body []byte, c Copied, value string, f Fate) []byte {
	refuse := func(s wire.Status) []byte { return wire.AppendError(nil, h.Type, h.ID, s, "") }
	lead := r.lead[c.Group]
	m := r.Map.Replication
	at := slices.IndexFunc(m.Groups, func(g cluster.Group) bool { return g.ID == c.Group })
	if at < 0 { // of a scan that names none
		return refuse(wire.StatusUnsupported)
	}
	g := &m.Groups[at]
	now := n.mapNow()
	switch {
	case f.Undone:
	case now == nil:
		return refuse(wire.StatusNoMap)
	case !r.hasLocked(n.ID, g):
		owner := now.OwnerOf(m.ShardsOf(at)[0])
		return wire.AppendMoved(nil, h.Type, h.ID, wire.Moved{MapVersion: now.Version, MapDigest: now.Digest(), Owner: []byte(owner)})
	case lead.Node != n.ID && f.Reply == nil && f.Status == 0:
		return wire.AppendNotLeader(nil, h.Type, h.ID, wire.NotLeader{Group: c.Group, Term: lead.Term, Leader: []byte(lead.Node)})
	case c.IsWrite() && lead.Node == n.ID:
		at := groupSlot{c.Group, c.ID.Slot}
		if c.ID.Seq > r.results[at].Seq {
			r.results[at] = c.ID
			r.done[c.Key]++
			r.data[c.Key] = value
			if r.lives != nil {
				r.writtenLocked(c.Group, c.Key, value)
			}
			r.events[c.Group] = append(r.events[c.Group], wire.Event{Version: uint64(len(r.events[c.Group])+1) << 12, Op: wire.EventPut, Key: []byte(c.Key)})
		}
	}
	switch {
	case f.Reply != nil:
		return f.Reply
	case f.Status != 0:
		return refuse(f.Status)
	case c.IsWrite():
		return wire.AppendWriteReply(nil, h.Type, h.ID, wire.WriteReply{Version: 7, Applied: true, Existed: true})
	case c.Type == wire.TypeScan:
		return r.pageLocked(h, body)
	case c.Type == wire.TypeWatch:
		return r.eventsLocked(n, h, body)
	}
	v, ok := r.data[c.Key]
	switch {
	case !ok:
		return refuse(wire.StatusNotFound)
	case c.Type == wire.TypeExists:
		return wire.AppendExistsReply(nil, h.ID, wire.ExistsReply{ValueLen: uint32(len(v)), Version: 7})
	}
	return wire.AppendGetReply(nil, h.ID, wire.GetReply{Kind: wire.GetInline, ValueLen: uint32(len(v)), Version: 7, Value: []byte(v)})
}

// pageLocked is a page of the keys of a group.
func (r *Replicas) pageLocked(h wire.Header, body []byte) []byte {
	m, err := wire.ParseScan(body)
	if err != nil {
		panic(err)
	}
	count, more := uint32(0), false
	out := wire.BeginScanReply(nil, h.ID)
	var last []byte
	for _, k := range slices.Sorted(maps.Keys(r.data)) {
		on := strings.Compare(k, string(m.After))
		switch {
		case r.GroupOf(k).ID != m.Group, !strings.HasPrefix(k, string(m.Prefix)), len(m.End) > 0 && k >= string(m.End):
		case len(m.After) > 0 && (on < 0 || on == 0 && !m.From):
		case count == m.Limit || r.Page > 0 && count == r.Page:
			more = true
		default:
			e := wire.ScanEntry{Version: 7, Key: []byte(k), ValueLen: uint32(len(r.data[k]))}
			if !m.KeysOnly {
				e.Value, e.HasValue = []byte(r.data[k]), true
			}
			out, last = wire.AppendScanEntry(out, e), e.Key
			count++
		}
	}
	if !more {
		last = nil
	}
	return wire.EndScanReply(out, 0, count, more, last)
}

// eventsLocked are the events of a group behind a cursor, as many as Page.
func (r *Replicas) eventsLocked(n *Node, h wire.Header, body []byte) []byte {
	m, err := wire.ParseWatch(body)
	if err != nil {
		panic(err)
	}
	all := r.events[m.Group]
	next := wire.Cursor{Incarnation: 1000 + uint64(m.Group), Version: uint64(len(all)) << 12}
	out := wire.BeginWatchReply(nil, h.ID)
	switch from := int(m.From.Version >> 12); {
	case m.From == wire.Cursor{}:
		return wire.EndWatchReply(out, 0, 0, next, false)
	case m.From.Incarnation != next.Incarnation || from < r.forgot[n.ID] || from > len(all):
		return wire.EndWatchReply(out, 0, 0, next, true)
	default:
		all = all[from:]
	}
	if r.Page > 0 {
		all = all[:min(len(all), int(r.Page))]
	}
	next.Version = m.From.Version
	for _, e := range all {
		out, next.Version = wire.AppendEvent(out, e), e.Version
	}
	return wire.EndWatchReply(out, 0, uint32(len(all)), next, false)
}

// Forget has a node forget the events that there are.
func (r *Replicas) Forget(n *Node) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, all := range r.events {
		r.forgot[n.ID] = max(r.forgot[n.ID], len(all))
	}
}

// asked reads a request for a key, or for those of a group.
func asked(h wire.Header, body []byte) (c Copied, value string, ok bool) {
	c.Type = h.Type
	var err error
	switch h.Type {
	case wire.TypeGet:
		m, e := wire.ParseGet(body)
		c.Key, err = string(m.Key), e
	case wire.TypeExists:
		m, e := wire.ParseKey(body)
		c.Key, err = string(m.Key), e
	case wire.TypeScan:
		m, e := wire.ParseScan(body)
		c.Group, c.Key, err = m.Group, string(m.After), e
	case wire.TypeWatch:
		m, e := wire.ParseWatch(body)
		c.Group, err = m.Group, e
	case wire.TypePut:
		m, e := wire.ParsePut(body)
		c.ID, c.Key, value, err = m.ID, string(m.Key), string(m.Value), e
	case wire.TypePutLarge:
		m, e := wire.ParsePutLarge(body)
		c.ID, c.Key, c.RKey, err = m.ID, string(m.Key), m.RKey, e
	case wire.TypeDelete:
		m, e := wire.ParseDelete(body)
		c.ID, c.Key, err = m.ID, string(m.Key), e
	case wire.TypeUpdate:
		m, e := wire.ParseUpdate(body)
		c.ID, c.Key, err = m.ID, string(m.Key), e
	case wire.TypeBatch:
		m, e := wire.ParseBatch(body)
		if err = e; err == nil {
			for part := range m.Parts.All {
				c.Key = string(part.Key)
				break
			}
		}
		c.ID = m.ID
	default:
		return c, "", false
	}
	if err != nil {
		panic(err)
	}
	return c, value, true
}
