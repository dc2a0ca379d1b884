package admin_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/admin"
	"github.com/rdmakv/rdmakv/client/internal/clienttest"
	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// adds is the request to add nodes.
func adds(ids ...string) admin.ChangeRequest {
	return admin.ChangeRequest{Kind: admin.AddNodes, Nodes: weights(ids...)}
}

// text is an answer as JSON.
func text(a wire.ClusterAnswer) []byte {
	b, err := json.Marshal(a)
	if err != nil {
		panic(err)
	}
	return b
}

// TestChangeAdds: the node that comes is asked whether it may, the seat gets its store, and the node gets the map. Again comes to the same
// task, and asks the node no more. The plan changes nothing.
func TestChangeAdds(t *testing.T) {
	s := clienttest.Live(t, 3, 1)
	s.Lead("n3")
	n4 := s.Nodes[3]
	a := admin.Of(dialFakes(t, s.Nodes, nil))
	r := admin.ChangeRequest{Kind: admin.AddNodes, Nodes: []admin.NodeWeight{{ID: "n4", Weight: 2, Zone: "east"}}, Dry: true}
	plan, err := a.Change(t.Context(), r)
	if err != nil || plan.State != wire.ClusterPlan || plan.Task == nil || plan.Task.ID != 0 || len(plan.Task.Moves) == 0 || len(s.Tasks()) != 0 || len(n4.Steps) != 0 {
		t.Fatalf("plan: %+v, %v; tasks %v, steps %v", plan, err, s.Tasks(), n4.Steps)
	}
	r.Dry = false
	answer, err := a.Change(t.Context(), r)
	if err != nil || answer.Task.ID != 1 || answer.MapVersion != 2 {
		t.Fatalf("%+v, %v", answer, err)
	}
	asked := s.Asked()
	last := asked[len(asked)-1]
	want := wire.ClusterNode{ID: "n4", Weight: 2, Zone: "east", Store: n4.Store}
	if last.Node != "n3" || last.Dry || !slices.Equal(last.Nodes, []wire.ClusterNode{want}) {
		t.Errorf("the seat was asked %+v", last)
	}
	if !n4.Map.Has("n4") || n4.Map.Version != 2 || !slices.Equal(n4.Steps, []wire.DocumentKind{wire.MapFollow}) {
		t.Errorf("n4 has %v, steps %v", n4.Map, n4.Steps)
	}
	for range 2 { // the others know the map by now, too, and n4 a later one
		again, err := a.Change(t.Context(), r)
		if err != nil || again.Task.ID != 1 || len(s.Tasks()) != 1 {
			t.Errorf("again: %+v, %v", again, err)
		}
		for _, n := range s.Nodes[:3] {
			n.Set(func(n *clienttest.Node) { n.Map = s.Map() })
		}
		d := s.Map().Draft()
		later, err := d.Map(s.Map())
		if err != nil {
			t.Fatal(err)
		}
		n4.Set(func(n *clienttest.Node) { n.Map = later })
	}
	n := len(s.Asked())
	if _, err := a.Change(t.Context(), r); err != nil {
		t.Error(err)
	}
	for _, q := range s.Asked()[n:] {
		if q.Do == wire.ClusterJoin {
			t.Errorf("%s was asked whether it may come, and is in the map", q.Node)
		}
	}
	info, err := a.Cluster(t.Context())
	if err != nil || info.Meta == nil || len(info.Meta.Replicas) != 3 || info.Nodes[3].Zone != "east" || info.Nodes[3].Weight != 2 || info.Replicas != 3 {
		t.Errorf("%+v, %v", info, err)
	}
}

