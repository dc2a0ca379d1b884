package replica

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/internal/consensus/driver"
	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/entry"
	"github.com/rdmakv/rdmakv/store/log"
	"github.com/rdmakv/rdmakv/store/log/logtest"
)

// Replicas over the engine itself: its elections, its turns, and a log on a disk that loses power.

// A machine is what the engine asks of a replica and is not there yet: what is durable, and snapshots.
type machine struct {
	*Replica
	founded consensus.State
}

func (m *machine) State() (consensus.State, error) { return m.founded, nil }
func (m *machine) Durable(uint64)                  {}
func (m *machine) Adopt(consensus.Received) error  { return consensus.ErrBusy }
func (m *machine) Snapshot(context.Context) (consensus.Snapshot, error) {
	return nil, consensus.ErrBusy
}

func (m *machine) Receive(context.Context, consensus.State, io.Reader) (consensus.Received, error) {
	return nil, consensus.ErrBusy
}

const theGroup = consensus.GroupID(3)

// A cluster is three nodes with a replica each.
type cluster struct {
	*group
	state consensus.State

	mu    sync.Mutex
	hosts []*host
	out   map[[2]int]bool // ways that are cut, from and to
}

// A host is one node: a disk that stays, and what runs on it.
type host struct {
	c      *cluster
	id     int
	disk   *logtest.Disk
	log    *log.Log
	engine *driver.Node
	node   *node
	life   *base.Life
}

func nameOf(id int) string { return fmt.Sprint("n", id) }

func newCluster(t *testing.T, seed uint64) *cluster {
	c := &cluster{group: &group{t: t, leader: -1}, out: map[[2]int]bool{}}
	c.state = consensus.State{Applied: 1, Term: 1, Config: consensus.Config{Index: 1}}
	for i := range 3 {
		c.state.Config.Voters = append(c.state.Config.Voters, consensus.Member{ID: consensus.ReplicaID(i + 1), Node: nameOf(i)})
	}
	for i := range 3 {
		h := &host{c: c, id: i, disk: logtest.New(logtest.Options{Seed: seed + uint64(i)})}
		c.hosts = append(c.hosts, h)
		h.start(true)
	}
	return c
}

// start begins a life of a node. What it had applied is not durable: it applies its log again, which has room for
// all of it, because nothing is trimmed.
func (h *host) start(first bool) {
	t := h.c.t
	l, err := log.Open(log.Config{Dir: h.disk, Store: [16]byte{1}, Create: first, SegmentSize: 16 << 20})
	if err == nil {
		err = errors.Join(l.Replay(nil), l.Start(l.Found().Epoch+1))
	}
	if err != nil {
		t.Fatal(err)
	}
	n := h.c.group.start(h.id)
	const shortly = 500 * time.Millisecond // storms are to have snapshots
	e := driver.New(driver.Config{Name: nameOf(h.id), Log: l, Link: &wire{h.c, h.id}, Absent: shortly, Fenced: func(_ consensus.GroupID, err error) {
		h.c.mu.Lock()
		defer h.c.mu.Unlock()
		if h.engine != nil && h.log == l { // else its disk has lost power
			t.Errorf("node %d is fenced: %v", h.id, err)
		}
	}})
	n.c.Propose = func(term uint64, data []byte) error { return e.Propose(theGroup, term, data) }
	n.c.At = func(index uint64) (log.Position, error) { return l.EntryAt(uint64(theGroup), index) }
	n.state = entry.State{State: h.c.state}
	if first {
		if err := e.Create(theGroup, consensus.ReplicaID(h.id+1), h.c.state); err != nil {
			t.Fatal(err)
		}
	}
	h.c.mu.Lock()
	h.log, h.engine, h.node, h.life = l, e, n, base.NewLife(n.mem.Fence)
	h.c.mu.Unlock()
	h.life.Go(func() { n.Run(h.life) })
	if err := e.Start(context.Background(), theGroup, consensus.ReplicaID(h.id+1), &machine{n.Replica, h.c.state}); err != nil {
		t.Fatal(err)
	}
}

// stop ends a life, as a power cut does: what was not synced is gone.
func (h *host) stop() {
	h.c.mu.Lock()
	e, l := h.engine, h.log
	h.engine = nil
	h.c.mu.Unlock()
	if e == nil {
		return
	}
	h.disk = h.disk.Crash(h.c.lives)
	h.life.End()
	if err := e.Close(); err != nil {
		h.c.t.Error(err)
	}
	<-h.life.Done()
	_ = l.Close(false) // its disk has lost power
}

// A wire takes messages from a node, with some delay. It keeps no order.
type wire struct {
	c    *cluster
	from int
}

