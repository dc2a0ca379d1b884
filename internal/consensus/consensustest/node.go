package consensustest

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"syscall"
	"time"

	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/store/log"
	"github.com/rdmakv/rdmakv/store/log/logtest"
)

// A Node is one node of a world, over its lives.
type Node struct {
	w    *World
	name string

	mu       sync.Mutex
	life     int
	disk     *logtest.Disk
	from     log.Position // the machines durably have what the log has before it
	log      *log.Log
	engine   Engine // of the life that runs; it is not changed while a machine of it runs
	up       bool
	hung     chan struct{} // not nil: the disk answers when it is closed
	replicas map[consensus.GroupID]*replica
	slow     time.Duration // a write of the log takes up to so long
	apply    time.Duration // an entry takes up to so long to be published
	every    int           // a machine is saved after so many calls of Apply
	never    bool          // no machine is saved
	fixed    time.Duration // a write of the log takes so long more
	broken   error         // of the disk: writes of the log fail
	full     bool          // the engine is told that the disk is
	crowded  bool          // no file can be made
}

// A replica is what a node has of a group, over its lives.
type replica struct {
	id    consensus.ReplicaID
	saved []byte // the machine's state, durably
	m     *Machine
	calls int
}

// endpoint is where messages for a node arrive; nil: it is down.
func (n *Node) endpoint() consensus.Endpoint {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.up {
		return nil
	}
	return n.engine
}

// boot opens the log and starts the replicas.
func (n *Node) boot() {
	n.w.t.Helper()
	n.mu.Lock()
	disk := n.disk
	n.mu.Unlock()
	disk.OnCall(n.call)
	l, err := log.Open(log.Config{Dir: disk, Create: true, SegmentSize: 1 << 20, From: n.from, Now: time.Now})
	if err == nil {
		err = l.Replay(func(*log.Record) error { return nil })
	}
	if err == nil {
		err = l.Start(l.Found().Epoch + 1)
	}
	if err != nil {
		n.w.t.Fatalf("%s: %v", n.name, err)
	}
	n.mu.Lock()
	n.log = l
	n.life++
	life := n.life
	n.mu.Unlock()
	e := n.w.make(NodeConfig{Name: n.name, Log: l, Link: &link{n.w.net, n}, Full: n.isFull, Absent: n.w.absent, Logger: slog.New(n.w.told), Fenced: func(g consensus.GroupID, err error) { n.fenced(life, g, err) }})
	n.mu.Lock()
	n.engine, n.up = e, true
	var all []consensus.GroupID
	for g, r := range n.replicas {
		if s, ok := l.State(uint64(g)); ok && s.Term < n.w.judge.wordOf(g, r.id) {
			n.w.t.Errorf("R10: the log of %s has term %d of group %d, and its word was %d", n.name, s.Term, g, n.w.judge.wordOf(g, r.id))
		}
		all = append(all, g)
	}
	n.mu.Unlock()
	for _, g := range all {
		n.start(g)
	}
}

// call is the disk's: what becomes of a call.
func (n *Node) call(c logtest.Call) (f logtest.Fault) {
	if c.Op == logtest.OpCreate {
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.crowded {
			f.Err = syscall.ENOSPC
		}
		return f
	}
	if c.Op != logtest.OpWrite || !c.Direct || c.Off == 0 {
		return f
	}
	n.mu.Lock()
	slow, fixed, hung := n.slow, n.fixed, n.hung
	f.Err = n.broken
	n.mu.Unlock()
	if hung != nil {
		f.Hold = hung
	}
	n.w.sleep(slow)
	time.Sleep(fixed)
	return f
}

// create gives the node a replica of a group that begins with a state.
func (n *Node) create(g consensus.GroupID, id consensus.ReplicaID, s consensus.State) error {
	n.mu.Lock()
	e := n.engine
	n.mu.Unlock()
	if err := e.Create(g, id, s); err != nil {
		return err
	}
	m := &Machine{state: contents{State: s, Writes: map[string]uint64{}}}
	n.mu.Lock()
	n.replicas[g] = &replica{id: id, saved: m.encode()}
	n.mu.Unlock()
	return n.start(g)
}

// start starts a replica with what its machine has durably.
func (n *Node) start(g consensus.GroupID) error {
	n.mu.Lock()
	r := n.replicas[g]
	c, err := decode(r.saved)
	if err != nil {
		panic(err)
	}
	r.m = &Machine{w: n.w, node: n, g: g, id: r.id, state: c, slow: n.apply, wait: map[string]chan uint64{}}
	e, m := n.engine, r.m
	n.mu.Unlock()
	err = e.Start(context.Background(), g, r.id, m)
	if err != nil && !errors.Is(err, consensus.ErrClosed) && !errors.Is(err, log.ErrClosed) && !n.isDead() {
		n.w.t.Errorf("%s: start group %d: %v", n.name, g, err)
	}
	return err
}