// TestChangeInterrupted: wherever a change is cut short, the error says what is known, and the same call again finishes it, with one task.
func TestChangeInterrupted(t *testing.T) {
	mute := func(kind wire.DocumentKind) func(s *clienttest.Seat) func() {
		return func(s *clienttest.Seat) func() {
			n4, healed := s.Nodes[3], new(atomic.Bool)
			n4.OnRequest = func(h wire.Header, msg []byte) ([]byte, bool) {
				if h.Type == wire.TypeDocument && wire.KindOf(wire.Body(msg)) == kind && !healed.Load() {
					return nil, true
				}
				return n4.Answer(h, msg)
			}
			return func() { healed.Store(true) }
		}
	}
	say := func(how func(s *clienttest.Seat, q wire.ClusterQuestion) ([]byte, bool)) func(s *clienttest.Seat) func() {
		return func(s *clienttest.Seat) func() {
			healed := new(atomic.Bool)
			s.Say = func(_ string, q wire.ClusterQuestion) ([]byte, bool) {
				text, handled := how(s, q)
				return text, handled && !healed.Load()
			}
			return func() { healed.Store(true) }
		}
	}
	for name, tc := range map[string]struct {
		cut   func(*clienttest.Seat) func()
		want  error
		tasks int // before it is called again
		says  string
	}{
		"the status of the node": {mute(wire.AdminStatus), client.ErrTimeout, 0, "n4"},
		"may it join?": {say(func(_ *clienttest.Seat, q wire.ClusterQuestion) ([]byte, bool) {
			return clienttest.Silent, q.Do == wire.ClusterJoin
		}), client.ErrTimeout, 0, "n4"},
		"the question to the seat": {say(func(_ *clienttest.Seat, q wire.ClusterQuestion) ([]byte, bool) {
			return clienttest.Silent, q.Do == "add"
		}), client.ErrOutcomeUnknown, 0, "ask again"},
		"the seat does not know": {say(func(_ *clienttest.Seat, q wire.ClusterQuestion) ([]byte, bool) {
			return text(wire.ClusterAnswer{State: wire.ClusterUnknown, Why: "no majority\x1b[2J"}), q.Do == "add"
		}), client.ErrOutcomeUnknown, 0, "no majority"},
		"nobody is the seat": {func(s *clienttest.Seat) func() { s.Lead(""); return func() { s.Lead("n2") } }, client.ErrUnavailable, 0, "n1, n2, n3"},
		"the map":            {mute(wire.MapFollow), client.ErrTimeout, 1, "task 1 is agreed on"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := clienttest.Live(t, 3, 1)
				heal := tc.cut(s)
				a := admin.Of(dialFakes(t, s.Nodes, nil))
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				begun := time.Now()
				answer, err := a.Change(ctx, adds("n4"))
				if !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.says) || strings.ContainsAny(err.Error(), "\x1b\n") {
					t.Errorf("%v, want %v and %q", err, tc.want, tc.says)
				}
				if tc.want != client.ErrOutcomeUnknown && errors.Is(err, client.ErrOutcomeUnknown) {
					t.Errorf("it says that it may have been done: %v", err)
				}
				if len(s.Tasks()) != tc.tasks || (answer.Task != nil) != (tc.tasks > 0) {
					t.Errorf("tasks %v, answer %+v", s.Tasks(), answer)
				}
				if took := time.Since(begun); took > 6*time.Second {
					t.Errorf("it took %v", took)
				}
				heal()
				if answer, err = a.Change(t.Context(), adds("n4")); err != nil || answer.Task.ID != 1 || len(s.Tasks()) != 1 || !s.Nodes[3].Map.Has("n4") {
					t.Errorf("again: %+v, %v", answer, err)
				}
			})
		})
	}
}

// TestSeatIsFound: the seat is found wherever it is, and however it changes; nodes that lead astray cost no more than a few questions.
func TestSeatIsFound(t *testing.T) {
	to := func(node string) []byte { return text(wire.ClusterAnswer{State: wire.ClusterNotSeat, Seat: node}) }
	for name, tc := range map[string]struct {
		lead string
		say  func(asked int, s *clienttest.Seat, node string) ([]byte, bool)
		most int // questions
		took time.Duration
	}{
		"the first one is":          {"n1", nil, 1, 0},
		"another one is":            {"n5", nil, 2, 0},
		"the first two say another": {"n5", func(_ int, _ *clienttest.Seat, n string) ([]byte, bool) { return to("n2"), n == "n1" }, 3, 0},
		"two name each other": {"n4", func(_ int, _ *clienttest.Seat, n string) ([]byte, bool) {
			return to(map[string]string{"n1": "n2", "n2": "n1"}[n]), n == "n1" || n == "n2"
		}, 4, 0},
		"one names itself":            {"n2", func(_ int, _ *clienttest.Seat, n string) ([]byte, bool) { return to("n1"), n == "n1" }, 2, 0},
		"one names nobody there is":   {"n2", func(_ int, _ *clienttest.Seat, n string) ([]byte, bool) { return to("n77"), n == "n1" }, 2, 0},
		"one names what is no id":     {"n2", func(_ int, _ *clienttest.Seat, n string) ([]byte, bool) { return to("N\x1b[2J"), n == "n1" }, 2, 0},
		"one answers nonsense":        {"n2", func(_ int, _ *clienttest.Seat, n string) ([]byte, bool) { return []byte(`{"state":`), n == "n1" }, 2, 0},
		"one answers another state":   {"n2", func(_ int, _ *clienttest.Seat, n string) ([]byte, bool) { return []byte(`{"state":"may"}`), n == "n1" }, 2, 0},
		"one does not answer":         {"n2", func(_ int, _ *clienttest.Seat, n string) ([]byte, bool) { return clienttest.Silent, n == "n1" }, 2, 6 * time.Second},
		"nobody is known for a while": {"n2", func(asked int, _ *clienttest.Seat, _ string) ([]byte, bool) { return to(""), asked <= 10 }, 12, 2 * time.Second},
		"it is busy for a while": {"n1", func(asked int, _ *clienttest.Seat, _ string) ([]byte, bool) {
			return text(wire.ClusterAnswer{State: wire.ClusterBusy, Why: "too much"}), asked <= 3
		}, 5, time.Second},
		"it changes in the middle": {"n4", func(asked int, s *clienttest.Seat, n string) ([]byte, bool) {
			if asked == 2 { // n4 has just lost it
				s.Lead("n5")
				return to(""), true
			}
			return nil, false
		}, 4, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := clienttest.Live(t, 5, 0)
				s.Lead(tc.lead)
				s.Say = func(node string, _ wire.ClusterQuestion) ([]byte, bool) {
					if tc.say == nil {
						return nil, false
					}
					return tc.say(len(s.Asked()), s, node)
				}
				a := admin.Of(dialFakes(t, s.Nodes, func(c *client.Config) { c.Timeout = 5 * time.Second }))
				begun := time.Now()
				answer, err := a.Change(t.Context(), admin.ChangeRequest{Kind: admin.Rebalance})
				if err != nil || answer.Task == nil || answer.Task.ID != 1 || len(s.Tasks()) != 1 {
					t.Errorf("%+v, %v", answer, err)
				}
				if n := len(s.Asked()); n > tc.most {
					t.Errorf("%d questions, at most %d", n, tc.most)
				}
				if took := time.Since(begun); took > tc.took {
					t.Errorf("it took %v, at most %v", took, tc.took)
				}
			})
		})
	}
}

