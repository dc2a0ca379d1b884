package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/store"
	"github.com/rdmakv/rdmakv/store/layout"
)

// TestReplicas: the leader of a group answers for its keys, the other nodes say who that is, whatever is asked; a leader that is stopped hands over
// and nothing is lost; and each node comes back with what it had and what it missed.
func TestReplicas(t *testing.T) {
	r := startReplicas(t)
	for shard := range uint16(4) {
		r.put(keyOf(shard), "1")
		r.want(keyOf(shard), "1")
	}
	key, lead := keyOf(0), r.leader(0)
	for i, srv := range r.nodes {
		p := dial(t, srv, peerOptions{})
		if _, regions := p.regions(); p.wel.Flags&wire.WelcomeSendOnly == 0 || p.wel.Regions != 0 || len(regions) != 0 {
			t.Errorf("node %c tells rkeys: %+v, %d regions", 'a'+i, p.wel, len(regions))
		}
		for what, err := range p.everyRequest(key) {
			st := wire.StatusOf(err)
			if (st == wire.StatusNotLeader) != (i != lead) {
				t.Errorf("%s at node %c, and %c leads: %v", what, 'a'+i, 'a'+lead, err)
			}
			if i != lead && !strings.Contains(err.Error(), "node "+string(rune('a'+lead))) {
				t.Errorf("%s at node %c, and %c leads: %v", what, 'a'+i, 'a'+lead, err)
			}
		}
		for what, encode := range map[string]func(id uint64) []byte{
			"scan of no group":  func(id uint64) []byte { return wire.AppendScan(nil, id, wire.Scan{}) },
			"watch of no group": func(id uint64) []byte { return wire.AppendWatch(nil, id, wire.Watch{}) },
		} {
			if _, err := p.call(encode); wire.StatusOf(err) != wire.StatusUnsupported {
				t.Errorf("%s: %v, want unsupported", what, err)
			}
		}
		p.close()
		w := dial(t, srv, peerOptions{words: true})
		if _, regions := w.regions(); w.wel.Flags&wire.WelcomeSendOnly != 0 || w.wel.Flags&wire.WelcomeWords == 0 || len(regions) == 0 {
			t.Errorf("node %c lets a client that knows words not READ: %+v, %d regions", 'a'+i, w.wel, len(regions))
		}
		w.close()
	}
	r.put(key, "2")
	for round := range 3 { // each node once, whoever leads then
		r.stop(round)
		for shard := range uint16(4) {
			r.put(keyOf(shard), fmt.Sprint("round ", round))
		}
		srv := r.start(round)
		for shard := range uint16(4) {
			r.want(keyOf(shard), fmt.Sprint("round ", round))
		}
		eventually(t, "it has what it missed", func() bool {
			for _, g := range srv.groups.Status() {
				st := r.nodes[r.leader(g.Shards[0])].groups.Status()
				for _, o := range st {
					if o.ID == g.ID && (g.Applied < o.Committed || g.State == "waits") {
						return false
					}
				}
			}
			return true
		})
	}
}

// TestReplicaStatus: a node tells of its groups what an operator asks: who leads in which term, which replicas there are, and how far they are.
func TestReplicaStatus(t *testing.T) {
	r := startReplicas(t)
	for shard := range uint16(4) {
		r.put(keyOf(shard), "v")
	}
	id := r.m.Replication.Groups[r.m.Replication.Group[0]].ID
	lead := r.leader(0)
	eventually(t, "all nodes agree on who leads", func() bool {
		for i, srv := range r.nodes {
			st := statusOf(t, srv)
			if len(st.Groups) != 2 || st.Store == "" {
				t.Fatalf("status %+v", st)
			}
			for _, g := range st.Groups {
				if g.ID != id {
					continue
				}
				want := "follows"
				if i == lead {
					want = "leads"
				}
				if g.State != want || g.Leader != string(rune('a'+lead)) || g.Term == 0 || len(g.Replicas) != 3 || len(g.Shards) != 2 || g.Replica == 0 {
					return false
				}
				for _, p := range g.Replicas {
					if !p.Votes || p.Node == "" || i == lead && (!p.Active || p.Match < g.Committed) {
						return false
					}
				}
			}
		}
		return true
	})
}

