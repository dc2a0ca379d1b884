package client_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/internal/clienttest"
	"github.com/rdmakv/rdmakv/internal/world"
)

var (
	mapsSeed = flag.Uint64("maps-seed", 0, "seed of TestFleetMaps; 0: new ones")
	mapsRuns = flag.Int("maps-runs", 3, "how often TestFleetMaps runs")
)

// A changing is a fake cluster whose groups and maps change while a client uses it, in virtual time.
type changing struct {
	*clienttest.Replicas
	t    *testing.T
	rng  *rand.Rand // of the goroutine that changes
	c    *client.Client
	keys []string
	in   []string        // nodes of the newest map
	down map[string]bool // nodes that were stopped
	late []*clienttest.Node
	log  []string

	mu    sync.Mutex
	began map[string]int     // by key: the highest value that a put was begun with
	acked map[string][]acked // by key, rising
}

// An acked is a value that was acknowledged at a time.
type acked struct {
	value int
	at    time.Time
}

// since is the value that was acknowledged last by a time.
func (g *changing) since(key string, at time.Time) (least int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, a := range slices.Backward(g.acked[key]) {
		if !a.at.After(at) {
			return a.value
		}
	}
	return 0
}

// judge judges a value that a call has shown of a key.
func (g *changing) judge(what, key string, value []byte, least int) int {
	n, err := strconv.Atoi(string(value))
	g.mu.Lock()
	most := g.began[key]
	g.mu.Unlock()
	if err != nil || n < least || n > most {
		g.t.Errorf("%s of %s shows %q, %d to %d are possible", what, key, value, least, most)
	}
	return n
}

// callTime is the deadline of each call.
const callTime = 5 * time.Second

// within runs a call with a deadline, and judges how it ends.
func (g *changing) within(what string, call func(ctx context.Context) error) {
	ctx, cancel := context.WithTimeout(g.t.Context(), callTime)
	defer cancel()
	begun := time.Now()
	err := call(ctx)
	if took := time.Since(begun); err != nil || took > callTime {
		g.t.Errorf("%s: %v after %v", what, err, took)
	}
}

// put writes the next value of a key.
func (g *changing) put(key string) {
	g.mu.Lock()
	g.began[key]++
	n := g.began[key]
	g.mu.Unlock()
	g.within("put "+key, func(ctx context.Context) error { return g.c.Put(ctx, []byte(key), []byte(strconv.Itoa(n))) })
	g.mu.Lock()
	g.acked[key] = append(g.acked[key], acked{n, time.Now()})
	g.mu.Unlock()
}

func (g *changing) get(rng *rand.Rand) {
	key := g.keys[rng.IntN(len(g.keys))]
	least := g.since(key, time.Now())
	g.within("get "+key, func(ctx context.Context) error {
		v, err := g.c.Get(ctx, []byte(key))
		if err == nil {
			g.judge("get", key, v, least)
		}
		return err
	})
}

func (g *changing) multiGet() {
	list, least := make([][]byte, len(g.keys)), make([]int, len(g.keys))
	for i, key := range g.keys {
		list[i], least[i] = []byte(key), g.since(key, time.Now())
	}
	g.within("multiget", func(ctx context.Context) error {
		results, err := g.c.MultiGet(ctx, list)
		for i, r := range results {
			if r.Err == nil {
				g.judge("multiget", g.keys[i], r.Value, least[i])
			}
		}
		return err
	})
}

func (g *changing) scan() {
	least := map[string]int{}
	for _, key := range g.keys {
		least[key] = g.since(key, time.Now())
	}
	g.within("scan", func(ctx context.Context) error {
		seen := 0
		for e, err := range g.c.Scan(ctx, client.ScanOptions{}) {
			if err != nil {
				return err
			}
			g.judge("scan", string(e.Key), e.Value, least[string(e.Key)])
			seen++
		}
		if seen != len(g.keys) {
			return fmt.Errorf("%d keys of %d", seen, len(g.keys))
		}
		return nil
	})
}

// bounded gets keys that may be as old as d, and notes what was shown: shown is of the caller.
func (g *changing) bounded(rng *rand.Rand, shown map[string]int) {
	const d = 300 * time.Millisecond
	key := g.keys[rng.IntN(len(g.keys))]
	least := max(shown[key], g.since(key, time.Now().Add(-d)))
	g.within("get with a bound "+key, func(ctx context.Context) error {
		v, err := g.c.Get(ctx, []byte(key), client.ReadBounded(d))
		if err == nil {
			shown[key] = g.judge("get with a bound", key, v, least)
		}
		return err
	})
}

