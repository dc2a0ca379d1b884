package driver

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/internal/consensus/core"
	"github.com/rdmakv/rdmakv/store/log"
)

// Config is what a Node is made of.
type Config struct {
	Name string   // of this node, as configurations have it
	Log  *log.Log // the node's; its policy is log.Always
	Link consensus.Link
	// Stream returns the stream of the log that a group has, for ever; nil: its own number.
	Stream func(consensus.GroupID) uint64
	Limits core.Limits
	Tick   time.Duration // default 10 ms
	// Overdue is for how long a sync may take until a leader hands over; default 500 ms.
	Overdue time.Duration
	// Full says whether the disk of this node is so full that it takes no puts. It is called often, and must not block. Default: never.
	Full func() bool
	// Settled is for how long the disk must have had room until the node counts as one that is not full; default 10 s.
	Settled time.Duration
	// Memory bounds the bytes of entries of a group that are kept in memory behind their
	// sync, for followers that are not far behind; default 4 MiB.
	Memory int64
	// Absent is for how long the log keeps what a replica lacks that is not heard of, while no more than half of the log is in use; default 5 minutes.
	// Who is away for longer is sent a snapshot.
	Absent time.Duration
	// Fenced is told of a replica that was stopped by an error. It must not block.
	Fenced func(consensus.GroupID, error)
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	if c.Tick == 0 {
		c.Tick = 10 * time.Millisecond
	}
	if c.Overdue == 0 {
		c.Overdue = 500 * time.Millisecond
	}
	if c.Full == nil {
		c.Full = func() bool { return false }
	}
	if c.Settled == 0 {
		c.Settled = 10 * time.Second
	}
	if c.Memory == 0 {
		c.Memory = 4 << 20
	}
	if c.Absent == 0 {
		c.Absent = 5 * time.Minute
	}
	if c.Stream == nil {
		c.Stream = func(g consensus.GroupID) uint64 { return uint64(g) }
	}
	if c.Fenced == nil {
		c.Fenced = func(consensus.GroupID, error) {}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// A Node runs the replicas of one node. It implements consensus.Engine, and is safe for
// concurrent use.
type Node struct {
	c         Config
	most      int64 // bytes of a frame of the log
	proposing int64 // bytes of a group's entries that may wait to be proposed
	ctx       context.Context
	cancel    context.CancelFunc
	running   sync.WaitGroup
	poke      chan struct{} // capacity 1: some group is ready, and nobody takes turns
	turns     chan *turn    // capacity 1: who has taken it takes turns, and puts it back
	any       chan struct{} // closed once there has been a group: a node without any does not tick
	backlog   backlog
	disk      fullness
	places    places
	intake    intake
	ticks     atomic.Uint64 // of the clock

	mu        sync.Mutex
	groups    map[consensus.GroupID]*group
	starting  map[consensus.GroupID]bool
	queue     []*group // they are ready
	spare     []*group
	failed    error // the log's
	closed    bool
	warned    time.Time // when the last strange message was told of
	strangers int       // messages that were not told of since
}

var (
	_ consensus.Engine   = (*Node)(nil)
	_ consensus.Endpoint = (*Node)(nil)
	_ consensus.Salvager = (*Node)(nil)
)

// New returns a node without replicas. Close ends it; the log stays the caller's.
func New(c Config) *Node {
	c = c.withDefaults()
	f := c.Log.Begin()
	most := min(frameMost, f.Left())
	f.Drop()
	n := &Node{
		c: c, most: most, proposing: int64(c.Limits.WithDefaults().Uncommitted),
		poke: make(chan struct{}, 1), turns: make(chan *turn, 1), any: make(chan struct{}), groups: map[consensus.GroupID]*group{}, starting: map[consensus.GroupID]bool{},
	}
	n.backlog.cond.L = &n.backlog.mu
	n.turns <- &turn{n: n, out: map[string]*outgoing{}}
	n.ctx, n.cancel = context.WithCancel(context.Background())
	n.running.Go(n.schedule)
	n.running.Go(n.clock)
	n.running.Go(n.write)
	return n
}

// clock ticks. A tick that comes late is one tick: missed ones are not made up.
func (n *Node) clock() {
	select {
	case <-n.any:
	case <-n.ctx.Done():
		return
	}
	t := time.NewTicker(n.c.Tick)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-n.ctx.Done():
			return
		}
		n.mu.Lock()
		all := n.allLocked()
		n.mu.Unlock()
		if err := n.c.Log.Err(); err != nil {
			n.fail(err) // somebody else has written when it failed
		}
		n.look(time.Now())
		n.ticks.Add(1)
		for _, g := range all {
			g.tick()
		}
		n.help()
	}
}

