package cluster

import (
	"context"
	"errors"
	"fmt"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/admin"
	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/test/linear"
)

// A Conn is a client of a cluster that has a shard map.
type Conn struct {
	*client.Client
	info admin.ClusterInfo
}

// ConnOptions say how to connect.
type ConnOptions struct {
	Addrs   []string // of some nodes
	Fabric  rdma.Fabric
	Secret  []byte
	NoCache bool // of places
}

// Dial connects to a cluster by any of its nodes.
func Dial(ctx context.Context, o ConnOptions) (*Conn, error) {
	cfg := client.Config{Servers: o.Addrs, Fabrics: []rdma.Fabric{o.Fabric}, Secret: o.Secret, Timeout: PatientLimit}
	if o.NoCache {
		cfg.CacheEntries = -1
	}
	c, err := client.Dial(ctx, cfg)
	if err != nil {
		return nil, err
	}
	info, err := admin.Of(c).Cluster(ctx)
	if err == nil && len(info.Owners) == 0 {
		err = errors.New("the cluster has no shard map")
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return &Conn{c, info}, nil
}

// Owner is the id of the node that owns a key.
func (c *Conn) Owner(key []byte) string {
	return c.info.Owners[cluster.ShardOf(key, len(c.info.Owners))]
}

// Info is what the cluster said of itself when the client had connected.
func (c *Conn) Info() admin.ClusterInfo { return c.info }

// IDs are the nodes that own shards.
func (c *Conn) IDs() []string {
	var ids []string
	for _, n := range c.info.Nodes {
		if n.Shards > 0 {
			ids = append(ids, n.ID)
		}
	}
	return ids
}

// KeysOf makes n keys that a node owns.
func (c *Conn) KeysOf(id, prefix string, n int) [][]byte {
	var keys [][]byte
	for i := 0; len(keys) < n; i++ {
		if k := fmt.Appendf(nil, "%s %d", prefix, i); c.Owner(k) == id {
			keys = append(keys, k)
		}
	}
	return keys
}

// At are the counters of the client at one node.
func (c *Conn) At(id string) client.Counters {
	n, err := admin.Of(c.Client).Node(id)
	if err != nil {
		return client.Counters{} // nothing was done there
	}
	return n.Counters()
}

// Store is the client with the interface that a load uses.
func (c *Conn) Store() linear.Store { return linear.NewClient(c.Client) }
