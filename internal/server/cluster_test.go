package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/shardmap"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/store"
)

// clusterName is the cluster of the tests' nodes. It is another one in each process, because nodes gossip to one that has left for half a minute more: if
// another test has got its port meanwhile, and its nodes have the same names and were of the same cluster, those are taken for these.
var clusterName = fmt.Sprint("red-", os.Getpid())

// clusterOf makes a configuration a node's.
func clusterOf(id string, seeds ...string) func(*Config) {
	return func(c *Config) {
		c.AdminListen = "127.0.0.1:0"
		c.Cluster = &ClusterConfig{NodeID: id, Name: clusterName, Bind: "127.0.0.1:0", Join: seeds, Insecure: true}
	}
}

// startNodes starts nodes a, b, c, ... that know of each other.
func startNodes(t testing.TB, n int) []*Server {
	t.Helper()
	var nodes []*Server
	var seeds []string
	for i := range n {
		srv := startServer(t, clusterOf(string(rune('a'+i)), seeds...))
		nodes = append(nodes, srv)
		seeds = append(seeds, srv.GossipAddr())
	}
	for _, srv := range nodes {
		eventually(t, "everybody is there", func() bool {
			alive := 0
			for _, m := range srv.member.Members().View().Members {
				if m.State == cluster.Alive {
					alive++
				}
			}
			return alive == n
		})
	}
	return nodes
}

// change does a step with a map over a session.
func (p *peer) change(step wire.DocumentKind, m *cluster.Map) (wire.MapAnswer, error) {
	p.t.Helper()
	text, err := p.document(step, cluster.AppendMap(nil, m), 100) // in many parts
	if err != nil {
		return wire.MapAnswer{}, err
	}
	got, err := wire.ParseMapAnswer(text)
	if err != nil {
		p.t.Fatal(err)
	}
	return got, nil
}

// mustChange does a step that must succeed, at every node.
func mustChange(t testing.TB, step wire.DocumentKind, m *cluster.Map, nodes ...*Server) {
	t.Helper()
	for _, srv := range nodes {
		p := dial(t, srv, peerOptions{})
		if got, err := p.change(step, m); err != nil || len(got.Text) > 0 || got.Digest != m.Digest() {
			t.Fatalf("%v at %s: %+v %q, %v", step, srv.cfg.Cluster.NodeID, got, got.Text, err)
		}
		p.close()
	}
}

func birth(t testing.TB, nodes ...*Server) *cluster.Map {
	t.Helper()
	m := propose(t, 1, nodes...)
	mustChange(t, wire.MapPrepare, m, nodes...)
	mustChange(t, wire.MapCommit, m, nodes...)
	return m
}