// TestUnfitForReplicas: a node that cannot have replicas refuses the map that gives it some, and says why.
func TestUnfitForReplicas(t *testing.T) {
	well := startServer(t, func(c *Config) { clusterOf("a")(c); replicaOf(c, t.TempDir()) })
	for name, c := range map[string]struct {
		change func(*Config)
		spoil  func(*cluster.Map)
		want   string
	}{
		"sync off":      {change: func(c *Config) { c.Sync = store.Interval }, want: "sync always"},
		"cache":         {change: func(c *Config) { c.Mode = store.Cache }, want: "mode durable"},
		"a small log":   {change: func(c *Config) { c.LogBytes = store.MinLogBytes }, want: "log bytes"},
		"another store": {spoil: func(m *cluster.Map) { m.Replication.Stores[1][0]++ }, want: "old data directory"},
		"a tenant":      {change: func(c *Config) { c.Secret = []byte("0123456789abcdef"); c.Spaces = []SpaceConfig{{Name: "blue"}} }, want: "blue"},
	} {
		t.Run(name, func(t *testing.T) {
			srv := startServer(t, func(cfg *Config) {
				clusterOf("b", well.GossipAddr())(cfg)
				replicaOf(cfg, t.TempDir())
				if c.change != nil {
					c.change(cfg)
				}
			})
			m := proposeReplicas(t, 1, well, srv)
			if c.spoil != nil {
				c.spoil(m)
			}
			p := dial(t, srv, peerOptions{secret: srv.cfg.Secret})
			if got, err := p.change(wire.MapPrepare, m); err != nil || !bytes.Contains(got.Text, []byte(c.want)) || got.State != wire.MapNone {
				t.Errorf("%+v %q, %v", got, got.Text, err)
			}
		})
	}
}

// TestNewStoreUnderOldName: a node whose directory was lost is no replica under its old name: it has not promised what the one before it has (R18).
func TestNewStoreUnderOldName(t *testing.T) {
	r := startReplicas(t)
	r.put(keyOf(0), "v")
	r.stop(2)
	r.dirs[2] = t.TempDir()
	srv := r.start(2)
	p := dial(t, srv, peerOptions{})
	defer p.close()
	if got, err := p.change(wire.MapPrepare, r.m); err != nil || !bytes.Contains(got.Text, []byte("old data directory")) {
		t.Errorf("it may be a replica: %+v %q, %v", got, got.Text, err)
	}
	if _, err := p.get(keyOf(0), 100); wire.StatusOf(err) != wire.StatusNoMap {
		t.Errorf("it answers: %v", err)
	}
	// It says so itself, and whoever restarts nodes one by one does not go on.
	eventually(t, "it is not ready", readyIs(t, srv, 503, "not the one that it had", "stop no other node", "(a, b)"))
	r.nodes[2] = nil // it does not count as one
	r.put(keyOf(0), "w")
	r.want(keyOf(0), "w")
}

// TestMapOfAnotherStore: a directory into which a map was copied that names another store for the node is not served.
func TestMapOfAnotherStore(t *testing.T) {
	r := startReplicas(t)
	r.stop(1)
	other := t.TempDir()
	fresh := startServer(t, func(c *Config) { clusterOf("b", r.seeds...)(c); replicaOf(c, other) })
	if err := fresh.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	copyFile(t, r.dirs[1]+"/MAP", other+"/MAP")
	cfg := testConfig()
	clusterOf("b", r.seeds...)(&cfg)
	replicaOf(&cfg, other)
	srv, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := srv.Start(ctx); !errors.Is(err, store.ErrGroups) || !strings.Contains(err.Error(), "old data directory") {
		srv.Shutdown(ctx)
		t.Errorf("it starts: %v", err)
	}
}

// TestStandDownEndsReplicas: a process that stands down because another one is its node says nothing more to other replicas.
func TestStandDownEndsReplicas(t *testing.T) {
	r := startReplicas(t)
	lead := r.leader(0)
	old := r.nodes[lead]
	r.nodes[lead] = nil
	old.standDown(errors.New("another process is this node"))
	r.put(keyOf(0), "of the next leader")
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := store.Confirm(ctx, old.main.Store, 0); err == nil {
		t.Error("a majority confirms the old one")
	}
	r.want(keyOf(0), "of the next leader")
}

func statusOf(t testing.TB, srv *Server) (st wire.NodeStatus) {
	t.Helper()
	p := dial(t, srv, peerOptions{})
	defer p.close()
	if err := p.admin(wire.AdminStatus, "", &st); err != nil {
		t.Fatal(err)
	}
	return st
}

