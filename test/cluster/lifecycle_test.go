package cluster

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/client/admin"
)

// A life is a cluster with replicas to which an operator does one thing after the other, at random, while nodes are killed.
type life struct {
	*world
	rng   *rand.Rand
	ids   int            // of nodes, so far
	tally map[string]int // of what was done, and of who was killed
}

// TestLifecycle: under a load of 8 writers and 16 readers the cluster goes from three nodes to five and back, nodes that die for good are replaced, replicas
// go to one and back to three, nodes are restarted one after the other, and changes are paused and canceled, in a random order; the seat, a source or a target is killed in the middle of
// moves. No call fails before its time is over, no answer contradicts any order of the calls, nothing that was acknowledged is lost, and all replicas are alike at the end. It does each part
// once, and goes on for -seconds (make nightly). -seed has the same done in the same order; when a kill hits is up to the machine.
func TestLifecycle(t *testing.T) {
	if testing.Short() || !*everyPart {
		t.Skip("a cluster's life takes minutes: make nightly, or -every-part")
	}
	parallel(t)
	w := founded(t, func(o *Options) { o.Args = []string{"--cluster-move-rate", "4MiB"} }) // so that there is time to kill somebody
	l := &life{world: w, rng: rand.New(rand.NewPCG(*seedFlag, 3)), ids: 5, tally: map[string]int{}}
	probe := w.dial("west")
	kept := newMoved(8 << 10)
	must(t, kept.put(t.Context(), probe))
	load, conns := w.startLoad("life", func(o *LoadOptions) { o.Readers = 16 })
	growing := w.grow(200 * time.Millisecond)
	parts := []struct {
		name string
		f    func(*testing.T)
	}{
		{"nodes come or go", func(t *testing.T) { l.change(t, l.resize(t)...) }},
		{"nodes go or come", func(t *testing.T) { l.change(t, l.resize(t)...) }},
		{"a node dies for good", l.dies},
		{"rebalance", func(t *testing.T) { l.change(t, "rebalance") }},
		{"one replica, and three", func(t *testing.T) {
			l.change(t, "replicas", "1")
			w.well(t)
			l.change(t, "replicas", "3")
		}},
		{"rolling restart", l.rolls},
		{"canceled", l.cancels},
		{"paused", l.pauses},
	}
	began := time.Now()
	until := began.Add(time.Duration(*secondsFlag) * time.Second)
	for round := 0; round == 0 || time.Now().Before(until); round++ {
		for _, i := range l.rng.Perm(len(parts)) {
			if round > 0 && time.Now().After(until) {
				break
			}
			if !t.Run(parts[i].name, func(t *testing.T) {
				parts[i].f(t)
				w.well(t)
				w.servesAll(t, probe, "afterwards")
			}) {
				t.Fatalf("seed %d, after %v: %v", *seedFlag, time.Since(began).Round(time.Second), l.tally)
			}
		}
	}
	growing(t)
	judge(t, load)
	lapseFree(t, load)
	must(t, kept.check(t.Context(), probe))
	list := w.groups(w.Nodes[0])
	w.alikeFrom(t, w.net.Host("east"), len(list))
	hasRead(t, conns)
	t.Logf("seed %d: %d operations in %v; done: %s", *seedFlag, load.Ops(), time.Since(began).Round(time.Second), l)
	if l.tally["kill of the seat"]+l.tally["kill of a source"]+l.tally["kill of a target"] == 0 {
		t.Error("no kill has hit a move")
	}
}

// String is what was done.
func (l *life) String() string {
	var all []string
	for _, what := range slices.Sorted(maps.Keys(l.tally)) {
		all = append(all, fmt.Sprintf("%s %d", what, l.tally[what]))
	}
	return strings.Join(all, ", ")
}

// members are the nodes of the cluster, in, and those that run and are none of it, out, in a random order.
func (l *life) members(t *testing.T) (in, out []string) {
	t.Helper()
	weight := l.weights(t)
	for _, i := range l.rng.Perm(len(l.Nodes)) {
		if id := l.Nodes[i].ID; weight[id] > 0 {
			in = append(in, id)
		} else {
			out = append(out, id)
		}
	}
	return in, out
}

// weights are those of the nodes in the map, some of which may be away.
func (l *life) weights(t *testing.T) map[string]uint32 {
	t.Helper()
	weight := map[string]uint32{}
	for ctx := within(t); len(weight) == 0; pause(ctx, 100*time.Millisecond) {
		var st status
		out, code, errOut := l.kvclient(t, l.net.Host("east"), l.asked("cluster", "status", "-o", "json")...) // the exit code is that of nodes that are away
		err := json.Unmarshal([]byte(out), &st)
		for _, n := range st.Nodes {
			if n.Weight > 0 {
				weight[n.ID] = n.Weight
			}
		}
		if ctx.Err() != nil {
			t.Fatalf("cluster status tells of no node: %d, %v: %s%s", code, err, out, errOut)
		}
	}
	return weight
}

// starts starts a node again, and waits until it is ready if it is of the cluster: one that has left meanwhile never is.
func (l *life) starts(t *testing.T, s *Server) {
	t.Helper()
	must(t, s.Start(within(t)))
	for ctx := within(t); ; {
		code, text := l.admin(s, "GET", "/readyz")
		if code == 200 || l.weights(t)[s.ID] == 0 {
			return
		}
		if pause(ctx, 100*time.Millisecond); ctx.Err() != nil {
			t.Fatalf("node %s is not ready: %d %s", s.ID, code, text)
		}
	}
}

