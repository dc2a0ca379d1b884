package client

import (
	"errors"
	"slices"
	"testing"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/wire"
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
// a teller never replaces a newer one of his.
func TestFleetLearnsViews(t *testing.T) {
	cfg := Config{Servers: []string{"seed:1"}, Fabrics: []rdma.Fabric{newFakeServer(1)}}.withDefaults()
	f := newFleet(cfg)
	defer f.close()
	tell := func(incarnation uint64, self string, version uint64, members ...cluster.Member) {
		t.Helper()
		v := &cluster.View{Version: version, Self: self, Members: members}
		if err := v.Check(); err != nil {
			t.Fatal(err)
		}
		if err := f.learn(&news{incarnation: incarnation, view: v}, 8); err != nil {
			t.Fatal(err)
		}
	}
	at := func(what, id string, want ...string) {
		t.Helper()
		if got := f.addresses(id); !slices.Equal(got, want) {
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
	f.cameBy("a", "seed:1")
	f.cameBy("a", "elsewhere:1") // none of ours
	at("where it was met", "a", "a:2", "a:3", "seed:1")
	other := seenAt("a", 7)
	other.Endpoints = []cluster.Endpoint{{Fabric: "else", Addr: "a:9"}}
	tell(7, "a", 4, other)
	at("fabrics that we have not got", "a", "seed:1")

	// Whoever tells, what is remembered has an end.
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

// A map with another number of shards than the server has is none.
func TestFleetLearnsShards(t *testing.T) {
	nodes := fakeCluster(t, 2, true)
	nodes[0].shards = fakeShards / 2
	cfg := nodes[0].config(nil)
	cfg.Servers = []string{nodes[0].addr}
	_, err := Dial(t.Context(), cfg)
	if err == nil || !errors.Is(err, ErrProtocol) && !errors.Is(err, ErrUnavailable) {
		t.Error(err)
	}
}

// What does not parse ends the session, and is not believed.
func TestFleetHostileNews(t *testing.T) {
	for name, text := range map[string][]byte{
		"nothing": {}, "rubbish": []byte("rubbish"), "a view of nobody": cluster.AppendView(nil, &cluster.View{Version: 1}),
		"a huge view": make([]byte, maxNews+1),
	} {
		nodes := fakeCluster(t, 1, true)
		nodes[0].onRequest = func(h wire.Header, msg []byte) ([]byte, bool) {
			if h.Type != wire.TypeCluster {
				return nodes[0].answer(h, msg)
			}
			out := wire.AppendClusterReply(nil, h.ID, wire.ClusterReply{Total: uint32(len(text)), Version: 1, Data: text[:min(len(text), 1000)]})
			wire.SetCredits(out, 1)
			return out, true
		}
		cfg := nodes[0].config(nil)
		cfg.Servers = []string{nodes[0].addr}
		if c, err := Dial(t.Context(), cfg); !errors.Is(err, ErrProtocol) {
			t.Errorf("%s: %v", name, err)
			if err == nil {
				c.Close()
			}
		}
	}
}
