package change

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/internal/consensus/document"
	"github.com/rdmakv/rdmakv/internal/feature"
	"github.com/rdmakv/rdmakv/internal/meta"
	"github.com/rdmakv/rdmakv/internal/seat"
	"github.com/rdmakv/rdmakv/internal/server/base"
)

// reignTerm is the term in which a model leads the meta group.
const reignTerm = 5

// A model is an engine of one node. Of the meta group it runs one replica, alone: what is proposed is applied at once. Of the others it has the status that a test
// gives them, and does each step at once.
type model struct {
	mu   sync.Mutex
	of   map[consensus.GroupID]consensus.Status
	did  []string // steps, in their order
	fail error    // what steps come to; nil: they are done

	leads   bool // a replica of the meta group that is started leads
	logs    map[consensus.ReplicaID]bool
	runs    consensus.ReplicaID // 0: no replica of the meta group does
	machine consensus.Machine
	applied uint64
	before  func()  // is called once, before the next entry is applied
	refuses error   // what Propose says; nil: it takes entries
	silent  bool    // entries are taken, and none is applied
	forgets []error // what the next Stops that forget say, each once; nil: it is done
	about   consensus.ReplicaID

	followers []*model // whose replicas of the meta group apply what this one's does
	behind    bool     // this one applies nothing more
}

func newModel() *model {
	return &model{of: map[consensus.GroupID]consensus.Status{}, logs: map[consensus.ReplicaID]bool{}, leads: true}
}

// set gives a group a status.
func (e *model) set(st consensus.Status) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.of[st.Group] = st
}

// done are the steps that were done, and no more.
func (e *model) done() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]string(nil), e.did...)
}

func (e *model) with(f func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	f()
}

// metaReplica is Env.MetaReplica.
func (e *model) metaReplica(id consensus.ReplicaID) { e.with(func() { e.about = id }) }

// dropMeta is Env.DropMeta.
func (e *model) dropMeta(id consensus.ReplicaID) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.runs == id {
		return fmt.Errorf("replica %d runs, and its log is to go", id)
	}
	delete(e.logs, id)
	return nil
}

func (e *model) Create(_ consensus.GroupID, id consensus.ReplicaID, _ consensus.State) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.about != id {
		return fmt.Errorf("the store was told of replica %d, and %d is created", e.about, id)
	}
	e.logs[id] = true
	return nil
}

func (e *model) Start(_ context.Context, g consensus.GroupID, id consensus.ReplicaID, m consensus.Machine) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.about != id:
		return fmt.Errorf("the store was told of replica %d, and %d is started", e.about, id)
	case e.runs != 0:
		return fmt.Errorf("replica %d runs, and %d is started", e.runs, id)
	case !e.logs[id]:
		return consensus.ErrNoLog
	}
	s, err := m.State()
	if err != nil {
		return err
	}
	e.runs, e.machine, e.applied = id, m, s.Applied
	e.of[g] = consensus.Status{Group: g, ID: id, Term: reignTerm, Leads: e.leads, Config: s.Config, Last: s.Applied, Committed: s.Applied, Applied: s.Applied}
	if e.leads {
		m.Leads(reignTerm)
	}
	return nil
}

func (e *model) Propose(g consensus.GroupID, term uint64, data []byte) error {
	e.mu.Lock()
	f := e.before
	e.before = nil
	e.mu.Unlock()
	if f != nil {
		f()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	switch st := e.of[g]; {
	case e.refuses != nil:
		return e.refuses
	case !st.Leads || st.Term != term:
		return consensus.ErrNotLeader
	case e.silent:
		return nil
	}
	for _, f := range e.followers {
		f.follow(term, data)
	}
	return e.apply(term, data)
}

// apply has the replica of the meta group apply an entry. e.mu is held.
func (e *model) apply(term uint64, data []byte) error {
	e.applied++
	return e.machine.Apply([]consensus.Entry{{Index: e.applied, Term: term, Kind: consensus.Write, Data: data}})
}

// follow applies an entry of a leader elsewhere, if a replica of the meta group runs here. One that cannot read it stops, as the engine has it.
func (e *model) follow(term uint64, data []byte) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.runs != 0 && !e.behind && e.apply(term, data) != nil {
		e.behind = true
	}
}

func (e *model) Barrier(_ context.Context, g consensus.GroupID) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.of[g].Leads {
		return consensus.ErrNotLeader
	}
	return nil
}

