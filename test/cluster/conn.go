package cluster

import (
	"context"
	"errors"
	"fmt"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/test/linear"
)

// A Conn is a client of a whole cluster.
type Conn struct {
	m  *cluster.Map
	by map[string]*client.Client
}

// ConnOptions say how to connect.
type ConnOptions struct {
	Addrs   []string // of n1, n2, ...
	Fabric  func() rdma.Fabric
	Secret  []byte
	NoCache bool // of places
}

// Dial connects to a cluster.
func Dial(ctx context.Context, o ConnOptions) (*Conn, error) {
	c := &Conn{by: map[string]*client.Client{}}
	var nodes []cluster.MapNode
	for i, addr := range o.Addrs {
		cfg := client.Config{Servers: []string{addr}, Fabric: o.Fabric(), Secret: o.Secret, Timeout: PatientLimit}
		if o.NoCache {
			cfg.CacheEntries = -1
		}
		cl, err := client.Dial(ctx, cfg)
		if err != nil {
			return nil, errors.Join(err, c.Close())
		}
		id := fmt.Sprintf("n%d", i+1)
		c.by[id] = cl
		nodes = append(nodes, cluster.MapNode{ID: id})
	}
	var err error
	c.m, err = cluster.Propose([16]byte{1}, "test", 32, nodes)
	return c, err
}

// Close ends the client.
func (c *Conn) Close() error {
	var errs []error
	for _, cl := range c.by {
		if err := cl.Close(); err != nil && !errors.Is(err, client.ErrClosed) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Map is the shard map that the client goes by.
func (c *Conn) Map() *cluster.Map { return c.m }

func (c *Conn) owner(key []byte) string { return c.m.OwnerOf(cluster.ShardOf(key, len(c.m.Owner))) }

func (c *Conn) of(key []byte) *client.Client { return c.by[c.owner(key)] }

// KeysOf makes n keys that a node owns.
func (c *Conn) KeysOf(id, prefix string, n int) [][]byte {
	var keys [][]byte
	for i := 0; len(keys) < n; i++ {
		if k := fmt.Appendf(nil, "%s %d", prefix, i); c.owner(k) == id {
			keys = append(keys, k)
		}
	}
	return keys
}

// Get gets a key.
func (c *Conn) Get(ctx context.Context, key []byte) ([]byte, error) { return c.of(key).Get(ctx, key) }

// Put puts a key.
func (c *Conn) Put(ctx context.Context, key, value []byte) error {
	return c.of(key).Put(ctx, key, value)
}

// Stats is what a node says of itself, JSON.
func (c *Conn) Stats(ctx context.Context, id string) ([]byte, error) {
	s, err := c.by[id].Stats(ctx)
	return s.Server, err
}

// Counters are what the client has done at a node.
func (c *Conn) Counters(id string) client.Counters { return c.by[id].Counters() }

// MultiGet gets many keys.
func (c *Conn) MultiGet(ctx context.Context, keys [][]byte) ([]client.Result, error) {
	all := make([]client.Result, len(keys))
	for id, cl := range c.by {
		var mine [][]byte
		var at []int
		for i, k := range keys {
			if c.owner(k) == id {
				mine, at = append(mine, k), append(at, i)
			}
		}
		rs, err := cl.MultiGet(ctx, mine)
		if err != nil {
			return nil, err
		}
		for j, i := range at {
			all[i] = rs[j]
		}
	}
	return all, nil
}

// Store is the client as a load wants it.
func (c *Conn) Store() linear.Store { return aloneStore{c} }

type aloneStore struct{ c *Conn }

func (s aloneStore) Do(ctx context.Context, key []byte, in *linear.Input, size int) (linear.Output, error) {
	return linear.NewClient(s.c.of(key)).Do(ctx, key, in, size)
}

func (s aloneStore) Batch(ctx context.Context, keys [][]byte, in *linear.Input, size int) (linear.Output, error) {
	return linear.NewClient(s.c.of(keys[0])).Batch(ctx, keys, in, size)
}

func (s aloneStore) MultiGet(ctx context.Context, keys [][]byte) ([]*linear.Output, error) {
	return linear.NewClient(s.c.of(keys[0])).MultiGet(ctx, keys)
}

func (s aloneStore) Scan(context.Context, []byte, bool) ([]linear.Found, error) {
	return nil, linear.ErrNothing
}
