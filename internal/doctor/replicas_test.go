package doctor

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/rdmakv/rdmakv/client/admin"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// sound is a group of five voters whose leader was heard, as is everybody.
func sound(id uint32) admin.Group {
	g := admin.Group{ID: id, Leader: "a", Term: 3}
	for i, node := range []string{"a", "b", "c", "d", "e"} {
		p := admin.Replica{ID: uint64(i + 1), Node: node, Votes: true, Active: true, State: "follows"}
		if node == "a" {
			p.State = "leads"
		}
		g.Replicas = append(g.Replicas, p)
	}
	return g
}

// TestGroups: what the groups of a cluster lack is told, once for each node, and how many more nodes may be lost.
func TestGroups(t *testing.T) {
	away := func(g *admin.Group, nodes ...string) {
		for i := range g.Replicas {
			if p := &g.Replicas[i]; slices.Contains(nodes, p.Node) {
				p.State, p.Active = "", false
			}
		}
	}
	for _, c := range []struct {
		name  string
		spoil func(a, b *admin.Group)
		codes string
		texts []string
	}{
		{"all is well", func(_, _ *admin.Group) {}, "", []string{"each of 2 groups has a majority", "2 more nodes may be lost", "each of 2 groups has one"}},
		{"a node is away", func(a, b *admin.Group) { away(a, "c"); away(b, "c") }, "replica-away", []string{"replicas of c: ", "of groups 3, 4", "one more node may be lost"}},
		{"two nodes are away, of one group", func(a, _ *admin.Group) { away(a, "c", "d") }, "replica-away replica-away no-spare", []string{"one more node stops group 3"}},
		{"three nodes are away", func(a, _ *admin.Group) { away(a, "c", "d", "e"); a.Leader = "" }, "replica-away replica-away replica-away group-majority group-no-leader", []string{"group 3 has no majority", "group 3 has no leader"}},
		{"an election", func(a, b *admin.Group) {
			for _, g := range []*admin.Group{a, b} {
				g.Leader, g.Replicas[0].State = "", "follows"
			}
		}, "group-no-leader", []string{"groups 3, 4 have no leader", "2 more nodes may be lost"}},
		{"the leader does not hear one", func(a, _ *admin.Group) { a.Replicas[1].Active = false }, "replica-away", []string{"the leader does not hear it", "one more node may be lost"}},
		{"one was stopped", func(a, _ *admin.Group) { a.Replicas[1].State, a.Replicas[1].Why = "stopped", "bad\x1b[2J news" }, "replica-away", []string{"it has stopped its part (bad"}},
		{"one takes no part yet", func(a, _ *admin.Group) { a.Replicas[1].State = "waits" }, "replica-away", []string{"it takes no part yet"}},
		{"one lags", func(a, _ *admin.Group) { a.Replicas[1].Lag = lagMost + 1 }, "replica-lags", []string{"10001 entries behind", "2 more nodes may be lost"}},
		{"one lags a little", func(a, _ *admin.Group) { a.Replicas[1].Lag = lagMost }, "", nil},
		{"one is sent a snapshot", func(a, _ *admin.Group) { a.Replicas[1].Snapshot = true }, "replica-lags", []string{"replica of b in group 3", "it is sent all keys"}},
		{"a learner does not count", func(a, _ *admin.Group) { a.Replicas[1].Votes, a.Replicas[2].Votes = false, false }, "", []string{"one more node may be lost"}},
		{"a replica comes", func(a, _ *admin.Group) {
			a.Replicas = append(a.Replicas, admin.Replica{ID: 6, Node: "f", State: "learns", Active: true, Snapshot: true, Lag: lagMost + 1})
		}, "", []string{"2 more nodes may be lost", "of group 3 one comes or goes (kvclient cluster tasks)"}},
		{"one that comes is not heard yet", func(a, b *admin.Group) {
			for _, g := range []*admin.Group{a, b} {
				g.Replicas = append(g.Replicas, admin.Replica{ID: 6, Node: "f"}, admin.Replica{ID: 7, Node: "g", State: "waits"})
			}
		}, "", []string{"of groups 3, 4 some come or go"}},
		{"one leaves", func(a, _ *admin.Group) { a.Replicas[0].Leaves = true }, "", []string{"2 more nodes may be lost"}},
		{"one replica is all that is wanted", func(a, _ *admin.Group) { a.Replicas = a.Replicas[:1] }, "", []string{"the loss of one more node stops group 3", "kvclient cluster replicas 3"}},
	} {
		a, b := sound(3), sound(4)
		c.spoil(&a, &b)
		r := &Report{Good: true}
		r.Add(Groups([]admin.Group{a, b})...)
		var codes []string
		for _, s := range r.Steps {
			if s.Level != OK {
				codes = append(codes, s.Code)
			}
		}
		text := r.Text()
		if got := strings.Join(codes, " "); got != c.codes || r.Good == strings.Contains(c.codes, "group-") {
			t.Errorf("%s: codes %q, want %q, good is %v\n%s", c.name, got, c.codes, r.Good, text)
		}
		for _, want := range c.texts {
			if !strings.Contains(text, want) {
				t.Errorf("%s: %q is not in\n%s", c.name, want, text)
			}
		}
		if strings.Contains(text, "\x1b") {
			t.Errorf("%s: it steers the terminal: %q", c.name, text)
		}
	}
	if steps := Groups(nil); steps != nil {
		t.Errorf("a cluster without groups: %+v", steps)
	}
	var many []admin.Group
	for i := range 40 {
		g := sound(uint32(i + 1))
		away(&g, "c", "d", "e")
		many = append(many, g)
	}
	for _, s := range Groups(many) {
		if len(s.Text) > 200 || s.Level == Fail && !strings.Contains(s.Text, "40 groups (1, 2, 3") {
			t.Errorf("of many groups: %q", s.Text)
		}
	}
}

