package client_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/admin"
	"github.com/rdmakv/rdmakv/client/internal/clienttest"
	"github.com/rdmakv/rdmakv/internal/cluster"
)

// leftOut is a cluster of three nodes of which the third has been left out of the
// map; by its gossip the others have one.
func leftOut(t *testing.T) []*clienttest.Node {
	nodes := clienttest.Cluster(t, 3, true)
	nodes[2].Map = nil
	for i := range 2 { // the views share their members
		nodes[2].View.Members[i].MapVersion = 1
	}
	return nodes
}

// TestLeftOutLeads: a node without a map leads to the nodes that have it.
func TestLeftOutLeads(t *testing.T) {
	nodes := leftOut(t)
	c := dialFakes(t, nodes, func(cfg *client.Config) { cfg.Servers = []string{nodes[2].Addr} })
	for id, keys := range clienttest.KeysOf(nodes[2].FirstMap(), 1) {
		if id == "n3" {
			continue
		}
		if err := c.Put(t.Context(), []byte(keys[0]), nil); err != nil {
			t.Errorf("%s: %v", id, err)
		}
	}
}

// TestLeftOutAlone: a client that reaches only a node without a map, and knows by gossip that
// there is one, is told which nodes were not reached and why; not that the cluster
// has no map.
func TestLeftOutAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := leftOut(t)
		for _, n := range nodes[:2] {
			n.Connect = func(context.Context) error { return syscall.ECONNREFUSED }
		}
		var mu sync.Mutex
		var waited []error
		c := dialFakes(t, nodes, func(cfg *client.Config) {
			cfg.Servers = []string{nodes[2].Addr}
			cfg.Timeout = 300 * time.Millisecond
			cfg.OnWait = func(why error) {
				mu.Lock()
				defer mu.Unlock()
				waited = append(waited, why)
			}
		})
		away := func(what string, err error) {
			t.Helper()
			named := ""
			for _, u := range client.UnreachedServers(err) {
				named += u.Node + " " + u.Server + " "
			}
			if !errors.Is(err, client.ErrUnavailable) || errors.Is(err, client.ErrNoMap) || !errors.Is(err, syscall.ECONNREFUSED) || strings.Contains(err.Error(), "cluster init") ||
				!strings.Contains(named, "n1 node1:1 ") || !strings.Contains(named, "n2 node2:1 ") {
				t.Errorf("%s: unreached %q: %v", what, named, err)
			}
		}
		key := []byte("k")
		for what, err := range map[string]error{
			"get": second(c.Get(t.Context(), key)), "put": c.Put(t.Context(), key, nil), "ping": second(c.Ping(t.Context())),
			"multi get": second(c.MultiGet(t.Context(), [][]byte{key})), "multi put": c.MultiPut(t.Context(), []client.Pair{{Key: key}}),
			"node of": second(admin.Of(c).NodeOf(key)),
		} {
			away(what, err)
			if e := (*client.Error)(nil); what != "node of" && !errors.Is(err, client.ErrTimeout) || !errors.As(err, &e) {
				t.Errorf("%s: %v", what, err)
			}
		}
		for _, err := range c.Scan(t.Context(), client.ScanOptions{}) {
			away("scan", err)
		}
		mu.Lock()
		defer mu.Unlock()
		if len(waited) == 0 {
			t.Error("no call waited")
		}
		for _, why := range waited {
			away("OnWait", why)
		}
	})
}

// TestLiarsNodesAreNotKept: a node that names ever new nodes with a map, none of
// which is there, has the client keep none of them.
func TestLiarsNodesAreNotKept(t *testing.T) {
	nodes := leftOut(t)
	liar := nodes[2]
	c := dialFakes(t, nodes, func(cfg *client.Config) { cfg.Servers = []string{liar.Addr} })
	const rounds = 20
	for round := range rounds {
		liar.Set(func(n *clienttest.Node) {
			v := *n.View
			v.Version++
			v.Members = []cluster.Member{v.Members[len(v.Members)-1]} // itself
			for i := range 2 {
				v.Members = append([]cluster.Member{{
					ID: fmt.Sprintf("a%d-%02d", 1-i, round), Role: cluster.RoleServer, Incarnation: 9, State: cluster.Alive, MapVersion: 1,
					Endpoints: []cluster.Endpoint{{Fabric: "fake", Addr: liar.Addr}},
				}}, v.Members...)
			}
			n.View = &v
		})
		if info, err := admin.Of(c).Cluster(t.Context()); err != nil || len(info.Nodes) != 3 {
			t.Fatalf("%+v, %v", info, err)
		}
	}
	if known := admin.Of(c).Known(); len(known) != 1 || known[0].ID() != "n3" {
		t.Errorf("%d nodes are kept", len(known))
	}
	liar.Server.Mu.Lock()
	defer liar.Server.Mu.Unlock()
	if len(liar.QPs) < rounds {
		t.Errorf("%d connections in %d rounds: it was not asked", len(liar.QPs), rounds)
	}
	open := 0
	for _, q := range liar.QPs {
		if q.Err() == nil {
			open++
		}
	}
	if open != 1 {
		t.Errorf("%d of %d connections are open", open, len(liar.QPs))
	}
}