func copyFile(t testing.TB, from, to string) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestCutLeaderAnswersNoGet: a leader that no majority hears any more does not know whether another one has taken over, and answers no get, of a value
// that it has, too.
func TestCutLeaderAnswersNoGet(t *testing.T) {
	r := startReplicas(t)
	r.put(keyOf(0), "old")
	lead := r.leader(0)
	old := r.nodes[lead]
	p := dial(t, old, peerOptions{})
	if got, err := p.get(keyOf(0), 100); err != nil || string(got.Value) != "old" {
		t.Fatalf("%q, %v", got.Value, err)
	}
	group := r.m.Replication.Groups[r.m.Replication.Group[0]].ID
	asks := map[string]func(*peer) error{
		"scan":  func(p *peer) error { _, err := p.scan(wire.Scan{Group: group}); return err },
		"watch": func(p *peer) error { _, err := p.call(watchOf(wire.Watch{Group: group})); return err },
		"get":   func(p *peer) error { _, err := p.get(keyOf(0), 100); return err },
		"exists": func(p *peer) error {
			_, err := p.call(func(id uint64) []byte { return wire.AppendExists(nil, id, wire.Key{Key: []byte(keyOf(0))}) })
			return err
		},
	}
	peers := map[string]*peer{}
	for what := range asks {
		peers[what] = dial(t, old, peerOptions{})
	}
	old.groups.Cut()
	// All are asked at once, while it believes that it leads: the first answer comes when it does so no more.
	var asked sync.WaitGroup
	for what, ask := range asks {
		asked.Go(func() {
			if err := ask(peers[what]); wire.StatusOf(err) != wire.StatusNotLeader {
				t.Errorf("%s: %v", what, err)
			}
		})
	}
	asked.Wait()
	r.nodes[lead] = nil
	r.put(keyOf(0), "new")
	if _, err := p.get(keyOf(0), 100); wire.StatusOf(err) != wire.StatusNotLeader {
		t.Errorf("after another has taken over: %v", err)
	}
	if _, err := p.scan(wire.Scan{Group: group}); wire.StatusOf(err) != wire.StatusNotLeader {
		t.Errorf("a scan after another has taken over: %v", err)
	}
}

// TestCutLeaderAnswersWrites: a leader that no majority hears any more answers the writes that wait at it, as ones whose outcome is not known, and
// holds nothing of them. Where another leads they are asked again under their names, and done once.
func TestCutLeaderAnswersWrites(t *testing.T) {
	for try := 0; ; try++ {
		r := startReplicas(t)
		lead := r.leader(0)
		old := r.nodes[lead]
		me := peerOptions{client: [16]byte{7}}
		p := dial(t, old, me)
		old.groups.Cut()
		add := func(age uint32) func(uint64) []byte {
			return incrementOf(keyOf(0), 1, wire.Terms{ID: wire.RequestID{Seq: 1, AgeMillis: age}})
		}
		_, err := p.write(add(0))
		if wire.StatusOf(err) == wire.StatusNotLeader && try < 5 {
			t.Log("it was deposed before the write came")
			continue
		}
		if wire.StatusOf(err) != wire.StatusUnknown {
			t.Errorf("a write that no majority has heard of: %v", err)
		}
		if st := old.main.Store.Stats(); st.Inflight != 0 || st.InflightBytes != 0 {
			t.Errorf("%d writes of %d bytes are held", st.Inflight, st.InflightBytes)
		}
		if err := p.ping(); err != nil { // its session goes on
			t.Error(err)
		}
		r.nodes[lead] = nil
		for range 2 {
			r.do(0, "the write, again", func(*peer) error {
				p := dial(t, r.nodes[r.leader(0)], me)
				defer p.close()
				reply, err := p.write(add(3000))
				if err == nil && reply.Number != 1 {
					t.Errorf("one increment makes %d", reply.Number)
				}
				return err
			})
		}
		return
	}
}

