package server

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/secret"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/membership"
)

// TestStandDown: a node that must not go on ends the sessions of all its spaces,
// says why to whoever looks after it, and closes its stores cleanly.
func TestStandDown(t *testing.T) {
	fs := vfs.NewMem()
	cfg := testConfig()
	clusterOf("a")(&cfg)
	cfg.FS, cfg.DataDir = fs, "data"
	cfg.Secret = []byte("the secret of the cluster")
	cfg.Tenants = []Tenant{{Name: "alice", Secret: secret.New([]byte("0123456789abcdef"))}}
	srv, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := srv.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	main := dial(t, srv, peerOptions{secret: cfg.Secret})
	for _, step := range []wire.MapStep{wire.MapPrepare, wire.MapCommit} {
		if _, err := main.change(step, propose(t, 1, srv)); err != nil {
			t.Fatal(err)
		}
	}
	alice := dial(t, srv, peerOptions{tenant: "alice", secret: []byte("0123456789abcdef")})
	for _, p := range []*peer{main, alice} {
		if err := p.put("key", "value"); err != nil {
			t.Fatal(err)
		}
	}
	srv.standDown(errors.New("another process is this node"))
	for _, p := range []*peer{main, alice} {
		select {
		case <-p.qp.Done():
		case <-time.After(time.Minute):
			t.Fatal("a session goes on: its peer may READ, and write")
		}
	}
	if srv.Ready() {
		t.Error("it calls itself ready")
	}
	for path, want := range map[string]string{"/readyz": "another process is this node", "/metrics": "rdmakv_cluster_stood_down 1"} {
		res, err := http.Get("http://" + srv.AdminAddr().String() + path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || !strings.Contains(string(body), want) {
			t.Errorf("%s: %v, without %q: %.200s", path, err, want, body)
		}
		if path == "/readyz" && res.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("%s: %s", path, res.Status)
		}
	}
	if err := srv.Shutdown(context.Background()); err != nil {
		t.Errorf("the stores did not close cleanly: %v", err)
	}
}

// TestRolledBackNode: a node comes back on an older copy of its directory. It
// serves nothing, until it is told that the loss is accepted; then its versions
// are none that were given out before.
func TestRolledBackNode(t *testing.T) {
	// News of a life travel with push/pull, which the other profiles do each half a
	// minute.
	quick := func(c *Config) { c.Cluster.Profile = "fast" }
	first := startServer(t, func(c *Config) { clusterOf("a")(c); quick(c) })
	fs := vfs.NewMem()
	node := func(change func(*Config)) (*Server, error) {
		cfg := testConfig()
		clusterOf("b", first.GossipAddr())(&cfg)
		quick(&cfg)
		cfg.FS, cfg.DataDir = fs, "data"
		if change != nil {
			change(&cfg)
		}
		srv, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		return srv, srv.Start(t.Context())
	}
	stop := func(srv *Server) {
		if err := srv.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	}
	b, err := node(nil)
	if err != nil {
		t.Fatal(err)
	}
	birth(t, first, b)
	known := func() bool {
		m := first.cluster.members.View().Member("b")
		return m != nil && m.Incarnation == b.incarnation && m.State == cluster.Alive
	}
	eventually(t, "the first knows of it", known)
	stop(b)
	old := vfs.NewMem()
	if _, err := vfs.Clone(fs, old, "data", "data", vfs.CloneSync); err != nil {
		t.Fatal(err)
	}
	if b, err = node(nil); err != nil {
		t.Fatal(err)
	}
	seen := b.store.Epoch()
	eventually(t, "the first knows of its second life", known)
	stop(b)

	fs = old
	b, err = node(nil)
	if !errors.Is(err, membership.ErrRolledBack) || !strings.Contains(err.Error(), "--accept-rollback") {
		if err == nil {
			stop(b)
		}
		t.Fatalf("it starts on a disk that was rolled back: %v", err)
	}
	b, err = node(func(c *Config) { c.EpochAbove = seen })
	if err != nil {
		t.Fatal(err)
	}
	if got := b.store.Epoch(); got <= seen {
		t.Errorf("it begins at epoch %d, and %d has been", got, seen)
	}
	stop(b)
	if b, err = node(nil); err != nil {
		t.Fatalf("it must be told each time: %v", err)
	}
	stop(b)
}
