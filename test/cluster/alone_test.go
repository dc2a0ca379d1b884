package cluster

import (
	"context"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/test/linear"
)

// conn is three clients, one of each node, and who owns what.
type conn struct {
	m  *cluster.Map
	by map[string]*client.Client
}

func (w *world) initMap() {}

func (w *world) shardMap() *cluster.Map {
	m, err := cluster.Propose([16]byte{1}, "test", 32, []cluster.MapNode{{ID: "n1"}, {ID: "n2"}, {ID: "n3"}})
	if err != nil {
		w.t.Fatal(err)
	}
	return m
}

func (w *world) dial(host string, change ...func(*client.Config)) *conn {
	w.t.Helper()
	c := &conn{m: w.shardMap(), by: map[string]*client.Client{}}
	for _, s := range w.Nodes {
		cfg := client.Config{Servers: []string{s.Addr()}, Fabric: w.newFabric(host), Secret: w.Secret, Timeout: PatientLimit}
		for _, f := range change {
			f(&cfg)
		}
		cl, err := client.Dial(within(w.t), cfg)
		if err != nil {
			w.t.Fatal(err)
		}
		w.t.Cleanup(func() {
			if err := cl.Close(); err != nil {
				w.t.Error(err)
			}
		})
		c.by[s.ID] = cl
	}
	return c
}

func (c *conn) of(key []byte) *client.Client {
	return c.by[c.m.OwnerOf(cluster.ShardOf(key, len(c.m.Owner)))]
}

func (c *conn) Get(ctx context.Context, key []byte) ([]byte, error) { return c.of(key).Get(ctx, key) }
func (c *conn) Put(ctx context.Context, key, value []byte) error {
	return c.of(key).Put(ctx, key, value)
}

func (c *conn) store() linear.Store { return c }

func (c *conn) Do(ctx context.Context, key []byte, in *linear.Input, size int) (linear.Output, error) {
	return linear.NewClient(c.of(key)).Do(ctx, key, in, size)
}
func (c *conn) Batch(ctx context.Context, keys [][]byte, in *linear.Input, size int) (linear.Output, error) {
	return linear.NewClient(c.of(keys[0])).Batch(ctx, keys, in, size)
}
func (c *conn) MultiGet(ctx context.Context, keys [][]byte) ([]*linear.Output, error) {
	return linear.NewClient(c.of(keys[0])).MultiGet(ctx, keys)
}
func (c *conn) Scan(ctx context.Context, prefix []byte, values bool) ([]linear.Found, error) {
	return nil, linear.ErrNothing
}

func (c *conn) stats(ctx context.Context, id string) ([]byte, error) {
	s, err := c.by[id].Stats(ctx)
	return s.Server, err
}

func (c *conn) counters(id string) client.Counters { return c.by[id].Counters() }

func (c *conn) multiGet(ctx context.Context, keys [][]byte) ([]client.Result, error) {
	all := make([]client.Result, len(keys))
	for id, cl := range c.by {
		var mine [][]byte
		var at []int
		for i, k := range keys {
			if c.m.OwnerOf(cluster.ShardOf(k, len(c.m.Owner))) == id {
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
