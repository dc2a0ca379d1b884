package change

import (
	"context"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/internal/meta"
	"github.com/rdmakv/rdmakv/internal/seat"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// madeAnew is the map of a meta group that a node has made anew, with its number.
func madeAnew(t testing.TB, m *cluster.Map, node string, life uint64) *cluster.Map {
	t.Helper()
	at := m.Draft().Groups[0].At(node).ID
	next, _, err := seat.RecoverMeta(m, seat.Reports{node: {Map: m.Version, Groups: []seat.GroupReport{{Replica: at, Voters: []uint64{at, 90, 91}, Last: 9}}}}, node, life)
	if err != nil {
		t.Fatal(err)
	}
	return next
}

// TestTwoMetas: nodes that meet two meta groups of their cluster say so, go by the one that they have, and change nothing; whichever of the two is ahead, and however they hear of it. They go on when the other one was
// not heard of for a while.
func TestTwoMetas(t *testing.T) {
	first := born(t)
	one, two := madeAnew(t, first, "a", 7), madeAnew(t, first, "b", 8)
	ahead := later(t, two, func(d *cluster.Draft) { d.Group(1).Top++ })
	for name, hears := range map[string]func(t *testing.T, n *node, other *cluster.Map){
		"a poll": func(t *testing.T, n *node, other *cluster.Map) {
			if r, err := n.asked(t, other, false); err != nil || r.MetaLife != 7 {
				t.Errorf("%+v, %v", r, err)
			}
		},
		"a poll with a map": func(t *testing.T, n *node, other *cluster.Map) {
			if r, err := n.asked(t, other, true); err != nil || r.MetaLife != 7 {
				t.Errorf("%+v, %v", r, err)
			}
		},
		"its own question": func(t *testing.T, n *node, other *cluster.Map) {
			o := newNode(t, "b")
			o.has(other)
			n.follow(cluster.CheckChange(one, other))
			n.ask = func(ctx context.Context, _ string, question []byte) ([]byte, error) {
				return o.Answer(ctx, "a", question)
			}
			if err := n.Learn(t.Context(), "b"); other.Version > one.Version && !errors.Is(err, cluster.ErrTwoMetas) {
				t.Errorf("%v", err)
			}
		},
		"a report": func(t *testing.T, n *node, other *cluster.Map) {
			o := newNode(t, "b")
			o.has(other)
			n.ask = func(ctx context.Context, node string, question []byte) ([]byte, error) {
				if node == "b" {
					return o.Answer(ctx, "a", question)
				}
				return nil, errAway
			}
			n.poll(&meta.State{Map: one}, nil, time.Now())
			if _, counts := n.lead.now()["b"]; counts {
				t.Error("the report counts")
			}
			if o.twin.standsStill() == "" {
				t.Error("the other node has not met this one")
			}
		},
	} {
		for _, other := range []*cluster.Map{two, ahead} {
			if name == "its own question" && other == two {
				continue // who has no later map answers none
			}
			synctest.Test(t, func(t *testing.T) {
				n := newNode(t, "a")
				defer n.Stop()
				n.has(one)
				n.hosts(t)
				hears(t, n, other)
				why := n.twin.standsStill()
				if !strings.Contains(why, "two meta groups") || !strings.Contains(why, "0000000000000007") || !strings.Contains(why, "0000000000000008") || strings.Contains(why, "\n") {
					t.Fatalf("%s: %q", name, why)
				}
				if strings.Count(n.lines.String(), "level=ERROR") != 1 {
					t.Errorf("%s: the log has %s", name, n.lines)
				}
				if len(n.followed) != 0 || n.fresh.Load() != 0 {
					t.Errorf("%s: it follows %v", name, n.followed)
				}
				for _, q := range []string{`{"do":"rebalance"}`, `{"do":"recover","from":"a","accept":true}`, `{"do":"pause"}`} {
					if a, err := n.operates(t, q); err != nil || a.State != wire.ClusterRefused || a.Why != why {
						t.Errorf("%s: %s: %+v, %v", name, q, a, err)
					}
				}
				if a, err := n.operates(t, `{"do":"tasks"}`); err != nil || a.State != wire.ClusterTaken {
					t.Errorf("%s: tasks: %+v, %v", name, a, err)
				}
				// A group that this node leads is not changed, nor is the map.
				was := n.now.Load().m.Version
				if r := n.leads(); r != nil {
					n.ask = nil
					if busy, err := n.sitOnce(r); err != nil || busy || n.now.Load().m.Version != was {
						t.Errorf("%s: %v, %v, map %d", name, busy, err, n.now.Load().m.Version)
					}
				}
				time.Sleep(twinFor)
				if why := n.twin.standsStill(); why != "" {
					t.Errorf("%s: it stands still for ever: %s", name, why)
				}
				if a, err := n.operates(t, `{"do":"pause"}`); err != nil || a.State != wire.ClusterTaken {
					t.Errorf("%s: behind it: %+v, %v", name, a, err)
				}
			})
		}
	}
}

// TestMovesBesideATwin: the leader of a group does no step while there are two meta groups.
func TestMovesBesideATwin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := moving(t, "c")
		n := newNode(t, "a")
		defer n.Stop()
		n.has(m)
		st := leading(m.Draft().Group(1), "a", 3)
		n.engine.set(without(st, "d"))
		met(n.Changer, "b", 8)
		n.wg.Go(n.move)
		time.Sleep(time.Second)
		n.newestAt(time.Since(n.begun))
		time.Sleep(time.Second)
		if did := n.engine.done(); len(did) != 0 {
			t.Errorf("it did %q", did)
		}
		if _, why := n.doingOf(1); !strings.Contains(why, "two meta groups") {
			t.Errorf("it says %q", why)
		}
		time.Sleep(twinFor)
		n.newestAt(time.Since(n.begun))
		time.Sleep(time.Second)
		if did := n.engine.done(); len(did) == 0 {
			t.Error("it does nothing behind that")
		}
	})
}

