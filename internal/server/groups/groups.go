package groups

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/internal/consensus/driver"
	"github.com/rdmakv/rdmakv/internal/consensus/transport"
	"github.com/rdmakv/rdmakv/internal/server/base"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/store"
)

// Env is what a node gives to its Groups.
type Env struct {
	Node   string // its id
	Secret []byte // of the cluster
	Log    *base.Log
	Logger *slog.Logger // for engine and transport
	// Store is that of the node's own keys, once it is open.
	Store func() *store.Store
	// Routes returns how another node is reached, the best way first. It must not block.
	Routes func(node string) []transport.Route
	// Openings are the starts of the node's data directory that it knows of, this one first; Admit says whether another node may speak
	// that has these, and SetBack is told that another one refuses this node (transport.Config).
	Openings func() []wire.Opening
	Admit    func(node string, openings []wire.Opening) (seen wire.Opening, setBack bool, err error)
	SetBack  func(by string, seen wire.Opening)
	// Answer answers what another node asks this one (transport.Config), but for the question of await.go; nil: nothing else is answered. It is
	// called when there is a map, by several goroutines, and not after Cut; what it answers after that is not told.
	Answer func(ctx context.Context, node string, question []byte) (answer []byte, err error)
	// Learn asks another node for a later map than the one in force here, and puts it in force. It is called for each node that was met, before the replicas take part:
	// a node that was away must not run replicas that others have replaced. Its error ends nothing. Default: nobody is asked.
	Learn func(ctx context.Context, node string) error
	// EndReaders returns when no client is left that READs the node's keys as its own alone; a group that begins with them begins behind that. Default: there is none.
	EndReaders func(ctx context.Context) error
	// Changed is told that the node has another replica of its map's, or one less. It must not block. Default: nobody is told.
	Changed func()
	// Meet is for how long other nodes are waited for before the replicas take part. Default 3 s.
	Meet time.Duration
	// Quiet is for how long a group must have been as it is before its leader goes back to its preferred node. Default 1 minute.
	Quiet time.Duration
	// Absent is for how long the log keeps what a replica lacks that is away (driver.Config). Default 5 minutes.
	Absent time.Duration
}

// Groups are the groups of which a node has replicas. A nil Groups is that of a server that is alone: it has none.
type Groups struct {
	env Env
	may chan struct{} // closed when the replicas may take part

	unfit  error        // why the store can have no replicas; nil: it can
	engine *driver.Node // nil until the store has made it, or unfit
	link   link
	handed atomic.Int64  // groups that others lead since HandOver
	wake   chan struct{} // capacity 1: there is a later map (host)

	ctx    context.Context // ends the adding of groups
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu     sync.Mutex
	m      *cluster.Map  // in force here; nil: none with replicas
	next   *cluster.Map  // promised, while one without replicas is in force (promised.go); nil: none
	asks   func()        // ends the asking for it
	taking bool          // TakePart was called
	met    bool          // meet was started
	caught map[held]bool // that have caught up since the start (catchUp)
	closed bool
}

// New makes the Groups of a node of a cluster. Nothing is opened.
func New(env Env) *Groups {
	g := &Groups{env: env, may: make(chan struct{}), caught: make(map[held]bool), wake: make(chan struct{}, 1)}
	g.ctx, g.cancel = context.WithCancel(context.Background())
	return g
}

// Store fills in what a store needs to have replicas, if its configuration allows any: the store itself says what is missing when a
// directory has some all the same.
func (g *Groups) Store(c *store.Config) {
	if g == nil {
		return
	}
	if g.unfit = c.MayHaveGroups(); g.unfit != nil {
		return
	}
	c.Engine, c.TakePart = g.open, g.may
	c.Keeps = func(group consensus.GroupID, replica consensus.ReplicaID) bool {
		return gives(g.current(), g.env.Node, group, replica)
	}
}

// open makes the engine.
func (g *Groups) open(env store.EngineEnv) (store.Engine, error) {
	g.engine = driver.New(driver.Config{
		Name: g.env.Node, Log: env.Log, Link: &g.link, Stream: env.Stream, Fenced: env.Fenced, Full: env.Full, Settled: g.quiet() / settledPart, Absent: g.env.Absent, Logger: g.env.Logger,
	})
	return g.engine, nil
}

// TakePart says that the node's replicas may take part in their groups, from now on; they do when the other nodes have been met. It does not wait.
func (g *Groups) TakePart() {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.taking = true
	g.begin()
}

// Suits returns nil if the node can have the replicas that a map gives it, else an error that says why not: its store is not the one that
// the map names, is no place for replicas, or has something in the shards of their groups. Far says whether it has a device by which
// other machines reach it.
func (g *Groups) Suits(ctx context.Context, m *cluster.Map, far bool) error {
	if m.Replication == nil {
		return nil
	}
	if err := g.mine(m); err != nil {
		return err
	}
	if !far && len(m.Nodes) > 1 {
		return fmt.Errorf("node %q cannot have replicas: it listens by shared memory alone, which other machines do not reach (listen)", g.env.Node)
	}
	if err := store.MayAddGroups(ctx, g.env.Store(), m.Served(g.env.Node), m.BornBy() && m.Replication.Adopts); err != nil {
		return fmt.Errorf("node %q cannot have replicas: %w", g.env.Node, err)
	}
	return nil
}

// Fit returns nil if the node's store may have replicas, else an error that says what it needs. It is asked once the store is open.
func (g *Groups) Fit() error {
	if g.engine == nil {
		return fmt.Errorf("node %q cannot have replicas: %w", g.env.Node, g.unfit)
	}
	return nil
}

