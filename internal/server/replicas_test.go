package server

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/teeth"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/store"
)

// Nodes of a cluster with replicas, in one process: real engines on real directories, over the software RNIC.

// replicas are nodes whose cluster has replicas of all keys.
type replicas struct {
	t     testing.TB
	nodes []*Server // nil: it is down
	dirs  []string
	seeds []string
	m     *cluster.Map
	quiet time.Duration // Config.LeaderQuiet
	above uint16        // Config.EpochAbove
	fs    []vfs.FS      // of each node; nil: the machine's
	puts  uint64        // put was called so often: the names of its writes
	anew  bool          // its clients read maps whose groups began with keys
}

// replicaOf makes a configuration that of a node which can have replicas.
func replicaOf(c *Config, dir string) {
	c.FS, c.DataDir, c.LogBytes = nil, dir, store.MinGroupLogBytes
}

// startReplicas starts three nodes and agrees on a map of two groups.
func startReplicas(t testing.TB) *replicas {
	t.Helper()
	r := startUnmapped(t)
	r.agree()
	return r
}

// startUnmapped starts three nodes that have no map.
func startUnmapped(t testing.TB) *replicas {
	t.Helper()
	r := &replicas{t: t}
	for i := range 3 {
		r.dirs = append(r.dirs, t.TempDir())
		r.nodes = append(r.nodes, nil)
		r.start(i)
	}
	return r
}

// agree puts a map of two groups into force at all nodes.
func (r *replicas) agree() {
	r.t.Helper()
	r.m = proposeReplicas(r.t, 3, r.nodes...)
	mustChange(r.t, wire.MapPrepare, r.m, r.nodes...)
	mustChange(r.t, wire.MapCommit, r.m, r.nodes...)
}

// proposeReplicas is a map of two groups, of so many replicas each, on nodes.
func proposeReplicas(t testing.TB, replicas int, nodes ...*Server) *cluster.Map {
	t.Helper()
	want := cluster.Want{Replicas: replicas, Groups: 2}
	var list []cluster.MapNode
	for _, srv := range nodes {
		list = append(list, cluster.MapNode{ID: srv.cfg.Cluster.NodeID, Weight: 1})
		want.Stores = append(want.Stores, srv.main.Store.ID())
	}
	m, err := cluster.ProposeReplicas([16]byte{1}, clusterName, 4, list, want)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// start starts a node on its directory.
func (r *replicas) start(i int) *Server {
	r.t.Helper()
	srv := startServer(r.t, func(c *Config) {
		clusterOf(string(rune('a'+i)), r.seeds...)(c)
		replicaOf(c, r.dirs[i])
		c.LeaderQuiet, c.EpochAbove = r.quiet, r.above
		if r.fs != nil {
			c.FS, c.MinFreeBytes = r.fs[i], 2<<20
		}
	})
	r.nodes[i] = srv
	r.seeds = append(r.seeds, srv.GossipAddr())
	return srv
}

// stop stops a node as an operator does.
func (r *replicas) stop(i int) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := r.nodes[i].Shutdown(ctx); err != nil {
		r.t.Errorf("node %c: %v", 'a'+i, err)
	}
	r.nodes[i] = nil
}

// leader waits until a node says that it leads the group of a shard, and returns which one.
func (r *replicas) leader(shard uint16) (leader int) {
	r.t.Helper()
	id := r.m.Replication.Groups[r.m.Replication.Group[shard]].ID
	eventuallySays(r.t, func() string { return fmt.Sprintf("group %d has a leader: %s", id, r.saysOf(id)) }, func() bool {
		var term uint64
		leader = -1
		for i, srv := range r.nodes {
			if srv == nil {
				continue
			}
			for _, g := range srv.groups.Status() {
				if g.ID == id && g.State == "leads" && g.Term > term {
					if _, err := store.ReignOf(srv.main.Store, shard); err == nil {
						leader, term = i, g.Term
					}
				}
			}
		}
		return leader >= 0
	})
	return leader
}

// saysOf is what each node says of its replica of a group.
func (r *replicas) saysOf(id uint32) string {
	var b strings.Builder
	for i, srv := range r.nodes {
		if srv == nil {
			fmt.Fprintf(&b, "\n  node %c is stopped", 'a'+i)
			continue
		}
		for _, g := range srv.groups.Status() {
			if g.ID == id {
				fmt.Fprintf(&b, "\n  node %c: %+v", 'a'+i, g)
			}
		}
	}
	return b.String()
}

// do asks until the request comes to the leader of a shard that has taken over.
func (r *replicas) do(shard uint16, what string, ask func(*peer) error) {
	r.t.Helper()
	var err error
	for limit := time.Now().Add(teeth.Patience(20 * time.Second)); time.Now().Before(limit); time.Sleep(20 * time.Millisecond) {
		p := dial(r.t, r.nodes[r.leader(shard)], peerOptions{client: [16]byte{'r'}, anew: r.anew})
		err = ask(p)
		p.close()
		if st := wire.StatusOf(err); st != wire.StatusNotLeader && st != wire.StatusClosing {
			break
		}
	}
	if err != nil {
		r.t.Fatalf("%s: %v", what, err)
	}
}

// put writes a value once. It has a name, as the writes of clients have: if its leader was deposed meanwhile, it is asked again under that name, and takes effect
// once. Its outcome may be unknown only then: the group has a later term.
func (r *replicas) put(key, value string) {
	r.t.Helper()
	r.puts++
	name, shard := wire.Terms{ID: wire.RequestID{Seq: r.puts}}, cluster.ShardOf([]byte(key), 4)
	unknown := true
	for unknown {
		var term uint64
		r.do(shard, "put "+key, func(p *peer) error {
			term = r.term(shard)
			_, err := p.write(putOf(key, value, name))
			if unknown = wire.StatusOf(err) == wire.StatusUnknown; unknown {
				return nil
			}
			return err
		})
		if unknown {
			r.t.Logf("put %s: it is not known what became of it in term %d", key, term)
			eventually(r.t, "the group has a later term", func() bool { return r.term(shard) > term })
		}
	}
}

// term is the latest term of the group of a shard that a node has heard of.
func (r *replicas) term(shard uint16) (term uint64) {
	id := r.m.Replication.Groups[r.m.Replication.Group[shard]].ID
	for _, srv := range r.nodes {
		if srv == nil {
			continue
		}
		for _, g := range srv.groups.Status() {
			if g.ID == id {
				term = max(term, g.Term)
			}
		}
	}
	return term
}

func (r *replicas) want(key, value string) {
	r.t.Helper()
	r.do(cluster.ShardOf([]byte(key), 4), "get "+key, func(p *peer) error {
		got, err := p.get(key, 1<<10)
		if err == nil && string(got.Value) != value {
			return fmt.Errorf("%q, want %q", got.Value, value)
		}
		return err
	})
}

// keyOf is a key of a shard.
func keyOf(shard uint16) string { return keyIn("key", shard) }

// keyIn is a key of a shard that begins so.
func keyIn(prefix string, shard uint16) string {
	for i := 0; ; i++ {
		if k := fmt.Sprint(prefix, i); cluster.ShardOf([]byte(k), 4) == shard {
			return k
		}
	}
}