// TestOneMakesAnew: of two nodes that are told to make the meta group anew, and that reach each other or a third one, one makes it at most; a promise ends by itself.
func TestOneMakesAnew(t *testing.T) {
	const accepted = `","accept":true}`
	type world map[string]*node
	begin := func(t *testing.T, reaches func(from, to string) bool) world {
		w := world{}
		for _, id := range []string{"a", "b", "c"} {
			n := newNode(t, id)
			n.engine.leads = false
			n.has(born(t))
			n.hosts(t)
			n.ask = func(ctx context.Context, node string, question []byte) ([]byte, error) {
				if !reaches(id, node) {
					return nil, errAway
				}
				return w[node].Answer(ctx, id, question)
			}
			w[id] = n
		}
		// c has none, so that a and b are no majority of five.
		for id, n := range w {
			st, err := n.engine.Status(0)
			if err != nil {
				t.Fatal(err)
			}
			for i := range 6 {
				st.Config.Voters = append(st.Config.Voters, consensus.Member{ID: consensus.ReplicaID(90 + i), Node: "x"})
			}
			n.engine.set(st)
			t.Cleanup(w[id].Stop)
		}
		return w
	}
	ask := func(t *testing.T, n *node, from string) *wire.ClusterAnswer {
		t.Helper()
		a, err := n.operates(t, `{"do":"recover","from":"`+from+accepted)
		if err != nil || strings.Contains(a.Why, "\n") {
			t.Fatalf("%+v, %v", a, err)
		}
		return &a
	}
	synctest.Test(t, func(t *testing.T) {
		w := begin(t, func(string, string) bool { return true })
		if a := ask(t, w["a"], "a"); a.State != wire.ClusterTaken || w["a"].now.Load().m.Life() == 0 {
			t.Fatalf("%+v", a)
		}
		if a := ask(t, w["b"], "b"); a.State != wire.ClusterRefused || !strings.Contains(a.Why, `node "a" makes the meta group anew`) {
			t.Errorf("before b hears of it: %+v", a)
		}
		time.Sleep(anewFor)
		if a := ask(t, w["b"], "b"); a.State != wire.ClusterRefused || !strings.Contains(a.Why, "has no replica of the meta group") { // it asks the others first
			t.Errorf("when it has heard of it: %+v", a)
		}
	})
	synctest.Test(t, func(t *testing.T) { // both at once: c has promised one of them that there is none beside it
		w := begin(t, func(from, to string) bool { return from == "c" || to == "c" })
		for _, id := range []string{"a", "b"} {
			if a := ask(t, w[id], id); (a.State == wire.ClusterTaken) != (id == "a") || id == "b" && !strings.Contains(a.Why, `node "c" has promised node "a"`) {
				t.Errorf("%s: %+v", id, a)
			}
		}
		if w["b"].now.Load().m.Generation() != 0 {
			t.Error("b has made one")
		}
	})
	synctest.Test(t, func(t *testing.T) { // both are at it
		w := begin(t, func(string, string) bool { return true })
		if why := w["b"].anew.begin("b"); why != "" {
			t.Fatal(why)
		}
		if a := ask(t, w["a"], "a"); a.State != wire.ClusterRefused || !strings.Contains(a.Why, `node "b" makes it itself`) || w["a"].now.Load().m.Generation() != 0 {
			t.Errorf("%+v", a)
		}
		if a := ask(t, w["b"], "b"); a.State != wire.ClusterRefused || !strings.Contains(a.Why, "already") {
			t.Errorf("twice at one node: %+v", a)
		}
		w["b"].anew.end()
		time.Sleep(anewFor)
		if a := ask(t, w["b"], "b"); a.State != wire.ClusterTaken {
			t.Errorf("when the other one has given up: %+v", a)
		}
	})
	synctest.Test(t, func(t *testing.T) { // a node that answers, and does not promise
		w := begin(t, func(string, string) bool { return true })
		was := w["a"].ask
		w["a"].ask = func(ctx context.Context, node string, question []byte) ([]byte, error) {
			if question[0] == kindAnew {
				return nil, errAway
			}
			return was(ctx, node, question)
		}
		if a := ask(t, w["a"], "a"); a.State != wire.ClusterRefused || !strings.Contains(a.Why, "does not promise") || w["a"].now.Load().m.Generation() != 0 {
			t.Errorf("%+v", a)
		}
	})
	synctest.Test(t, func(t *testing.T) { // two that reach nobody make two, and those who meet both stand still
		w := begin(t, func(string, string) bool { return false })
		for _, id := range []string{"a", "b"} {
			if a := ask(t, w[id], id); a.State != wire.ClusterTaken {
				t.Fatalf("%s: %+v", id, a)
			}
		}
		if x, y := w["a"].now.Load().m, w["b"].now.Load().m; x.Life() == y.Life() || !x.Parts(y.Version, y.Life()) {
			t.Errorf("%v and %v are taken for one", x, y)
		}
	})
}