func propose(t testing.TB, id byte, nodes ...*Server) *cluster.Map {
	t.Helper()
	var list []cluster.MapNode
	for _, srv := range nodes {
		list = append(list, cluster.MapNode{ID: srv.cfg.Cluster.NodeID, Weight: 1})
	}
	m, err := cluster.Propose([16]byte{id}, clusterName, 4, list)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func (p *peer) view() *cluster.View {
	p.t.Helper()
	text, err := p.document(wire.DocumentView, nil, 0)
	if err != nil {
		p.t.Fatal(err)
	}
	v, err := cluster.ParseView(text)
	if err != nil {
		p.t.Fatalf("view %+v: %v", v, err)
	}
	return v
}

// everyRequest asks for a key in every way there is and returns the statuses.
func (p *peer) everyRequest(key string) map[string]error {
	k := []byte(key)
	ask := func(encode func(id uint64) []byte) error {
		_, err := p.call(encode)
		return err
	}
	sink := p.sink()
	_, getError := p.get(key, 1000)
	part := wire.AppendBatchPart(nil, wire.BatchPart{Key: k, Value: []byte("v")})
	copy(sink, part)
	return map[string]error{
		"put":    p.put(key, "v"),
		"get":    getError,
		"delete": ask(func(id uint64) []byte { return wire.AppendDelete(nil, id, wire.Delete{Key: k}) }),
		"exists": ask(func(id uint64) []byte { return wire.AppendExists(nil, id, wire.Key{Key: k}) }),
		"update": ask(func(id uint64) []byte {
			return wire.AppendUpdate(nil, id, wire.Update{Op: wire.UpdateIncrement, Delta: 1, Key: k})
		}),
		"batch": ask(func(id uint64) []byte { return wire.AppendBatch(nil, id, wire.RequestID{}, 1, part) }),
		"large put": ask(func(id uint64) []byte {
			return wire.AppendPutLarge(nil, id, wire.PutLarge{Key: k, ValueLen: 100, Addr: p.mr.Addr(), RKey: p.mr.RKey()})
		}),
		"large batch": ask(func(id uint64) []byte {
			return wire.AppendBatchLarge(nil, id, wire.BatchLarge{Count: 1, Length: uint32(len(part)), Checksum: checksum(part),
				RKey: p.mr.RKey(), Addr: p.mr.Addr() + (peerReceives+1)*peerSize})
		}),
	}
}

// TestNoMap: before there is a map a node answers no key, whatever is asked,
// and everything else.
func TestNoMap(t *testing.T) {
	srv := startServer(t, clusterOf("a"))
	p := dial(t, srv, peerOptions{})
	if p.wel.Flags&wire.WelcomeClustered == 0 {
		t.Error("Welcome does not say that this is a node of a cluster")
	}
	for what, err := range p.everyRequest("key") {
		if wire.StatusOf(err) != wire.StatusNoMap {
			t.Errorf("%s: %v, want no-map", what, err)
		}
	}
	for what, encode := range map[string]func(id uint64) []byte{
		"scan":    func(id uint64) []byte { return wire.AppendScan(nil, id, wire.Scan{}) },
		"watch":   func(id uint64) []byte { return wire.AppendWatch(nil, id, wire.Watch{}) },
		"map":     documentOf(wire.DocumentMap, ""),
		"promise": documentOf(wire.DocumentPromise, ""),
	} {
		if _, err := p.call(encode); wire.StatusOf(err) != wire.StatusNoMap {
			t.Errorf("%s: %v, want no-map", what, err)
		}
	}
	if err := p.ping(); err != nil {
		t.Error(err)
	}
	v := p.view()
	m := v.Member("a")
	if v.Self != "a" || len(v.Members) != 1 || m == nil || m.Incarnation != srv.main.Incarnation || len(m.Endpoints) != 1 || m.Endpoints[0].Addr != srv.Addrs()[0].String() {
		t.Errorf("the view is %+v", v)
	}
	for shard := range uint16(4) {
		if withheld, err := srv.main.Store.Withheld(shard); err != nil || !withheld {
			t.Errorf("misses of shard %d may be believed: %v", shard, err)
		}
	}
}

// TestMapBirth: nodes promise, commit, and answer for their own shards; for
// others they say where to go.
func TestMapBirth(t *testing.T) {
	nodes := startNodes(t, 3)
	m := propose(t, 1, nodes...)
	mustChange(t, wire.MapPrepare, m, nodes...)
	p := dial(t, nodes[0], peerOptions{})
	if err := p.put("key", "v"); wire.StatusOf(err) != wire.StatusNoMap {
		t.Errorf("a promised map is in force: %v", err)
	}
	text, err := p.document(wire.DocumentPromise, nil, 0)
	if got, perr := cluster.ParseMap(text); err != nil || perr != nil || got.Version != 1 || got.Digest() != m.Digest() {
		t.Errorf("the promise is %v, %v, %v", got, err, perr)
	}
	if got, err := p.change(wire.MapPrepare, propose(t, 2, nodes...)); err != nil || got.State != wire.MapPromised || got.Digest != m.Digest() || !strings.Contains(string(got.Text), "abandon") {
		t.Errorf("another map: %+v %q, %v", got, got.Text, err)
	}
	before, _ := p.regions()
	mustChange(t, wire.MapCommit, m, nodes...)
	mustChange(t, wire.MapPrepare, m, nodes...) // once more does no harm
	mustChange(t, wire.MapCommit, m, nodes...)
	if got, err := p.change(wire.MapAbandon, m); err != nil || got.State != wire.MapCommitted || len(got.Text) == 0 {
		t.Errorf("a committed map is given up: %+v, %v", got, err)
	}
	eventually(t, "the beat tells that there is something new", func() bool { return nodes[0].main.Store.ViewVersion() > before.Version })
	for _, srv := range nodes {
		p := dial(t, srv, peerOptions{})
		text, err := p.document(wire.DocumentMap, nil, 0)
		if got, perr := cluster.ParseMap(text); err != nil || perr != nil || got.Digest() != m.Digest() {
			t.Errorf("the map is %v, %v, %v", got, err, perr)
		}
		seen := map[string]bool{}
		for i := 0; len(seen) < 3; i++ {
			key := fmt.Sprint("key", i)
			owner := m.OwnerOf(cluster.ShardOf([]byte(key), 4))
			if seen[owner] {
				continue
			}
			seen[owner] = true
			for what, err := range p.everyRequest(key) {
				remote, _ := errors.AsType[*wire.RemoteError](err)
				switch st := wire.StatusOf(err); {
				case owner == srv.cfg.Cluster.NodeID && (st == wire.StatusMoved || st == wire.StatusNoMap):
					t.Errorf("%s of its own key at %s: %v", what, owner, err)
				case owner != srv.cfg.Cluster.NodeID && (st != wire.StatusMoved || !strings.Contains(remote.Detail, "node "+owner)):
					t.Errorf("%s of a key of %s at %s: %v", what, owner, srv.cfg.Cluster.NodeID, err)
				}
			}
		}
		for shard := range uint16(4) {
			if withheld, _ := srv.main.Store.Withheld(shard); withheld != !m.Owns(srv.cfg.Cluster.NodeID, shard) {
				t.Errorf("shard %d of %s: withheld %v at %s", shard, m.OwnerOf(shard), withheld, srv.cfg.Cluster.NodeID)
			}
		}
	}
	for _, srv := range nodes {
		eventually(t, "all hear of the map", func() bool {
			for _, mem := range srv.member.Members().View().Members {
				if mem.MapVersion != 1 || mem.MapDigest != m.Digest() {
					return false
				}
			}
			return true
		})
	}
}

// TestMapLasts: a map and a promise are there again after a restart, whatever a
// crash takes, and the directory is nobody else's.
func TestMapLasts(t *testing.T) {
	fs := vfs.NewMem()
	var digest uint64
	for _, step := range []wire.DocumentKind{wire.MapPrepare, wire.MapCommit, 0} {
		srv := startServer(t, func(c *Config) { clusterOf("a")(c); c.FS = fs })
		m := propose(t, 1, srv)
		digest = m.Digest()
		state, got := srv.member.MapState()
		if want := map[wire.DocumentKind]wire.MapState{wire.MapPrepare: wire.MapNone, wire.MapCommit: wire.MapPromised, 0: wire.MapCommitted}[step]; state != want || want != wire.MapNone && got != digest {
			t.Fatalf("before %v: %v %x", step, state, got)
		}
		p := dial(t, srv, peerOptions{})
		if step != 0 {
			mustChange(t, step, m, srv)
		}
		if err := p.put("key", "value"); (step == wire.MapPrepare) != (wire.StatusOf(err) == wire.StatusNoMap) {
			t.Errorf("after %v: %v", step, err)
		}
		p.close()
		if err := srv.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		name   string
		change func(*Config)
		want   error
		text   string
	}{
		{"another node", clusterOf("b"), shardmap.ErrOtherNode, fmt.Sprintf("node %q of cluster %q", "a", clusterName)},
		{"another cluster", func(c *Config) { clusterOf("a")(c); c.Cluster.Name = "blue" }, shardmap.ErrOtherNode, "cluster.name"},
		{"a server that is alone", func(*Config) {}, shardmap.ErrClustered, "gossip.bind"},
		{"another number of shards", func(c *Config) { clusterOf("a")(c); c.Shards = 5 }, store.ErrShardCount, "shards"},
	} {
		cfg := testConfig()
		tc.change(&cfg)
		cfg.FS = fs
		srv, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if err := srv.Start(t.Context()); !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.text) {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}

// TestNotEmpty: a node that holds keys comes into no cluster, nor does one of
// whose spaces that is true, nor one that is not in the map.
func TestNotEmpty(t *testing.T) {
	fs := vfs.NewMem()
	alone := startServer(t, func(c *Config) { c.FS = fs })
	if err := dial(t, alone, peerOptions{}).put("key", "value"); err != nil {
		t.Fatal(err)
	}
	if _, err := dial(t, alone, peerOptions{}).change(wire.MapPrepare, mapFor(t, "a")); wire.StatusOf(err) != wire.StatusUnsupported {
		t.Errorf("a map for a server that is alone: %v", err)
	}
	if _, err := dial(t, alone, peerOptions{}).document(wire.DocumentView, nil, 0); wire.StatusOf(err) != wire.StatusUnsupported {
		t.Errorf("the view of a server that is alone: %v", err)
	}
	if err := alone.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	srv := startServer(t, func(c *Config) { clusterOf("a")(c); c.FS = fs })
	p := dial(t, srv, peerOptions{})
	for _, tc := range []struct{ nodes, want string }{{"a", "holds keys"}, {"b", `node "a" stands nowhere`}} {
		if got, err := p.change(wire.MapPrepare, mapFor(t, tc.nodes)); err != nil || got.State != wire.MapNone || !strings.Contains(string(got.Text), tc.want) {
			t.Errorf("%+v %q, %v; want %q", got, got.Text, err, tc.want)
		}
	}
	if _, err := p.call(func(id uint64) []byte {
		return wire.AppendDocument(nil, id, wire.Document{Kind: wire.MapPrepare, Serial: 1, Total: 9, Offset: 4, Argument: []byte("x")})
	}); wire.StatusOf(err) != wire.StatusBadRequest {
		t.Errorf("a part out of order: %v", err)
	}
	if _, err := p.call(documentOf(wire.MapPrepare, "xyz")); wire.StatusOf(err) != wire.StatusBadRequest {
		t.Errorf("no map at all: %v", err)
	}
	if _, err := p.call(func(id uint64) []byte {
		return wire.AppendDocument(nil, id, wire.Document{Kind: wire.MapPrepare, Total: 1 << 30, Argument: []byte("xyz")})
	}); wire.StatusOf(err) != wire.StatusTooLarge {
		t.Errorf("a map of a gigabyte: %v", err)
	}
}

func mapFor(t *testing.T, nodes ...string) *cluster.Map {
	t.Helper()
	var list []cluster.MapNode
	for _, n := range nodes {
		list = append(list, cluster.MapNode{ID: n})
	}
	m, err := cluster.Propose([16]byte{1}, clusterName, 4, list)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestNewsTravel: regions of one node are known at the others, and who leaves
// is seen in the view that clients are told.
func TestNewsTravel(t *testing.T) {
	nodes := startNodes(t, 3)
	m := birth(t, nodes...)
	tables := func() {
		t.Helper()
		for _, of := range nodes[:2] {
			want := of.RegionTable(of.cfg.Cluster.NodeID)
			for _, at := range nodes[:2] {
				eventually(t, "the table of another node is known", func() bool {
					got := at.member.Members().Table(of.cfg.Cluster.NodeID)
					return got != nil && got.Incarnation == of.main.Incarnation && len(got.Regions) == len(want.Regions)
				})
			}
		}
	}
	tables()
	var begun time.Time
	// A large value needs a region of its own.
	for i := 0; ; i++ {
		key := fmt.Sprint("key", i)
		if m.OwnerOf(cluster.ShardOf([]byte(key), 4)) != "a" {
			continue
		}
		regions := len(nodes[0].main.Store.View().Regions)
		begun = time.Now()
		if err := dial(t, nodes[0], peerOptions{}).put(key, strings.Repeat("v", 10000)); err != nil {
			t.Fatal(err)
		}
		if len(nodes[0].main.Store.View().Regions) == regions {
			t.Fatal("no region came with the first item")
		}
		break
	}
	tables()
	t.Logf("a new region was known everywhere after %v", time.Since(begun).Round(time.Millisecond))
	p := dial(t, nodes[0], peerOptions{})
	before, _ := p.regions()
	if err := nodes[2].Shutdown(context.Background()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "clients are told who has left", func() bool {
		c := p.view().Member("c")
		return c != nil && c.State == cluster.Left
	})
	eventually(t, "the beat tells of it", func() bool { return nodes[0].main.Store.ViewVersion() > before.Version })
}

// TestEndpointsFit: a node with more addresses than gossip has room for tells of
// the first ones, and starts.
func TestEndpointsFit(t *testing.T) {
	srv := startServer(t, func(c *Config) {
		clusterOf("a")(c)
		for i := range 12 {
			c.Cluster.Hosts = append(c.Cluster.Hosts, fmt.Sprintf("2001:db8:1:2:3:4:5:%x", i+1))
		}
	})
	m := dial(t, srv, peerOptions{}).view().Member("a")
	if len(m.Endpoints) < 4 || len(m.Endpoints) > cluster.MaxEndpoints || !strings.Contains(m.Endpoints[0].Addr, "[2001:db8:1:2:3:4:5:1]:") {
		t.Errorf("clients are told %v", m.Endpoints)
	}
}
