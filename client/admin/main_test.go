package admin_test

import (
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/internal/clienttest"
	"github.com/rdmakv/rdmakv/internal/world"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/wait"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// dialFakes connects by the first of the nodes.
func dialFakes(t *testing.T, nodes []*clienttest.Node, change func(*client.Config)) *client.Client {
	t.Helper()
	f := nodes[0].Server
	cfg := client.Config{
		Servers: []string{nodes[0].Addr}, Fabrics: []rdma.Fabric{f}, Secret: f.Secret, LeaseKeep: -1,
		Logger: clienttest.Logger("client"), MaxInflight: 4, CacheEntries: 64, DialOnce: true,
		Timeout: 20 * time.Second, DialTimeout: 20 * time.Second,
		Wait: wait.Event, // a spin would not end in virtual time
	}
	if change != nil {
		change(&cfg)
	}
	c, err := client.Dial(world.With(context.Background(), world.World{Heap: true}), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}
