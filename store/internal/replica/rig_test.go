package replica

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/clock"
	"github.com/rdmakv/rdmakv/store/internal/dedup"
	"github.com/rdmakv/rdmakv/store/internal/entry"
	"github.com/rdmakv/rdmakv/store/internal/flight"
	"github.com/rdmakv/rdmakv/store/internal/pipeline"
	"github.com/rdmakv/rdmakv/store/internal/shard"
	"github.com/rdmakv/rdmakv/store/internal/sketch"
	"github.com/rdmakv/rdmakv/store/layout"
	"github.com/rdmakv/rdmakv/store/log"
	"github.com/rdmakv/rdmakv/store/reclaim"
	"github.com/rdmakv/rdmakv/store/region"
	"github.com/rdmakv/rdmakv/store/slab"
)

const shards = 2 // of the group; the store has one more

// A group is the replicas of one group and, in the place of the engine, a list of what is committed and a
// list of what the leader has proposed. Everything happens by one goroutine.
type group struct {
	t       testing.TB
	nodes   []*node
	log     []committed
	pending [][]byte // of the leader, in order
	leader  int      // of nodes; -1: none
	term    uint64
	lives   uint64
}

type committed struct {
	term uint64
	data []byte
}

// A node is a replica with the memory that its entries go to.
type node struct {
	*Replica
	g       *group
	id      int
	mem     *shard.Memory
	shards  []*shard.Shard
	results *dedup.Table
	order   *pipeline.Orderer
	told    []*flight.Flight // published writes, in order
	at      int              // of the log, what it has applied
	trimmed []uint64
	short   int      // how often it was told that results were forgotten early
	ready   []uint64 // terms
	configs []uint64 // indexes
	shown   uint64   // index
	hidden  bool     // writes were published, and that was not told yet
}

// asked is a write that a test has asked for.
type asked struct {
	op       base.Op
	result   base.Result
	over     bool
	answered int
	at       *node
}

func newGroup(t testing.TB, n int) *group {
	g := &group{t: t, leader: -1}
	for i := range n {
		g.nodes = append(g.nodes, g.start(i))
	}
	return g
}

// start makes a node that has nothing.
func (g *group) start(id int) *node {
	n := &node{g: g, id: id, results: dedup.New(1 << 10)}
	n.mem = &shard.Memory{
		Incarnation: 7, Seed: uint64(100 + id), Shards: shards + 1, Backed: true, Sketch: sketch.New(1 << 10), Counts: new(base.Counters),
		Clock: clock.New(func() (time.Time, time.Duration) { return time.Unix(1000, 0), 0 }, 0),
		Fence: base.NewFence(slog.New(slog.DiscardHandler), func(err error) { g.t.Errorf("fenced: %v", err) }),
	}
	var err error
	n.mem.Table, err = region.NewTable(region.Config{
		Memory: &region.HeapMemory{}, Incarnation: 7, Seed: n.mem.Seed, Shards: shards + 1,
		RegionSize: 2 << 20, IndexRegionSize: 1 << 20, Limit: 16 << 20,
	})
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() {
		if err := n.mem.Table.Close(); err != nil {
			g.t.Error(err)
		}
	})
	n.mem.Reclaim = reclaim.New(n.mem.Table, time.Second)
	n.mem.Slabs = slab.New(n.mem.Table, n.mem.Reclaim)
	var mine []uint16
	for i := range uint16(shards + 1) {
		sh, err := shard.New(i, n.mem, 0, false)
		if err != nil {
			g.t.Fatal(err)
		}
		sh.SetFull(0)
		sh.Agreed.Store(true)
		n.shards = append(n.shards, sh)
		if i < shards {
			mine = append(mine, i)
		}
	}
	g.lives++
	n.Replica = New(Config{
		Group: 3, Stream: 30, Trim: func(upTo uint64) { n.trimmed = append(n.trimmed, upTo) },
		Life: g.lives, Shards: n.shards, Mine: mine, Seed: n.mem.Seed, Results: n.results, MostBytes: 4 << 10,
		Propose: n.propose,
		At:      func(index uint64) (log.Position, error) { return log.Position(1000 * index), nil },
		Reserve: func(size int) (layout.Place, uint8) {
			place, class, err := n.mem.Slabs.Alloc(size)
			if err != nil {
				g.t.Error(err)
			}
			return place, class
		},
		Free:  n.mem.Slabs.Free,
		Short: func() { n.short++ },
		Ready: func(term uint64) {
			if _, orders := n.Replica.Ready(); orders {
				g.t.Error("it orders, and nobody was told that it is ready")
			}
			n.ready = append(n.ready, term)
		},
		Configured: func(c consensus.Config) { n.configs = append(n.configs, c.Index) },
		Publish: func(writes []*flight.Flight) {
			shard.PublishAll(n.shards, writes, n.results)
			n.hidden = true
		},
		Shown: func(index uint64) {
			if index <= n.shown {
				g.t.Errorf("entry %d is shown behind entry %d", index, n.shown)
			}
			n.shown, n.hidden = index, false
		},
		Done: func(writes []*flight.Flight, bytes int64) {
			if n.hidden {
				g.t.Error("writes are answered that readers were not told of (R25)")
			}
			for _, f := range writes {
				n.told = append(n.told, f)
				if f.Done != nil {
					f.Done(f)
					bytes -= f.Charge
				}
			}
			if bytes != 0 {
				g.t.Errorf("writes were answered whose bytes differ by %d from what they were admitted with", bytes)
			}
		},
		Void: func(writes []*flight.Flight, bytes int64) {
			for _, f := range writes {
				f.Done(f)
				bytes -= f.Charge
			}
			if bytes != 0 {
				g.t.Errorf("void writes whose bytes differ by %d from what they were admitted with", bytes)
			}
		},
	}, entry.State{})
	n.order = pipeline.NewOrderer(n.Replica, n.orderEnv())
	return n
}

