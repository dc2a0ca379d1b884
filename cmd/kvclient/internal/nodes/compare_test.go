package nodes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdmakv/rdmakv/client/admin"
	"github.com/rdmakv/rdmakv/internal/doctor"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// A fakeReplica answers as a node with a replica of group 3 does.
type fakeReplica struct {
	leads   bool
	hint    string // who leads, as it thinks
	err     error
	digest  string // one digit
	states  []string
	why     string
	forgets int // of how many checks it knows nothing
	asked   int
}

// fakeGroup is group 3 on nodes a, b and c.
type fakeGroup struct {
	mu    sync.Mutex
	nodes map[string]*fakeReplica
	index uint64
}

func (f *fakeGroup) ask(ctx context.Context, node string, q wire.CheckQuestion) (c wire.GroupCheck, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.nodes[node]
	if err := errors.Join(ctx.Err(), n.err); err != nil {
		return c, err
	}
	c = wire.GroupCheck{Group: q.Group, Index: q.Index}
	switch {
	case q.Index == 0 && n.leads:
		f.index++
		c.State, c.Index = wire.CheckPut, f.index
	case q.Index == 0:
		c.State, c.Leader = wire.CheckNotLeader, n.hint
	case n.forgets > 0:
		n.forgets--
		c.State = wire.CheckUnknown
	case n.asked < len(n.states):
		c.State, c.Why = n.states[n.asked], n.why
		n.asked++
	case n.why != "":
		c.State, c.Why = wire.CheckFailed, n.why
	default:
		c.State, c.Digest, c.Keys = wire.CheckDone, strings.Repeat(n.digest, 64), 5
	}
	if !c.Valid(q) {
		return c, fmt.Errorf("the test answers %q with %+v", q, c)
	}
	return c, nil
}

// TestCompare: replicas that are alike are, whoever leads; one that differs, is damaged, is late or silent is told of as that, and nothing else is.
func TestCompare(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(a, b, c *fakeReplica)
		want  string // level, code and subject of each step that is not ok
		alike int    // replicas of the step that is ok
	}{
		{"all is well", func(_, _, _ *fakeReplica) {}, "", 3},
		{"another one leads", func(a, b, _ *fakeReplica) { a.leads, a.hint, b.leads = false, "b", true }, "", 3},
		{"another one leads, and hints go round in circles", func(a, b, c *fakeReplica) { a.leads, a.hint, b.hint, c.leads = false, "b", "a", true }, "", 3},
		{"a hint to a node that has no replica", func(a, b, _ *fakeReplica) { a.leads, a.hint, b.leads = false, "z", true }, "", 3},
		{"nobody leads", func(a, _, _ *fakeReplica) { a.leads = false }, "fail group-not-compared group 3", 0},
		{"one differs", func(_, b, _ *fakeReplica) { b.digest = "b" }, "fail replica-differs replica of b in", 0},
		{"the leader differs", func(a, _, _ *fakeReplica) { a.digest = "b" }, "fail replica-differs replica of a in", 0},
		{"all differ", func(a, b, _ *fakeReplica) { a.digest, b.digest = "b", "c" },
			"fail replica-differs replica of a in, fail replica-differs replica of b in, fail replica-differs replica of c in", 0},
		{"two differ, and the third is silent", func(a, _, c *fakeReplica) { a.digest, c.err = "b", errors.New("gone") },
			"fail replica-differs replica of a in, fail replica-differs replica of b in, warn replica-silent replica of c in", 0},
		{"one is silent", func(_, _, c *fakeReplica) { c.err = errors.New("gone") }, "warn replica-silent replica of c in", 2},
		{"two are silent", func(_, b, c *fakeReplica) { b.err, c.err = errors.New("gone"), errors.New("gone") },
			"warn replica-silent replica of b in, warn replica-silent replica of c in, warn group-not-compared group 3", 0},
		{"one is damaged", func(_, b, _ *fakeReplica) { b.why = "a checksum" }, "fail replica-damaged replica of b in", 2},
		{"they take their time", func(a, b, c *fakeReplica) {
			a.states = []string{wire.CheckWaits, wire.CheckReads}
			b.states = []string{wire.CheckBehind, wire.CheckBehind, wire.CheckReads}
			c.states = []string{wire.CheckBehind}
		}, "", 3},
		{"one stays behind", func(_, _, c *fakeReplica) { c.states = repeated(wire.CheckBehind, 1000) }, "warn replica-late replica of c in", 2},
		{"one reads and reads", func(_, _, c *fakeReplica) { c.states = repeated(wire.CheckReads, 1000) }, "warn replica-late replica of c in", 2},
		{"one has got a state behind the entry", func(_, _, c *fakeReplica) { c.forgets = 1 }, "", 3},
		{"one never knows", func(_, _, c *fakeReplica) { c.forgets = 1000 }, "warn replica-late replica of c in", 2},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := &fakeGroup{nodes: map[string]*fakeReplica{"a": {leads: true}, "b": {}, "c": {}}, index: 10}
			for _, n := range f.nodes {
				n.digest = "a"
			}
			c.spoil(f.nodes["a"], f.nodes["b"], f.nodes["c"])
			g := founders()[0]
			g.Leader = "a"
			r := &doctor.Report{Good: true}
			all := checker{r}.compare(t.Context(), &statusReport{Groups: []admin.Group{g}}, f.ask, time.Minute)
			var bad []string
			alike := ""
			for _, s := range r.Steps {
				switch {
				case s.Level == doctor.OK:
					alike = s.Text
				case s.Name == "replicas of":
					bad = append(bad, fmt.Sprint(s.Level, " ", s.Code, " ", s.Subject))
				default:
					bad = append(bad, fmt.Sprint(s.Level, " ", s.Code, " ", s.Name))
				}
			}
			if got := strings.Join(bad, ", "); got != c.want || r.Good == strings.Contains(c.want, "fail") {
				t.Errorf("%s: it finds %q, want %q; good is %v\n%s", c.name, got, c.want, r.Good, r.Text())
			}
			if want := fmt.Sprintf("%d of 3 are alike", c.alike); c.alike == 0 && alike != "" || c.alike > 0 && !strings.Contains(alike, want) {
				t.Errorf("%s: %q, want %q", c.name, alike, want)
			}
			if b, err := json.Marshal(checkReport{Report: r, Groups: all}); err != nil || !strings.Contains(string(b), `"groups":[{"group":3,`) || !strings.Contains(string(b), `"ok":`) {
				t.Errorf("%s: %v: %s", c.name, err, b)
			}
		})
	}
}

