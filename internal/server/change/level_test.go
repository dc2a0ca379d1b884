package change

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/consensus"
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
	c := newCluster(t).replicated(t)
	var said [][]byte // the first bytes of questions; nodes are asked side by side
	var mu sync.Mutex
	asks := c.seat.ask
	c.seat.ask = func(ctx context.Context, node string, question []byte) ([]byte, error) {
		mu.Lock()
		said = append(said, question[:8])
		mu.Unlock()
		return asks(ctx, node, question)
	}
	step := func(what string, level feature.Level, heard string) {
		t.Helper()
		said = nil
		s := c.sits(t)
		if s.Level != level || c.levels() != heard {
			t.Errorf("%s: the cluster is at level %d, and its nodes have heard of %s; want %d and %s", what, s.Level, c.levels(), level, heard)
		}
		newer := func(b []byte) bool { return !bytes.Equal(b, []byte{wire.QuestionPoll, 0, 0, 0, 0, 0, 0, 0}) }
		if form := s.Encode()[0]; form != feature.Of(level).State || level == 0 && slices.ContainsFunc(said, newer) {
			t.Errorf("%s: at level %d the state has form %d, and questions begin with %v", what, level, form, said)
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
	if last := said[len(said)-1]; !bytes.Equal(last, []byte{wire.QuestionPoll, 1, 0, 0, 0, 0, 0, 0}) {
		t.Errorf("behind the rise questions begin with %v", last)
	}
	// A node with the program of before does not take part: it refuses what it is asked, for it does not read the level.
	c.others["c"].env.Levels.Reads = last
	if _, err := c.others["c"].Answer(t.Context(), "a", appendPoll(nil, echo{}, 1, born(t), false)); !errors.Is(err, feature.ErrUnread) {
		t.Errorf("a node that has gone back answers with %v", err)
	}
	step("one has gone back behind the rise", 1, "1 1 1")
}

// TestLevelOfTheNextRelease: a program two levels on takes part at the level of the one before it, and raises the level when all are such.
func TestLevelOfTheNextRelease(t *testing.T) {
	c, here, next := newCluster(t).replicated(t), feature.Here(), feature.Range{Oldest: 1, Newest: 2}
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
	c := newCluster(t).replicated(t)
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
	synctest.Test(t, testLevelOfWhoComes) // so that waiting takes no time
}

func testLevelOfWhoComes(t *testing.T) {
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
	// One that gossip tells of a moment later is waited for.
	n.mu.Lock()
	n.gossip = nil
	n.mu.Unlock()
	go func() {
		time.Sleep(unheardFor / 2)
		n.mu.Lock()
		defer n.mu.Unlock()
		n.gossip = map[string]feature.Level{"d": 1}
	}()
	if a, err := n.operate(t.Context(), &add); err != nil || a.State != wire.ClusterPlan {
		t.Errorf("gossip tells of the node a moment later: %+v, %v", a, err)
	}
}

// TestLevelIsHeardFirst: a node that cannot note the level takes nothing else of a question.
func TestLevelIsHeardFirst(t *testing.T) {
	n, full := newNode(t, "b"), errors.New("the disk is full")
	n.has(born(t))
	n.runs(t, feature.Here())
	n.answered(map[string]string{"a": `{"level":1,"version":7}`, "c": `{"level":1,"version":7}`})
	n.env.Levels.Raise = func(feature.Level) error { return full }
	question := appendPoll(nil, n.reported(), 1, moving(t, "c"), true)
	if _, err := n.Answer(t.Context(), "a", question); !errors.Is(err, full) || len(n.followed) != 0 || n.fresh.Load() != 0 {
		t.Errorf("%v, followed %v", err, n.followed)
	}
}

// answered has other nodes answer which level they hold; who is not there does not answer.
func (n *node) answered(by map[string]string) {
	n.ask = func(_ context.Context, node string, question []byte) ([]byte, error) {
		if b, ok := by[node]; ok && bytes.Equal(question, appendLevelQuestion(nil)) {
			return []byte(b), nil
		}
		return nil, errAway
	}
}

// TestLevelIsNoNews: a node believes no level because a question has it, but when a majority of the meta group's replicas holds it, or of all nodes; a level that is not so changes
// nothing, ends nothing, and keeps nobody busy. A node that does not read one that is so stands down, and notes nothing.
func TestLevelIsNoNews(t *testing.T) {
	has := func(level, version int) string { return fmt.Sprintf(`{"level":%d,"version":%d}`, level, version) }
	noted := func(level int) string { return has(level, 0) }
	five := later(t, born(t), func(d *cluster.Draft) { // a, b and c have the meta group
		for _, id := range []string{"d", "e"} {
			d.Nodes[id] = cluster.DraftNode{Weight: 1, Store: storeOf(id)}
		}
	})
	for name, c := range map[string]struct {
		node  string
		said  feature.Level
		by    map[string]string
		reads feature.Range
		at    feature.Level // that the node has noted then
		err   error         // nil: the question is taken
	}{
		"nobody else says so":                          {"c", 200, map[string]string{"a": has(0, 5), "b": has(0, 5)}, feature.Here(), 0, errUnconfirmed},
		"a replica says the highest that there is":     {"c", 255, map[string]string{"a": has(255, 1<<60), "b": has(0, 5)}, feature.Here(), 0, errUnconfirmed},
		"two of them do":                               {"c", 255, map[string]string{"a": has(255, 1<<60), "b": has(255, 5)}, feature.Here(), 0, feature.ErrUnread},
		"one replica alone says so":                    {"c", 200, map[string]string{"a": has(200, 1<<60), "b": has(0, 5)}, feature.Here(), 0, errUnconfirmed},
		"one replica alone answers":                    {"c", 1, map[string]string{"a": has(1, 5)}, feature.Here(), 0, errUnconfirmed},
		"nobody answers":                               {"c", 1, nil, feature.Here(), 0, errUnconfirmed},
		"two replicas say so":                          {"c", 1, map[string]string{"a": has(1, 5), "b": has(1, 5)}, feature.Here(), 1, nil},
		"they have agreed on less than is said":        {"c", 200, map[string]string{"a": has(1, 5), "b": has(1, 5)}, feature.Here(), 1, errUnconfirmed},
		"they have agreed on more than is said":        {"c", 1, map[string]string{"a": has(2, 5), "b": has(3, 6)}, feature.Range{Oldest: 1, Newest: 3}, 2, nil},
		"they have, and one has no replica any more":   {"d", 1, map[string]string{"a": has(1, 5), "b": noted(1), "c": has(0, 4)}, feature.Here(), 0, errUnconfirmed},
		"most nodes have noted it":                     {"d", 1, map[string]string{"a": noted(1), "b": noted(1), "e": noted(1)}, feature.Here(), 1, nil},
		"two of five nodes have noted it":              {"d", 1, map[string]string{"a": noted(1), "b": noted(1)}, feature.Here(), 0, errUnconfirmed},
		"nonsense is answered":                         {"d", 1, map[string]string{"a": `{"level":300}`, "b": `x`, "c": strings.Repeat(" ", levelAnswer) + has(1, 1)}, feature.Here(), 0, errUnconfirmed},
		"it is so, and the program does not read it":   {"d", 2, map[string]string{"a": has(2, 5), "b": has(2, 5)}, feature.Here(), 0, feature.ErrUnread},
		"one says so, and the program would not read":  {"d", 2, map[string]string{"a": has(2, 5), "b": has(1, 5), "c": has(1, 5)}, feature.Here(), 1, errUnconfirmed},
		"it is less than what they have agreed on now": {"d", 1, map[string]string{"a": has(2, 5), "b": has(2, 5)}, feature.Here(), 0, feature.ErrUnread},
	} {
		n := newNode(t, c.node)
		n.has(five)
		n.runs(t, c.reads)
		asked := 0
		n.answered(c.by)
		answers := n.ask
		var mu sync.Mutex
		n.ask = func(ctx context.Context, node string, question []byte) ([]byte, error) {
			mu.Lock()
			asked++
			mu.Unlock()
			return answers(ctx, node, question)
		}
		question := appendPoll(nil, n.reported(), c.said, later(t, five, func(*cluster.Draft) {}), true)
		_, err := n.Answer(t.Context(), "x", question)
		if heard := n.fresh.Load() != 0; heard != (c.err == nil) {
			t.Errorf("%s: what it says of the map counts: %v", name, heard)
		}
		if n.at() != c.at || !errors.Is(err, c.err) || (len(n.followed) > 0) != (c.err == nil) {
			t.Errorf("%s: it notes level %d, and answers with %v, followed %v; want %d, %v", name, n.at(), err, n.followed, c.at, c.err)
		}
		if down := errors.Is(c.err, feature.ErrUnread); (n.down != nil) != down {
			t.Errorf("%s: it stands down for %v", name, n.down)
		}
		for range 10 {
			_, _ = n.Answer(t.Context(), "x", question)
		}
		if most := len(five.Nodes) - 1 + 1; asked > most && !errors.Is(c.err, feature.ErrUnread) { // the others, and who has asked, for a later map
			t.Errorf("%s: %d nodes are asked for eleven questions", name, asked)
		}
	}
}

// TestLevelByALaterMap: a node whose map is so old that too few of its nodes are left hears of a level all the same: it asks who says the level for a later map, and looks by that one. A later map
// whose meta group does not hold the level proves nothing.
func TestLevelByALaterMap(t *testing.T) {
	first := born(t)
	anew := madeAnew(t, first, "a", 7)
	for name, c := range map[string]struct {
		at   *cluster.Map // the map of node a, which asks
		held feature.Level
		want feature.Level // that node b notes
	}{
		"the meta group was made anew":                   {anew, 1, 1},
		"it was made anew, and does not hold that level": {anew, 0, 0},
		"a has the same map":                             {first, 1, 0},
		"a has a later map of three replicas":            {later(t, first, func(*cluster.Draft) {}), 1, 0},
	} {
		a, b := newNode(t, "a"), newNode(t, "b")
		a.has(c.at)
		b.has(first)
		b.runs(t, feature.Here())
		b.ask = func(ctx context.Context, node string, question []byte) ([]byte, error) {
			switch {
			case node != "a":
				return nil, errAway
			case question[0] == wire.QuestionLevel:
				return fmt.Appendf(nil, `{"level":%d,"version":1}`, c.held), nil
			}
			return a.Answer(ctx, "b", question)
		}
		answer, err := b.Answer(t.Context(), "a", appendPoll(nil, b.reported(), 1, c.at, false))
		if b.at() != c.want || (err == nil) != (c.want == 1) || err != nil && !errors.Is(err, errUnconfirmed) {
			t.Errorf("%s: it notes level %d, and answers %s, %v; want %d", name, b.at(), answer, err, c.want)
		}
		if v := b.now.Load().m.Version; v != c.at.Version {
			t.Errorf("%s: it has map %d, want %d", name, v, c.at.Version)
		}
	}
}

// TestLevelOfAMetaGroupMadeAnew: it begins at the level that its node has noted, so programs of that level and of the next one read its state; the meta group of a first map begins at level 0.
func TestLevelOfAMetaGroupMadeAnew(t *testing.T) {
	first := born(t)
	for name, c := range map[string]struct {
		m    *cluster.Map
		at   feature.Level // that is noted
		want feature.Level
	}{
		"made anew at level 0": {madeAnew(t, first, "a", 7), 0, 0},
		"made anew at level 1": {madeAnew(t, first, "a", 7), 1, 1},
		"a first map":          {first, 1, 0},
	} {
		n := newNode(t, "a")
		n.runs(t, feature.Here())
		if err := n.raise(c.at); err != nil {
			t.Fatal(err)
		}
		n.has(c.m)
		n.hosts(t)
		s, err := n.confirmed(t.Context(), n.leads())
		if err != nil || s.Level != c.want || s.Encode()[0] != feature.Of(c.want).State {
			t.Errorf("%s: %+v, %v; want level %d", name, s, err, c.want)
		}
	}
}

// TestLevelQuestion: the bytes of the question are those that nodes of other releases send, and others are refused.
func TestLevelQuestion(t *testing.T) {
	n := newNode(t, "b")
	n.has(born(t))
	good := appendLevelQuestion(nil)
	if got := hex.EncodeToString(good); got != "0500000000000000" {
		t.Errorf("%s", got)
	}
	for name, b := range map[string][]byte{"half": good[:4], "one byte": good[:1], "something behind": append(slices.Clone(good), 0), "a reserved byte": {5, 0, 0, 1, 0, 0, 0, 0}} {
		if _, err := n.Answer(t.Context(), "a", b); !errors.Is(err, cluster.ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestLevelOfOnesOwnReplica: a node that has a replica of the meta group says by that which level it holds, and needs no other node to believe one.
func TestLevelOfOnesOwnReplica(t *testing.T) {
	c := newCluster(t).replicated(t)
	for _, n := range []*node{c.seat, c.others["b"], c.others["c"]} {
		n.runs(t, feature.Here())
	}
	b := c.others["b"]
	b.ask = nil // nobody answers it
	held := func() string {
		answer, err := b.Answer(t.Context(), "c", appendLevelQuestion(nil))
		if err != nil {
			t.Fatal(err)
		}
		return string(answer)
	}
	if got := held(); got != `{"level":0,"version":1}` {
		t.Errorf("at first it holds %s", got)
	}
	s := c.sits(t)
	if got, want := held(), fmt.Sprintf(`{"level":1,"version":%d}`, s.Version); s.Level != 1 || b.at() != 1 || got != want {
		t.Errorf("level %d: it has noted %d, and holds %s, want %s", s.Level, b.at(), got, want)
	}
	d := c.others["d"]
	if got, err := d.Answer(t.Context(), "c", appendLevelQuestion(nil)); err != nil || string(got) != `{"level":0,"version":0}` {
		t.Errorf("a node without a replica holds %s, %v", got, err)
	}
}

// FuzzHeld: what another node answers about the level is read without harm.
func FuzzHeld(f *testing.F) {
	f.Add([]byte(`{"level":1,"version":7}`))
	f.Add([]byte(`{"level":256}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if h, err := parseHeld(b); err != nil && (h != held{} || !errors.Is(err, cluster.ErrMalformed)) {
			t.Fatalf("%q: %+v, %v", b, h, err)
		}
	})
}

// TestLevelRisesInAChange: the level rises while a task is under way, as soon as the node that comes has said what its program reads, and not before. The moves of the task stay as they are, and come to their end at the new level.
func TestLevelRisesInAChange(t *testing.T) {
	c, last, here := newCluster(t).replicated(t), feature.Range{}, feature.Here()
	b, d := c.others["b"], c.others["d"]
	for _, n := range []*node{c.seat, b, c.others["c"]} {
		n.runs(t, here)
	}
	began := c.seat.agreed(t, c.seat.leads(), adds(t))
	level := func(want feature.Level, why string) *meta.State {
		t.Helper()
		s := c.sits(t)
		if got := c.seat.answer(s, wire.ClusterTaken).LevelWhy; s.Level != want || !strings.Contains(got, why) || (got == "") != (why == "") {
			t.Errorf("level %d, %q; want %d, %q", s.Level, got, want, why)
		}
		return s
	}
	level(0, "node d has not said")
	d.runs(t, last)
	d.has(began.Map)
	before := level(0, "the program of node d reads no level above 0")
	if at := before.Tasks[0]; at.State != meta.Runs || !slices.ContainsFunc(at.Moves, func(m meta.Move) bool { return m.Running() }) {
		t.Fatalf("no move has begun: %+v", at)
	}
	d.runs(t, here)
	after := level(1, "")
	if !slices.Equal(after.Tasks[0].Moves, before.Tasks[0].Moves) || after.Map.Version != before.Map.Version {
		t.Errorf("the rise changes the task, or the map: %+v, before it %+v", after.Tasks[0], before.Tasks[0])
	}
	if c.levels() != "1 1 1" || d.at() != 1 {
		t.Errorf("nodes have heard of %s, and d of %d", c.levels(), d.at())
	}
	// Each group does what the map says, at once.
	for range 20 {
		s := c.sits(t)
		if s.Tasks[0].Over() {
			if s.Level != 1 || s.Tasks[0].State != meta.Done {
				t.Errorf("at its end: level %d, %+v", s.Level, s.Tasks[0])
			}
			return
		}
		for _, g := range s.Map.Draft().Groups[1:] {
			st := leading(&g, "b", 7)
			for id := uint64(1); id <= g.Top; id++ {
				if p := g.Replica(id); p != nil && p.Leaves {
					st = without(st, p.Node)
				}
			}
			b.engine.set(st)
			for id, n := range map[string]*node{"a": c.seat, "c": c.others["c"], "d": d} {
				follower := st
				if follower.Leads, follower.Peers = false, nil; g.At(id) != nil {
					follower.ID = consensus.ReplicaID(g.At(id).ID)
					n.engine.set(follower)
				}
			}
		}
	}
	t.Errorf("the task does not come to its end: %+v", c.sits(t).Tasks[0])
}