// wake tells of a group for which something happened. Unless the caller is about to help, the scheduler takes the turn if nobody
// does: whoever does looks for such groups again once he has put the turn back.
func (n *Node) wake(g *group, helps bool) {
	n.mu.Lock()
	n.queue = append(n.queue, g)
	n.mu.Unlock()
	if !helps && len(n.turns) > 0 {
		n.rouse()
	}
}

// rouse has the scheduler look for groups.
func (n *Node) rouse() {
	select {
	case n.poke <- struct{}{}:
	default:
	}
}

// idle reports whether there is no group for which something happened.
func (n *Node) idle() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.queue) == 0
}

// ready returns the groups for which something happened. The turn calls it.
func (n *Node) ready() []*group {
	n.mu.Lock()
	defer n.mu.Unlock()
	list := n.queue
	n.queue, n.spare = n.spare[:0], list
	return list
}

// fence stops a replica for good.
func (n *Node) fence(g *group, err error) {
	if g.r == nil {
		return
	}
	n.c.Logger.Error("a replica is fenced", "group", g.id, "err", err)
	g.end(fmt.Errorf("%w: %w", consensus.ErrFenced, err))
	n.c.Fenced(g.id, err)
}

// end stops a replica. The turn calls it, or Close behind the last turn.
func (g *group) end(err error) {
	g.mu.Lock()
	led := g.status.Leads
	term := g.status.Term
	g.stopped = err
	g.status.Fenced, g.status.Leads = err, false
	g.mu.Unlock()
	g.broken.Store(true)
	g.r = nil
	g.waiting, g.later = nil, nil
	g.reads.fail(err)
	g.handing.end(err)
	g.unsettled()
	g.abandon()
	if g.received != nil {
		g.received.drop(err)
		g.received = nil
	}
	if led {
		g.m.Follows(term, 0)
	}
	g.cancel()
}

// fail stops all replicas: the log has failed.
func (n *Node) fail(err error) {
	n.mu.Lock()
	first := n.failed == nil
	if first {
		n.failed = err
	}
	all := n.allLocked()
	n.mu.Unlock()
	if !first {
		return
	}
	for _, g := range all {
		g.post(func(*turn, *group) error { return err })
	}
}

func (n *Node) allLocked() []*group {
	all := make([]*group, 0, len(n.groups))
	for _, id := range slices.Sorted(maps.Keys(n.groups)) {
		all = append(all, n.groups[id])
	}
	return all
}

// strange tells of a message that no replica sends, once in a while.
func (n *Node) strange(g consensus.GroupID, node string, err error) {
	n.mu.Lock()
	n.strangers++
	skipped, tell := n.strangers-1, time.Since(n.warned) > time.Second
	if tell {
		n.warned, n.strangers = time.Now(), 0
	}
	n.mu.Unlock()
	if tell {
		n.c.Logger.Warn("a message of a replica is not taken", "group", g, "from", node, "err", err, "others", skipped)
	}
}

// group returns a replica.
func (n *Node) group(id consensus.GroupID) (*group, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if g := n.groups[id]; g != nil {
		return g, nil
	}
	if n.closed {
		return nil, consensus.ErrClosed
	}
	return nil, fmt.Errorf("%w: group %d", consensus.ErrNoGroup, id)
}

// Create gives a replica that never was its log. state is what the group starts from, or
// zero for one that gets it from the others.
func (n *Node) Create(id consensus.GroupID, self consensus.ReplicaID, state consensus.State) error {
	if state.Applied > 0 {
		if err := state.Config.Check(); err != nil {
			return err
		}
	}
	return core.Create(n.c.Log, n.c.Stream(id), self, state)
}

// Start implements consensus.Engine.
func (n *Node) Start(ctx context.Context, id consensus.GroupID, self consensus.ReplicaID, m consensus.Machine) error {
	if err := n.claim(id); err != nil {
		return err
	}
	g, err := n.newGroup(id, self, m)
	n.mu.Lock()
	delete(n.starting, id)
	switch {
	case err != nil:
	case n.closed:
		err = consensus.ErrClosed
	case n.failed != nil:
		err = n.failed
	case ctx.Err() != nil:
		err = ctx.Err()
	default:
		n.groups[id] = g
		select {
		case <-n.any:
		default:
			close(n.any)
		}
	}
	n.mu.Unlock()
	if err != nil {
		return err
	}
	go g.apply()
	g.post(func(*turn, *group) error { return nil })
	return nil
}

