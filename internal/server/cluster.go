package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/memberlist"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/shardmap"
	"github.com/rdmakv/rdmakv/internal/shardmap/format"
	"github.com/rdmakv/rdmakv/membership"
	"github.com/rdmakv/rdmakv/store"
)

// A node of a cluster. Two kinds of knowledge meet here and are never mixed:
//
//	the shard map    law: which shards are this node's. Durable (package
//	                 shardmap), agreed over sessions (mapchange.go), asked for
//	                 every request with a key (moved.go)
//	membership       hints: who is there, where, with which regions. Told to
//	                 clients (mapchange.go) and gossiped (publish.go)
//
// Until there is a map the node serves no key: StatusNoMap. The shards of other
// nodes are withheld in the store, in every space: their index says "ask", so
// that a reader who came to the wrong node by READ asks, and is told that the
// key has moved.

// ClusterConfig makes a server a node of a cluster.
type ClusterConfig struct {
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
	// Transport carries gossip instead of sockets, for nodes in one process.
	Transport memberlist.NodeAwareTransport
}

func (c *ClusterConfig) check() (errs []error) {
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

// clustered is what a node of a cluster has beside a server that is alone. It
// is the root's; nil on a server that is alone.
type clustered struct {
	srv  *Server
	cfg  *ClusterConfig
	id   format.Identity
	lock io.Closer // of the directory, where no store has it
	book *shardmap.Book

	owned atomic.Pointer[ownership] // nil: no map
	shown atomic.Pointer[shownView] // what clients are told; nil before gossip begins

	members *membership.Members // nil before gossip begins
	wake    chan struct{}       // the region table has changed; room for one
	keys    sync.Mutex          // held by who changes gossip keys
}

// ownership is which shards are this node's. Immutable.
type ownership struct {
	m      *cluster.Map
	digest uint64
	mine   []bool // by shard
}

func newOwnership(m *cluster.Map, node string) *ownership {
	o := &ownership{m: m, digest: m.Digest(), mine: make([]bool, len(m.Owner))}
	for _, shard := range m.Shards(node) {
		o.mine[shard] = true
	}
	return o
}

// newClustered is nil for a server that is alone.
func newClustered(srv *Server, cfg *ClusterConfig) *clustered {
	if cfg == nil {
		return nil
	}
	return &clustered{srv: srv, cfg: cfg, id: format.Identity{Node: cfg.NodeID, Cluster: cfg.Name}, wake: make(chan struct{}, 1)}
}

func (c *Config) fs() vfs.FS {
	if c.FS == nil {
		return vfs.Default
	}
	return c.FS
}

// checkDir says whether this server may use its directory, before anything in
// it is touched: not a directory of another node or another cluster, nor, alone,
// that of a node which holds a part of the keys.
func (srv *Server) checkDir() error {
	cfg := &srv.cfg
	if srv.cluster != nil {
		err := shardmap.CheckIdentity(cfg.fs(), cfg.DataDir, srv.cluster.id)
		if errors.Is(err, fs.ErrPermission) {
			return nil // the store says it better, and openBook looks again
		}
		return err
	}
	if cfg.DataDir == "" || cfg.Mode == store.Cache {
		return nil
	}
	return shardmap.CheckAlone(cfg.fs(), cfg.DataDir)
}

// openBook makes the directory this node's and reads its map. The store is open,
// so that nobody else has the directory.
func (c *clustered) openBook(ctx context.Context) (err error) {
	cfg := &c.srv.cfg
	if cfg.Mode == store.Cache {
		// Its store has no directory, but the node has: what it has promised
		// must outlive it.
		if err := cfg.fs().MkdirAll(cfg.DataDir, 0o700); err != nil {
			return fmt.Errorf("server: data directory: %w", err)
		}
		if c.lock, err = cfg.fs().Lock(cfg.fs().PathJoin(cfg.DataDir, "LOCK")); err != nil {
			return fmt.Errorf("server: %s is in use by another process: %w", cfg.DataDir, err)
		}
	}
	if err := shardmap.Claim(cfg.fs(), cfg.DataDir, c.id); err != nil {
		return err
	}
	c.book, err = shardmap.Open(shardmap.Options{
		FS: cfg.fs(), Dir: cfg.DataDir, Node: c.id.Node, Name: c.id.Cluster, Shards: c.srv.shards, Empty: c.srv.holdsNothing,
	})
	if err != nil {
		return err
	}
	if m := c.book.Map(); m != nil {
		c.owned.Store(newOwnership(m, c.id.Node))
	}
	switch m, promised := c.book.Map(), c.book.Promised(); {
	case m != nil:
		c.srv.log.Info("shard map", "map", m.String(), "shards", len(m.Shards(c.id.Node)))
	case promised != nil:
		c.srv.log.Warn(limitNone, "a shard map is promised and not committed: run kvclient cluster init again with the same nodes; no key is served before", "map", promised.String())
	default:
		c.srv.log.Warn(limitNone, "this cluster has no shard map yet: run kvclient cluster init NODE...; no key is served before", "cluster", c.id.Cluster)
	}
	return ctx.Err()
}

// close gives back what openBook took.
func (c *clustered) close() {
	if c != nil && c.lock != nil {
		c.lock.Close()
		c.lock = nil
	}
}

// withheld is Config.Withheld of the store of the node, or of a space: at first
// all shards are, until releaseOwned says which are the node's.
func (srv *Server) withheld() func(uint16) bool {
	if srv.root.cluster == nil {
		return nil
	}
	return func(uint16) bool { return true }
}

// releaseOwned has the index of the store answer misses in the node's own
// shards. It may be called again at any time.
func (srv *Server) releaseOwned() {
	c := srv.root.cluster
	if c == nil {
		return
	}
	own := c.owned.Load()
	if own == nil {
		return
	}
	for shard, mine := range own.mine {
		if !mine {
			continue
		}
		if err := srv.store.Release(uint16(shard)); err != nil {
			return // the store has ended: closed, or fenced, which is told elsewhere
		}
	}
}

// holdsNothing returns nil if no space of the node holds a key. While a node has
// no map it takes none, so the answer stays right.
func (srv *Server) holdsNothing(ctx context.Context) error {
	srv.root.spaces.mu.RLock()
	for name := range srv.root.spaces.failed {
		srv.root.spaces.mu.RUnlock()
		return fmt.Errorf("node %q cannot tell whether it is empty: its space %q could not be opened", srv.root.cluster.id.Node, name)
	}
	srv.root.spaces.mu.RUnlock()
	for _, sp := range srv.everySpace() {
		if sp.cfg.Mode == store.Cache {
			continue // began empty
		}
		for req := (store.ScanRequest{Limit: 1, KeysOnly: true}); ; {
			page, err := sp.store.Scan(ctx, req)
			if err != nil {
				return fmt.Errorf("node %q cannot tell whether it is empty: %w", srv.root.cluster.id.Node, err)
			}
			if len(page.Entries) > 0 {
				return fmt.Errorf("node %q holds keys, which would be another node's: back them up (kvclient export), and start it with an empty data_dir", srv.root.cluster.id.Node)
			}
			if !page.More {
				break
			}
			req.After = page.Next
		}
	}
	return nil
}
