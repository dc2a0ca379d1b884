package consensustest

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/store/log"
	"github.com/rdmakv/rdmakv/store/log/logtest"
)

// An Engine is what the suite judges: the replicas of one node.
type Engine interface {
	consensus.Engine
	consensus.Endpoint
	io.Closer
}

// A NodeConfig is what a Maker makes an engine of.
type NodeConfig struct {
	Name   string
	Log    *log.Log
	Link   consensus.Link
	Fenced func(consensus.GroupID, error)
	Full   func() bool   // the disk of the node takes no puts
	Absent time.Duration // for how long the log keeps what a replica lacks that is away
	Logger *slog.Logger
}

// A Maker makes an engine.
type Maker func(NodeConfig) Engine

// A World is a cluster in a bubble of testing/synctest.
type World struct {
	t     testing.TB
	make  Maker
	judge *judge
	net   *network
	names []string
	nodes map[string]*Node

	absent time.Duration // NodeConfig.Absent
	told   *lines

	mu  sync.Mutex
	rng *rand.Rand
}

// shortly is for how long a log keeps what an absent replica lacks, in most scenes: those are about snapshots.
const shortly = 500 * time.Millisecond

// newWorld makes nodes that are up, and have no replicas.
func newWorld(t testing.TB, seed uint64, engines Maker, nodes int) *World {
	w := &World{t: t, make: engines, judge: newJudge(), nodes: map[string]*Node{}, rng: rand.New(rand.NewPCG(seed, 7)), absent: shortly, told: &lines{of: map[line]int{}}}
	w.net = newNetwork(w)
	for i := range nodes {
		name := fmt.Sprintf("n%d", i+1)
		w.names = append(w.names, name)
		w.nodes[name] = &Node{w: w, name: name, disk: logtest.New(logtest.Options{Seed: seed + uint64(i)}), replicas: map[consensus.GroupID]*replica{}, every: 20}
		w.node(name).boot()
	}
	return w
}

func (w *World) node(name string) *Node { return w.nodes[name] }

func (w *World) upTo(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Duration(w.rng.Int64N(int64(d)))
}

func (w *World) sleep(upTo time.Duration) { time.Sleep(w.upTo(upTo)) }

func (w *World) chance(p float64) bool {
	if p == 0 {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rng.Float64() < p
}

func (w *World) intN(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rng.IntN(n)
}

// close ends all nodes, and fails the test with what must not have happened.
func (w *World) close() {
	w.t.Helper()
	for _, name := range w.names {
		w.node(name).hang(false)
		w.node(name).stop()
	}
	if err := w.judge.Err(); err != nil {
		w.t.Error(err)
	}
}

// found makes a group whose replicas, 1 to n, are at the first n nodes.
func (w *World) found(g consensus.GroupID, voters int) {
	w.t.Helper()
	c := consensus.Config{Index: 1}
	for i := range voters {
		c.Voters = append(c.Voters, consensus.Member{ID: consensus.ReplicaID(i + 1), Node: w.names[i]})
	}
	w.judge.mu.Lock()
	w.judge.of(g).configs[1] = c
	w.judge.mu.Unlock()
	for _, m := range c.Voters {
		if err := w.node(m.Node).create(g, m.ID, consensus.State{Applied: 1, Term: 1, Config: c}); err != nil {
			w.t.Fatal(err)
		}
	}
}

// leader waits for the replica that leads a group, and has published an entry of its term.
func (w *World) leader(g consensus.GroupID) *Machine {
	w.t.Helper()
	for range 1000 {
		var best *Machine
		var term uint64
		for _, name := range w.names {
			m := w.node(name).machine(g)
			if m == nil {
				continue
			}
			m.mu.Lock()
			if m.role.leads && m.state.Term == m.role.term && m.role.term > term {
				best, term = m, m.role.term
			}
			m.mu.Unlock()
		}
		if best != nil {
			return best
		}
		time.Sleep(10 * time.Millisecond)
	}
	w.t.Fatalf("nobody leads group %d for 10 s%s", g, w.tell(g))
	return nil
}

// put writes until it is acknowledged.
func (w *World) put(g consensus.GroupID, write string) uint64 {
	w.t.Helper()
	for range 30 {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		index, ok := w.leader(g).put(ctx, write)
		cancel()
		if ok {
			return index
		}
		time.Sleep(10 * time.Millisecond)
	}
	w.t.Fatalf("a write of group %d is not acknowledged%s", g, w.tell(g))
	return 0
}

// settle waits until all replicas of a group that its configuration has are equal, and holds
// them to what was acknowledged.
func (w *World) settle(g consensus.GroupID) {
	w.t.Helper()
	var text string
	for range 2000 {
		lead := w.leader(g)
		lead.mu.Lock()
		config, applied := lead.state.Config, lead.state.Applied
		lead.mu.Unlock()
		var all []*Machine
		text = ""
		for _, list := range [2][]consensus.Member{config.Voters, config.Learners} {
			for _, member := range list {
				m := w.node(member.Node).machine(g)
				if m == nil {
					text += fmt.Sprintf(" %s is down", member.Node)
					continue
				}
				m.mu.Lock()
				if m.id != member.ID || m.state.Applied != applied {
					text += fmt.Sprintf(" %s is at %d of %d", member.Node, m.state.Applied, applied)
				}
				m.mu.Unlock()
				all = append(all, m)
			}
		}
		if s, err := lead.node.engineOf().Status(g); err != nil || s.Last != applied {
			text += fmt.Sprintf(" the log is at %d of %d (%v)", s.Last, applied, err)
		}
		if text == "" {
			w.judge.final(g, all)
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	w.t.Fatalf("group %d is not equal after 20 s:%s%s", g, text, w.tell(g))
}

// tell says how the nodes are.
func (w *World) tell(g consensus.GroupID) (text string) {
	for _, name := range w.names {
		n := w.node(name)
		if !n.isUp() {
			text += fmt.Sprintf("\n%s is down", name)
			continue
		}
		s, err := n.engineOf().Status(g)
		n.mu.Lock()
		room, _ := n.log.Room(log.Puts)
		facts, _ := n.log.Room(log.Facts)
		text += fmt.Sprintf("\n%s: %+v %v; the log has room for %d bytes, and facts for %d: %+v", name, s, err, room, facts, n.log.Stats())
		n.mu.Unlock()
	}
	return text
}
