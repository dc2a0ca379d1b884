package route

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/client/internal/clienttest"
	"github.com/rdmakv/rdmakv/client/internal/session"
	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// learns has a router take in a map as a node's word.
func (b *believer) learns(m *cluster.Map) error {
	b.Router.mu.Lock()
	defer b.Router.mu.Unlock()
	return b.learnMapLocked("n1", m)
}

// TestLaterMaps: a later map may change nodes, replicas and leaders; one that changes what stays for ever is another cluster's, and an older one is
// not looked at.
func TestLaterMaps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBeliever(t, 4, 2)
		first := b.Router.Map()
		second := clienttest.NextMap(first, func(*cluster.Map, *cluster.Replication) {})
		for name, c := range map[string]struct {
			change func(m *cluster.Map, l *cluster.Replication)
			want   string
		}{
			"another table": {func(_ *cluster.Map, l *cluster.Replication) { l.Group[0], l.Group[1] = l.Group[1], l.Group[0] }, "goes from group"},
			"another group": {func(_ *cluster.Map, l *cluster.Replication) { l.Groups[1].ID = 7 }, "to group 7"},
			"another store": {func(_ *cluster.Map, l *cluster.Replication) { l.Stores[0] = [16]byte{99} }, "in another store"},
			"another name":  {func(m *cluster.Map, _ *cluster.Replication) { m.Name = "others" }, "other"},
		} {
			bad, l := *second, *second.Replication
			bad.Owner, l.Group, l.Groups, l.Stores = slices.Clone(bad.Owner), slices.Clone(l.Group), slices.Clone(l.Groups), slices.Clone(l.Stores)
			bad.Replication = &l
			c.change(&bad, &l)
			for shard, g := range l.Group {
				bad.Owner[shard] = l.Groups[g].Replicas[0].Node
			}
			if err := b.learns(&bad); !errors.Is(err, base.ErrOtherCluster) || !strings.Contains(err.Error(), c.want) || b.Router.Map() != first {
				t.Errorf("%s: %v", name, err)
			}
		}
		third := clienttest.NextMap(second, func(m *cluster.Map, l *cluster.Replication) { m.Nodes[0].Weight = 5 })
		if err := b.learns(third); err != nil || b.Router.Map() != third {
			t.Error(err)
		}
		if err := b.learns(second); err != nil || b.Router.Map() != third {
			t.Errorf("an older one: %v", err)
		}
	})
}

// TestBeliefsOverMaps: who was never told to lead is tried no more when the map prefers another; who has left is not believed, and what a call says that
// had been led to it changes nothing.
func TestBeliefsOverMaps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBeliever(t, 4, 1)
		at := b.At("k")
		turn := func(*cluster.Map, *cluster.Replication) {}
		next := func() { b.Install(b.Next(turn)) }
		turn = func(_ *cluster.Map, l *cluster.Replication) { slices.Reverse(l.Groups[0].Replicas) }
		next()
		b.is("another is preferred", "k", at[2].ID)
		b.says(at[2].ID, "k", at[1].ID, 4)
		next()
		b.is("one is known to lead", "k", at[1].ID)
		left := b.peer(at[1].ID)
		turn = func(_ *cluster.Map, l *cluster.Replication) {
			l.Groups[0].Replicas = slices.Delete(l.Groups[0].Replicas, 1, 2)
		}
		next()
		b.is("it has left", "k", at[0].ID)
		if h := b.seat("k").seat.Load(); h.told || h.term != 4 {
			t.Errorf("%+v", h)
		}
		for _, err := range []error{base.ErrLost, &session.NotLeader{Group: 1, Term: 3}, &session.Moved{Version: 3}} {
			b.table.Load().heed(t.Context(), left, []byte("k"), err)
			b.is(fmt.Sprint("a call that was led there: ", err), "k", at[0].ID)
		}
	})
}

