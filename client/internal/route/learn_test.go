package route

import (
	"github.com/rdmakv/rdmakv/client/internal/peer"
	"log/slog"
	"slices"
	"testing"

	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/client/internal/clienttest"
	"github.com/rdmakv/rdmakv/client/internal/session"
	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/world"
	"github.com/rdmakv/rdmakv/rdma"
)

// A member that says where it is, as another sees it, or itself.
func seenAt(id string, incarnation uint64, addrs ...string) cluster.Member {
	m := cluster.Member{ID: id, Role: cluster.RoleServer, Incarnation: incarnation, State: cluster.Alive}
	for _, a := range addrs {
		m.Endpoints = append(m.Endpoints, cluster.Endpoint{Fabric: "fake", Addr: a})
	}
	return m
}

// Whose word counts on where a node is: its own, else the newest; an older view of
// a teller never replaces a newer one of the same teller.
func TestFleetLearnsViews(t *testing.T) {
	cfg := base.Config{Servers: []string{"seed:1"}, Fabrics: []rdma.Fabric{clienttest.NewServer(1)}, Logger: slog.New(slog.DiscardHandler)}
	f := newRouter(&cfg, world.World{})
	defer f.Close()
	tell := func(incarnation uint64, self string, version uint64, members ...cluster.Member) {
		t.Helper()
		v := &cluster.View{Version: version, Self: self, Members: members}
		if err := v.Check(); err != nil {
			t.Fatal(err)
		}
		if err := f.Learn(&session.News{Incarnation: incarnation, View: v}, 8); err != nil {
			t.Fatal(err)
		}
	}
	at := func(what, id string, want ...string) {
		t.Helper()
		if got := f.Addresses(id); !slices.Equal(got, want) {
			t.Errorf("%s: %s is at %q, want %q", what, id, got, want)
		}
	}
	tell(1, "a", 5, seenAt("a", 1, "a:1"), seenAt("b", 2, "b:1"))
	at("first view", "b", "b:1")
	tell(1, "a", 4, seenAt("a", 1, "a:1"), seenAt("b", 2, "old:1"))
	at("an older view", "b", "b:1")
	tell(1, "a", 6, seenAt("a", 1, "a:1"), seenAt("b", 2, "b:2"))
	at("a newer one", "b", "b:2")
	tell(2, "b", 1, seenAt("a", 1, "wrong:1"), seenAt("b", 2, "b:3"))
	at("its own word", "b", "b:3")
	at("another's against its own", "a", "a:1")
	tell(1, "a", 7, seenAt("a", 1, "a:1"), seenAt("b", 2, "b:2"))
	at("another's later word", "b", "b:3")
	tell(1, "a", 8, seenAt("a", 1, "a:1"), seenAt("b", 9, "b:4"))
	at("after it was started again", "b", "b:4")
	tell(7, "a", 1, seenAt("a", 7, "a:2"), seenAt("b", 9, "b:4"))
	at("a teller that was started again counts anew", "a", "a:2")
	tell(7, "a", 2, seenAt("a", 7, "a:2"))
	at("a member that its teller has forgotten", "b")
	tell(7, "a", 3, seenAt("a", 7, "a:2", "a:3", "a:2"))
	f.Met("a", "seed:1")
	f.Met("a", "elsewhere:1") // none of ours
	at("where it was met", "a", "a:2", "a:3", "seed:1")
	other := seenAt("a", 7)
	other.Endpoints = []cluster.Endpoint{{Fabric: "else", Addr: "a:9"}}
	tell(7, "a", 4, other)
	at("fabrics that we have not got", "a", "seed:1")

	// However many tell, what is remembered has a bound.
	for teller := range 3 {
		var many []cluster.Member
		for i := range cluster.MaxNodes {
			many = append(many, seenAt(string([]byte{'m', byte('0' + teller), byte('a' + i/100), byte('a' + i/10%10), byte('a' + i%10)}), 1, "m:1"))
		}
		tell(1, many[0].ID, 1, many...)
		if len(f.members) > maxSeen || len(f.tellers) > maxSeen {
			t.Fatalf("%d members, %d tellers are remembered", len(f.members), len(f.tellers))
		}
	}
}

// TestNamesBeginAnew: when a cluster gets groups, which know the requests that their nodes have answered, the client names its writes as another client: also at the node that it met first, whose names were
// those of the client itself. By a later map with groups it keeps its names.
func TestNamesBeginAnew(t *testing.T) {
	b := newBeliever(t, 3, 2)
	f := newRouter(b.cfg, world.World{})
	t.Cleanup(func() { f.Close() })
	grouped := b.Replicas.Map
	fixed := *grouped
	fixed.Replication = nil
	first := peer.New(f.cfg, f.world, "", f, f.client)
	f.Install(&fixed) // as the first session does, before its peer is known
	first.IsNode(fixed.Nodes[0].ID)
	f.adopt(first)
	was := f.client
	if at := f.table.Load().peers[first.Node]; at.ClientID() != was {
		t.Fatal("the peer of the first session has a name of its own: this test shows nothing")
	}
	m := *grouped
	m.Version = 2
	f.Install(&m)
	if f.client == was {
		t.Error("the client names its writes as before")
	}
	is := f.client
	for node, p := range f.table.Load().peers {
		if p.ClientID() != is {
			t.Errorf("node %s knows the client by another name than the others", node)
		}
	}
	f.Install(clienttest.NextMap(&m, func(*cluster.Map, *cluster.Replication) {}))
	if f.client != is {
		t.Error("a later map with groups has it begin anew")
	}
}