// TestSeatHostile: answers that make no sense end the call with its context, say that it may have been done, and do not steer a terminal.
func TestSeatHostile(t *testing.T) {
	task := &wire.ClusterTask{ID: 1, What: "add n4", Kind: "add", State: "runs"}
	for name, tc := range map[string]struct {
		text []byte
		want error
		says string
	}{
		"no JSON":        {[]byte("\x1b[2J"), client.ErrOutcomeUnknown, "no JSON"},
		"a list":         {[]byte(`[1]`), client.ErrOutcomeUnknown, "no JSON"},
		"no state":       {[]byte(`{}`), client.ErrOutcomeUnknown, "the state"},
		"another state":  {[]byte("{\"state\":\"\\u001b[2J\"}"), client.ErrOutcomeUnknown, "the state"},
		"a plan":         {text(wire.ClusterAnswer{State: wire.ClusterPlan, Task: task}), client.ErrOutcomeUnknown, `the state "plan"`},
		"no task":        {text(wire.ClusterAnswer{State: wire.ClusterTaken}), client.ErrOutcomeUnknown, "no task"},
		"task 0":         {text(wire.ClusterAnswer{State: wire.ClusterTaken, Task: &wire.ClusterTask{}}), client.ErrOutcomeUnknown, "without a number"},
		"refused":        {text(wire.ClusterAnswer{State: wire.ClusterRefused, Why: "no\x1b[2J\nroom"}), admin.ErrRefused, "room"},
		"refused mutely": {text(wire.ClusterAnswer{State: wire.ClusterRefused}), admin.ErrRefused, "does not say why"},
		"always busy":    {text(wire.ClusterAnswer{State: wire.ClusterBusy, Why: "no\x1b[2J\nroom"}), client.ErrOverloaded, "room"},
		"no map":         {text(wire.ClusterAnswer{State: wire.ClusterTaken, Task: task}), client.ErrProtocol, "task 1 is agreed on"},
		"half a map":     {text(wire.ClusterAnswer{State: wire.ClusterTaken, Task: task, Map: []byte{3, 0}}), client.ErrProtocol, "task 1 is agreed on"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := clienttest.Live(t, 3, 1)
				s.Say = func(_ string, q wire.ClusterQuestion) ([]byte, bool) { return tc.text, q.Do == "add" }
				a := admin.Of(dialFakes(t, s.Nodes, nil))
				_, err := a.Change(t.Context(), adds("n4"))
				if !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.says) || strings.ContainsAny(err.Error(), "\x1b\n") {
					t.Errorf("%v, want %v and %q", err, tc.want, tc.says)
				}
				if n := len(s.Asked()); n > 400 {
					t.Errorf("%d questions", n)
				}
				if len(s.Nodes[3].Steps) != 0 {
					t.Errorf("n4 was told %v", s.Nodes[3].Steps)
				}
			})
		})
	}
	// Maps that make sense, and are not what was asked for.
	foreign := clienttest.Live(t, 3, 1).Map()
	other := *foreign
	other.Cluster = [16]byte{9}
	for name, m := range map[string]*cluster.Map{"without the node": foreign, "of another cluster": &other} {
		s := clienttest.Live(t, 3, 1)
		s.Say = func(_ string, q wire.ClusterQuestion) ([]byte, bool) {
			return text(wire.ClusterAnswer{State: wire.ClusterTaken, Task: task, Map: cluster.AppendMap(nil, m)}), q.Do == "add"
		}
		if _, err := admin.Of(dialFakes(t, s.Nodes, nil)).Change(t.Context(), adds("n4")); !errors.Is(err, client.ErrProtocol) || len(s.Nodes[3].Steps) != 0 {
			t.Errorf("%s: %v, steps %v", name, err, s.Nodes[3].Steps)
		}
	}
}

