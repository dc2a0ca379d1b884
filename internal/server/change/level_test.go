package change

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/feature"
	"github.com/rdmakv/rdmakv/internal/meta"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// runs has a node run a program that reads some levels. Its replica of the meta group, if it has one, is started by that program.
func (n *node) runs(t *testing.T, reads feature.Range) {
	t.Helper()
	n.env.Levels.Reads = reads
	if n.meta.running.Load() != nil {
		n.meta.stop(n.env.Log)
		n.hosts(t)
	}
}

// sits has the seat look a few times, and returns the state that comes of it.
func (c *cluster3) sits(t *testing.T) *meta.State {
	t.Helper()
	for range 3 {
		if _, err := c.seat.sitOnce(c.seat.leads()); err != nil {
			t.Fatal(err)
		}
	}
	s, err := c.seat.confirmed(t.Context(), c.seat.leads())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// levels are those that the nodes of the map have heard of.
func (c *cluster3) levels() string {
	list := []string{}
	for _, n := range []*node{c.seat, c.others["b"], c.others["c"]} {
		list = append(list, string(rune('0'+n.at())))
	}
	return strings.Join(list, " ")
}

// TestLevelRises: nodes get a newer program one after the other. Until the last one has it, nothing that is asked or agreed on is different from what the older program does; then the level
// rises once, all hear of it, and it stays also when a node goes back.
func TestLevelRises(t *testing.T) {
	last, next := feature.Range{}, feature.Here()
	c := newCluster(t)
	var kinds []byte // of questions; nodes are asked side by side
	var mu sync.Mutex
	asks := c.seat.ask
	c.seat.ask = func(ctx context.Context, node string, question []byte) ([]byte, error) {
		mu.Lock()
		kinds = append(kinds, question[0])
		mu.Unlock()
		return asks(ctx, node, question)
	}
	step := func(what string, level feature.Level, heard string) {
		t.Helper()
		kinds = nil
		s := c.sits(t)
		if s.Level != level || c.levels() != heard {
			t.Errorf("%s: the cluster is at level %d, and its nodes have heard of %s; want %d and %s", what, s.Level, c.levels(), level, heard)
		}
		if form := s.Encode()[0]; form != feature.Of(level).State || level == 0 && slices.ContainsFunc(kinds, func(k byte) bool { return k != 1 }) {
			t.Errorf("%s: at level %d the state has form %d, and questions are of kinds %v", what, level, form, kinds)
		}
	}
	step("all have the last program", 0, "0 0 0")
	c.seat.runs(t, next)
	step("the seat has the next one", 0, "0 0 0")
	c.others["b"].runs(t, next)
	step("two have it", 0, "0 0 0")
	c.others["b"].runs(t, last)
	step("one has gone back", 0, "0 0 0")
	c.others["b"].runs(t, next)
	c.others["c"].runs(t, next)
	step("all have it", 1, "1 1 1")
	if kinds[len(kinds)-1] != 2 {
		t.Errorf("questions are of kinds %v behind the rise", kinds)
	}
	// A node with the program of before does not take part: it refuses what it is asked, for it does not read the level.
	c.others["c"].runs(t, last)
	if _, err := c.others["c"].Answer(t.Context(), "a", appendPoll(nil, reignTerm, 1, born(t), false)); !errors.Is(err, feature.ErrUnread) {
		t.Errorf("a node that has gone back answers with %v", err)
	}
	step("one has gone back behind the rise", 1, "1 1 1")
}

// TestLevelOfTheNextRelease: a program two levels on takes part at the level of the one before it, and raises the level when all are such.
func TestLevelOfTheNextRelease(t *testing.T) {
	c, here, next := newCluster(t), feature.Here(), feature.Range{Oldest: 1, Newest: 2}
	all := []*node{c.seat, c.others["b"], c.others["c"]}
	for _, n := range all {
		n.runs(t, here)
	}
	if s := c.sits(t); s.Level != 1 {
		t.Fatalf("level %d", s.Level)
	}
	for i, n := range all {
		n.runs(t, next)
		want := feature.Level(1)
		if i == len(all)-1 {
			want = 2
		}
		if s := c.sits(t); s.Level != want {
			t.Errorf("%d nodes have the next program: level %d, want %d", i+1, s.Level, want)
		}
	}
	// Its state is newer than this program reads, so a replica of such a node stops at it.
	s := c.sits(t)
	if _, err := (&Changer{env: Env{Levels: Levels{Reads: here}}}).load(s.Encode()); !errors.Is(err, meta.ErrNewer) || !errors.Is(err, feature.ErrUnread) {
		t.Errorf("a state of level 2 is loaded: %v", err)
	}
	was := s.Clone()
	was.Level, was.Version = 1, s.Version-1
	if next, answer := (content{was, here}).Apply(meta.AppendEntry(nil, s)); next != nil || !strings.Contains(string(answer), "at level 2, and this program reads levels 0 to 1") {
		t.Errorf("an entry that raises the level to 2 is applied: %v, %s", next, answer)
	}
}

// TestLevelIsHeld: the level stays while an operator wants that, and while a node does not answer.
func TestLevelIsHeld(t *testing.T) {
	c := newCluster(t)
	for _, n := range []*node{c.seat, c.others["b"], c.others["c"]} {
		n.runs(t, feature.Here())
	}
	c.others["b"].env.Levels.Hold = true
	if s := c.sits(t); s.Level != 0 {
		t.Error("it rises though node b holds it")
	}
	why := func() string { return c.seat.answer(c.sits(t), wire.ClusterTaken).LevelWhy }
	if !strings.Contains(why(), "node b holds the level") {
		t.Errorf("%q", why())
	}
	c.others["b"].env.Levels.Hold = false
	asks := c.seat.ask
	c.seat.ask = func(ctx context.Context, node string, question []byte) ([]byte, error) {
		if node == "c" {
			return nil, errAway
		}
		return asks(ctx, node, question)
	}
	c.seat.lead.mu.Lock()
	delete(c.seat.lead.reports, "c")
	c.seat.lead.mu.Unlock()
	if s := c.sits(t); s.Level != 0 || !strings.Contains(why(), "node c has not said") {
		t.Errorf("node c is away: level %d, %q", s.Level, why())
	}
	c.seat.ask = asks
	if s := c.sits(t); s.Level != 1 || why() != "" {
		t.Errorf("all are there: level %d, %q", s.Level, why())
	}
}

// TestLevelOfWhoComes: a node comes into a cluster only if gossip says that its program reads the cluster's level.
func TestLevelOfWhoComes(t *testing.T) {
	n, _ := seated(t)
	n.runs(t, feature.Here())
	r := n.leads()
	add := wire.ClusterQuestion{Do: string(meta.Add), Nodes: []wire.ClusterNode{{ID: "d", Weight: 1, Store: strings.Repeat("ab", 16)}}, Dry: true}
	for _, c := range []struct {
		level  feature.Level
		gossip map[string]feature.Level
		words  string // "": it may
	}{
		{0, nil, ""},
		{0, map[string]feature.Level{"d": 0}, ""},
		{1, nil, "has not heard yet by gossip which levels the program of node d reads: ask again"},
		{1, map[string]feature.Level{"d": 0}, "node d runs a program that reads no level above 0, and the cluster is at level 1: start the node with a newer program"},
		{1, map[string]feature.Level{"d": 1}, ""},
		{1, map[string]feature.Level{"d": 2}, ""},
	} {
		n.mu.Lock()
		n.gossip = maps.Clone(c.gossip)
		n.mu.Unlock()
		if s, err := n.confirmed(t.Context(), r); err != nil {
			t.Fatal(err)
		} else if s.Level < c.level {
			n.agreed(t, r, func(s *meta.State) *meta.State { s = s.Clone(); s.Level = c.level; return s })
		}
		a, err := n.operate(t.Context(), &add)
		if err != nil {
			t.Fatal(err)
		}
		if (a.State == wire.ClusterPlan) != (c.words == "") || !strings.Contains(a.Why, c.words) || a.Level != uint8(c.level) {
			t.Errorf("level %d, gossip %v: %s, %q", c.level, c.gossip, a.State, a.Why)
		}
	}
}

// TestLevelIsHeardFirst: a node that cannot note the level takes nothing else of a question.
func TestLevelIsHeardFirst(t *testing.T) {
	n, full := newNode(t, "b"), errors.New("the disk is full")
	n.has(born(t))
	n.env.Levels.Raise = func(feature.Level) error { return full }
	if _, err := n.Answer(t.Context(), "a", appendPoll(nil, 3, 1, moving(t, "c"), true)); !errors.Is(err, full) || len(n.followed) != 0 || n.fresh.Load() != 0 {
		t.Errorf("%v, followed %v", err, n.followed)
	}
	n.env.Levels.Raise = n.raise
	if _, err := n.Answer(t.Context(), "a", appendPoll(nil, 3, 1, moving(t, "c"), true)); !errors.Is(err, feature.ErrUnread) || errors.Is(err, cluster.ErrMalformed) {
		t.Errorf("a program of level 0: %v", err)
	}
}
