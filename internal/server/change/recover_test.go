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

// lone is the status of a group of which the replica of a node is left, by the map.
func lone(g *cluster.DraftGroup, node string) consensus.Status {
	st := leading(g, node, 7)
	st.Leads, st.Leader, st.Peers, st.LastTerm = false, 0, nil, 7
	return st
}

// TestRecoverQuestion: the seat asks all nodes before it has a group replaced, refuses what was not accepted and what is not lost, and does it once.
func TestRecoverQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		defer c.seat.Stop()
		d := born(t).Draft()
		ask := func(q string) *wire.ClusterAnswer {
			t.Helper()
			a, err := c.seat.operates(t, q)
			if err != nil || strings.Contains(a.Why, "\n") {
				t.Fatalf("%s: %+v, %v", q, a, err)
			}
			return &a
		}
		refused := func(q, why string) {
			t.Helper()
			if a := ask(q); a.State != wire.ClusterRefused || !strings.Contains(a.Why, why) || a.Map != nil || a.MapVersion != 1 {
				t.Errorf("%s: %+v, want %q", q, a, why)
			}
		}
		const accepted, dry, open = `{"do":"recover","group":1,"from":"c","accept":true}`, `{"do":"recover","group":1,"from":"c","dry":true}`, `{"do":"recover","group":1,"from":"c"}`
		refused(accepted, "has a leader") // b leads, as newCluster has it
		if c.taken()["b"] == 0 {
			t.Error("nobody was asked")
		}
		c.others["c"].engine.set(lone(d.Group(1), "c"))
		was := c.seat.ask
		c.seat.ask = func(ctx context.Context, node string, question []byte) ([]byte, error) {
			if node == "b" {
				return nil, errAway
			}
			return was(ctx, node, question)
		}
		refused(accepted, "has a leader") // a report of b counts for a while
		time.Sleep(reportFor)
		refused(open, "has to be accepted (kvclient cluster recover --accept-loss)")
		refused(`{"do":"recover","group":1,"from":"b","accept":true}`, `"b" does not answer`)
		refused(`{"do":"recover","group":1,"accept":true}`, `"" is not in the cluster`)
		if a := ask(dry); a.State != wire.ClusterPlan || a.Loss == nil || a.Loss.Last != 1000 || !slices.Equal(a.Loss.Away, []string{"a", "b"}) || a.Loss.Made != 3 || a.Loss.Done || a.Map != nil {
			t.Errorf("dry: %+v", a)
		}
		for i, done := range []bool{false, true} {
			a := ask(accepted)
			if a.State != wire.ClusterTaken || a.Loss == nil || a.Loss.Done != done || a.Loss.Made != 3 || a.MapVersion != 2 {
				t.Fatalf("asked %d times before: %+v, %+v", i, a, a.Loss)
			}
			m, err := cluster.ParseMap(a.Map)
			if err != nil || m.Draft().Group(1) != nil || m.Draft().Group(3).Was != 1 || m.Draft().Group(3).Replicas[0].Node != "c" {
				t.Fatalf("the map is %v, %v", m, err)
			}
		}
		if a := ask(open); a.State != wire.ClusterTaken || !a.Loss.Done {
			t.Errorf("done, and asked without accepting: %+v", a)
		}
		if _, err := c.seat.sitOnce(c.seat.leads()); err != nil {
			t.Fatal(err)
		}
		if v := c.others["c"].now.Load().m.Version; v != 2 {
			t.Errorf("node c has map %d", v)
		}
	})
}

