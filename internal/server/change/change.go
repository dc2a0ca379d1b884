package change

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/internal/feature"
	"github.com/rdmakv/rdmakv/internal/seat"
	"github.com/rdmakv/rdmakv/internal/server/base"
)

// Env is what a node gives to its Changer.
type Env struct {
	Node string // its id
	FS   vfs.FS
	Dir  string // of the node's data
	Log  *base.Log
	// Logger is the engine's, for the replica of the meta group.
	Logger *slog.Logger
	// Engine runs the node's replicas; nil before the store is open.
	Engine func() consensus.Engine
	// MetaReplica says which replica of the meta group the engine is about to create or to start (store.MetaReplica).
	MetaReplica func(id consensus.ReplicaID)
	// DropMeta drops what the log has of a replica of the meta group that does not run (store.DropMeta).
	DropMeta func(id consensus.ReplicaID) error
	// MayTakePart is closed when the node's replicas may take part in their groups.
	MayTakePart <-chan struct{}
	// Kept are the replicas that the node keeps of groups that are gone (store.KeptOf). Default: none.
	Kept func() []seat.KeptReport
	// Ask asks another node; its Answer answers.
	Ask func(ctx context.Context, node string, question []byte) ([]byte, error)
	// Follow puts a later map in force, durably, and calls InForce. The same map again is nil.
	Follow func(ctx context.Context, m *cluster.Map) error
	// MayJoin returns nil if this node, which is in no map, may come into one, else an error that says why not: ErrLater, if it soon may.
	MayJoin func(ctx context.Context) error
	Limits  seat.Limits
	// Levels is what the node has to do with the feature level of its cluster.
	Levels Levels
	// Now is the time of the machine, for people. Default time.Now.
	Now func() time.Time
}

// Levels is what a node has to do with the feature level of its cluster.
type Levels struct {
	// Reads is what the node's program reads, and Hold says that its operator wants the level to stay.
	Reads feature.Range
	Hold  bool
	// At is the level that is noted.
	At func() feature.Level
	// Raise notes durably that the cluster is at a level; one that is not above the one that is noted is nil. An *feature.UnreadError: the program does not read it, so the node
	// stands down, and nothing is noted. It is called with what the meta group has agreed on, and with nothing else. Safe for concurrent use.
	Raise func(feature.Level) error
	// ReadsOf is the newest level that the program of another node reads, by gossip; false: gossip does not know the node.
	ReadsOf func(node string) (newest feature.Level, known bool)
}

// ErrLater: the node may not come into a cluster yet.
var ErrLater = errors.New("change: not yet")

// A Changer is a node's part in the change of its cluster. A nil Changer is that of a server that is alone. It is safe for concurrent use.
type Changer struct {
	env    Env
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	now   atomic.Pointer[inForce] // nil: there is no map whose nodes can change
	wake  chan struct{}           // capacity 1: there is a later map, or the meta group has another state
	fresh atomic.Int64            // behind which moment the map here is known to have been the newest, by time.Since(begun); 0: none
	begun time.Time
	life  uint64 // random: a stamp of another life of the node is taken for none of this one (echo)

	meta metagroup
	lead lead
	twin twin
	anew anew
	look look
	doing

	mu      sync.Mutex
	started bool
	ended   bool
}

// An inForce is a map, and as a draft. Neither is changed.
type inForce struct {
	m *cluster.Map
	d *cluster.Draft
}

// New makes a Changer. Nothing runs before there is a map.
func New(env Env) *Changer {
	if env.Now == nil {
		env.Now = time.Now
	}
	if env.Kept == nil {
		env.Kept = func() []seat.KeptReport { return nil }
	}
	c := &Changer{env: env, wake: make(chan struct{}, 1), begun: time.Now(), life: rand.Uint64()}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.lead.init()
	c.look.init()
	c.doing.of = make(map[uint32]seat.Doing)
	return c
}

// InForce tells of the map in force, each time there is another one. It does not wait.
func (c *Changer) InForce(m *cluster.Map) {
	if c == nil || m.Replication == nil || m.Replication.Meta == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return
	}
	if was := c.now.Load(); was == nil || was.m.Version < m.Version {
		c.now.Store(&inForce{m, m.Draft()})
		c.poke()
	}
	if !c.started && c.env.Engine() != nil {
		c.started = true
		c.wg.Go(c.host)
		c.wg.Go(c.move)
		c.wg.Go(c.sit)
	}
}

func (c *Changer) poke() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Stop ends all that the Changer does, the replica of the meta group included. The engine is closed behind it.
func (c *Changer) Stop() {
	if c == nil {
		return
	}
	c.mu.Lock()
	c.ended = true
	c.mu.Unlock()
	c.cancel()
	c.wg.Wait()
	c.meta.stop(c.env.Log)
}

// rest waits; false: the Changer ends.
func (c *Changer) rest(d time.Duration) bool { return rests(c.ctx, d) }