// TestNewcomers: a node that does not fit is found before the seat is asked, and named with the reason.
func TestNewcomers(t *testing.T) {
	for name, tc := range map[string]struct {
		node  string
		spoil func(*clienttest.Seat, *clienttest.Node)
		want  error
		says  string
	}{
		"nobody knows it": {"n9", nil, client.ErrUnknownNode, "gossip.join"},
		"another cluster's name": {"n4", func(_ *clienttest.Seat, n *clienttest.Node) {
			n.Status = func(st *wire.NodeStatus) { st.ClusterName = "x\x1b[2J" }
		}, client.ErrOtherCluster, "cluster.name"},
		"another cluster's map": {"n4", func(_ *clienttest.Seat, n *clienttest.Node) {
			n.Status = func(st *wire.NodeStatus) { st.ClusterID = "ab" }
		}, client.ErrOtherCluster, "empty data directory"},
		"other shards": {"n4", func(_ *clienttest.Seat, n *clienttest.Node) {
			n.Status = func(st *wire.NodeStatus) { st.Shards.Total = 5 }
		}, client.ErrOtherCluster, "5 shards"},
		"no store":                {"n4", func(_ *clienttest.Seat, n *clienttest.Node) { n.Store = "" }, client.ErrUnsupported, "n4"},
		"it says itself that not": {"n4", func(s *clienttest.Seat, _ *clienttest.Node) { s.Refuse["n4"] = "mode\x1b is cache" }, admin.ErrRefused, "is cache"},
		"it answers what is not": {"n4", func(s *clienttest.Seat, _ *clienttest.Node) {
			s.Say = func(_ string, q wire.ClusterQuestion) ([]byte, bool) {
				return []byte(`{"state":"taken"}`), q.Do == wire.ClusterJoin
			}
		}, client.ErrProtocol, `"taken"`},
		"it knows no such question": {"n4", func(_ *clienttest.Seat, n *clienttest.Node) {
			n.OnRequest = func(h wire.Header, msg []byte) ([]byte, bool) {
				if h.Type != wire.TypeDocument || wire.KindOf(wire.Body(msg)) != wire.AdminCluster {
					return n.Answer(h, msg)
				}
				out := wire.AppendError(nil, h.Type, h.ID, wire.StatusUnsupported, "")
				wire.SetCredits(out, 1)
				return out, true
			}
		}, client.ErrUnsupported, "n4"},
	} {
		s := clienttest.Live(t, 3, 1)
		if tc.spoil != nil {
			tc.spoil(s, s.Nodes[3])
		}
		_, err := admin.Of(dialFakes(t, s.Nodes, nil)).Change(t.Context(), adds(tc.node))
		if !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.says) || strings.ContainsAny(err.Error(), "\x1b\n") || errors.Is(err, client.ErrOutcomeUnknown) {
			t.Errorf("%s: %v, want %v and %q", name, err, tc.want, tc.says)
		}
		for _, q := range s.Asked() {
			if q.Do != wire.ClusterJoin {
				t.Errorf("%s: the seat was asked %+v", name, q)
			}
		}
	}
	// It refuses the map: the task is there, and the reason is told.
	s := clienttest.Live(t, 3, 1)
	s.Nodes[3].Refuse = "the disk is full"
	answer, err := admin.Of(dialFakes(t, s.Nodes, nil)).Change(t.Context(), adds("n4"))
	part := (*client.PartialError)(nil)
	if !errors.As(err, &part) || part.Failures[0].Node != "n4" || !strings.Contains(err.Error(), "the disk is full") || answer.Task == nil {
		t.Errorf("%+v, %v", answer, err)
	}
}
