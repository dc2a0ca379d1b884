package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/admin"
	"github.com/rdmakv/rdmakv/client/internal/clienttest"
	"github.com/rdmakv/rdmakv/client/internal/clienttest/node"
	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/server"
)

// startCluster starts nodes n1, n2, … of one cluster in this process and waits
// until they know of each other. They have no map yet.
func startCluster(t testing.TB, n int, change func(*server.Config)) []*node.Node {
	t.Helper()
	var nodes []*node.Node
	var seeds []string
	for i := range n {
		join := slices.Clone(seeds)
		nd := node.Soft(t, func(cfg *server.Config) {
			cfg.Shards, cfg.MemoryLimit, cfg.RegionSize, cfg.IndexRegionSize = 8, 96<<20, 16<<20, 8<<20
			cfg.Secret = []byte("a secret of all nodes")
			cfg.Cluster = &server.ClusterConfig{
				NodeID: fmt.Sprintf("n%d", i+1), Name: fmt.Sprint("tests-", os.Getpid()), Bind: "127.0.0.1:0", Join: join, Insecure: true, Profile: "fast",
			}
			if change != nil {
				change(cfg)
			}
		})
		seeds = append(seeds, nd.Server.GossipAddr())
		nd.Config.Cluster.Bind = nd.Server.GossipAddr() // the next start takes the same port
		nodes = append(nodes, nd)
	}
	c := dialCluster(t, nodes, nil)
	clienttest.Eventually(t, "the nodes know of each other", func() bool {
		info, err := admin.Of(c).Cluster(t.Context())
		return err == nil && len(info.Nodes) == n
	})
	return nodes
}

// born is startCluster with a map.
func born(t testing.TB, n int) []*node.Node {
	t.Helper()
	nodes := startCluster(t, n, nil)
	var list []admin.NodeWeight
	for i := range n {
		list = append(list, admin.NodeWeight{ID: fmt.Sprintf("n%d", i+1)})
	}
	if _, err := admin.Of(dialCluster(t, nodes, nil)).ClusterInit(clienttest.Within(t, time.Minute), list); err != nil {
		t.Fatal(err)
	}
	return nodes
}

// dialCluster connects by the first node.
func dialCluster(t testing.TB, nodes []*node.Node, change func(*client.Config)) *client.Client {
	t.Helper()
	return dialNode(nodes[0], func(cfg *client.Config) {
		cfg.Secret = []byte("a secret of all nodes")
		if change != nil {
			change(cfg)
		}
	})
}

// ownerOf is the node that owns a key by the client's map.
func ownerOf(c *client.Client, key []byte) string {
	m := rt(c).Map()
	return m.OwnerOf(cluster.ShardOf(key, len(m.Owner)))
}