// orderEnv is what a node's writes are ordered with.
func (n *node) orderEnv() pipeline.OrderEnv {
	return pipeline.OrderEnv{
		Memory: n.mem, Results: n.results,
		Reserve: func(size int, _ bool) (layout.Place, uint8, error) { return n.mem.Slabs.Alloc(size) },
		Read: func(*shard.Shard, []byte, bool) (flight.KeyState, error) {
			n.g.t.Error("the disk is asked, and memory has all keys")
			return flight.KeyState{}, nil
		},
	}
}

// propose is the engine's Propose.
func (n *node) propose(term uint64, data []byte) error {
	if n.g.leader != n.id || n.g.term != term {
		return consensus.ErrNotLeader
	}
	n.g.pending = append(n.g.pending, slices.Clone(data))
	return nil
}

// run does what Run does when it is woken.
func (n *node) run() {
	for {
		term, data, what := n.proposal()
		if data == nil || n.c.Propose(term, data) != nil {
			return
		}
		n.proposed(term, what)
	}
}

// ask has a node order a write; nil: it did not, and the error says why.
func (n *node) ask(op base.Op) (*asked, error) {
	a := &asked{op: op}
	f := &flight.Flight{Op: &a.op, Result: &a.result, Charge: int64(len(op.Key)+len(op.Value)) + 100, Carrier: a}
	f.Done = func(*flight.Flight) { a.over, a.answered = true, a.answered+1 }
	if err := n.order.Order(n.shards[op.Shard], f, pipeline.Wait{Disk: true, Memory: true}); err != nil {
		return nil, err
	}
	return a, nil
}

// submit has a node order a write, and done told what becomes of it.
func (n *node) submit(op base.Op, done func(error)) error {
	f := &flight.Flight{Op: &op, Result: new(base.Result), Charge: int64(len(op.Key)+len(op.Value)) + 100}
	f.Done = func(f *flight.Flight) { done(f.Result.Err) }
	return n.order.Order(n.shards[op.Shard], f, pipeline.Wait{Disk: true, Memory: true})
}

// commit commits the first of what is pending.
func (g *group) commit(n int) {
	for _, data := range g.pending[:n] {
		g.log = append(g.log, committed{g.term, data})
	}
	g.pending = g.pending[n:]
}

