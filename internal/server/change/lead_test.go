package change

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/internal/meta"
	"github.com/rdmakv/rdmakv/internal/seat"
)

// TestPolls: the nodes of the map are asked, and for a while those that a task has taken out of it.
func TestPolls(t *testing.T) {
	now := time.UnixMilli(1_800_000_000_000)
	ago := func(d time.Duration) int64 { return seat.Millis(now.Add(-d)) }
	n := newNode(t, "a")
	n.env.Now = func() time.Time { return now }
	for name, c := range map[string]struct {
		task meta.Task
		want []string // beside those of the map
	}{
		"removed lately":         {meta.Task{Kind: meta.Remove, Nodes: []string{"x", "y"}, State: meta.Done, Ended: ago(farewell)}, []string{"x", "y"}},
		"removed long ago":       {meta.Task{Kind: meta.Remove, Nodes: []string{"x"}, State: meta.Done, Ended: ago(farewell + time.Millisecond)}, nil},
		"replaced":               {meta.Task{Kind: meta.Replace, Nodes: []string{"x", "b"}, State: meta.Done, Ended: ago(0)}, []string{"x"}},
		"removed, and came back": {meta.Task{Kind: meta.Remove, Nodes: []string{"c"}, State: meta.Done, Ended: ago(0)}, nil},
		"not yet":                {meta.Task{Kind: meta.Remove, Nodes: []string{"b"}, State: meta.Runs}, nil},
		"canceled":               {meta.Task{Kind: meta.Remove, Nodes: []string{"x"}, State: meta.Canceled, Ended: ago(0)}, nil},
		"another kind":           {meta.Task{Kind: meta.Add, Nodes: []string{"x"}, State: meta.Done, Ended: ago(0)}, nil},
	} {
		s := meta.Begin(born(t)).Clone()
		c.task.ID, c.task.Began = 1, ago(time.Hour)
		s.Tasks = []meta.Task{c.task}
		if got := n.polls(s); !slices.Equal(got, append([]string{"a", "b", "c"}, c.want...)) {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestReportsGrowOld: a report counts for reportFor.
func TestReportsGrowOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, r := seated(t)
		defer n.Stop()
		n.ask = func(_ context.Context, node string, _ []byte) ([]byte, error) {
			if node != "b" || time.Since(n.begun) > reportFor {
				return nil, errAway
			}
			return []byte(`{"map":1}`), nil
		}
		time.Sleep(time.Second)
		s, err := n.confirmed(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		has := func(want ...string) {
			t.Helper()
			var got []string
			for node := range n.lead.now() {
				got = append(got, node)
			}
			if slices.Sort(got); !slices.Equal(got, want) {
				t.Errorf("after %v: %v", time.Since(n.begun), got)
			}
		}
		n.poll(s, nil, time.Now())
		has("a", "b")
		time.Sleep(reportFor - 1)
		has("a", "b")
		time.Sleep(time.Nanosecond)
		has()
		time.Sleep(time.Nanosecond)
		n.poll(s, nil, time.Now())
		has("a")
		if len(n.lead.reports) != 1 {
			t.Errorf("kept: %v", n.lead.reports)
		}
		time.Sleep(reportFor)
		n.poll(s, nil, time.Now().Add(-pollTime-1))
		has()
	})
}

// TestPollOne: a node is sent the map if it turns out that it has an older one, and then it is asked no third time.
func TestPollOne(t *testing.T) {
	first, next := born(t), moving(t, "c")
	d := next.Draft()
	for name, c := range map[string]struct {
		answers []any // bytes or errors
		reports uint64
		sent    []bool
	}{
		"it has the map":       {[]any{`{"map":2}`}, 2, []bool{false}},
		"it has a later one":   {[]any{`{"map":3}`}, 3, []bool{false}},
		"it has an older one":  {[]any{`{"map":1}`, `{"map":2}`}, 2, []bool{false, true}},
		"it stays behind":      {[]any{`{"map":1}`, `{"map":1}`}, 1, []bool{false, true}},
		"it is away":           {[]any{errAway}, 0, []bool{false}},
		"it goes":              {[]any{`{"map":1}`, errAway}, 0, []bool{false, true}},
		"it answers no report": {[]any{`x`}, 0, []bool{false}},
	} {
		n := newNode(t, "a")
		n.has(first)
		var sent []bool
		n.ask = func(_ context.Context, node string, question []byte) ([]byte, error) {
			q, err := parsePoll(question)
			if node != "b" || q.of != (echo{9, 8}) || q.version != 2 || q.level != 3 || err != nil {
				t.Errorf("%s: %s is asked %x: %v", name, node, question, err)
			}
			sent = append(sent, q.m != nil)
			if err, ok := c.answers[len(sent)-1].(error); ok {
				return nil, err
			}
			return []byte(c.answers[len(sent)-1].(string)), nil
		}
		r, err := n.pollOne(t.Context(), "b", echo{9, 8}, &meta.State{Map: next, Level: 3}, d)
		if (err != nil) != (c.reports == 0) || err == nil && r.Map != c.reports || !slices.Equal(sent, c.sent) {
			t.Errorf("%s: map %d, %v, sent %v", name, r.Map, err, sent)
		}
	}
}

// A cluster3 is a seat, node a of born's three, and other nodes, which answer its polls: b leads groups 1 and 2, and d has no map yet.
type cluster3 struct {
	seat   *node
	others map[string]*node

	mu    sync.Mutex
	asked map[string]int
}

func newCluster(t testing.TB) *cluster3 {
	c := &cluster3{others: map[string]*node{}, asked: map[string]int{}}
	c.seat, _ = seated(t)
	for _, id := range []string{"b", "c", "d"} {
		c.others[id] = newNode(t, id)
		if id != "d" {
			c.others[id].has(born(t))
		}
	}
	for _, g := range born(t).Draft().Groups[1:] {
		c.others["b"].engine.set(leading(&g, "b", 7))
	}
	c.seat.ask = func(ctx context.Context, node string, question []byte) ([]byte, error) {
		c.mu.Lock()
		c.asked[node]++
		c.mu.Unlock()
		return c.others[node].Answer(ctx, "a", question)
	}
	return c
}

// replicated has b and c have replicas of the meta group, which apply what the seat's does, and lets all nodes ask each other.
func (c *cluster3) replicated(t testing.TB) *cluster3 {
	t.Helper()
	all := map[string]*node{"a": c.seat}
	for id, n := range c.others {
		all[id] = n
		if id != "d" {
			n.engine.leads = false
			n.hosts(t)
			c.seat.engine.followers = append(c.seat.engine.followers, n.engine)
		}
	}
	for id, n := range c.others {
		n.ask = func(ctx context.Context, node string, question []byte) ([]byte, error) {
			return all[node].Answer(ctx, id, question)
		}
	}
	return c
}

// taken is how often nodes were asked since the last call.
func (c *cluster3) taken() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.asked
	c.asked = map[string]int{}
	return was
}