// rest passes some time.
func (g *changing) rest(rng *rand.Rand, most time.Duration) {
	time.Sleep(time.Duration(rng.Int64N(int64(most))))
}

// note keeps what was done, for a run that fails.
func (g *changing) note(format string, args ...any) {
	g.log = append(g.log, fmt.Sprintf("%v "+format, append([]any{time.Now().Format("05.000")}, args...)...))
}

// node is the node of a name.
func (g *changing) node(id string) *clienttest.Node {
	return g.Nodes[slices.IndexFunc(g.Nodes, func(n *clienttest.Node) bool { return n.ID == id })]
}

// pick is one of a list.
func (g *changing) pick(list []string) string { return list[g.rng.IntN(len(list))] }

// publish makes the next map, with the given nodes, and puts it in force at all of them and at those that leave, one after the other. Some have to wait
// until the next map, or the end.
func (g *changing) publish(nodes ...string) {
	left := slices.DeleteFunc(slices.Clone(g.in), func(id string) bool { return slices.Contains(nodes, id) })
	g.in = slices.Clone(nodes)
	m := g.Next(g.ByLogs(slices.Clone(nodes)...))
	g.note("map %d of %v", m.Version, nodes)
	g.late = nil
	order := append(slices.Clone(nodes), left...)
	g.rng.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	for _, id := range order {
		if g.rng.IntN(5) == 0 {
			g.late = append(g.late, g.node(id))
			continue
		}
		g.rest(g.rng, 200*time.Millisecond)
		g.Inform(g.node(id))
	}
}

// dialLive is a client of nodes that change, whose leases go by virtual time. The caller closes it.
func dialLive(t *testing.T, r *clienttest.Replicas, timeout time.Duration) *client.Client {
	t.Helper()
	start := time.Now()
	cfg := configFake(r.Nodes[0].Server)
	cfg.Servers, cfg.Timeout, cfg.DialTimeout = []string{r.Nodes[0].Addr, r.Nodes[1].Addr}, timeout, timeout
	w := world.World{Heap: true, Now: func() int64 { return int64(time.Hour + time.Since(start)) }}
	c, err := client.Dial(world.With(t.Context(), w), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// step changes something.
func (g *changing) step() {
	group := uint32(1 + g.rng.IntN(2))
	voters := g.Voters(group)
	var idle, out, others []string // of the map, without a replica; not of the map; of the map, without one of the group
	for _, n := range g.Nodes {
		switch busy := slices.Contains(g.Voters(1), n.ID) || slices.Contains(g.Voters(2), n.ID); {
		case !slices.Contains(g.in, n.ID):
			out = append(out, n.ID)
		case !busy:
			idle = append(idle, n.ID)
		}
		if slices.Contains(g.in, n.ID) && !slices.Contains(voters, n.ID) {
			others = append(others, n.ID)
		}
	}
	switch what := g.rng.IntN(10); {
	case what < 2 && len(out) > 0:
		id := g.pick(out)
		if g.down[id] {
			g.Start(g.node(id))
			delete(g.down, id)
		}
		g.publish(append(slices.Clone(g.in), id)...)
	case what < 4 && len(idle) > 0 && len(g.in) > 3:
		id := g.pick(idle)
		g.publish(slices.DeleteFunc(slices.Clone(g.in), func(o string) bool { return o == id })...)
		if g.rng.IntN(2) == 0 {
			g.note("stop %s", id)
			g.Stop(g.node(id))
			g.down[id] = true
		}
	case what < 7 && len(others) > 0:
		from, to := g.pick(voters), g.pick(others)
		g.note("group %d moves from %s to %s", group, from, to)
		g.Reign(group, g.pick(voters), "") // nobody is asleep
		g.Grow(group, g.node(to))
		g.rest(g.rng, time.Second)
		if g.rng.IntN(3) == 0 {
			g.Reign(group, to, "")
			g.rest(g.rng, time.Second)
		}
		g.Shrink(group, g.node(from))
		g.rest(g.rng, 2*time.Second)
		g.publish(g.in...)
	default:
		lead, asleep := g.pick(voters), g.pick(voters)
		g.note("%s leads group %d, %s is asleep", lead, group, asleep)
		g.Reign(group, lead, asleep)
	}
}

// While nodes are added and removed, replicas move and leaders change, at random, every call has a right answer in time; a watch tells each write once;
// and neither goroutines nor connections are left of what is no more.
func TestFleetMaps(t *testing.T) {
	for i := range *mapsRuns {
		seed := *mapsSeed
		if seed == 0 {
			seed = rand.Uint64()
		} else if i > 0 {
			break
		}
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Logf("replay: go test ./client -run 'TestFleetMaps$' -maps-seed %d", seed)
			synctest.Test(t, func(t *testing.T) { changeMaps(t, seed) })
		})
	}
}

