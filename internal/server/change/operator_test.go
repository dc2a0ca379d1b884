package change

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/internal/consensus/document"
	"github.com/rdmakv/rdmakv/internal/meta"
	"github.com/rdmakv/rdmakv/internal/seat"
	"github.com/rdmakv/rdmakv/internal/server/base"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// operates is what a node answers to a question.
func (n *node) operates(t testing.TB, question string) (a wire.ClusterAnswer, err error) {
	t.Helper()
	b, err := n.Operate(context.Background(), []byte(question))
	if err != nil {
		return a, err
	}
	if err := json.Unmarshal(b, &a); err != nil {
		t.Fatalf("%s: %v", b, err)
	}
	return a, nil
}

// comes is a node as an operator names it.
func comes(id string) string {
	s := storeOf(id)
	return fmt.Sprintf(`{"id":%q,"store":%q}`, id, hex.EncodeToString(s[:]))
}

// TestBadQuestions: what is no question is refused, whoever is asked, and changes nothing.
func TestBadQuestions(t *testing.T) {
	n, r := seated(t)
	for name, q := range map[string]string{
		"nothing":             "",
		"no JSON":             "{",
		"another type":        `{"do":7}`,
		"an unknown field":    `{"do":"tasks","force":true}`,
		"something behind it": `{"do":"tasks"} {}`,
		"too large":           `{"do":"tasks","old":"` + strings.Repeat("x", wire.MaxClusterQuestion) + `"}`,
		"a weight below 0":    `{"do":"add","nodes":[{"id":"d","weight":-1}]}`,
	} {
		var refused *base.Refusal
		if _, err := n.operates(t, q); !errors.As(err, &refused) || refused.Status != wire.StatusBadRequest || strings.Contains(refused.Text, "\n") {
			t.Errorf("%s: %v", name, err)
		}
	}
	var alone *Changer
	var refused *base.Refusal
	if _, err := alone.Operate(t.Context(), []byte(`{"do":"tasks"}`)); !errors.As(err, &refused) || refused.Status != wire.StatusUnsupported {
		t.Errorf("a server that is alone: %v", err)
	}
	if s, err := n.confirmed(t.Context(), r); err != nil || s.Version != 1 {
		t.Errorf("%+v, %v", s, err)
	}
}