// TestSits: the seat asks all nodes once in a while, and often while a task is under way; it has nodes follow the map, and the meta group agree on the next step.
func TestSits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		defer c.seat.Stop()
		r := c.seat.leads()
		c.seat.wg.Go(c.seat.sit)
		const looks = 10
		time.Sleep(looks*pollIdle - 1)
		synctest.Wait()
		if asked := c.taken(); asked["b"] < looks || asked["b"] > looks+1 || asked["b"] != asked["c"] || asked["d"] != 0 {
			t.Errorf("idle: %v", asked)
		}
		c.others["d"].has(c.seat.agreed(t, r, adds(t)).Map) // the operator's program tells the node that comes
		c.seat.lead.poke()
		time.Sleep(looks*pollBusy - 1)
		synctest.Wait()
		if asked := c.taken(); asked["b"] < looks || asked["b"] > looks+4 || asked["d"] < looks {
			t.Errorf("busy: %v", asked)
		}
		s, err := c.seat.confirmed(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		running := 0
		for _, m := range s.Tasks[0].Moves {
			if m.Running() {
				running++
			}
		}
		if running == 0 || s.Map.Version < 3 {
			t.Errorf("no move has begun: %+v", s)
		}
		for id, n := range c.others {
			if v := n.now.Load().m.Version; v != s.Map.Version {
				t.Errorf("node %s has map %d of %d", id, v, s.Map.Version)
			}
		}
		if v := c.seat.now.Load().m.Version; v != s.Map.Version {
			t.Errorf("the seat has map %d of %d", v, s.Map.Version)
		}
	})
}

// TestSeatThatFell: who leads the meta group no more asks nobody.
func TestSeatThatFell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		defer c.seat.Stop()
		r := c.seat.leads()
		st, err := c.seat.engine.Status(metaGroup)
		if err != nil {
			t.Fatal(err)
		}
		st.Leads, st.Leader = false, 2
		c.seat.engine.set(st)
		c.seat.wg.Go(c.seat.sit)
		time.Sleep(10 * pollIdle)
		synctest.Wait()
		if asked := c.taken(); len(asked) != 0 {
			t.Errorf("%v", asked)
		}
		if _, err := c.seat.sitOnce(r); !errors.Is(err, consensus.ErrNotLeader) {
			t.Errorf("%v", err)
		}
		if asked := c.taken(); len(asked) != 0 {
			t.Errorf("%v", asked)
		}
	})
}

// TestSeatFollowsFirst: the seat puts a map in force at its own node before it tells others of it, and tells nobody if it cannot.
func TestSeatFollowsFirst(t *testing.T) {
	c := newCluster(t)
	c.seat.agreed(t, c.seat.leads(), adds(t))
	full := errors.New("the disk is full")
	c.seat.follow(full)
	if _, err := c.seat.sitOnce(c.seat.leads()); !errors.Is(err, full) || len(c.taken()) != 0 {
		t.Errorf("%v", err)
	}
	c.seat.follow(nil)
	c.others["b"].env.Follow = func(ctx context.Context, m *cluster.Map) error {
		if v := c.seat.now.Load().m.Version; v != m.Version {
			t.Errorf("map %d is told of by a node that has %d", m.Version, v)
		}
		return nil
	}
	if busy, err := c.seat.sitOnce(c.seat.leads()); err != nil || !busy {
		t.Errorf("%v, %v", busy, err)
	}
}

// TestLyingNode: what a node says of another one's replicas moves nothing.
func TestLyingNode(t *testing.T) {
	n, r := seated(t)
	s, err := n.confirmed(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	d := s.Map.Draft()
	all := seat.Report{Map: 1}
	for _, p := range d.Group(1).Replicas {
		all.Groups = append(all.Groups, seat.GroupReport{Group: 1, Replica: p.ID, Leads: true, Term: p.ID, Voters: []uint64{p.ID}})
	}
	b, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	n.ask = func(_ context.Context, node string, _ []byte) ([]byte, error) {
		if node == "b" {
			return b, nil
		}
		return nil, errAway
	}
	n.poll(s, nil, time.Now())
	if l := n.lead.now().Leader(1); l == nil || l.Replica != d.Group(1).At("b").ID {
		t.Errorf("%+v", l)
	}
}