// A replicatingPeer is a node that tells of its groups.
type replicatingPeer struct {
	clusteredPeer
	says []admin.GroupStatus
	err  error
}

func (p replicatingPeer) Groups(context.Context) ([]admin.GroupStatus, error) { return p.says, p.err }

// TestReplicasOfPeers: what the nodes of a cluster tell is put together: a node that is away costs no more than itself, two cost the majority, and where
// one does not tell nothing is judged.
func TestReplicasOfPeers(t *testing.T) {
	names, addrs := []string{"kv1", "kv2", "kv3"}, []string{"10.0.0.2:7400", "10.0.0.3:7400", "10.0.0.4:7400"}
	founder := admin.Group{ID: 7, Shards: []uint16{0}}
	var nodes []admin.ClusterNode
	for i, name := range names {
		founder.Replicas = append(founder.Replicas, admin.Replica{ID: uint64(i + 1), Node: name, Votes: true})
		nodes = append(nodes, admin.ClusterNode{ID: name, Weight: 1, Endpoints: []admin.Endpoint{{Fabric: "verbs", Addr: addrs[i]}}})
	}
	for _, c := range []struct {
		name   string
		away   []string
		denied string
		codes  []string // about groups
		says   string
	}{
		{"all are there", nil, "", nil, "each of 1 groups has a majority of replicas that take part; one more node may be lost"},
		{"one is away", []string{"kv3"}, "", []string{CodeReplicaAway, CodeNoSpare}, "the loss of one more node stops group 7"},
		{"two are away", []string{"kv2", "kv3"}, "", []string{CodeReplicaAway, CodeReplicaAway, CodeNoMajority, CodeNoLeader}, "group 7 has no majority"},
		{"one does not tell", nil, "kv2", nil, "1 nodes do not tell of their groups"},
	} {
		r := newRig(t)
		r.host.Dial = func(_ context.Context, addr string) (Peer, error) {
			i := slices.Index(addrs, addr)
			if i < 0 || slices.Contains(c.away, names[i]) {
				return nil, errors.New("gone")
			}
			st := admin.GroupStatus{ID: 7, Replica: uint64(i + 1), State: "follows", Leader: "kv1", Term: 2, Shards: []uint16{0}}
			if i == 0 && len(c.away) < 2 {
				st.State = "leads"
			} else if len(c.away) == 2 {
				st.Leader = ""
			}
			for j, name := range names {
				st.Replicas = append(st.Replicas, wire.ReplicaStatus{ID: uint64(j + 1), Node: name, Votes: true, Active: i == 0 && !slices.Contains(c.away, name)})
			}
			p := replicatingPeer{clusteredPeer{&fakePeer{now: r.peer.now, mtu: 4096}, admin.ClusterInfo{Clustered: true, Teller: names[i], Nodes: nodes, Founders: []admin.Group{founder}}}, []admin.GroupStatus{st}, nil}
			if names[i] == c.denied {
				p.says, p.err = nil, errors.New("denied")
			}
			return p, nil
		}
		report, _, _ := r.run()
		var codes []string
		for _, s := range report.Steps {
			if strings.HasPrefix(s.Code, "group-") || strings.HasPrefix(s.Code, "replica-") || s.Code == CodeNoSpare {
				codes = append(codes, s.Code)
			}
		}
		if !slices.Equal(codes, c.codes) || !strings.Contains(report.Text(), c.says) {
			t.Errorf("%s: %q, want %q and %q\n%s", c.name, codes, c.codes, c.says, report.Text())
		}
	}
}