// TestStrangers: of the nodes that are said to have a replica those are taken in that are known to be there, a few at most; they go by the next map, by
// the configuration that does not have them, and when they fail.
func TestStrangers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBeliever(t, 8, 1)
		at := b.At("k")
		n0 := at[0].ID
		of := func() (list []string) { g := b.seat("k"); return g.nodes[g.mapped:] }
		var others []string // of the map, without a replica
		for _, n := range b.Nodes {
			if !slices.Contains(b.seat("k").nodes, n.ID) {
				others = append(others, n.ID)
			}
		}
		tell := func(config uint64, more ...string) {
			voters := append(slices.Clone(b.seat("k").nodes[:3]), more...)
			LedOf(b.Router, []byte("k")).Meet(nil, &session.GroupInfo{Term: 1, Config: config, Voters: voters})
		}
		is := func(what string, want ...string) {
			t.Helper()
			if got := of(); !slices.Equal(got, want) {
				t.Errorf("%s: %q, want %q", what, got, want)
			}
		}
		tell(1)
		is("all are known")
		tell(1, others[0], "nobody")
		is("one more", others[0])
		tell(2, others[0], others[1])
		is("too soon", others[0])
		time.Sleep(strangeRest + time.Millisecond)
		tell(2, others[0], others[1])
		is("another one", others[0], others[1])
		tell(1, others[0], others[2])
		is("what was so before", others[0], others[1])
		tell(3, others[1])
		is("one less", others[1])
		b.says(n0, "k", others[3], 5)
		b.is("named to lead", "k", others[3])
		is("named to lead", others[1], others[3])
		for _, id := range []string{others[2], others[4], others[0]} {
			b.says(n0, "k", id, 4)
		}
		if n := len(of()); n != maxStrangers {
			t.Errorf("%d strangers", n)
		}
		b.table.Load().heed(t.Context(), b.peer(others[3]), []byte("k"), &session.Moved{Version: 1})
		if slices.Contains(of(), others[3]) {
			t.Errorf("it has no replica: %v", of())
		}
		b.says(n0, "k", others[3], 6)
		if slices.Contains(of(), others[3]) {
			t.Errorf("it is taken in again at once: %v", of())
		}
		time.Sleep(strangeRest)
		b.says(b.seat("k").seat.Load().node, "k", others[3], 6)
		b.is("a second later", "k", others[3])
		b.Install(b.Next(func(*cluster.Map, *cluster.Replication) {}))
		is("the next map")
	})
}

// TestStrangersOfGossip: a stranger that no map has is one of gossip, and its peer is closed with it.
func TestStrangersOfGossip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := clienttest.ReplicaClusterBut(t, 5, 2, 3, 1)
		b := believing(t, r)
		b.connect()
		defer b.Router.Close()
		r.Nodes[3].Map = r.Map
		for _, end := range []func(){
			func() { b.Install(b.Next(func(*cluster.Map, *cluster.Replication) {})) },
			func() {
				b.table.Load().heed(t.Context(), b.peer("n4"), []byte("k"), base.ErrLost)
				time.Sleep(2 * strangeRest)
			},
		} {
			b.says("n1", "k", "n4", 9)
			p := b.peer("n4")
			l := p.Begin(t.Context())
			if _, err := p.Session(&l); err != nil {
				t.Fatal(err)
			}
			end()
			time.Sleep(time.Second)
			if n := r.Nodes[3].Connected(); n != 0 || b.table.Load().peers["n4"] != nil {
				t.Errorf("%d connections to a node that is none of the group's", n)
			}
			b.seat("k").seat.Store(&leader{node: "n1"})
		}
		if got := b.says("n1", "k", "n9", 10); got != stepRest {
			t.Errorf("a node that nobody knows: step %d", got)
		}
	})
}

