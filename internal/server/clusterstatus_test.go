package server

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/server/member"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/membership"
)

// admin asks for an operation and reads its answer into out.
func (p *peer) admin(op wire.DocumentKind, name string, out any) error {
	p.t.Helper()
	text, err := p.document(op, []byte(name), len(name))
	if err != nil {
		return err
	}
	return json.Unmarshal(text, out)
}

// TestNodeStatus: an operator sees each node as it is, and the region tables
// that it has of others.
func TestNodeStatus(t *testing.T) {
	nodes := startNodes(t, 2)
	var st wire.NodeStatus
	p := dial(t, nodes[0], peerOptions{})
	if err := p.admin(wire.AdminStatus, "", &st); err != nil || st.Map.State != "none" || st.Shards.Owned != 0 {
		t.Errorf("before there is a map: %+v, %v", st, err)
	}
	m := birth(t, nodes...)
	for i, srv := range nodes {
		p := dial(t, srv, peerOptions{})
		st = wire.NodeStatus{}
		if err := p.admin(wire.AdminStatus, "", &st); err != nil {
			t.Fatal(err)
		}
		id := srv.cfg.Cluster.NodeID
		if st.NodeID != id || st.ClusterName != clusterName || st.Map != (wire.MapStatus{State: "committed", Version: 1, Digest: wire.Hex64(m.Digest())}) ||
			st.Shards.Total != 4 || st.Shards.Owned != len(m.Shards(id)) || len(st.Shards.List) != st.Shards.Owned ||
			st.Incarnation != wire.Hex64(srv.main.Incarnation) || !st.Ready || st.LeaseMS != 2000 || st.BeatAgeMS < 0 || st.Regions.Index == 0 ||
			st.Sessions == 0 || len(st.Endpoints) != 1 || len(st.Fabrics) != 1 || st.Table.Regions == 0 || st.Memory.Used == 0 {
			t.Errorf("%s: %+v", id, st)
		}
		if g := st.Gossip; g == nil || len(g.Members) != 2 || g.Encrypted || g.Addr != srv.GossipAddr() {
			t.Errorf("%s: gossip %+v", id, st.Gossip)
		}
		other := nodes[1-i]
		var table wire.TableAnswer
		eventually(t, "the other's table is known", func() bool {
			err := p.admin(wire.AdminStatus, "table "+other.cfg.Cluster.NodeID, &table)
			own := other.RegionTable(other.cfg.Cluster.NodeID)
			return err == nil && len(table.Regions) == len(own.Regions) && table.Incarnation == wire.Hex64(other.main.Incarnation) &&
				len(table.Regions[0].Keys) == 1 && table.Regions[0].Keys[0].RKey == own.Regions[0].Keys[0].RKey
		})
		if err := p.admin(wire.AdminStatus, "table nobody", &table); wire.StatusOf(err) != wire.StatusNotFound {
			t.Errorf("the table of nobody: %v", err)
		}
		if err := p.admin(wire.AdminStatus, "what", &table); wire.StatusOf(err) != wire.StatusBadRequest {
			t.Errorf("nonsense: %v", err)
		}
	}
	// A node that gets no processor for long is suspected for a while.
	eventually(t, "both are alive in the statistics", func() bool {
		stats, err := nodes[0].Stats()
		return err == nil && stats.Cluster != nil && stats.Cluster.Node == "a" && stats.Cluster.MapVersion == 1 && stats.Cluster.Members["alive"] == 2
	})
	for _, want := range []string{
		`rdmakv_cluster_members{state="alive"} 2`, `rdmakv_cluster_map_info{cluster="` + clusterName + `",digest="` + wire.Hex64(m.Digest()) + `",node="a",state="committed",version="1"} 1`,
		`rdmakv_cluster_shards_owned 2`, `rdmakv_gossip_wrong_key_total 0`,
	} {
		eventually(t, "metrics have "+want, func() bool {
			_, text := httpGet(t, nodes[0], "/metrics")
			return strings.Contains(text, want)
		})
	}
}