// Three real nodes: every key is read one-sidedly from the node that owns it, and
// what calls do with many keys is as on one server.
func TestCluster(t *testing.T) {
	nodes := born(t, 3)
	c := dialCluster(t, nodes, func(cfg *client.Config) { cfg.Servers = []string{nodes[2].Addr, nodes[0].Addr} })
	ctx := clienttest.Within(t, 2*time.Minute)
	from, err := c.Position(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var pairs []client.Pair
	var keys [][]byte
	for i := range 1200 {
		key := fmt.Appendf(nil, "key%05d", i)
		keys, pairs = append(keys, key), append(pairs, client.Pair{Key: key, Value: bytes.Repeat(key, 1+i%5)})
	}
	if err := c.MultiPut(ctx, pairs); err != nil {
		t.Fatal(err)
	}
	// A get is one-sided once its shard's index is complete (a lease after the
	// birth of the map, at the latest), unless the client's own lease has run out.
	for i, p := range pairs[:200] {
		n, err := admin.Of(c).NodeOf(p.Key)
		if err != nil {
			t.Fatal(err)
		}
		for {
			before := n.Counters().OneSidedHits
			if v, err := c.Get(ctx, p.Key); err != nil || !bytes.Equal(v, p.Value) {
				t.Fatal(i, len(v), err)
			}
			if n.Counters().OneSidedHits > before { // READ from the node that owns it
				break
			}
			time.Sleep(time.Millisecond)
		}
	}
	spread := map[string]uint64{}
	for _, n := range admin.Of(c).Nodes() {
		spread[n.ID()] = n.Counters().Puts
	}
	for id, puts := range spread {
		if puts < 200 || len(spread) != 3 {
			t.Errorf("%s has %d of %d keys; %v", id, puts, len(pairs), spread)
		}
	}
	got, err := c.MultiGet(ctx, append(slices.Clone(keys), []byte("absent")))
	if err != nil || !errors.Is(got[len(keys)].Err, client.ErrNotFound) {
		t.Fatal(err)
	}
	for i, p := range pairs {
		if !bytes.Equal(got[i].Value, p.Value) {
			t.Fatal(i, got[i].Err)
		}
	}
	testClusterScan(t, c, pairs)
	testClusterWatch(t, c, from, pairs)

	var b client.Batch
	for i := range 20 {
		b.Put(fmt.Appendf(nil, "{tag}%d", i), []byte("v"))
	}
	if _, err := c.WriteBatch(ctx, &b); err != nil {
		t.Error(err)
	}
	b.Put([]byte("elsewhere"), nil)
	b.Put([]byte("and here"), nil)
	if _, err := c.WriteBatch(ctx, &b); !errors.Is(err, client.ErrCrossShard) {
		t.Error(err)
	}
	for i := range 20 {
		if n, err := c.Increment(ctx, fmt.Appendf(nil, "n%d", i%5), 1); err != nil || n != int64(i/5+1) {
			t.Error(n, err)
		}
	}
	large := bytes.Repeat([]byte("large"), 1<<18)
	for i := range 6 {
		key := fmt.Appendf(nil, "large%d", i)
		if err := c.Put(ctx, key, large); err != nil {
			t.Fatal(err)
		}
		if v, err := c.Get(ctx, key); err != nil || !bytes.Equal(v, large) {
			t.Fatal(len(v), err)
		}
	}
	st, err := admin.Of(c).Stats(ctx)
	if err != nil || len(st.Nodes) != 3 || st.Client.Puts < 1206 || len(st.Nodes["n2"].Server) == 0 || st.Nodes["n2"].Session.Node != "n2" {
		t.Errorf("%+v, %v", st, err)
	}
	if took, err := c.Ping(ctx); err != nil || took <= 0 {
		t.Error(err)
	}
	if took, err := admin.Of(c).PingRead(ctx); err != nil || took <= 0 {
		t.Error(err)
	}
	if _, err := admin.Of(c).Node(""); !errors.Is(err, client.ErrUnknownNode) {
		t.Error(err) // there is no only server
	}
	n2, err := admin.Of(c).Node("n2")
	if err != nil {
		t.Fatal(err)
	}
	if v, err := n2.View(ctx); err != nil || len(v.Regions) == 0 {
		t.Error(err)
	}
}

// The entries of all nodes come in one order, and a scan goes on where another
// one ended.
func testClusterScan(t *testing.T, c *client.Client, pairs []client.Pair) {
	t.Helper()
	ctx := t.Context()
	i := 0
	var after []byte
	for round := 0; i < len(pairs) && round < 10; round++ {
		n := 0
		for e, err := range c.Scan(ctx, client.ScanOptions{Prefix: []byte("key"), After: after, Limit: 500}) {
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(e.Key, pairs[i].Key) || !bytes.Equal(e.Value, pairs[i].Value) {
				t.Fatalf("entry %d is %s", i, e.Key)
			}
			after, i, n = e.Key, i+1, n+1
		}
		if n > 500 {
			t.Errorf("%d entries with a limit of 500", n)
		}
	}
	if i != len(pairs) {
		t.Errorf("%d of %d entries", i, len(pairs))
	}
	n := 0
	for e, err := range c.Scan(ctx, client.ScanOptions{Start: []byte("key00100"), End: []byte("key00110"), KeysOnly: true}) {
		if err != nil || e.Value != nil || string(e.Key) != fmt.Sprintf("key%05d", 100+n) {
			t.Fatal(string(e.Key), err)
		}
		n++
	}
	if n != 10 {
		t.Errorf("%d keys in a range of 10", n)
	}
}

// A watch sees every event of all nodes once, also when it is taken up again
// from the position of any of them.
func testClusterWatch(t *testing.T, c *client.Client, from client.Position, pairs []client.Pair) {
	t.Helper()
	ctx := clienttest.Within(t, time.Minute)
	seen := map[string]int{}
	versions := map[string]uint64{} // by node and shard
	for len(seen) < len(pairs) {
		n := 0
		for e, err := range c.Watch(ctx, []byte("key"), client.WatchOptions{From: from}) {
			if err != nil {
				t.Fatalf("%v, %d of %d events", err, len(seen), len(pairs))
			}
			if e.Skipped || e.Op != client.EventPut || e.Node != ownerOf(c, e.Key) {
				t.Fatalf("%+v", e)
			}
			if at := e.Node; e.Version <= versions[at] {
				t.Errorf("event %d of %s comes behind %d", e.Version, at, versions[at])
			} else {
				versions[at] = e.Version
			}
			seen[string(e.Key)]++
			text := e.Position.String()
			if from, err = client.ParsePosition(text); err != nil || from.String() != text {
				t.Fatal(text, err)
			}
			if n++; n == 100 || len(seen) == len(pairs) {
				break
			}
		}
	}
	for key, n := range seen {
		if n != 1 {
			t.Errorf("%s was told %d times", key, n)
		}
	}
	for _, err := range c.Watch(ctx, nil, client.WatchOptions{From: client.AloneAt(from, "n1")}) {
		if !errors.Is(err, client.ErrOptions) {
			t.Error(err)
		}
	}
}

// While a node is away the others serve; when it is back, so does it, and a watch
// goes on.
func TestClusterNodeRestarts(t *testing.T) {
	nodes := born(t, 3)
	c := dialCluster(t, nodes, func(cfg *client.Config) { cfg.Timeout = 2 * time.Second })
	ctx := clienttest.Within(t, 2*time.Minute)
	keys := clienttest.KeysOf(rt(c).Map(), 3)
	put := func(id, value string) error {
		for _, key := range keys[id] {
			if err := c.Put(ctx, []byte(key), []byte(value)); err != nil {
				return err
			}
		}
		return nil
	}
	for id := range keys {
		if err := put(id, "one"); err != nil {
			t.Fatal(err)
		}
	}
	watching, stop := context.WithCancel(ctx)
	events := make(chan client.Event, 1000)
	ended := make(chan error, 1)
	go func() {
		var last error
		for e, err := range c.Watch(watching, nil, client.WatchOptions{}) {
			if err != nil {
				last = err
				break
			}
			events <- e
		}
		ended <- last
	}()
	see := func(id string, value string) {
		t.Helper()
		left := len(keys[id])
		for left > 0 {
			select {
			case e := <-events:
				if e.Node == id && !e.Skipped {
					left--
				}
			case err := <-ended:
				t.Fatalf("the watch has ended: %v", err)
			case <-ctx.Done():
				t.Fatalf("no events of %s", id)
			}
		}
	}
	clienttest.Eventually(t, "the watch sees", func() bool {
		if err := c.Put(ctx, []byte("probe"), nil); err != nil {
			t.Fatal(err)
		}
		select {
		case <-events:
			return true
		case <-time.After(10 * time.Millisecond):
			return false
		}
	})
	nodes[1].Stop()
	for range 20 {
		for _, id := range []string{"n1", "n3"} {
			if err := put(id, "two"); err != nil {
				t.Fatalf("%s: %v", id, err)
			}
		}
	}
	see("n1", "two")
	if err := put("n2", "two"); !errors.Is(err, client.ErrUnavailable) {
		t.Errorf("of a node that is away: %v", err)
	}
	var scanned error
	for _, err := range c.Scan(ctx, client.ScanOptions{}) {
		scanned = err
	}
	if !errors.Is(scanned, client.ErrUnavailable) {
		t.Errorf("a scan without one of the nodes: %v", scanned)
	}
	nodes[1].Start()
	clienttest.Eventually(t, "n2 serves", func() bool { return put("n2", "three") == nil })
	see("n2", "three")
	if v, err := c.Get(ctx, []byte(keys["n2"][0])); err != nil || string(v) != "three" {
		t.Errorf("%q, %v", v, err)
	}
	stop()
	if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