func (n *Node) isDead() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.disk.Dead()
}

// machine returns the machine of a group; nil: there is none, or the node is down.
func (n *Node) machine(g consensus.GroupID) *Machine {
	n.mu.Lock()
	defer n.mu.Unlock()
	if r := n.replicas[g]; r != nil && n.up {
		return r.m
	}
	return nil
}

// applied saves a machine now and then, and has its log trimmed.
func (n *Node) applied(m *Machine) {
	n.mu.Lock()
	r := n.replicas[m.g]
	if r == nil || r.m != m || n.never {
		n.mu.Unlock()
		return
	}
	r.calls++
	save, full := r.calls%n.every == 0, n.log.Stats().Whole > n.from
	n.mu.Unlock()
	if full {
		n.relieve()
	} else if save {
		n.checkpoint(m)
	}
}

// relieve saves all machines, and has the log give back what is before a segment's end.
func (n *Node) relieve() {
	n.mu.Lock()
	life, l, whole := n.life, n.log, n.log.Stats().Whole
	var all []*Machine
	for _, r := range n.replicas {
		all = append(all, r.m)
	}
	n.mu.Unlock()
	for _, m := range all {
		n.checkpoint(m)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if whole > n.from && n.up && n.life == life && !n.disk.Dead() {
		n.from = whole // everything before it is in the machines, and durable
		l.Release(0, whole)
	}
}

// checkpoint saves a machine and has its log trimmed.
func (n *Node) checkpoint(m *Machine) {
	if upTo := n.save(m); upTo > 0 {
		n.engineOf().Trim(m.g, upTo)
	}
}

func (n *Node) engineOf() Engine {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.engine
}

// save makes a machine's state durable, and returns up to where; 0: its node is down.
func (n *Node) save(m *Machine) uint64 {
	b := m.encode()
	n.mu.Lock()
	defer n.mu.Unlock()
	r := n.replicas[m.g]
	if r == nil || r.m != m || !n.up {
		return 0
	}
	r.saved = b
	c, err := decode(b)
	if err != nil {
		panic(err)
	}
	return c.Applied
}

// fenced is told of a replica that was stopped, which only a dead disk may do.
func (n *Node) fenced(life int, g consensus.GroupID, err error) {
	n.mu.Lock()
	gone := n.life != life || !n.up || n.disk.Dead()
	n.mu.Unlock()
	if !gone {
		n.w.judge.mu.Lock()
		n.w.judge.wrong("%s: the replica of group %d is fenced: %w", n.name, g, err)
		n.w.judge.mu.Unlock()
	}
}

// crash takes the power from a node. What was not synced is there or not, as the seed says;
// kill: the process ends, and the kernel keeps what it was given.
func (n *Node) crash(seed uint64, kill bool) {
	n.mu.Lock()
	if !n.up {
		n.mu.Unlock()
		return
	}
	n.up = false
	old, l, e := n.disk, n.log, n.engine
	if kill {
		n.disk = old.Kill(seed)
	} else {
		n.disk = old.Crash(seed)
	}
	if n.hung != nil {
		close(n.hung)
		n.hung = nil
	}
	for _, r := range n.replicas {
		r.m.release()
	}
	n.mu.Unlock()
	if err := e.Close(); err != nil {
		n.w.t.Errorf("%s: close: %v", n.name, err)
	}
	l.Close(false)
}

// stop ends a node cleanly.
func (n *Node) stop() {
	n.mu.Lock()
	if !n.up {
		n.mu.Unlock()
		return
	}
	n.up = false
	l, e := n.log, n.engine
	for _, r := range n.replicas {
		r.m.release()
	}
	n.mu.Unlock()
	if err := errors.Join(e.Close(), l.Close(true)); err != nil {
		n.w.t.Errorf("%s: close: %v", n.name, err)
	}
}

// release lets a machine go on that a scene holds.
func (m *Machine) release() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.held != nil {
		close(m.held)
		m.held = nil
	}
}

// hang stops the disk, or lets it go on.
func (n *Node) hang(on bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case on && n.hung == nil:
		n.hung = make(chan struct{})
	case !on && n.hung != nil:
		close(n.hung)
		n.hung = nil
	}
}

func (n *Node) isUp() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.up
}