// TestHandOver: a node that is about to end has other voters lead what it leads, before it answers nobody any more.
func TestHandOver(t *testing.T) {
	r := startReplicas(t)
	lead := r.leader(0)
	eventually(t, "the others have what it has", func() bool {
		r.nodes[lead].groups.HandOver(t.Context())
		if _, err := store.ReignOf(r.nodes[lead].main.Store, 0); err == nil {
			return false
		}
		now := r.leader(0)
		defer func() { lead = now }()
		return now != lead
	})
	r.put(keyOf(0), "v")
	// At the end of a stop the groups of the node have been led by others for a while, if they could take over at all.
	eventually(t, "a stop hands over", func() bool {
		i := r.leader(0)
		srv := r.nodes[i]
		handed := srv.groups.Handed()
		r.stop(i)
		r.start(i)
		return srv.groups.Handed() > handed
	})
}

// TestPortsOpenInHandOver: a node that hands its groups over takes connections of others meanwhile, because who is to take over may have to open its
// way to it first, without which it cannot say that it has all entries. Clients are told to go elsewhere.
func TestPortsOpenInHandOver(t *testing.T) {
	for try := 0; ; try++ {
		r := startReplicas(t)
		lead := r.leader(0)
		for i, srv := range r.nodes {
			if i != lead {
				srv.groups.Cut() // nobody takes over, so the node waits for a while
			}
		}
		srv := r.nodes[lead]
		ended := make(chan error, 1)
		go func() { ended <- srv.Shutdown(t.Context()) }()
		const hands = "other replicas, to take over"
		for srv.ending.Get() != hands && len(ended) == 0 {
			time.Sleep(100 * time.Microsecond)
		}
		_, err := tryDial(t, srv, peerOptions{})
		meanwhile := srv.ending.Get() == hands
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		if meanwhile {
			wantStatus(t, err, wire.StatusBusy)
			return
		}
		if try == 20 {
			t.Fatal("each hand-over was over before a connection was asked for")
		}
	}
}

// TestLeadersGoHome: a group that another node leads goes back to the first replica of the map when it has been quiet for a while, with no write lost and
// no call refused for more than a moment.
func TestLeadersGoHome(t *testing.T) {
	r := &replicas{t: t, quiet: 300 * time.Millisecond}
	for i := range 3 {
		r.dirs = append(r.dirs, t.TempDir())
		r.nodes = append(r.nodes, nil)
		r.start(i)
	}
	r.agree()
	home := int(r.m.Replication.Groups[r.m.Replication.Group[0]].Replicas[0].Node)
	eventually(t, "the preferred node leads", func() bool { return r.leader(0) == home })
	r.put(keyOf(0), "1")
	r.stop(home)
	r.put(keyOf(0), "2")
	if lead := r.leader(0); lead == home {
		t.Fatal("a node that is stopped leads")
	}
	r.start(home)
	eventually(t, "the group goes back", func() bool { return r.leader(0) == home })
	r.want(keyOf(0), "2")
	r.put(keyOf(0), "3")
	time.Sleep(3 * r.quiet)
	eventually(t, "the group stays there", func() bool { return r.leader(0) == home })
}

// TestReplicaDevicePulled: the device by which replicas talk goes, with ways open in both directions. It is closed with all that stands on it, comes
// back, and the group with it.
func TestReplicaDevicePulled(t *testing.T) {
	card := newPlug("card")
	a := startPlugs(t, func(c *Config) {
		clusterOf("a")(c)
		replicaOf(c, t.TempDir())
	}, card)
	others := func(id string) *Server {
		return startServer(t, func(c *Config) {
			clusterOf(id, a.GossipAddr())(c)
			replicaOf(c, t.TempDir())
			c.Fabric = newPlug("card")
		})
	}
	r := &replicas{t: t, nodes: []*Server{a, others("b"), others("c")}}
	r.agree()
	for shard := range uint16(4) {
		r.put(keyOf(shard), "1")
	}
	card.set(func(p *plug) { p.refuse = 1 << 30 })
	card.current().pull(true)
	eventually(t, "it is tried to open it", func() bool { return card.tried() >= 3 })
	if card.slabs.Load() != 0 || card.open.Load() != 0 {
		t.Errorf("%d regions are registered with the device that is gone, %d devices are open", card.slabs.Load(), card.open.Load())
	}
	r.nodes[0] = nil
	for shard := range uint16(4) {
		r.put(keyOf(shard), "2")
	}
	card.set(func(p *plug) { p.refuse = 0 })
	eventually(t, "the device is back", isBack(a, 0))
	eventually(t, "its replicas have what they missed", func() bool {
		for _, g := range a.groups.Status() {
			for _, o := range r.nodes[r.leader(g.Shards[0])].groups.Status() {
				if o.ID == g.ID && g.Applied < o.Committed {
					return false
				}
			}
		}
		return true
	})
}