// resize is a command after which the cluster has five nodes, or three.
func (l *life) resize(t *testing.T) []string {
	t.Helper()
	in, out := l.members(t)
	if more := len(in) - 3; more > 0 && (len(out) == 0 || l.rng.IntN(2) == 0) {
		return append([]string{"remove"}, in[:more]...)
	}
	return append([]string{"add"}, out...)
}

// change has an operator give a command, and kills nodes while it is done.
func (l *life) change(t *testing.T, args ...string) {
	t.Helper()
	l.follow(t, l.gives(t, args), args, "the seat", "a source", "a target")
}

// gives begins a command, which waits for answers for as long as anything may take.
func (l *life) gives(t *testing.T, args []string) *running {
	t.Helper()
	return l.begins(t, append(slices.Clone(args), "--yes", "--timeout", "2m")...)
}

// follow kills nodes of these parts until a command has ended, which ends well.
func (l *life) follow(t *testing.T, p *running, args []string, parts ...string) {
	t.Helper()
	began := time.Now()
	ended := make(chan int, 1)
	go func() { ended <- p.ends(t) }()
	killed := ""
	for range 1 + l.rng.IntN(2) {
		select {
		case <-time.After(upTo(l.rng, 3*time.Second)):
			killed += l.kill(t, parts[l.rng.IntN(len(parts))])
			continue
		case code := <-ended:
			ended <- code
		}
		break
	}
	code := <-ended
	t.Logf("%s: ends with %d after %v;%s\n%s%s", strings.Join(args, " "), code, time.Since(began).Round(time.Millisecond), killed, &p.out, &p.errOut)
	if code != 0 || !strings.Contains(p.out.String(), "is done") && args[0] != "rebalance" {
		t.Fatalf("cluster %v ends with %d", args, code)
	}
	l.tally[args[0]]++
}

// kill kills the node that has a part in a task that runs, and starts it again. It returns who was killed; "": nobody has the part now.
func (l *life) kill(t *testing.T, part string) string {
	t.Helper()
	ts := l.tasks(t)
	if ts.running() == 0 {
		return ""
	}
	id := ts.Seat
	if part != "the seat" {
		id = ""
		for _, m := range ts.last().Moves {
			end := m.To
			if part == "a source" {
				end = m.From
			}
			if m.State == "moves" && end != "" {
				id = end
			}
		}
	}
	s := l.Node(id)
	if s == nil || s.Process() == nil { // it is the one that is dead for good
		return ""
	}
	must(t, s.Kill())
	pause(t.Context(), upTo(l.rng, time.Second))
	l.starts(t, s)
	l.tally["kill of "+part]++
	return fmt.Sprintf(" %s (%s) was killed;", id, part)
}

// dies kills a node for good, and has one with another id, and nothing on its disk, take its place.
func (l *life) dies(t *testing.T) {
	in, _ := l.members(t)
	old := l.Node(in[0])
	must(t, old.Kill())
	l.ids++
	s := l.NewServer(fmt.Sprintf("n%d", l.ids), old.Place())
	l.Nodes[slices.Index(l.Nodes, old)] = s
	must(t, s.Start(within(t)))
	args := []string{"replace", old.ID, s.ID}
	// Of the others no further one may be away: two of three replicas of a group would be.
	l.follow(t, l.gives(t, args), args, "a target")
}

// rolls restarts the nodes one after the other, each when the one before is ready.
func (l *life) rolls(t *testing.T) {
	for _, i := range l.rng.Perm(len(l.Nodes)) {
		s := l.Nodes[i]
		must(t, s.Stop(patience))
		l.starts(t, s)
	}
	l.tally["rolling restart"]++
}

// cancels begins a change and thinks better of it.
func (l *life) cancels(t *testing.T) {
	args := l.resize(t)
	l.must("east", l.asked(append(append([]string{"cluster"}, args...), "--yes", "--detach")...)...)
	pause(t.Context(), upTo(l.rng, 4*time.Second))
	ts := l.tasks(t)
	out, code, errOut := l.kvclient(t, l.net.Host("east"), l.asked("cluster", "cancel", fmt.Sprint(ts.last().ID))...)
	if code != 0 && !strings.Contains(errOut, "was done before") {
		t.Fatalf("cancel of %v ends with %d: %s%s", args, code, out, errOut)
	}
	ts = l.awaitTasks(t, "it is over", func(ts *tasks) bool { return ts.running() == 0 })
	t.Logf("%v is %s", args, ts.last().State)
	l.tally["cancel"]++
}

// pauses begins a change while none may move, and lets it go on. Nothing moves before.
func (l *life) pauses(t *testing.T) {
	l.must("east", l.asked("cluster", "pause")...)
	args := l.resize(t)
	p := l.gives(t, args)
	l.awaitTasks(t, "the task runs", func(ts *tasks) bool { return ts.running() == 1 })
	pause(t.Context(), upTo(l.rng, 2*time.Second))
	ts := l.tasks(t)
	if i := slices.IndexFunc(ts.last().Moves, func(m admin.ClusterMove) bool { return m.State != "waits" }); i >= 0 || !ts.Paused {
		t.Errorf("moves are paused, and something moves: %+v", ts)
	}
	l.must("east", l.asked("cluster", "resume")...)
	l.tally["pause"]++
	l.follow(t, p, args, "the seat", "a source", "a target")
}
