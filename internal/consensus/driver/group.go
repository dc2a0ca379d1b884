package driver

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/internal/consensus/core"
)

// MaxInbox bounds the messages of others that wait for a group's turn.
const MaxInbox = 1024

// maxInboxBytes bounds the bytes of their entries.
const maxInboxBytes = 16 << 20

// A group is a replica of this node.
type group struct {
	n         *Node
	id        consensus.GroupID
	self      consensus.ReplicaID
	m         consensus.Machine
	disk      *core.Disk      // the turn's, but for Add
	ctx       context.Context // ends with the replica
	cancel    context.CancelFunc
	queue     queue // to the applier
	done      chan struct{}
	storing   sync.WaitGroup // appends that are not durable
	guests    sync.WaitGroup // those who receive or send a snapshot
	receiving atomic.Bool    // a snapshot
	broken    atomic.Bool    // nothing of it is stored any more: the writer's, and fence
	told      uint64         // the writer's: the term of the last Durable

	mu sync.Mutex
	inbox
	scheduled
}

// An inbox is what has happened to a group. Guarded by its mu.
type inbox struct {
	events    []event
	messages  int              // of events
	bytes     int64            // of their entries
	proposing int64            // bytes of entries that are proposed and not in the log
	ticked    bool             // a tick is among events
	queued    bool             // the turn knows of events
	stopped   error            // nothing more is taken
	status    consensus.Status // as of the last turn
}

// Scheduled is what the turn knows of a group. Only it touches this.
type scheduled struct {
	trimming
	r             *core.Replica    // nil: stopped
	config        consensus.Config // published
	published     uint64
	publishedTerm uint64                         // of that entry
	nodes         map[consensus.ReplicaID]string // where messages of replicas came from
	pending       []time.Time                    // when the appends that are not durable began
	unstored      int64                          // their bytes
	handed        uint64                         // the term in which it was handed over for a slow disk
	waiting       []proposal
	reads         reads
	handing       handing
	changes       map[uint64]changing // by name
	sending       map[consensus.ReplicaID]*sending
	received      *arrival                    // a snapshot, of which MsgSnap was stepped
	adopting      bool                        // the applier is at it: nothing is appended
	later         []*core.Append              // what is to be appended behind the snapshot
	stood         int                         // terms in which it stood without success, since it knew a leader
	stoodTerm     uint64                      // the last of them
	skipped       int                         // ticks, since the last one that counted
	standing      standing                    // with what it knows of disks
	beat          int                         // ticks since the last heartbeat, with which others are told that it leads
	peers         []consensus.Peer            // as of the last tick
	quiet         map[consensus.ReplicaID]int // ticks since each of them was heard of
}

// An event is one thing that happened to a group. The turn calls do; drop, if it is not nil,
// is called in its place when the replica was stopped before.
type event struct {
	do   func(*turn, *group) error
	drop func()
}

// post queues an event; false: the replica is stopped, and the event is not queued.
func (g *group) post(do func(*turn, *group) error) bool { return g.postEvent(event{do: do}, false) }

// note is post for who calls Node.help afterwards.
func (g *group) note(do func(*turn, *group) error) bool { return g.postEvent(event{do: do}, true) }

func (g *group) postEvent(e event, helps bool) bool {
	g.mu.Lock()
	if g.stopped != nil {
		g.mu.Unlock()
		return false
	}
	g.events = append(g.events, e)
	wake := !g.queued
	g.queued = true
	g.mu.Unlock()
	if wake {
		g.n.wake(g, helps)
	}
	return true
}

// enter says that somebody works for the replica who is no goroutine of its own; false: it is
// stopped. Stop waits for leave.
func (g *group) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stopped != nil || g.ctx.Err() != nil {
		return false
	}
	g.guests.Add(1)
	return true
}

func (g *group) leave() { g.guests.Done() }