// mine returns an error if the map's replicas of this node are those of another store.
func (g *Groups) mine(m *cluster.Map) error {
	want, ok := m.StoreOf(g.env.Node)
	if is := g.env.Store().ID(); ok && want != is {
		return fmt.Errorf("%w: the shard map has node %q with store %x, and this data directory has store %x: what that one promised this one does not know, so it must not take its place; "+
			"start the node with its old data directory", store.ErrGroups, g.env.Node, want, is)
	}
	return nil
}

// InForce takes up the replicas that a map gives the node, and gives up those that a later one does not. It does not wait for either. Maps come in the order of their
// versions.
//
// Error: store.ErrGroups, if they are another store's.
func (g *Groups) InForce(m *cluster.Map) error {
	if g == nil || m.Replication == nil {
		return nil
	}
	if err := g.mine(m); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed || g.m != nil {
		g.later(m)
		return nil
	}
	if g.engine == nil { // the map was taken when the configuration was another one
		return fmt.Errorf("node %q has replicas by the shard map: %w", g.env.Node, g.unfit)
	}
	if err := openWays(g, m); err != nil {
		return err
	}
	g.m, g.next = m, nil
	g.wg.Go((&host{g, make(map[held]string)}).run)
	g.wg.Go(g.homeward)
	g.wg.Go(g.leaveFull)
	g.wg.Go(g.catchUp)
	g.begin()
	return nil
}

// later puts a later map in force. g.mu is held.
func (g *Groups) later(m *cluster.Map) {
	if g.closed || m.Version <= g.m.Version {
		return
	}
	t := g.link.to.Load()
	for i := range g.m.Nodes {
		if id := g.m.Nodes[i].ID; !m.Has(id) {
			t.Forget(id)
		}
	}
	g.m = m
	select {
	case g.wake <- struct{}{}:
	default:
	}
}

// current is the map in force; nil: there is none with replicas.
func (g *Groups) current() *cluster.Map {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.m
}

// Engine runs the node's replicas; nil before the store is open, or if that is no place for replicas.
func (g *Groups) Engine() consensus.Engine {
	if g == nil || g.engine == nil {
		return nil
	}
	return g.engine
}

// MayTakePart is closed when the node's replicas may take part in their groups.
func (g *Groups) MayTakePart() <-chan struct{} { return g.may }

// admit returns nil if another node may speak: it has the data directory that the map names for it, and that knows of every start that was
// seen of it.
func (g *Groups) admit(m *cluster.Map, node string, has [16]byte, openings []wire.Opening) error {
	if want, ok := m.StoreOf(node); ok && want != has {
		return fmt.Errorf("%w: the shard map has node %q with store %x, and it comes with store %x, which has promised nothing; start that node with its old data directory", store.ErrGroups, node, want, has)
	}
	seen, setBack, err := g.env.Admit(node, openings)
	if setBack {
		return &transport.SetBackError{Node: node, Seen: seen, Says: openings[0]}
	}
	return err
}

// wanted are the node's replicas of a map, with what their groups begin with: those of a first map are the founders, and those of a later one get their state
// from the others. A founder that was not made before a later map came has promised nothing, and may get it so, too; but for one whose group begins with what the node has (cluster.Replication.Founder), because
// nobody else has that: it is made so by every map.
func (g *Groups) wanted(m *cluster.Map) (list []store.Group) {
	r, node := m.Replication, m.IndexOf(g.env.Node)
	for i := range r.Groups {
		self := r.Groups[i].At(node)
		if self == 0 {
			continue
		}
		c := store.Group{ID: consensus.GroupID(r.Groups[i].ID), Replica: consensus.ReplicaID(self), Shards: r.ShardsOf(i), Founders: consensus.Config{Index: 1}}
		if c.Adopts = r.Founder(&r.Groups[i], self); c.Adopts {
			c.Founders.Voters = []consensus.Member{{ID: c.Replica, Node: g.env.Node}}
			list = append(list, c)
			continue
		}
		for _, p := range r.Groups[i].Replicas {
			if m.Version > 1 {
				c.Founders = consensus.Config{}
				break
			}
			c.Founders.Voters = append(c.Founders.Voters, consensus.Member{ID: consensus.ReplicaID(p.ID), Node: m.Nodes[p.Node].ID})
		}
		slices.SortFunc(c.Founders.Voters, func(a, b consensus.Member) int { return int(int64(a.ID) - int64(b.ID)) })
		list = append(list, c)
	}
	return list
}

// NodeOf is the node of a replica of a group, by the configuration in force here; "": it is not known.
func (g *Groups) NodeOf(group consensus.GroupID, replica consensus.ReplicaID) string {
	if g == nil || g.engine == nil || replica == 0 {
		return ""
	}
	st, err := g.engine.Status(group)
	if err != nil {
		return ""
	}
	return st.Config.Node(replica)
}

// Stop ends the adding of groups. The store is closed afterwards, which ends the replicas, and Close is called then.
func (g *Groups) Stop() {
	if g == nil {
		return
	}
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.cancel()
	g.wg.Wait()
}

// Close ends the ways to other nodes. Nothing of them is left on any device when it returns.
func (g *Groups) Close() error {
	if g == nil {
		return nil
	}
	g.Stop()
	if t := g.link.to.Load(); t != nil {
		return t.Close()
	}
	return nil
}