// TestMetaAnew: the meta group that has lost its majority is made anew by a node that is left of it, by the newest map that any node has; a node of before that comes back follows, and what is not lost is refused.
func TestMetaAnew(t *testing.T) {
	const ask = `{"do":"recover","from":"c","accept":true}`
	operates := func(n *node, q string) *wire.ClusterAnswer {
		t.Helper()
		a, err := n.operates(t, q)
		if err != nil || strings.Contains(a.Why, "\n") {
			t.Fatalf("%s: %+v, %v", q, a, err)
		}
		return &a
	}
	synctest.Test(t, func(t *testing.T) {
		first, next := born(t), moving(t, "c") // d, which has no replica of the meta group, has heard of the next map
		n, d := newNode(t, "c"), newNode(t, "d")
		defer n.Stop()
		n.engine.leads = false
		n.has(first)
		n.hosts(t)
		d.has(next)
		d.engine.set(consensus.Status{Group: 1, ID: 4})
		n.ask = func(ctx context.Context, node string, question []byte) ([]byte, error) {
			if node == "d" {
				return d.Answer(ctx, "c", question)
			}
			return nil, errAway
		}
		n.has(next) // else nobody would ask d, which the first map does not have
		n.followed = nil
		if a := operates(n, `{"do":"recover","from":"c"}`); a.State != wire.ClusterRefused || !strings.Contains(a.Why, "has to be accepted") || len(n.followed) != 0 {
			t.Fatalf("not accepted: %+v", a)
		}
		if a := operates(n, `{"do":"recover","from":"c","dry":true}`); a.State != wire.ClusterPlan || !slices.Equal(a.Loss.Away, []string{"a", "b"}) || a.Loss.Last == 0 || len(n.followed) != 0 {
			t.Fatalf("dry: %+v", a)
		}
		if a := operates(n, `{"do":"recover","from":"a","accept":true}`); a.State != wire.ClusterRefused || !strings.Contains(a.Why, "that one is to be asked") {
			t.Errorf("another node: %+v", a)
		}
		a := operates(n, ask)
		const version = 1 << 32
		if a.State != wire.ClusterTaken || a.MapVersion != version || a.Loss.Done || !slices.Equal(n.followed, []uint64{version}) {
			t.Fatalf("%+v, followed %v", a, n.followed)
		}
		if a := operates(n, ask); a.State != wire.ClusterTaken || !a.Loss.Done || len(n.followed) != 1 {
			t.Errorf("again, before the replica is made: %+v", a)
		}
		// A crash comes before the replica is made.
		m := n.now.Load().m
		n = n.again(t)
		defer n.Stop()
		n.has(m)
		n.hosts(t)
		if files := n.files(t); len(files) != 1 || n.leads() == nil {
			t.Fatalf("files %v, leads %v", files, n.leads())
		}
		s, err := n.confirmed(t.Context(), n.leads())
		if err != nil || s.Map.Digest() != m.Digest() || len(s.Tasks) != 0 || len(m.Replication.Meta.Replicas) != 1 {
			t.Fatalf("%+v, %v", s, err)
		}
		g := m.Draft().Group(1)
		if g.At("c").Leaves || g.At("d") == nil || g.Top < next.Draft().Group(1).Top+1<<16 {
			t.Errorf("group 1 is %+v", g)
		}
		// Everybody follows, also a node of before that has heard of maps which nobody here has.
		old := newNode(t, "a")
		older := next
		for range 3 {
			older = later(t, older, func(d *cluster.Draft) { d.Group(2).Top++ })
		}
		old.has(older)
		n.ask = func(ctx context.Context, node string, question []byte) ([]byte, error) {
			switch node {
			case "a":
				return old.Answer(ctx, "c", question)
			case "d":
				return d.Answer(ctx, "c", question)
			}
			return nil, errAway
		}
		if _, err := n.sitOnce(n.leads()); err != nil {
			t.Fatal(err)
		}
		for name, o := range map[string]*node{"a": old, "d": d} {
			if v := o.now.Load().m.Version; v != version {
				t.Errorf("node %s has map %d", name, v)
			}
		}
		if a := operates(n, ask); a.State != wire.ClusterTaken || a.Loss == nil || !a.Loss.Done {
			t.Errorf("again: %+v", a)
		}
		// The seat of before is heard no more.
		if r, err := old.asked(t, older, true); err != nil || r.Map != version {
			t.Errorf("a map of the last generation is followed: %+v, %v", r, err)
		}
		if n.agreed(t, n.leads(), func(s *meta.State) *meta.State { return seat.Pause(s, true) }).Version != 2 {
			t.Error("the new meta group does not go on")
		}
	})
	n, _ := seated(t)
	if a := operates(n, `{"do":"recover","from":"a","accept":true}`); a.State != wire.ClusterRefused || !strings.Contains(a.Why, "has a leader") {
		t.Errorf("a meta group that has a leader: %+v", a)
	}
	n = newNode(t, "d")
	n.has(moving(t, "c"))
	if a := operates(n, `{"do":"recover","from":"d","accept":true}`); a.State != wire.ClusterRefused || !strings.Contains(a.Why, "has no replica of the meta group") {
		t.Errorf("a node without a replica of it: %+v", a)
	}
}