func (e *model) Change(_ context.Context, g consensus.GroupID, c consensus.Config, expect uint64) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	st := e.of[g]
	if e.fail != nil {
		return e.fail
	}
	if st.Config.Index != expect {
		return consensus.ErrChanged
	}
	st.Last++
	c.Index = st.Last
	e.did = append(e.did, fmt.Sprintf("group %d: %d vote, %d learn", g, len(c.Voters), len(c.Learners)))
	st.Config = c
	e.of[g] = st
	return nil
}

func (e *model) Transfer(_ context.Context, g consensus.GroupID, to consensus.ReplicaID) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.fail != nil {
		return e.fail
	}
	st := e.of[g]
	st.Leads, st.Leader, st.Term, st.Peers = false, to, st.Term+1, nil
	e.did = append(e.did, fmt.Sprintf("group %d: %d leads", g, to))
	e.of[g] = st
	return nil
}

func (e *model) Trim(consensus.GroupID, uint64) error { return nil }

func (e *model) Status(g consensus.GroupID) (consensus.Status, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	st, ok := e.of[g]
	if !ok {
		return st, consensus.ErrNoGroup
	}
	return st, nil
}

func (e *model) Stop(g consensus.GroupID, forget bool) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.runs == 0 {
		return consensus.ErrNoGroup
	}
	if forget && len(e.forgets) > 0 {
		err := e.forgets[0]
		e.forgets = e.forgets[1:]
		if err != nil {
			e.runs = 0
			delete(e.of, g)
			return err
		}
	}
	if forget {
		delete(e.logs, e.runs)
	}
	e.runs, e.machine = 0, nil
	delete(e.of, g)
	return nil
}

// A lines is a log that a test reads.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// A node is a Changer over a model. Nothing of it runs by itself unless a test says so.
type node struct {
	*Changer
	engine *model
	fs     *vfs.MemFS
	lines  *lines
	ask    func(ctx context.Context, node string, question []byte) ([]byte, error)
	join   error
	may    chan struct{} // closed: replicas may take part

	mu       sync.Mutex
	level    feature.Level
	down     error                    // why it has stood down
	gossip   map[string]feature.Level // what gossip says that other nodes read
	refuses  error                    // what Follow says; nil: it puts the map in force
	followed []uint64                 // versions
}

var errAway = errors.New("the node is away")

func newNode(t testing.TB, id string) *node {
	n := &node{engine: newModel(), fs: vfs.NewMem(), lines: &lines{}, may: make(chan struct{})}
	close(n.may)
	if err := n.fs.MkdirAll("data", 0o700); err != nil {
		t.Fatal(err)
	}
	n.Changer = New(Env{
		Node: id, FS: n.fs, Dir: "data", Log: base.NewLog(slog.New(slog.NewTextHandler(n.lines, nil))), Logger: slog.New(slog.DiscardHandler),
		Engine: func() consensus.Engine { return n.engine }, MetaReplica: n.engine.metaReplica, DropMeta: n.engine.dropMeta, MayTakePart: n.may,
		Ask: func(ctx context.Context, node string, question []byte) ([]byte, error) {
			if n.ask == nil {
				return nil, errAway
			}
			return n.ask(ctx, node, question)
		},
		Follow: func(_ context.Context, m *cluster.Map) error {
			n.mu.Lock()
			defer n.mu.Unlock()
			if n.refuses != nil {
				return n.refuses
			}
			n.followed = append(n.followed, m.Version)
			n.has(m)
			return nil
		},
		MayJoin: func(context.Context) error { return n.join },
		Levels: Levels{
			At: n.at, Raise: n.raise,
			ReadsOf: func(node string) (feature.Level, bool) {
				n.mu.Lock()
				defer n.mu.Unlock()
				l, ok := n.gossip[node]
				return l, ok
			},
		},
	})
	t.Cleanup(n.Stop)
	return n
}

// raise is Levels.Raise, as package member does it.
func (n *node) raise(l feature.Level) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	l = max(n.level, l)
	err := n.env.Levels.Reads.Check(l)
	if err == nil {
		n.level = l
	} else if l > n.level {
		n.down = err
	}
	return err
}

// at is the level that the node has heard of.
func (n *node) at() feature.Level {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.level
}

// follow says what Follow says from now on; nil: it puts maps in force.
func (n *node) follow(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.refuses = err
}