// elect makes another leader, in a new term. Of what is pending the first keep entries are
// committed, and the others are lost.
func (g *group) elect(to, keep int) {
	g.commit(keep)
	g.pending, g.leader = nil, to
	g.term++
	g.nodes[to].Leads(g.term)
}

// apply has a node apply so many entries.
func (n *node) apply(count int) {
	for ; count > 0 && n.at < len(n.g.log); count-- {
		e := n.g.log[n.at]
		data := slices.Clone(e.data)
		err := n.Apply([]consensus.Entry{{Index: uint64(n.at + 1), Term: e.term, Kind: consensus.Write, Data: data}})
		if err != nil {
			n.g.t.Fatalf("node %d, entry %d: %v", n.id, n.at+1, err)
		}
		for i := range data {
			data[i] = 0xee // it is the engine's again
		}
		n.at++
	}
}

// settle commits all that is pending and has all nodes apply it, until nothing is left.
func (g *group) settle() {
	for again := true; again; {
		for _, n := range g.nodes {
			n.run()
		}
		again = len(g.pending) > 0
		g.commit(len(g.pending))
		for _, n := range g.nodes {
			n.apply(1 << 20)
		}
	}
}

// lead makes a node the leader, and has it order.
func (g *group) lead(to int) {
	g.t.Helper()
	old := g.leader
	g.elect(to, 0)
	if old >= 0 && old != to {
		g.nodes[old].Follows(g.term, consensus.ReplicaID(to))
	}
	g.settle()
	if _, ok := g.nodes[to].Ready(); !ok {
		g.t.Fatalf("node %d leads, and does not order", to)
	}
}

// content is what a node has in memory: a line a key.
func (n *node) content(keys []string) string {
	var out strings.Builder
	for id := range uint16(shards) {
		sh := n.shards[id]
		for _, k := range keys {
			h := layout.HashKey(n.mem.Seed, []byte(k))
			sh.Mu.Lock()
			it, ok := sh.Resident(h, []byte(k))
			if ok {
				fmt.Fprintf(&out, "%d/%s = %s, version %v\n", id, k, it.InPlace(), it.Version)
			}
			sh.Mu.Unlock()
		}
		if m := sh.Marks(); m.Flying != 0 || m.Ordered != m.Published {
			fmt.Fprintf(&out, "shard %d of node %d: %+v\n", id, n.id, m)
		}
	}
	return out.String()
}

// leaked is how many bytes of places are in use for no key.
func (n *node) leaked(keys []string) int {
	live := int(n.mem.Slabs.Stats().Live)
	for _, sh := range n.shards {
		for _, k := range keys {
			sh.Mu.Lock()
			if it, ok := sh.Resident(layout.HashKey(n.mem.Seed, []byte(k)), []byte(k)); ok {
				live -= layout.ClassSize(it.Slot.Class())
			}
			sh.Mu.Unlock()
		}
	}
	return live
}

// number is the number under a key of shard 0, 0 if there is none.
func (n *node) number(shard uint16, key string) int64 {
	sh := n.shards[shard]
	sh.Mu.Lock()
	defer sh.Mu.Unlock()
	it, ok := sh.Resident(layout.HashKey(n.mem.Seed, []byte(key)), []byte(key))
	if !ok {
		return 0
	}
	v, err := strconv.ParseInt(string(it.InPlace()), 10, 64)
	if err != nil {
		n.g.t.Errorf("%s is %q", key, it.InPlace())
	}
	return v
}

// request names a request.
func request(client byte, seq uint64, retry bool) base.RequestID {
	id := base.RequestID{Seq: seq}
	id.Client[0] = client
	if retry {
		id.Age = time.Second
	}
	return id
}

// add is an increment by one.
func add(shard uint16, key string, id base.RequestID) base.Op {
	return base.Op{Shard: shard, Kind: base.OpIncrement, Key: []byte(key), Delta: 1, ID: id}
}

// refused says whether an outcome is that of a write that was not done.
func refused(err error) bool { return errors.Is(err, base.ErrNotLeader) }
