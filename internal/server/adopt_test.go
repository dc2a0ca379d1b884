package server

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// adoptingOf is the map by which a node that has keys begins a cluster.
func adoptingOf(t *testing.T, srv *Server) *cluster.Map {
	t.Helper()
	from := &cluster.Map{Cluster: [16]byte{1}, Name: clusterName, Nodes: []cluster.MapNode{{ID: srv.cfg.Cluster.NodeID, Weight: 1}}, Owner: make([]uint16, srv.main.Shards)}
	m, err := cluster.ProposeAdopting(from, cluster.Want{Stores: [][16]byte{srv.main.Store.ID()}})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestOlderClientOfAdopted: a server that was alone begins a cluster with its keys, by a map that says so and by no other one. The meta group begins at the level of that map. A client that cannot read such a map is told to be
// upgraded, and is let in as long as the cluster has none; another one finds every key. So it is behind a start.
func TestOlderClientOfAdopted(t *testing.T) {
	dir := t.TempDir()
	alone := startServer(t, func(c *Config) { replicaOf(c, dir) })
	if err := dial(t, alone, peerOptions{}).put("kept", "v"); err != nil {
		t.Fatal(err)
	}
	stop := func(srv *Server) {
		t.Helper()
		if err := srv.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	stop(alone)
	hold := true
	start := func() *Server {
		return startServer(t, func(c *Config) {
			clusterOf("a")(c)
			replicaOf(c, dir)
			c.Cluster.HoldLevel = hold
		})
	}
	refused := func(srv *Server, m *cluster.Map, words string) {
		t.Helper()
		p := dial(t, srv, peerOptions{})
		if got, err := p.change(wire.MapPrepare, m); err != nil || !bytes.Contains(got.Text, []byte(words)) || got.State != wire.MapNone {
			t.Errorf("%+v %q, %v, want %q", got, got.Text, err, words)
		}
	}
	srv := start()
	m := adoptingOf(t, srv)
	refused(srv, m, "hold_level")
	refused(srv, proposeReplicas(t, 1, srv), "holds keys")
	stop(srv)
	hold = false
	srv = start()
	p := dial(t, srv, peerOptions{})
	for _, step := range []wire.DocumentKind{wire.MapPrepare, wire.MapCommit} {
		if got, err := p.change(step, m); err != nil || len(got.Text) > 0 {
			t.Fatalf("%v: %q, %v", step, got.Text, err)
		}
	}
	for range 2 {
		if _, err := tryDial(t, srv, peerOptions{}); err == nil || !strings.Contains(err.Error(), "upgrade this client") {
			t.Errorf("a client that reads no such map: %v", err)
		}
		p := dial(t, srv, peerOptions{anew: true})
		for deadline := time.Now().Add(time.Minute); ; {
			got, err := p.get("kept", 100)
			if err == nil {
				if string(got.Value) != "v" {
					t.Errorf("the key has %q", got.Value)
				}
				break
			}
			if !errors.Is(err, wire.StatusNotLeader.Err()) || time.Now().After(deadline) {
				t.Fatal(err)
			}
			time.Sleep(time.Millisecond)
		}
		if err := p.put("kept", "v"); err != nil {
			t.Error(err)
		}
		for deadline := time.Now().Add(time.Minute); srv.member.Levels.At() != 1; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("the cluster is at level %d", srv.member.Levels.At())
			}
		}
		stop(srv)
		srv = start()
	}
}