// TestQuestions: each question is answered by what it asks for; with dry it is the plan, and nothing has changed.
func TestQuestions(t *testing.T) {
	adding := adds(t)
	over := func(s *meta.State) *meta.State {
		n := adding(s)
		n.Tasks[0].Moves, n.Tasks[0].State, n.Tasks[0].Ended = []meta.Move{}, meta.Done, n.Tasks[0].Began
		return n
	}
	paused := func(s *meta.State) *meta.State { return seat.Pause(s, true) }
	for name, c := range map[string]struct {
		was      func(s *meta.State) *meta.State // nil: as it was born
		question string
		state    string
		why      string
		task     string // What of the task; "": none
		version  uint64 // of the state afterwards
		plans    bool   // dry, it is a plan
		paused   bool
	}{
		"tasks":               {nil, `{"do":"tasks"}`, wire.ClusterTaken, "", "", 1, false, false},
		"add":                 {nil, `{"do":"add","nodes":[` + comes("d") + `]}`, wire.ClusterTaken, "", "add d", 2, true, false},
		"add two":             {nil, `{"do":"add","nodes":[` + comes("d") + `,` + comes("e") + `]}`, wire.ClusterTaken, "", "add d e", 2, true, false},
		"add it again":        {adding, `{"do":"add","nodes":[` + comes("d") + `]}`, wire.ClusterTaken, "", "add d", 2, true, false},
		"add another one":     {adding, `{"do":"add","nodes":[` + comes("e") + `]}`, wire.ClusterRefused, "another task", "", 2, false, false},
		"add one that is in":  {nil, `{"do":"add","nodes":[` + comes("c") + `]}`, wire.ClusterRefused, `"c" is in the cluster already`, "", 1, false, false},
		"remove":              {over, `{"do":"remove","nodes":[{"id":"d"}]}`, wire.ClusterTaken, "", "remove d", 3, true, false},
		"remove too many":     {nil, `{"do":"remove","nodes":[{"id":"c"}]}`, wire.ClusterRefused, "2 nodes would be left", "", 1, false, false},
		"remove a stranger":   {nil, `{"do":"remove","nodes":[{"id":"x"}]}`, wire.ClusterRefused, `"x" is not in the cluster`, "", 1, false, false},
		"replace":             {nil, `{"do":"replace","old":"c","nodes":[` + comes("d") + `]}`, wire.ClusterTaken, "", "replace c by d", 2, true, false},
		"replace a stranger":  {nil, `{"do":"replace","old":"x","nodes":[` + comes("d") + `]}`, wire.ClusterRefused, `"x"`, "", 1, false, false},
		"rebalance":           {nil, `{"do":"rebalance"}`, wire.ClusterTaken, "", "rebalance", 2, true, false},
		"replicas":            {nil, `{"do":"replicas","replicas":1}`, wire.ClusterTaken, "", "1 replicas", 2, true, false},
		"too many replicas":   {nil, `{"do":"replicas","replicas":5}`, wire.ClusterRefused, "3 nodes", "", 1, false, false},
		"a kind that is none": {nil, `{"do":"explode"}`, wire.ClusterRefused, "", "", 1, false, false},
		"no kind":             {nil, `{}`, wire.ClusterRefused, "", "", 1, false, false},
		"half a store":        {nil, `{"do":"add","nodes":[{"id":"d","store":"0102"}]}`, wire.ClusterRefused, `the store of node "d"`, "", 1, false, false},
		"a store of no hex":   {nil, `{"do":"add","nodes":[{"id":"d","store":"` + strings.Repeat("x", 32) + `"}]}`, wire.ClusterRefused, `the store of node "d"`, "", 1, false, false},
		"another store":       {nil, `{"do":"add","nodes":[` + strings.Replace(comes("e"), `"e"`, `"c"`, 1) + `]}`, wire.ClusterRefused, "another data directory", "", 1, false, false},
		"no store":            {nil, `{"do":"add","nodes":[{"id":"d"}]}`, wire.ClusterRefused, "", "", 1, false, false},
		"no id":               {nil, `{"do":"add","nodes":[{"id":"\u001b"}]}`, wire.ClusterRefused, "", "", 1, false, false},
		"cancel":              {adding, `{"do":"cancel","task":1}`, wire.ClusterTaken, "", "add d", 3, true, false},
		"cancel what is over": {over, `{"do":"cancel","task":1}`, wire.ClusterTaken, "", "add d", 2, true, false},
		"cancel nothing":      {nil, `{"do":"cancel","task":1}`, wire.ClusterRefused, "no task 1", "", 1, false, false},
		"pause":               {nil, `{"do":"pause"}`, wire.ClusterTaken, "", "", 2, true, true},
		"pause twice":         {paused, `{"do":"pause"}`, wire.ClusterTaken, "", "", 2, true, true},
		"resume":              {paused, `{"do":"resume"}`, wire.ClusterTaken, "", "", 3, true, false},
		"resume twice":        {nil, `{"do":"resume"}`, wire.ClusterTaken, "", "", 1, true, false},
	} {
		for _, dry := range []bool{true, false} {
			n, r := seated(t)
			was := uint64(1)
			if c.was != nil {
				was = n.agreed(t, r, c.was).Version
			}
			question, state := c.question, c.state
			if dry {
				if question = strings.Replace(question, "{", `{"dry":true,`, 1); question == `{"dry":true,}` {
					question = `{"dry":true}`
				}
				if c.plans {
					state = wire.ClusterPlan
				}
			}
			a, err := n.operates(t, question)
			if err != nil || a.State != state || !strings.Contains(a.Why, c.why) || (a.Why == "") != (state != wire.ClusterRefused) || strings.ContainsAny(a.Why, "\n\x1b") {
				t.Errorf("%s, dry %v: %+v, %v", name, dry, a, err)
				continue
			}
			s, err := n.confirmed(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			if want := c.version; dry && s.Version != was || !dry && s.Version != want {
				t.Errorf("%s, dry %v: the state has version %d, it had %d", name, dry, s.Version, was)
			}
			if a.Seat != "a" || !dry && a.Version != s.Version || !dry && a.MapVersion != s.Map.Version || c.paused != a.Paused && state != wire.ClusterRefused {
				t.Errorf("%s, dry %v: %+v", name, dry, a)
			}
			if (a.Task != nil) != (c.task != "") || a.Task != nil && (a.Task.What != c.task || (a.Task.ID == 0) != (dry && s.Task(1) == nil || dry && a.Task.Kind == "remove")) {
				t.Errorf("%s, dry %v: task %+v", name, dry, a.Task)
			}
			if changes := state == wire.ClusterTaken && !strings.Contains(question, "tasks"); changes {
				if m, err := cluster.ParseMap(a.Map); err != nil || m.Digest() != s.Map.Digest() {
					t.Errorf("%s: the answer has map %v, %v", name, m, err)
				}
			} else if a.Map != nil {
				t.Errorf("%s, dry %v: the answer has a map", name, dry)
			}
		}
	}
}

// TestReplaceInherits: a node that takes the place of another one has its weight and its zone, unless the question says what it has.
func TestReplaceInherits(t *testing.T) {
	for name, c := range map[string]struct {
		more   string
		weight uint32
		zone   string
	}{
		"nothing is said": {"", 3, "north"},
		"a weight":        {`"weight":7,`, 7, "north"},
		"a zone":          {`"zone":"south",`, 3, "south"},
	} {
		n, r := seated(t)
		n.agreed(t, r, func(s *meta.State) *meta.State {
			next := adds(t)(s)
			next.Map = later(t, s.Map, func(d *cluster.Draft) {
				d.Nodes["d"] = cluster.DraftNode{Weight: 3, Zone: "north", Store: storeOf("d")}
			})
			next.Tasks[0].Moves, next.Tasks[0].State, next.Tasks[0].Ended = []meta.Move{}, meta.Done, next.Tasks[0].Began
			return next
		})
		a, err := n.operates(t, `{"do":"replace","old":"d","nodes":[`+strings.Replace(comes("e"), "{", "{"+c.more, 1)+`]}`)
		if err != nil || a.State != wire.ClusterTaken {
			t.Fatalf("%s: %+v, %v", name, a, err)
		}
		s, err := n.confirmed(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		if e := s.Map.Draft().Nodes["e"]; e.Weight != c.weight || e.Zone != c.zone || e.Store != storeOf("e") {
			t.Errorf("%s: %+v", name, e)
		}
	}
}

// TestJoin: a node that is in no map says whether it may come into one.
func TestJoin(t *testing.T) {
	for state, err := range map[string]error{wire.ClusterMay: nil, wire.ClusterWait: fmt.Errorf("%w: its store opens", ErrLater), wire.ClusterRefused: errors.New("it has keys")} {
		n := newNode(t, "d")
		n.join = err
		a, got := n.operates(t, `{"do":"join?"}`)
		if got != nil || a.State != state || err != nil && a.Why != err.Error() {
			t.Errorf("%v: %+v, %v", err, a, got)
		}
	}
}

// TestNotSeat: who is not the seat does nothing, and says who is to be asked.
func TestNotSeat(t *testing.T) {
	const add, tasks = `{"do":"rebalance"}`, `{"do":"tasks"}`
	ask := func(n *node, state string, seats ...string) {
		t.Helper()
		for _, q := range []string{add, tasks, `{"do":"pause"}`} {
			a, err := n.operates(t, q)
			is := len(seats) == 0
			for _, s := range seats {
				is = is || a.Seat == s
			}
			if err != nil || a.State != state || !is || a.Task != nil || a.Map != nil {
				t.Errorf("%s: %+v, %v", q, a, err)
			}
		}
	}
	n := newNode(t, "d")
	ask(n, wire.ClusterRefused)
	if a, _ := n.operates(t, add); !strings.Contains(a.Why, "no shard map") {
		t.Errorf("%+v", a)
	}
	n.has(moving(t, "c"))
	ask(n, wire.ClusterNotSeat, "a", "b", "c")

	n = newNode(t, "b")
	n.engine.leads = false
	n.has(born(t))
	n.hosts(t)
	ask(n, wire.ClusterNotSeat, "") // nobody leads
	st, err := n.engine.Status(metaGroup)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range st.Config.Voters {
		if m.Node == "c" {
			st.Leader = m.ID
		}
	}
	n.engine.set(st)
	ask(n, wire.ClusterNotSeat, "c")
}

// TestFallsMeanwhile: a seat that falls under a question says that it is not the seat if nothing was proposed, and else that it does not know.
func TestFallsMeanwhile(t *testing.T) {
	n, r := seated(t)
	n.engine.with(func() { n.engine.refuses = consensus.ErrNotLeader })
	if a, err := n.operates(t, `{"do":"rebalance"}`); err != nil || a.State != wire.ClusterNotSeat {
		t.Errorf("nothing was proposed: %+v, %v", a, err)
	}
	n.engine.with(func() { n.engine.refuses, n.engine.silent = nil, true })
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	b, err := n.Operate(ctx, []byte(`{"do":"rebalance"}`))
	var a wire.ClusterAnswer
	if err := errors.Join(err, json.Unmarshal(b, &a)); err != nil || a.State != wire.ClusterUnknown || !strings.Contains(a.Why, "has not confirmed") || a.Map != nil || a.Version != 1 {
		t.Errorf("no answer: %+v, %v", a, err)
	}
	if _, err := n.Operate(ctx, []byte(`{"do":"rebalance"}`)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a question whose context has ended: %v", err)
	}
	n.engine.with(func() { n.engine.silent = false })
	if s, err := n.confirmed(t.Context(), r); err != nil || s.Version != 1 {
		t.Errorf("%+v, %v", s, err)
	}
}

// TestTakesNoMore: what the meta group does not take is no unknown outcome: nothing was done, and the answer says what to do.
func TestTakesNoMore(t *testing.T) {
	for name, c := range map[string]struct {
		refuses error
		state   string
		why     string
	}{
		"too much is under way": {fmt.Errorf("x: %w", consensus.ErrBusy), wire.ClusterBusy, "ask again"},
		"an entry too large":    {fmt.Errorf("x: %w", consensus.ErrTooLarge), wire.ClusterRefused, "name fewer nodes"},
		"a state too large":     {fmt.Errorf("x: %w", document.ErrFull), wire.ClusterRefused, "name fewer nodes"},
		"something else":        {errors.New("x"), wire.ClusterUnknown, "has not confirmed"},
	} {
		n, _ := seated(t)
		n.engine.with(func() { n.engine.refuses = c.refuses })
		if a, err := n.operates(t, `{"do":"rebalance"}`); err != nil || a.State != c.state || !strings.Contains(a.Why, c.why) || a.Map != nil || a.Version != 1 || strings.Contains(a.Why, "\n") {
			t.Errorf("%s: %+v, %v", name, a, err)
		}
	}
}

// TestChangedMeanwhile: a change is worked out anew when the state was changed meanwhile, and so it overwrites nothing; who is overtaken again and again gives up.
func TestChangedMeanwhile(t *testing.T) {
	n, r := seated(t)
	pause := func() {
		n.agreed(t, r, func(s *meta.State) *meta.State { return seat.Pause(s, !s.Paused) })
	}
	n.engine.with(func() { n.engine.before = pause })
	a, err := n.operates(t, `{"do":"rebalance"}`)
	if err != nil || a.State != wire.ClusterTaken || !a.Paused || a.Version != 3 || a.Task == nil || a.Task.ID != 1 {
		t.Errorf("%+v, %v", a, err)
	}
	overtaken := 0
	var again func()
	again = func() {
		overtaken++
		pause()
		n.engine.with(func() { n.engine.before = again })
	}
	n.engine.with(func() { n.engine.before = again })
	a, err = n.operates(t, `{"do":"cancel","task":1}`)
	n.engine.with(func() { n.engine.before = nil })
	if err != nil || a.State != wire.ClusterRefused || a.Why == "" || overtaken != tries {
		t.Errorf("%+v, %v, overtaken %d times", a, err, overtaken)
	}
	s, err := n.confirmed(t.Context(), r)
	if err != nil || s.Tasks[0].State != meta.Runs || s.Version != 3+tries {
		t.Errorf("%+v, %v", s, err)
	}

	n, r = seated(t)
	n.engine.with(func() { n.engine.before = func() { n.agreed(t, r, adds(t)) } })
	if a, err := n.operates(t, `{"do":"rebalance"}`); err != nil || a.State != wire.ClusterRefused || !strings.Contains(a.Why, "another task") || a.Version != 2 {
		t.Errorf("another task was first: %+v, %v", a, err)
	}
}

// TestTasksTell: the moves of a task tell how far they are, by what nodes have reported lately.
func TestTasksTell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		defer c.seat.Stop()
		n, r := c.seat, c.seat.leads()
		s := n.agreed(t, r, func(s *meta.State) *meta.State {
			next := adds(t)(s)
			next.Map = later(t, s.Map, func(d *cluster.Draft) {
				d.Nodes["d"] = cluster.DraftNode{Weight: 1, Store: storeOf("d")}
			})
			return next
		})
		c.others["d"].has(s.Map)
		tell := func() wire.ClusterTask {
			t.Helper()
			a, err := n.operates(t, `{"do":"tasks"}`)
			if err != nil || len(a.Tasks) != 1 || len(a.Tasks[0].Moves) == 0 {
				t.Fatalf("%+v, %v", a, err)
			}
			return a.Tasks[0]
		}
		if m := tell().Moves[0]; m.State != "waits" || m.Why == "" || m.Step != "" {
			t.Errorf("before any report: %+v", m)
		}
		time.Sleep(time.Second)
		if _, err := n.sitOnce(r); err != nil {
			t.Fatal(err)
		}
		group := tell().Moves[0].Group
		begun, err := n.confirmed(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		b := c.others["b"]
		st := leading(begun.Map.Draft().Group(group), "b", 7)
		for i := range st.Peers {
			if st.Peers[i].Node == "d" {
				st.Peers[i].Match = 300
			}
		}
		b.engine.set(st)
		b.note(group, seat.Doing{Act: seat.AddLearner})
		if _, err := n.sitOnce(r); err != nil {
			t.Fatal(err)
		}
		if m := tell().Moves[0]; m.State != "moves" || m.Behind != 700 || m.Step != stepTexts[seat.AddLearner] || m.Why != "" {
			t.Errorf("%+v", m)
		}
		b.note(group, seat.Doing{Why: "it waits"})
		if _, err := n.sitOnce(r); err != nil {
			t.Fatal(err)
		}
		if m := tell().Moves[0]; m.Step != "" || m.Why != "it waits" {
			t.Errorf("%+v", m)
		}
		time.Sleep(reportFor)
		if m := tell().Moves[0]; m.Behind != 0 || !strings.Contains(m.Why, "no leader that answers") {
			t.Errorf("of reports that are old: %+v", m)
		}
	})
}

