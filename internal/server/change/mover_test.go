package change

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/internal/seat"
)

// TestMovesByFreshMaps: a leader does a step by a map of which the seat has said, lately and since it leads, that it is the newest, and else none.
func TestMovesByFreshMaps(t *testing.T) {
	first, next := born(t), moving(t, "c")
	hears := func(m *cluster.Map) func(t *testing.T, n *node) {
		return func(t *testing.T, n *node) {
			if _, err := n.asked(t, m, false); err != nil {
				t.Fatal(err)
			}
		}
	}
	leads := func(term uint64) func(t *testing.T, n *node) {
		return func(_ *testing.T, n *node) { n.engine.set(without(leading(next.Draft().Group(1), "a", term), "d")) }
	}
	follows := func(_ *testing.T, n *node) {
		st := leading(next.Draft().Group(1), "a", 7)
		st.Leads, st.Peers = false, nil
		n.engine.set(st)
	}
	passes := func(d time.Duration) func(t *testing.T, n *node) { return func(*testing.T, *node) { time.Sleep(d) } }
	const look = 2 * moveEvery
	for name, c := range map[string]struct {
		steps []func(t *testing.T, n *node)
		moves bool
	}{
		"nothing was heard":         {[]func(*testing.T, *node){leads(7), passes(time.Second)}, false},
		"heard since it leads":      {[]func(*testing.T, *node){leads(7), passes(look), hears(next), passes(look)}, true},
		"heard before it leads":     {[]func(*testing.T, *node){follows, passes(look), hears(next), passes(look), leads(8), passes(look)}, false},
		"heard in an earlier reign": {[]func(*testing.T, *node){leads(7), passes(look), func(_ *testing.T, n *node) { n.engine.with(func() { n.engine.fail = errors.New("busy") }) }, hears(next), passes(look), leads(9), passes(look), func(_ *testing.T, n *node) { n.engine.with(func() { n.engine.fail = nil }) }, passes(look)}, false},
		"heard too long ago": {[]func(*testing.T, *node){leads(7), passes(look), func(_ *testing.T, n *node) { n.engine.with(func() { n.engine.fail = errors.New("busy") }) }, hears(next), passes(freshFor), func(_ *testing.T, n *node) {
			n.engine.with(func() { n.engine.fail = nil })
		}, passes(look)}, false},
		"of an older map":           {[]func(*testing.T, *node){leads(7), passes(look), hears(first), passes(look)}, false},
		"of a map that is not here": {[]func(*testing.T, *node){func(_ *testing.T, n *node) { n.has(first) }, leads(7), passes(look), hears(next), passes(look)}, false},
		"heard again":               {[]func(*testing.T, *node){follows, hears(next), passes(look), leads(8), passes(look), hears(next), passes(look)}, true},
		"it does not lead":          {[]func(*testing.T, *node){follows, passes(look), hears(next), passes(look)}, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			n := newNode(t, "a")
			defer n.Stop()
			n.has(next)
			n.wg.Go(n.move)
			time.Sleep(moveEvery / 2) // so that looks and what happens are at different moments
			for _, f := range c.steps {
				f(t, n)
			}
			synctest.Wait()
			if did := n.engine.done(); slices.Contains(did, "group 1: 3 vote, 1 learn") != c.moves || len(did) > 1 {
				t.Errorf("%s: %v", name, did)
			}
		})
	}
}

// TestMoves: the leader of a group brings it to what the map wants, step by step, and reports tell what it does and what it waits for.
func TestMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := moving(t, "a")
		n, g := newNode(t, "a"), m.Draft().Group(1)
		defer n.Stop()
		n.has(m)
		st := without(leading(g, "a", 7), "d")
		n.engine.set(st)
		n.wg.Go(n.move)
		time.Sleep(moveEvery / 2)
		doing := func(step, why string) {
			t.Helper()
			synctest.Wait()
			if s, w := n.doingOf(1); s != step || !strings.Contains(w, why) || (why == "") != (w == "") {
				t.Fatalf("it does %q, and waits for %q; did %v", s, w, n.engine.done())
			}
		}
		looks := func(k int) {
			t.Helper()
			for range k {
				if _, err := n.asked(t, m, false); err != nil {
					t.Fatal(err)
				}
				time.Sleep(moveEvery)
			}
		}
		time.Sleep(moveEvery)
		doing("", "has not heard from the seat")
		looks(1)
		doing(stepTexts[seat.AddLearner], "")
		looks(1)
		doing("", "gets what the group has")
		st, _ = n.engine.Status(1)
		d := consensus.Peer{Member: consensus.Member{ID: 4, Node: "d"}, Learner: true, Match: st.Last - nearly, Active: true, Room: true}
		st.Peers = append(slices.Clone(st.Peers), d)
		n.engine.set(st)
		looks(steadyLooks - 1)
		doing("", "gets what the group has")
		n.engine.with(func() { n.engine.fail = errors.New("not today") })
		looks(3)
		doing(stepTexts[seat.Promote], "")
		if strings.Count(n.lines.String(), "not today") != 3 || len(n.engine.done()) != 1 {
			t.Fatalf("%v\n%s", n.engine.done(), n.lines)
		}
		n.engine.with(func() { n.engine.fail = nil })
		looks(1)
		doing(stepTexts[seat.Promote], "")
		looks(1)
		doing(stepTexts[seat.Transfer], "")
		looks(1)
		doing("", "")
		to := consensus.ReplicaID(0)
		if st, _ := n.engine.Status(1); true {
			to = st.Leader
		}
		want := []string{"group 1: 3 vote, 1 learn", "group 1: 4 vote, 0 learn", "group 1: " + string(rune('0'+to)) + " leads"}
		if did := n.engine.done(); !slices.Equal(did, want) || to == st.ID {
			t.Errorf("%v", did)
		}
	})
}

// TestSteadiness: a learner is steady when it was there and lacked little at each of the last looks, and what it was before counts no more.
func TestSteadiness(t *testing.T) {
	well := func() *consensus.Status {
		return &consensus.Status{
			Last:   1000,
			Config: consensus.Config{Learners: []consensus.Member{{ID: 4}, {ID: 5}}},
			Peers:  []consensus.Peer{{Member: consensus.Member{ID: 4}, Match: 1000 - nearly, Active: true}, {Member: consensus.Member{ID: 5}, Match: 1000, Active: true}},
		}
	}
	for name, f := range map[string]func(st *consensus.Status){
		"it is silent":             func(st *consensus.Status) { st.Peers[0].Active = false },
		"a snapshot is on its way": func(st *consensus.Status) { st.Peers[0].Snapshot = true },
		"it lacks too much":        func(st *consensus.Status) { st.Peers[0].Match-- },
		"nothing is known of it":   func(st *consensus.Status) { st.Peers = st.Peers[1:] },
		"it learns no more":        func(st *consensus.Status) { st.Config.Learners = st.Config.Learners[1:] },
	} {
		s := steadiness{}
		for range steadyLooks {
			s.look(well())
		}
		if s[4] != steadyLooks || s[5] != steadyLooks {
			t.Fatalf("%v", s)
		}
		st := well()
		f(st)
		s.look(st)
		if s[4] != 0 || s[5] != steadyLooks+1 {
			t.Errorf("%s: %v", name, s)
		}
		s.look(well())
		if s[4] != 1 {
			t.Errorf("%s, and then not: %v", name, s)
		}
	}
}