// TestAnewFormat: the bytes of the question are those that nodes of other releases send, and others are refused.
func TestAnewFormat(t *testing.T) {
	good := appendAnew(nil, madeAnew(t, born(t), "a", 0x0102030405060708))
	if got := hex.EncodeToString(good); got != "0300000000000000"+"0000000001000000"+"0807060504030201" {
		t.Errorf("%s", got)
	}
	n := newNode(t, "a")
	n.has(born(t))
	for name, b := range map[string][]byte{"half": good[:9], "one byte": good[:1], "something behind": append(slices.Clone(good), 0), "a reserved byte": append([]byte{3, 0, 1}, good[3:]...), "no number": append(slices.Clone(good[:16]), make([]byte, 8)...)} {
		if _, err := n.Answer(t.Context(), "b", b); !errors.Is(err, cluster.ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzAnew: a question for a promise is refused, or it is one that a node asks.
func FuzzAnew(f *testing.F) {
	f.Add([]byte{})
	f.Add(appendAnew(nil, madeAnew(f, born(f), "a", 7)))
	f.Fuzz(func(t *testing.T, b []byte) {
		version, life, err := parseAnew(b)
		if err != nil {
			if !errors.Is(err, cluster.ErrMalformed) {
				t.Fatal(err)
			}
			return
		}
		if string(appendAnew(nil, &cluster.Map{Version: version, Replication: &cluster.Replication{Lives: []uint64{life}}})) != string(b) {
			t.Fatalf("%x is read as version %d, %x", b, version, life)
		}
	})
}