// has puts a map in force, and starts nothing.
func (n *node) has(m *cluster.Map) {
	n.now.Store(&inForce{m, m.Draft()})
	n.poke()
}

// hosts has the node do what its map says of its replica of the meta group, once.
func (n *node) hosts(t testing.TB) {
	t.Helper()
	if err := n.hostNow(); err != nil {
		t.Fatal(err)
	}
}

// storeOf is the store of a node.
func storeOf(id string) (s [16]byte) {
	copy(s[:], "store of "+id)
	return s
}

// born is the first map of a cluster of nodes a, b and c: each has a replica of the meta group and of groups 1 and 2.
func born(t testing.TB) *cluster.Map {
	t.Helper()
	want := cluster.Want{Replicas: 3, Groups: 2}
	var list []cluster.MapNode
	for _, id := range []string{"a", "b", "c"} {
		list = append(list, cluster.MapNode{ID: id, Weight: 1})
		want.Stores, want.Zones = append(want.Stores, storeOf(id)), append(want.Zones, "")
	}
	m, err := cluster.ProposeReplicas([16]byte{1}, "c", 16, list, want)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// later is the next map, as a draft is changed.
func later(t testing.TB, m *cluster.Map, f func(d *cluster.Draft)) *cluster.Map {
	t.Helper()
	d := m.Draft()
	f(d)
	next, err := d.Map(m)
	if err != nil {
		t.Fatal(err)
	}
	return next
}

// moving is the map after born in which node d has a replica of group 1, and the replica of a node leaves it.
func moving(t testing.TB, from string) *cluster.Map {
	return later(t, born(t), func(d *cluster.Draft) {
		d.Nodes["d"] = cluster.DraftNode{Weight: 1, Store: storeOf("d")}
		g := d.Group(1)
		g.At(from).Leaves = true
		g.Add("d")
	})
}

// leading is the status of a group whose leader is the replica of a node, by the map: all that it has votes, is there, and lacks nothing.
func leading(g *cluster.DraftGroup, node string, term uint64) consensus.Status {
	st := consensus.Status{Group: consensus.GroupID(g.ID), ID: consensus.ReplicaID(g.At(node).ID), Term: term, Leads: true, Last: 1000, Committed: 1000, Applied: 1000}
	st.Leader, st.Config.Index = st.ID, 10
	for id := uint64(1); id <= g.Top; id++ {
		p := g.Replica(id)
		if p == nil {
			continue
		}
		m := consensus.Member{ID: consensus.ReplicaID(id), Node: p.Node}
		if st.Config.Voters = append(st.Config.Voters, m); m.ID != st.ID {
			st.Peers = append(st.Peers, consensus.Peer{Member: m, Match: 1000, Active: true, Room: true})
		}
	}
	return st
}

// without is a status without the replica of a node: the group has not got it yet.
func without(st consensus.Status, node string) consensus.Status {
	var c consensus.Config
	c.Index = st.Config.Index
	for _, m := range st.Config.Voters {
		if m.Node != node {
			c.Voters = append(c.Voters, m)
		}
	}
	var peers []consensus.Peer
	for _, p := range st.Peers {
		if p.Node != node {
			peers = append(peers, p)
		}
	}
	st.Config, st.Peers = c, peers
	return st
}

// seated is a node that is the seat of a cluster: it leads the meta group, which begins with born.
func seated(t testing.TB) (*node, *document.Replica) {
	t.Helper()
	n := newNode(t, "a")
	n.has(born(t))
	n.hosts(t)
	r := n.leads()
	if r == nil {
		t.Fatal("it does not lead")
	}
	return n, r
}

// agreed has the meta group take what f makes of its state.
func (n *node) agreed(t testing.TB, r *document.Replica, f func(s *meta.State) *meta.State) *meta.State {
	t.Helper()
	s, err := n.confirmed(context.Background(), r)
	if err != nil {
		t.Fatal(err)
	}
	next := f(s)
	if err := n.agree(context.Background(), r, next); err != nil {
		t.Fatal(err)
	}
	return next
}

// adds is the state in which d comes.
func adds(t testing.TB) func(s *meta.State) *meta.State {
	return func(s *meta.State) *meta.State {
		next, _, err := seat.Plan(s, seat.Request{Kind: meta.Add, Nodes: []seat.Node{{ID: "d", Weight: 1, Store: storeOf("d")}}}, seat.Millis(time.Now()))
		if err != nil {
			t.Fatal(err)
		}
		return next
	}
}