func (w *wire) Send(to string, _ bool, b []byte) {
	b = bytes.Clone(b)
	for i, h := range w.c.hosts {
		if nameOf(i) != to {
			continue
		}
		go func() {
			time.Sleep(time.Duration(rand.IntN(1000)) * time.Microsecond)
			w.c.mu.Lock()
			e, cut := h.engine, w.c.out[[2]int{w.from, i}]
			w.c.mu.Unlock()
			if e != nil && !cut {
				_ = e.Deliver(nameOf(w.from), b)
			}
		}()
	}
}

func (w *wire) Snapshot(context.Context, string, consensus.SnapshotHead, io.Reader) error {
	return consensus.ErrBusy
}

// ready returns the node that orders; nil: there is none, or there are two that think so and one is deposed.
func (c *cluster) ready() (lead *node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	best := uint64(0)
	for _, h := range c.hosts {
		if h.engine == nil {
			continue
		}
		if reign, ok := h.node.Ready(); ok && reign > best {
			best, lead = reign, h.node
		}
	}
	return lead
}

// TestEngine: three replicas over the engine, whose leaders lose power or are cut off while increments are under way.
// Each that was acknowledged is there once, at all of them.
func TestEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seed := rand.Uint64N(1 << 40)
		t.Logf("seed %d", seed)
		rnd := rand.New(rand.NewPCG(seed, 1))
		c := newCluster(t, seed)
		span, least := 20*time.Second, 10
		if testing.Short() {
			span, least = 6*time.Second, 2
		}
		ends := time.Now().Add(span)
		var sum struct {
			sync.Mutex
			done map[string]int64
		}
		sum.done = map[string]int64{}
		var clients sync.WaitGroup
		for client := range 4 {
			clients.Go(func() {
				for seq := uint64(1); time.Now().Before(ends); seq++ {
					shard, key := uint16(seq%shards), string(rune('a'+client%3))
					c.increment(add(shard, key, request(byte(client), seq, false)))
					sum.Lock()
					sum.done[fmt.Sprint(shard, key)]++
					sum.Unlock()
				}
			})
		}
		deposed := 0
		for time.Now().Before(ends) {
			time.Sleep(time.Duration(rnd.IntN(900)) * time.Millisecond)
			lead := c.ready()
			if lead == nil {
				continue
			}
			deposed++
			h := c.hosts[lead.id]
			if rnd.IntN(2) == 0 {
				h.stop()
				time.Sleep(time.Duration(rnd.IntN(700)) * time.Millisecond)
				h.start(false)
				continue
			}
			c.cut(h.id, true)
			time.Sleep(time.Duration(rnd.IntN(700)) * time.Millisecond)
			c.cut(h.id, false)
		}
		clients.Wait()
		time.Sleep(3 * time.Second) // all have what is committed
		total64 := int64(0)
		for _, h := range c.hosts {
			for id := range uint16(shards) {
				for _, k := range []string{"a", "b", "c"} {
					got := h.node.number(id, k)
					if want := sum.done[fmt.Sprint(id, k)]; got != want {
						t.Errorf("node %d: %s in shard %d is %d, and %d increments were acknowledged", h.id, k, id, got, want)
					}
					total64 += got
				}
			}
			if other := c.hosts[0].node.content([]string{"a", "b", "c"}); h.node.content([]string{"a", "b", "c"}) != other {
				t.Errorf("node %d has\n%snode 0 has\n%s", h.id, h.node.content([]string{"a", "b", "c"}), other)
			}
		}
		t.Logf("%d increments, %d leaders deposed", total64/3, deposed)
		if total64 < 100 || deposed < least {
			t.Error("that was no storm")
		}
		for _, h := range c.hosts {
			h.stop()
		}
		time.Sleep(time.Second) // what is on its way arrives
	})
}

// cut cuts a node off from the others, or mends that.
func (c *cluster) cut(id int, on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.hosts {
		c.out[[2]int{id, i}], c.out[[2]int{i, id}] = on, on
	}
}

// increment asks until it is acknowledged. What a node does not answer is asked again, under its name.
func (c *cluster) increment(op base.Op) {
	for ; ; op.ID.Age = time.Second {
		time.Sleep(time.Duration(1+rand.IntN(10)) * time.Millisecond)
		n := c.ready()
		if n == nil {
			continue
		}
		over := make(chan error, 1)
		err := n.submit(op, func(err error) { over <- err })
		if err == nil {
			select {
			case err = <-over:
			case <-time.After(time.Second):
				continue
			}
		}
		switch {
		case err == nil:
			return
		case !refused(err) && !errors.Is(err, base.ErrOutcomeUnknown):
			c.t.Errorf("%v", err)
			return
		}
	}
}
