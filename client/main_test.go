package client_test

import (
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/admin"
	"github.com/rdmakv/rdmakv/client/internal/clienttest"
	"github.com/rdmakv/rdmakv/client/internal/clienttest/node"
	"github.com/rdmakv/rdmakv/client/internal/route"
	"github.com/rdmakv/rdmakv/internal/world"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/iwarp"
	"github.com/rdmakv/rdmakv/rdma/verbs"
	"github.com/rdmakv/rdmakv/rdma/wait"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rt is the client as what leads its calls to servers.
func rt(c *client.Client) *route.Router { return (*route.Router)(c) }

// nodeOf is the only server that a client has.
func nodeOf(t testing.TB, c *client.Client) *admin.Node {
	t.Helper()
	n, err := admin.Of(c).Node("")
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// configNode is a client's for this node.
func configNode(n *node.Node) client.Config {
	cfg := client.Config{
		Servers: []string{n.Addr}, Fabrics: []rdma.Fabric{iwarp.New(iwarp.Options{})}, Secret: n.Config.Secret,
		Logger: clienttest.Logger("client"),
		// A loaded machine under the race detector is slow; tests of deadlines
		// set their own.
		Timeout: time.Minute, DialTimeout: 20 * time.Second,
	}
	if n.Hard {
		cfg.Fabrics = []rdma.Fabric{verbs.New(verbs.Options{})}
	}
	return cfg
}

// worldOf has clients of this node take their memory from the heap, where they may.
func worldOf(ctx context.Context, n *node.Node) context.Context {
	return world.With(ctx, world.World{Heap: !n.Hard && !n.Mmap})
}

// inHeap has clients take their memory from the heap.
func inHeap(ctx context.Context) context.Context { return world.With(ctx, world.World{Heap: true}) }

func dialNode(n *node.Node, change func(*client.Config)) *client.Client {
	n.TB.Helper()
	cfg := configNode(n)
	if change != nil {
		change(&cfg)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	c, err := client.Dial(worldOf(ctx, n), cfg)
	if err != nil {
		n.TB.Fatal(err)
	}
	n.TB.Cleanup(func() {
		if err := c.Close(); err != nil {
			n.TB.Errorf("close: %v", err)
		}
	})
	return c
}

// filled waits until the node has filled its memory, before the test's first put: a shard that
// gets a key sooner has one-sided gets believe its misses only a lease later.
func filled(n *node.Node) {
	n.TB.Helper()
	clienttest.Eventually(n.TB, "the node is filled", n.Server.Filled)
}

// paceOf is what a session and a put take on this machine as it is now: the unit in
// which tests count that need a short timeout.
func paceOf(n *node.Node) time.Duration {
	n.TB.Helper()
	begin := time.Now()
	c := dialNode(n, nil)
	if err := c.Put(n.TB.Context(), []byte("pace"), nil); err != nil {
		n.TB.Fatal(err)
	}
	return time.Since(begin)
}

// dialMapped is a client of such a node.
func dialMapped(n *node.Node, f *clienttest.Mapped, change func(*client.Config)) *client.Client {
	return dialNode(n, func(cfg *client.Config) {
		cfg.Fabrics = []rdma.Fabric{f}
		if change != nil {
			change(cfg)
		}
	})
}

// rigged is a server in this process and a client on some fabrics.
func rigged(n *node.Node, fabrics []rdma.Fabric, change func(*client.Config)) *client.Client {
	n.TB.Helper()
	return dialNode(n, func(cfg *client.Config) {
		cfg.Fabrics = fabrics
		if change != nil {
			change(cfg)
		}
	})
}

// configFake is a client's. Fakes answer at once, so its calls park and do not spin: a spin
// would not end in virtual time (synctest), in which the tests run that wait for deadlines.
func configFake(f *clienttest.Server) client.Config {
	return client.Config{
		Servers: []string{"fake:1"}, Fabrics: []rdma.Fabric{f}, Secret: f.Secret, LeaseKeep: -1,
		Logger: clienttest.Logger("client"), MaxInflight: 4, CacheEntries: 64, DialOnce: true, Wait: wait.Event,
	}
}

// dialFake is a client with a clock of the test's own, or the machine's.
func dialFake(t testing.TB, f *clienttest.Server, clock *clienttest.Clock, change func(*client.Config)) *client.Client {
	t.Helper()
	cfg := configFake(f)
	if change != nil {
		change(&cfg)
	}
	w := world.World{Heap: true}
	if clock != nil {
		w.Now = clock.Now
	}
	c, err := client.Dial(world.With(context.Background(), w), cfg)
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

// dialFakes connects by the first of the nodes.
func dialFakes(t *testing.T, nodes []*clienttest.Node, change func(*client.Config)) *client.Client {
	t.Helper()
	return dialFakesAt(t, nodes, nil, change)
}

// dialFakesAt is dialFakes with a clock of the test's own.
func dialFakesAt(t *testing.T, nodes []*clienttest.Node, clock *clienttest.Clock, change func(*client.Config)) *client.Client {
	t.Helper()
	return dialFake(t, nodes[0].Server, clock, func(cfg *client.Config) {
		cfg.Servers = []string{nodes[0].Addr}
		cfg.Timeout, cfg.DialTimeout = 20*time.Second, 20*time.Second
		if change != nil {
			change(cfg)
		}
	})
}