// tick queues a tick, unless one is waiting. The caller helps.
func (g *group) tick() {
	g.mu.Lock()
	skip := g.ticked
	g.ticked = true
	g.mu.Unlock()
	if !skip {
		g.note((*turn).tick)
	}
}

// deliver queues a message of another replica; false: there is no room. The caller helps.
func (g *group) deliver(node string, m *pb.Message) bool {
	size := int64(messageCost)
	for _, e := range m.GetEntries() {
		size += core.EntryBytes(len(e.GetData()))
	}
	g.mu.Lock()
	full := g.messages >= MaxInbox || g.messages > 0 && g.bytes+size > maxInboxBytes
	if !full {
		g.messages++
		g.bytes += size
	}
	g.mu.Unlock()
	return !full && g.note(func(t *turn, g *group) error { return t.message(g, node, m) })
}

// messageCost is about what a message without entries takes in memory.
const messageCost = 256

// take returns what has happened.
func (g *group) take(spare []event) []event {
	g.mu.Lock()
	defer g.mu.Unlock()
	events := g.events
	g.events, g.queued, g.messages, g.bytes = spare[:0], false, 0, 0
	return events
}

// newGroup makes the replica of what the log and the machine have.
func (n *Node) newGroup(id consensus.GroupID, self consensus.ReplicaID, m consensus.Machine) (*group, error) {
	state, err := m.State()
	if err != nil {
		return nil, fmt.Errorf("consensus: group %d: %w", id, err)
	}
	stream := n.c.Stream(id)
	if err := core.Reconcile(n.c.Log, stream, self, state); err != nil {
		return nil, fmt.Errorf("group %d: %w", id, err)
	}
	g := &group{
		n: n, id: id, self: self, m: m, done: make(chan struct{}),
		disk: core.NewDisk(n.c.Log, stream, state, n.c.Memory),
		scheduled: scheduled{
			config: state.Config, published: state.Applied, publishedTerm: state.Term,
			nodes: map[consensus.ReplicaID]string{}, changes: map[uint64]changing{}, sending: map[consensus.ReplicaID]*sending{}, quiet: map[consensus.ReplicaID]int{},
			standing: standing{room: map[consensus.ReplicaID]bool{}},
		},
	}
	g.queue.wake = make(chan struct{}, 1)
	g.r, err = core.New(core.Config{ID: self, Storage: g.disk, State: state, Limits: n.c.Limits, Logger: n.c.Logger.With("group", id)})
	if err != nil {
		return nil, fmt.Errorf("consensus: group %d: %w", id, err)
	}
	g.told = g.r.Word()
	first, err := g.disk.FirstIndex()
	if err != nil {
		return nil, fmt.Errorf("consensus: group %d: %w", id, err)
	}
	g.trimmed, g.saved = first-1, state.Applied // the log may have kept more, for others
	g.allowed = first - 1
	g.ctx, g.cancel = context.WithCancel(n.ctx)
	g.status = consensus.Status{Group: id, ID: self, Term: g.told, Config: g.config, Last: g.r.Last(), Applied: g.published, First: first}
	m.Durable(g.told)
	return g, nil
}

// node is where a replica is; empty: nobody knows.
func (g *group) node(id consensus.ReplicaID) string {
	if node := g.config.Node(id); node != "" {
		return node
	}
	return g.nodes[id]
}

// observe takes down what Status tells.
func (g *group) observe() {
	role := g.r.Role()
	first, _ := g.disk.FirstIndex()
	term, _ := g.disk.Term(g.r.Last())
	if !role.Leads {
		g.peers = g.peers[:0]
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.status = consensus.Status{
		Group: g.id, ID: g.self, Term: g.r.Word(), Leader: role.Leader, Leads: role.Leads, Config: g.config,
		Last: g.r.Last(), LastTerm: term, Committed: g.r.Committed(), Applied: g.published, First: first, Shown: g.r.Shown(), Full: g.n.disk.full.Load(),
		Peers: append(g.status.Peers[:0], g.peers...),
	}
}