// TestCompareBesideAnUpgrade: no check is put while nodes run different releases, because one that does not know it stops its part.
func TestCompareBesideAnUpgrade(t *testing.T) {
	st := showing(founders(), saidBy("a", said(1, "leads", "a", 5, 9, 9, 9, 9)), saidBy("b", said(2, "follows", "a", 5, 9)))
	st.Nodes[0].Status.Version, st.Nodes[1].Status.Version = "v1", "v2"
	r := &doctor.Report{Good: true}
	all := checker{r}.compare(t.Context(), st, func(context.Context, string, wire.CheckQuestion) (wire.GroupCheck, error) {
		t.Error("a node is asked")
		return wire.GroupCheck{}, errors.New("asked")
	}, time.Minute)
	if len(all) != 0 || len(r.Steps) != 1 || r.Steps[0].Level != doctor.Skip || !r.Good {
		t.Errorf("%+v, %+v", all, r)
	}
}

func repeated(s string, n int) (list []string) {
	for range n {
		list = append(list, s)
	}
	return list
}

// TestCompareEnds: a check that is given up ends at once, and texts of nodes steer no terminal.
func TestCompareEnds(t *testing.T) {
	f := &fakeGroup{nodes: map[string]*fakeReplica{"a": {leads: true}, "b": {why: "bad\x1b[2J\nnews"}, "c": {states: repeated(wire.CheckReads, 1<<20)}}}
	g := founders()[0]
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	rounds := 0
	ask := func(ctx context.Context, node string, q wire.CheckQuestion) (wire.GroupCheck, error) {
		if node == "c" && q.Index != 0 {
			if rounds++; rounds == 2 { // all have been asked once
				cancel()
			}
		}
		return f.ask(ctx, node, q)
	}
	all := compareGroups(ctx, []admin.Group{g, g, g}, ask, time.Hour)
	if len(all) != 3 || all[2].Group != g.ID || all[2].Why != "the command ended before" {
		t.Errorf("%d comparisons: %+v", len(all), all)
	}
	r := &doctor.Report{}
	(checker{r}).compared(&all[0])
	if text := r.Text(); strings.Contains(text, "\x1b") || !strings.Contains(text, "bad") {
		t.Errorf("%q", text)
	}
}