// TestReadersComeAgain: a client that was let READ before the cluster had replicas is asked to connect again, and READs no more.
func TestReadersComeAgain(t *testing.T) {
	r := startUnmapped(t)
	p := dial(t, r.nodes[0], peerOptions{})
	if p.wel.Flags&wire.WelcomeSendOnly != 0 {
		t.Error("it may not READ")
	}
	r.agree()
	_ = p.ping() // what is said to it before stands in front of the answer
	if !slices.ContainsFunc(p.replies, isGoodbye) {
		t.Error("it is not asked to connect again")
	}
	again := dial(t, r.nodes[0], peerOptions{})
	if again.wel.Flags&wire.WelcomeSendOnly == 0 {
		t.Error("it may READ")
	}
	reader := dial(t, r.nodes[0], peerOptions{words: true})
	if reader.wel.Flags&wire.WelcomeSendOnly != 0 || reader.wel.Flags&wire.WelcomeWords == 0 {
		t.Errorf("one that knows words: %+v", reader.wel)
	}
	r.nodes[0].main.ReleaseOwned() // as when the same map is told again
	if err := reader.ping(); err != nil || len(reader.replies) > 0 && slices.ContainsFunc(reader.replies, isGoodbye) {
		t.Errorf("it is asked to connect again: %v", err)
	}
}

// isGoodbye says whether a client is asked to connect again.
func isGoodbye(m []byte) bool {
	h, err := wire.ParseHeader(m)
	return err == nil && h.Type == wire.TypeGoodbye && errors.Is(wire.ParseGoodbye(h, wire.Body(m)), wire.StatusClosing.Err())
}

// TestGroupInfo: a node tells what its replica of a group is; the one that leads tells its term, by which it is believed, and its cell shows it.
func TestGroupInfo(t *testing.T) {
	r := startReplicas(t)
	r.put(keyOf(0), "1")
	lead := r.leader(0)
	g := r.nodes[lead].groups.Status()[0].ID
	for _, st := range r.nodes[lead].groups.Status() {
		if slices.Contains(st.Shards, 0) {
			g = st.ID
		}
	}
	ask := func(srv *Server, o peerOptions, group uint32) (wire.GroupInfo, []string, error) {
		p := dial(t, srv, o)
		defer p.close()
		m, err := p.call(func(id uint64) []byte {
			return wire.AppendGroupInfoRequest(nil, id, wire.GroupInfoRequest{Group: group})
		})
		if err != nil {
			return wire.GroupInfo{}, nil, err
		}
		info, err := wire.ParseGroupInfo(m)
		var voters []string
		for v := range info.Voters {
			voters = append(voters, string(v))
		}
		return info, voters, err
	}
	places := map[uint64]bool{}
	for i, srv := range r.nodes {
		info, voters, err := ask(srv, peerOptions{words: true}, g)
		if err != nil || info.Group != g || info.Config != 1 || len(voters) != 3 || (info.Term != 0) != (i == lead) {
			t.Errorf("node %c, and %c leads: %+v, %v, %v", 'a'+i, 'a'+lead, info, voters, err)
			continue
		}
		view := srv.main.Store.View()
		if region, _, ok := view.Locate(layout.Place(info.Cell), layout.CellRead); !ok || region != 0 {
			t.Errorf("node %c: its cell is in no memory: %+v", 'a'+i, info)
		}
		for _, st := range srv.groups.Status() {
			other, _, err := ask(srv, peerOptions{words: true}, st.ID)
			if err != nil || i == 0 && places[other.Cell] {
				t.Errorf("node %c, group %d: %+v, %v", 'a'+i, st.ID, other, err)
			}
			if i == 0 {
				places[other.Cell] = true
			}
		}
		if _, _, err := ask(srv, peerOptions{}, 12345); wire.StatusOf(err) != wire.StatusNotLeader {
			t.Errorf("a group that is not there: %v", err)
		}
	}
	alone := startServer(t, nil)
	if _, _, err := ask(alone, peerOptions{}, 1); wire.StatusOf(err) != wire.StatusUnsupported && wire.StatusOf(err) != wire.StatusNotLeader {
		t.Errorf("a server that is alone: %v", err)
	}
}
