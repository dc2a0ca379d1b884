package member

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/memberlist"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/feature"
	"github.com/rdmakv/rdmakv/internal/server/base"
	"github.com/rdmakv/rdmakv/internal/shardmap"
	"github.com/rdmakv/rdmakv/internal/shardmap/format"
	"github.com/rdmakv/rdmakv/membership"
	"github.com/rdmakv/rdmakv/store"
)

// Config makes a server a node of a cluster.
type Config struct {
	// NodeID names this node for ever, Name its cluster: cluster.CheckNodeID and
	// cluster.CheckName. They stand in the data directory from the first start.
	NodeID, Name string
	// Bind is the HOST:PORT for gossip, TCP and UDP; Advertise what other nodes
	// are told instead, Join where some of them are. See membership.Config.
	Bind, Advertise string
	Join            []string
	// Keys encrypt gossip, the first one is in use. ReloadKeys reads them anew;
	// nil: they cannot be reloaded.
	Keys       [][]byte
	ReloadKeys func() ([][]byte, error)
	// Insecure allows gossip without a key.
	Insecure bool
	// Allow are the networks that gossip is taken from; none: all.
	Allow []netip.Prefix
	// Profile is lan, fast or wan: see membership.Profile. Default lan.
	Profile string
	// Hosts are what clients are told to connect to, with the ports of the
	// listeners. None: the listeners' own; where that is every address, the host
	// of the gossip address.
	Hosts []string
	// Reads is which feature levels the program reads, for tests of other releases; nil: feature.Here.
	Reads *feature.Range
	// HoldLevel keeps the cluster at its feature level, so that nodes can go back to the program of before.
	HoldLevel bool
	// Transport carries gossip instead of sockets, for nodes in one process.
	Transport memberlist.NodeAwareTransport
}

// Check returns every fault of it.
func (c *Config) Check() (errs []error) {
	if err := cluster.CheckNodeID(c.NodeID); err != nil {
		errs = append(errs, err)
	}
	if err := cluster.CheckName(c.Name); err != nil {
		errs = append(errs, err)
	}
	if c.Bind == "" && c.Transport == nil {
		errs = append(errs, errors.New("server: a node of a cluster needs an address for gossip"))
	}
	if len(c.Keys) == 0 && !c.Insecure {
		errs = append(errs, errors.New("server: a node of a cluster needs a gossip key, unless it is to be insecure"))
	}
	return errs
}

// A Dir is the data directory of a node.
type Dir struct {
	FS   vfs.FS
	Path string // may be empty on a server that is alone and keeps nothing on disk
	// Bare: no store has the directory, because the node keeps no keys on disk.
	Bare bool
}

// A Node is what a Member needs of the node that it belongs to. All methods but Store
// may be called from Start on, until the node has ended; Store once the store is open.
type Node interface {
	// Store is that of the node's own keys. A Member reads from it which life of the
	// node this is, and has it say that it must not be served.
	Store() *store.Store
	// Endpoints are where clients reach the node, in the order of its listeners: hosts,
	// or where there are none the listener's own; fallback (if there is one) for a
	// listener on every address.
	Endpoints(hosts []string, fallback string) []cluster.Endpoint
	// RegionTable is that of the node's own keys; nil before it serves.
	RegionTable(node string) *cluster.Table
	// HoldsNothing returns nil if no space of the node holds a key, else an error that
	// says so.
	HoldsNothing(ctx context.Context) error
	// Suits returns nil if the node can be what a map makes of it, else an error that says
	// what is in the way.
	Suits(ctx context.Context, m *cluster.Map) error
	// Replicate takes up the replicas that a map in force gives the node. It does not wait
	// for them. Error: the map is one of another data directory.
	Replicate(m *cluster.Map) error
	// Await tells which map, by which the node gets groups, it has promised while one without replicas is in force, so that it asks the others whether they have it in force; nil: it
	// has promised none any more. It does not wait. Replicate tells that the map is in force here.
	Await(m *cluster.Map) error
	// ReleaseOwned has every space answer for the shards that are the node's now.
	ReleaseOwned()
	// Bump has all clients of the node come for what is new.
	Bump()
	// StandDown ends the node, whose stores are well.
	StandDown(why error)
}

// A Member is what a node of a cluster has beside a server that is alone. A nil Member
// is that of a server that is alone; methods that it does not answer say so. New, then
// OpenBook, Start, Settle, Run; at the end Leave, Stop and Close.
type Member struct {
	node Node
	cfg  *Config
	dir  Dir
	// secret is what nodes and clients of the cluster share; logger what gossip logs
	// to. log is the node's own.
	secret []byte
	logger *slog.Logger
	log    *base.Log
	id     format.Identity
	lock   io.Closer // of the directory, where no store has it
	book   *shardmap.Book
	lives  *shardmap.Lives // nil: the node keeps nothing on disk
	// Levels is what the node has to do with the feature level of its cluster.
	Levels *Levels
	older  chan *olderCopy // why the directory must not be served; room for one

	owned *base.Ownership
	shown atomic.Pointer[shownView]     // what clients are told; nil before gossip begins
	texts [2]atomic.Pointer[encodedMap] // of the map in force, of the promised one

	members  *membership.Members // nil before gossip begins
	wake     chan struct{}       // the region table has changed; room for one
	outside  bool                // look has told of Outside
	entering sync.Mutex          // held while a map comes in force
	keys     sync.Mutex          // held by the call that changes gossip keys
}