// claim says that a replica is about to be started.
func (n *Node) claim(id consensus.GroupID) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.closed:
		return consensus.ErrClosed
	case n.failed != nil:
		return n.failed
	case n.c.Log.Err() != nil:
		return n.c.Log.Err()
	case n.groups[id] != nil || n.starting[id]:
		return fmt.Errorf("consensus: group %d has a replica here already", id)
	}
	n.starting[id] = true
	return nil
}

// do has the turn do something for a group and waits for what comes of it.
func (n *Node) do(ctx context.Context, id consensus.GroupID, f func(t *turn, g *group, done chan<- error) error) error {
	g, err := n.group(id)
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	if !g.note(func(t *turn, g *group) error { return f(t, g, done) }) {
		return g.why()
	}
	n.help()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-g.ctx.Done():
		select {
		case err := <-done:
			return err
		default:
			return g.why()
		}
	}
}

func (g *group) why() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stopped != nil {
		return g.stopped
	}
	return consensus.ErrClosed
}

// Barrier implements consensus.Engine.
func (n *Node) Barrier(ctx context.Context, id consensus.GroupID) error {
	return n.do(ctx, id, func(_ *turn, g *group, done chan<- error) error {
		switch {
		case !g.r.Role().Leads:
			done <- consensus.ErrNotLeader
		case !g.reads.add(done):
			done <- fmt.Errorf("%w: %d reads wait", consensus.ErrBusy, maxReads)
		}
		return nil
	})
}

// Trim implements consensus.Engine.
func (n *Node) Trim(id consensus.GroupID, upTo uint64) error {
	g, err := n.group(id)
	if err != nil {
		return err
	}
	if !g.post(func(t *turn, g *group) error { return t.trim(g, upTo) }) {
		return g.why()
	}
	return nil
}

// Status implements consensus.Engine.
func (n *Node) Status(id consensus.GroupID) (consensus.Status, error) {
	g, err := n.group(id)
	if err != nil {
		return consensus.Status{}, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.status
	s.Peers = slices.Clone(s.Peers)
	for i := range s.Peers {
		s.Peers[i].Node = s.Config.Node(s.Peers[i].ID)
	}
	return s, nil
}

// Deliver implements consensus.Endpoint. A bad message does not take those of other groups
// along that stand behind it.
func (n *Node) Deliver(node string, b []byte) (bad error) {
	for len(b) > 0 {
		id, m, rest, err := core.ParseMessage(b)
		b = rest
		if err != nil {
			bad = err
			continue
		}
		n.mu.Lock()
		g := n.groups[id]
		n.mu.Unlock()
		if g != nil {
			g.deliver(node, m)
		}
	}
	n.help()
	return bad
}

// Stop implements consensus.Engine.
func (n *Node) Stop(id consensus.GroupID, forget bool) error {
	g, err := n.group(id)
	if err != nil {
		return err
	}
	g.post(func(_ *turn, g *group) error {
		g.end(consensus.ErrClosed)
		return nil
	})
	<-g.ctx.Done()
	g.wait()
	n.mu.Lock()
	mine := n.groups[id] == g && !n.closed
	if mine {
		delete(n.groups, id)
	}
	n.mu.Unlock()
	if !mine {
		return fmt.Errorf("%w: group %d was stopped by another call", consensus.ErrNoGroup, id)
	}
	if forget {
		return n.c.Log.DropStream(n.c.Stream(id))
	}
	return nil
}

// wait returns when nobody works for a replica that was stopped.
func (g *group) wait() {
	<-g.done
	g.guests.Wait()
	g.storing.Wait()
}

// Close ends all replicas. Their machines are not called any more when it returns; what was
// handed to the disk is there.
func (n *Node) Close() error {
	n.mu.Lock()
	n.closed = true
	all := n.allLocked()
	n.mu.Unlock()
	n.cancel()
	n.running.Wait()
	for _, g := range all {
		if g.r != nil {
			g.end(consensus.ErrClosed)
		}
		for _, e := range g.take(nil) {
			if e.drop != nil {
				e.drop()
			}
		}
		g.wait()
	}
	return nil
}