// TestLearn: a node that asks another one for its map follows it if it is a later one, and that alone.
func TestLearn(t *testing.T) {
	first, next := born(t), moving(t, "c")
	full := errors.New("the disk is full")
	for name, c := range map[string]struct {
		has, other *cluster.Map
		follow     error
		followed   []uint64
		want       error
	}{
		"a later one":                  {first, next, nil, []uint64{2}, nil},
		"the same":                     {first, first, nil, nil, nil},
		"an older one":                 {next, first, nil, nil, nil},
		"none here":                    {nil, next, nil, []uint64{2}, nil},
		"none there":                   {first, nil, nil, nil, nil},
		"none at all":                  {nil, nil, nil, nil, nil},
		"a later one that cannot last": {first, next, full, nil, full},
	} {
		n, o := newNode(t, "b"), newNode(t, "a")
		if c.has != nil {
			n.has(c.has)
		}
		if c.other != nil {
			o.has(c.other)
		}
		n.follow(c.follow)
		n.ask = func(ctx context.Context, node string, question []byte) ([]byte, error) {
			if node != "a" {
				t.Errorf("%s: node %s is asked", name, node)
			}
			return o.Answer(ctx, "b", question)
		}
		if err := n.Learn(t.Context(), "a"); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) || !slices.Equal(n.followed, c.followed) {
			t.Errorf("%s: %v, followed %v", name, err, n.followed)
		}
		if len(o.followed) != 0 {
			t.Errorf("%s: who is asked follows %v", name, o.followed)
		}
	}
	n := newNode(t, "b")
	if err := n.Learn(t.Context(), "a"); !errors.Is(err, errAway) {
		t.Errorf("nobody is there: %v", err)
	}
	n.ask = func(context.Context, string, []byte) ([]byte, error) { return []byte("no map"), nil }
	if err := n.Learn(t.Context(), "a"); !errors.Is(err, cluster.ErrMalformed) || len(n.followed) != 0 {
		t.Errorf("no map is answered: %v", err)
	}
	if err := (*Changer)(nil).Learn(t.Context(), "a"); err != nil {
		t.Error(err)
	}
}

// TestAskFormat: the bytes of the question for a map are those that nodes of other releases send, and others are refused.
func TestAskFormat(t *testing.T) {
	good := appendAsk(nil, 0x0102030405060708)
	if got := hex.EncodeToString(good); got != "0200000000000000"+"0807060504030201" {
		t.Errorf("%s", got)
	}
	n := newNode(t, "a")
	n.has(born(t))
	for name, b := range map[string][]byte{"half": good[:8], "one byte": good[:1], "something behind": append(slices.Clone(good), 0), "a reserved byte": {2, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}} {
		if _, err := n.Answer(t.Context(), "b", b); !errors.Is(err, cluster.ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzAsk: a question for a map is refused, or it is one that a node asks.
func FuzzAsk(f *testing.F) {
	f.Add([]byte{})
	f.Add(appendAsk(nil, 7))
	f.Fuzz(func(t *testing.T, b []byte) {
		version, err := parseAsk(b)
		if err != nil {
			if !errors.Is(err, cluster.ErrMalformed) {
				t.Fatal(err)
			}
			return
		}
		if string(appendAsk(nil, version)) != string(b) {
			t.Fatalf("%x is read as version %d", b, version)
		}
	})
}