// Env is what a node gives to its Member.
type Env struct {
	Node   Node
	Dir    Dir
	Secret []byte       // of the main login; empty: none
	Logger *slog.Logger // for gossip
	Log    *base.Log
}

// New makes the Member of a node; nil without a configuration, for a server that is
// alone. Nothing is opened.
func New(cfg *Config, env Env) *Member {
	if cfg == nil {
		return nil
	}
	c := &Member{
		node: env.Node, cfg: cfg, dir: env.Dir, secret: env.Secret, logger: env.Logger, log: env.Log,
		id: format.Identity{Node: cfg.NodeID, Cluster: cfg.Name}, owned: new(base.Ownership), wake: make(chan struct{}, 1), older: make(chan *olderCopy, 1),
	}
	c.Levels = newLevels(c)
	return c
}

// Ownership is which shards are the node's; nil: the server is alone.
func (c *Member) Ownership() *base.Ownership {
	if c == nil {
		return nil
	}
	return c.owned
}

// Identity is the id of the node and the name of its cluster.
func (c *Member) Identity() (node, cluster string) { return c.id.Node, c.id.Cluster }

// Members is what gossip knows of the cluster; nil before it begins.
func (c *Member) Members() *membership.Members { return c.members }

// CheckDir says whether this server may use its directory, before anything in it is
// touched: not a directory of another node or another cluster, nor, alone, that of a
// node which holds a part of the keys.
func (c *Member) CheckDir(dir Dir) error {
	if c != nil {
		err := shardmap.CheckIdentity(dir.FS, dir.Path, c.id)
		if errors.Is(err, fs.ErrPermission) {
			return nil // the store says it better, and OpenBook looks again
		}
		if id, bad := shardmap.ReadIdentity(dir.FS, dir.Path); err == nil && bad == nil {
			err = c.Levels.unread(id.Level)
		}
		return err
	}
	if dir.Path == "" || dir.Bare {
		return nil
	}
	return shardmap.CheckAlone(dir.FS, dir.Path)
}

// OpenBook makes the directory this node's and reads its map. The store is open, with
// that number of shards, so that no other process has the directory.
func (c *Member) OpenBook(ctx context.Context, shards int) (err error) {
	dir := &c.dir
	if dir.Bare {
		// Its store has no directory, but the node has: what it has promised
		// must outlive it.
		if err := dir.FS.MkdirAll(dir.Path, 0o700); err != nil {
			return fmt.Errorf("server: data directory: %w", err)
		}
		if c.lock, err = dir.FS.Lock(dir.FS.PathJoin(dir.Path, "LOCK")); err != nil {
			return fmt.Errorf("server: %s is in use by another process: %w", dir.Path, err)
		}
	}
	if err := shardmap.Claim(dir.FS, dir.Path, c.id); err != nil {
		return err
	}
	if err := c.Levels.open(); err != nil {
		return err
	}
	if !dir.Bare {
		st := c.node.Store()
		if c.lives, err = shardmap.OpenLives(dir.FS, dir.Path, format.Opening{Epoch: uint64(st.Epoch()), Incarnation: st.Incarnation()}); err != nil {
			return err
		}
	}
	c.book, err = shardmap.Open(shardmap.Options{
		FS: dir.FS, Dir: dir.Path, Node: c.id.Node, Name: c.id.Cluster, Shards: shards, Empty: c.node.HoldsNothing, Suits: c.node.Suits,
	})
	if err != nil {
		return err
	}
	if m := c.book.Map(); m != nil {
		if err := c.node.Replicate(m); err != nil {
			return err
		}
		c.owned.Set(m, c.id.Node)
		awaits(c)
	}
	switch m, promised := c.book.Map(), c.book.Promised(); {
	case m != nil && promised != nil:
		c.log.Warn(base.LogAlways, "a shard map is promised by which this cluster gets groups, and it is not known whether it is in force elsewhere: the other nodes are asked, and kvclient cluster upgrade finishes it; keys are served meanwhile", "promised", promised.String())
	case m != nil:
		c.log.Info("shard map", "map", m.String(), "shards", len(m.Shards(c.id.Node)))
	case promised != nil:
		c.log.Warn(base.LogAlways, "a shard map is promised and not committed: run kvclient cluster init again with the same nodes; no key is served before", "map", promised.String())
	default:
		c.log.Warn(base.LogAlways, "this node has no shard map: if its cluster is new, run kvclient cluster init NODE...; no key is served before", "cluster", c.id.Cluster)
	}
	return ctx.Err()
}

// Close gives back what OpenBook took.
func (c *Member) Close() {
	if c != nil && c.lock != nil {
		c.lock.Close()
		c.lock = nil
	}
}