// TestAloneStatus: a server that is alone has all shards and no gossip.
func TestAloneStatus(t *testing.T) {
	srv := startServer(t, nil)
	p := dial(t, srv, peerOptions{})
	var st wire.NodeStatus
	if err := p.admin(wire.AdminStatus, "", &st); err != nil || st.NodeID != "" || st.Gossip != nil || st.Shards.Owned != 4 || st.Map.State != "none" {
		t.Errorf("%+v, %v", st, err)
	}
	if p.wel.Flags&wire.WelcomeClustered != 0 || srv.GossipAddr() != "" {
		t.Error("it says that it is a node of a cluster")
	}
	var keys member.Keys
	if err := p.admin(wire.AdminGossipKeys, "list", &keys); wire.StatusOf(err) != wire.StatusUnsupported {
		t.Errorf("gossip keys: %v", err)
	}
	stats, err := srv.Stats()
	if err != nil || stats.Cluster != nil {
		t.Errorf("stats: %+v, %v", stats.Cluster, err)
	}
}

// TestGossipKeys: keys are changed on live nodes, in the order that the
// documents give, and no key is ever told.
func TestGossipKeys(t *testing.T) {
	old, fresh := []byte("0123456789abcdef"), []byte("fedcba9876543210")
	files := [2][][]byte{{old}, {old}}
	var nodes []*Server
	for i, id := range []string{"a", "b"} {
		nodes = append(nodes, startServer(t, func(c *Config) {
			clusterOf(id)(c)
			c.Cluster.Insecure, c.Cluster.Keys = false, files[i]
			c.Cluster.ReloadKeys = func() ([][]byte, error) { return files[i], nil }
			if i > 0 {
				c.Cluster.Join = []string{nodes[0].GossipAddr()}
			}
		}))
	}
	var keys member.Keys
	together := func() {
		t.Helper()
		for _, srv := range nodes {
			eventually(t, "both are alive", func() bool {
				v := srv.member.Members().View()
				return len(v.Members) == 2 && v.Members[0].State == cluster.Alive && v.Members[1].State == cluster.Alive
			})
		}
	}
	together()
	for step, want := range [][][]byte{{old, fresh}, {fresh, old}, {fresh}} {
		for i, srv := range nodes {
			files[i] = want
			if err := dial(t, srv, peerOptions{}).admin(wire.AdminGossipKeys, "reload", &keys); err != nil {
				t.Fatal(err)
			}
			if len(keys.Keys) != len(want) || keys.Primary != string(membership.Digest(want[0])) || keys.Source != "file" {
				t.Errorf("step %d: %+v", step, keys)
			}
		}
		together()
	}
	p := dial(t, nodes[0], peerOptions{})
	for _, tc := range []struct{ what, want string }{
		{"use 0123", "no gossip key of that digest"}, {"remove " + keys.Primary, "encrypts"}, {"add x", "want list"},
	} {
		if err := p.admin(wire.AdminGossipKeys, tc.what, &keys); wire.StatusOf(err) != wire.StatusBadRequest || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v", tc.what, err)
		}
	}
	files[0] = nil
	if err := nodes[0].ReloadGossipKeys(); err == nil {
		t.Error("all keys are gone")
	}
}

// TestTwins: a second node of the same id does not go on.
func TestTwins(t *testing.T) {
	first := startServer(t, clusterOf("a"))
	cfg := testConfig()
	clusterOf("a", first.GossipAddr())(&cfg)
	twin, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := twin.Start(t.Context()); err != nil {
		if !errors.Is(err, membership.ErrDuplicateID) {
			t.Errorf("started: %v", err)
		}
		return
	}
	<-twin.Fatal()
	if err := twin.Err(); !errors.Is(err, membership.ErrDuplicateID) || !strings.Contains(err.Error(), "node id") {
		t.Errorf("it ends with %v", err)
	}
	_ = twin.Shutdown(context.Background())
	if first.Err() != nil || !first.Ready() {
		t.Errorf("the first one suffers: %v", first.Err())
	}
}