// TestMovedAsksTheTeller: a call that was told of a newer map has it when it goes on, also if another call asks an older node at that time.
func TestMovedAsksTheTeller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBeliever(t, 3, 1)
		defer b.connect().Close()
		sessions := map[string]*session.Session{}
		for _, n := range b.Nodes {
			p := b.peer(n.ID)
			l := p.Begin(t.Context())
			s, err := p.Session(&l)
			if err != nil {
				t.Fatal(err)
			}
			sessions[n.ID] = s
		}
		m := b.Next(func(m *cluster.Map, _ *cluster.Replication) { m.Nodes[0].Weight = 3 })
		b.Nodes[1].Set(func(n *clienttest.Node) { n.Map = m })
		slow := b.Nodes[2]
		answer := slow.OnRequest
		slow.Set(func(n *clienttest.Node) {
			n.OnRequest = func(h wire.Header, msg []byte) ([]byte, bool) {
				if h.Type == wire.TypeDocument {
					time.Sleep(100 * time.Millisecond)
				}
				return answer(h, msg)
			}
		})
		other := make(chan error, 1)
		go func() { other <- b.Refresh(t.Context(), sessions["n3"]) }()
		synctest.Wait()
		var way Reroute
		defer way.End()
		err := &session.Moved{Session: sessions["n2"], Version: 2, Digest: m.Digest()}
		if b.Again(t.Context(), &way, b.peer("n2"), []byte("k"), err) == nil || b.Router.Map().Version != 2 {
			t.Errorf("the call goes on by version %d", b.Router.Map().Version)
		}
		if err := <-other; err != nil {
			t.Error(err)
		}
	})
}

// TestNodeComesBackElsewhere: a node that has left, and comes back at another address with another store, is reached there.
func TestNodeComesBackElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := clienttest.ReplicaClusterBut(t, 5, 1, 3, 1)
		again := r.Nodes[4] // n4 in its second life
		again.ID = "n4"
		b := believing(t, r)
		b.cfg.Servers = []string{r.Nodes[0].Addr, r.Nodes[3].Addr}
		b.connect()
		defer b.Router.Close()
		reach := func() (uint64, error) {
			p := b.peer("n4")
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			l := p.Clock.Unlimited(ctx)
			s, err := p.Session(&l)
			if err != nil {
				return 0, err
			}
			return s.Incarnation, nil
		}
		if at, err := reach(); err != nil || at != r.Nodes[3].Incarnation {
			t.Fatalf("%d, %v", at, err)
		}
		b.Install(b.Next(func(m *cluster.Map, l *cluster.Replication) { // without it
			if i := m.IndexOf("n4"); i != len(m.Nodes)-1 {
				t.Fatalf("n4 has index %d", i)
			}
			for i := range l.Groups {
				l.Groups[i].Replicas = []cluster.Replica{{Node: 0}, {Node: 1}, {Node: 2}}
			}
			m.Nodes, l.Stores = m.Nodes[:3], l.Stores[:3]
		}))
		time.Sleep(time.Second)
		if n := r.Nodes[3].Connected(); n != 0 || len(b.ways["n4"]) != 0 {
			t.Errorf("%d connections, ways %v", n, b.ways["n4"])
		}
		r.Nodes[3].Connect = func(context.Context) error { return errors.New("nobody is here") }
		view := *again.View
		view.Self, view.Version, view.Members = "n4", 9, slices.Clone(view.Members)
		view.Members = slices.DeleteFunc(view.Members, func(m cluster.Member) bool { return m.ID == "n5" })
		for i := range view.Members {
			if m := &view.Members[i]; m.ID == "n4" {
				m.Incarnation, m.Endpoints = again.Incarnation, []cluster.Endpoint{{Fabric: "fake", Addr: again.Addr}}
			}
		}
		next := b.Next(func(m *cluster.Map, l *cluster.Replication) {
			m.Nodes, l.Stores = append(m.Nodes, cluster.MapNode{ID: "n4", Weight: 1}), append(l.Stores, [16]byte{88})
			l.Groups[0].Replicas = append(l.Groups[0].Replicas[:2], cluster.Replica{Node: 3})
		})
		for _, n := range r.Nodes {
			n.Set(func(n *clienttest.Node) {
				self := n.View.Self
				v := view
				if n.Map, v.Self = next, self; n == again {
					v.Self = "n4"
				}
				n.View = &v
			})
		}
		if err := b.Refresh(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		if at, err := reach(); err != nil || at != again.Incarnation {
			t.Errorf("%d, %v", at, err)
		}
	})
}