// TestTimeLeft: how long a task will take comes from how long its moves have taken, and is not known before one has arrived.
func TestTimeLeft(t *testing.T) {
	n, _ := seated(t)
	s := adds(t)(meta.Begin(born(t)))
	task := meta.Task{ID: 1, Kind: meta.Rebalance, State: meta.Runs}
	left := func(moves ...meta.Move) int64 {
		task.Moves = moves
		return n.task(s, &task).LeftMS
	}
	arrived := func(took int64) meta.Move {
		return meta.Move{Group: 1, From: "a", To: "d", State: meta.Arrived, Began: 100, Ended: 100 + took}
	}
	waits := meta.Move{Group: 2, From: "a", To: "d", State: meta.Waits}
	for name, c := range map[string]struct{ got, want int64 }{
		"nothing has arrived":  {left(waits), 0},
		"all has":              {left(arrived(50)), 0},
		"one is left":          {left(arrived(40), arrived(60), waits), 50},
		"two at a time":        {left(arrived(40), waits, waits, waits, waits), 80},
		"a clock that was set": {left(arrived(-1000), waits), 0},
	} {
		if c.got != c.want {
			t.Errorf("%s: %d ms, want %d", name, c.got, c.want)
		}
	}
}

// TestStatusOfMeta: a node with a replica of the meta group tells of it, and one without tells nothing.
func TestStatusOfMeta(t *testing.T) {
	var alone *Changer
	d := newNode(t, "d")
	if alone.Status() != nil || d.Status() != nil {
		t.Error("a node without a map tells of a meta group")
	}
	d.has(moving(t, "c"))
	if st := d.Status(); st != nil {
		t.Errorf("a node without a replica: %+v", st)
	}
	a := newNode(t, "a")
	a.has(born(t))
	if st := a.Status(); st == nil || st.Version != 0 || st.State == "leads" {
		t.Errorf("before it runs: %+v", st)
	}
	a.hosts(t)
	a.agreed(t, a.leads(), adds(t))
	if st := a.Status(); st == nil || st.Version != 2 || st.MapVersion != 2 || st.State != "leads" {
		t.Errorf("%+v", st)
	}
}