func changeMaps(t *testing.T, seed uint64) {
	g := &changing{
		Replicas: clienttest.ReplicaClusterBut(t, 6, 3, 3, 2), t: t, rng: rand.New(rand.NewPCG(seed, 1)), in: []string{"n1", "n2", "n3"},
		down: map[string]bool{}, began: map[string]int{}, acked: map[string][]acked{},
	}
	g.Words()
	g.Live()
	g.keys = clienttest.Distinct(g.Replicas, 12)
	g.c = dialLive(t, g.Replicas, callTime)
	done, stop := context.WithCancel(t.Context())
	var beats sync.WaitGroup
	beats.Go(func() {
		for done.Err() == nil {
			for _, n := range g.Nodes {
				n.Tick()
			}
			time.Sleep(200 * time.Millisecond)
		}
	})
	for _, key := range g.keys {
		g.put(key)
	}
	from, err := g.c.Position(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	var calls, watching sync.WaitGroup
	var over atomic.Bool
	loop := func(n uint64, rest time.Duration, f func(rng *rand.Rand)) {
		calls.Go(func() {
			rng := rand.New(rand.NewPCG(seed, n))
			for !over.Load() && !t.Failed() {
				f(rng)
				g.rest(rng, rest)
			}
		})
	}
	for i := range 3 {
		keys := g.keys[4*i : 4*i+4]
		loop(uint64(10+i), 100*time.Millisecond, func(rng *rand.Rand) { g.put(keys[rng.IntN(4)]) })
		loop(uint64(20+i), 20*time.Millisecond, g.get)
	}
	shown := map[string]int{}
	loop(30, 50*time.Millisecond, func(rng *rand.Rand) { g.bounded(rng, shown) })
	loop(31, 200*time.Millisecond, func(*rand.Rand) { g.multiGet() })
	loop(32, 500*time.Millisecond, func(*rand.Rand) { g.scan() })
	told := map[string]int{}
	watched, stopWatch := context.WithCancel(t.Context())
	watching.Go(func() {
		for e, err := range g.c.Watch(watched, nil, client.WatchOptions{From: from}) {
			switch {
			case err == nil && e.Op == client.EventPut:
				told[string(e.Key)]++
			case watched.Err() == nil:
				t.Errorf("watch: %+v, %v", e, err)
				return
			}
		}
	})

	for range 40 {
		if t.Failed() {
			break
		}
		g.step()
		g.rest(g.rng, 2*time.Second)
	}
	for _, n := range g.late {
		g.Inform(n)
	}
	over.Store(true)
	calls.Wait()
	time.Sleep(30 * time.Second) // what has left is closed, and the watch has told all
	for _, key := range g.keys {
		g.put(key)
	}
	g.multiGet()
	time.Sleep(30 * time.Second)
	stopWatch()
	watching.Wait()
	if m := rt(g.c).Map(); m.Version != g.Map.Version {
		t.Errorf("the client has version %d of the map, the cluster %d", m.Version, g.Map.Version)
	}
	for _, n := range g.Nodes {
		if open := n.Connected(); open > 0 && !slices.Contains(g.in, n.ID) {
			t.Errorf("%d connections to %s, which has left", open, n.ID)
		}
	}
	puts := 0
	for _, key := range g.keys {
		n := g.began[key]
		puts += n
		if done := g.Done(key); done != n || told[key] != n-1 {
			t.Errorf("%s: %d puts took effect %d times, and %d were told of behind the first", key, n, done, told[key])
		}
	}
	n := g.c.Counters()
	if err := g.c.Close(); err != nil && !errors.Is(err, client.ErrClosed) {
		t.Error(err)
	}
	for _, n := range g.Nodes {
		if open := n.Connected(); open > 0 {
			t.Errorf("%d connections to %s are left", open, n.ID)
		}
	}
	stop()
	beats.Wait()
	if t.Failed() {
		for _, line := range g.log {
			t.Log(line)
		}
	}
	t.Logf("%d maps; %d puts, %d gets of which %d by READ, %d with a bound; %d misses", g.Map.Version, puts, n.Gets, n.OneSidedHits, n.Bounded, n.OneSidedMisses)
	if puts < 100 || n.Bounded == 0 || g.Map.Version < 5 {
		t.Error("that is too little to show anything")
	}
}
