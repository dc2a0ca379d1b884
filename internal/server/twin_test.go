package server

import (
	"context"
	"errors"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/secret"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/membership"
	"github.com/rdmakv/rdmakv/store"
	"github.com/rdmakv/rdmakv/test/crashfs"
)

// TestStandDown: a node that must not go on ends the sessions of all its spaces,
// says why to whoever looks after it, and closes its stores cleanly.
func TestStandDown(t *testing.T) {
	fs := crashfs.New()
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
	for _, step := range []wire.DocumentKind{wire.MapPrepare, wire.MapCommit} {
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

// A twinRig is a node a, and a node b that a test starts on one directory or
// another.
type twinRig struct {
	t      *testing.T
	first  *Server
	served bool // what was refused last learned of it only when it served
}

func newTwinRig(t *testing.T) *twinRig {
	r := &twinRig{t: t}
	r.first = startServer(t, func(c *Config) { clusterOf("a")(c); r.quick(c) })
	return r
}

// quick: news of a life travel with push/pull, which the other profiles do each half
// a minute.
func (r *twinRig) quick(c *Config) { c.Cluster.Profile = "fast" }

// node starts b on a directory. Whoever gets one without an error ends it.
func (r *twinRig) node(fs *crashfs.Disk, above uint16) (*Server, error) {
	cfg := testConfig()
	clusterOf("b", r.first.GossipAddr())(&cfg)
	r.quick(&cfg)
	cfg.FS, cfg.DataDir, cfg.EpochAbove = fs, "data", above
	srv, err := New(cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	return srv, srv.Start(r.t.Context())
}

// starts starts b, which must be let in.
func (r *twinRig) starts(fs *crashfs.Disk, above uint16) *Server {
	r.t.Helper()
	srv, err := r.node(fs, above)
	if err != nil {
		r.t.Fatal(err)
	}
	return srv
}

// refused starts b, which must not be let in for a reason, and returns the words. On a
// slow machine it may learn of another process only when it serves; then it ends.
func (r *twinRig) refused(fs *crashfs.Disk, above uint16, why error) string {
	r.t.Helper()
	srv, err := r.node(fs, above)
	if r.served = err == nil; r.served {
		epoch, wait := srv.main.Store.Epoch(), time.Minute
		if why == store.ErrRefused {
			wait = 0 // the directory itself says so
		}
		select {
		case <-srv.Fatal():
			err = srv.Err()
		case <-time.After(wait):
		}
		r.stop(srv)
		if err == nil {
			r.t.Fatalf("it serves at epoch %d; want %v", epoch, why)
		}
	}
	if !errors.Is(err, why) || !MustNotServe(err) {
		r.t.Fatalf("it ends with %v; want %v", err, why)
	}
	return err.Error()
}

func (r *twinRig) known(b *Server) {
	r.t.Helper()
	eventually(r.t, "the first knows of it", func() bool {
		m := r.first.member.Members().View().Member("b")
		return m != nil && m.Incarnation == b.main.Incarnation && m.State == cluster.Alive
	})
}

func (r *twinRig) stop(srv *Server) {
	r.t.Helper()
	if err := srv.Shutdown(context.Background()); err != nil {
		r.t.Error(err)
	}
}

// cloned is a copy of a directory as it is on the disk now.
func (r *twinRig) cloned(fs *crashfs.Disk) *crashfs.Disk {
	r.t.Helper()
	to := crashfs.New()
	if _, err := vfs.Clone(fs, to, "data", "data", vfs.CloneSync); err != nil {
		r.t.Fatal(err)
	}
	return to
}

func (r *twinRig) epochOf(fs *crashfs.Disk) uint16 {
	r.t.Helper()
	in, err := store.Inspect(context.Background(), "data", store.InspectOptions{FS: fs})
	if err != nil {
		r.t.Fatal(err)
	}
	return in.Epoch
}

// accepts is the number after --accept-rollback in an error.
func (r *twinRig) accepts(words string) uint16 {
	r.t.Helper()
	m := regexp.MustCompile(`--accept-rollback (\d+)\)`).FindStringSubmatch(words)
	if m == nil {
		r.t.Fatalf("it does not say how to go on: %s", words)
	}
	n, err := strconv.ParseUint(m[1], 10, 16)
	if err != nil {
		r.t.Fatal(err)
	}
	return uint16(n)
}

// TestRefusedCopy: a copy of a node's directory was refused beside the node. It is
// refused as well when the node is away for a moment, and never gets ahead of it.
func TestRefusedCopy(t *testing.T) {
	r := newTwinRig(t)
	real := crashfs.New()
	b := r.starts(real, 0)
	birth(t, r.first, b)
	r.known(b)
	old := r.cloned(real)
	before := r.epochOf(r.cloned(old))
	r.refused(old, 0, membership.ErrDuplicateID)
	switch got := r.epochOf(old); {
	case r.served: // it had to raise its epoch for that
		before = got
	case got != before:
		t.Errorf("a start that is refused raises the epoch from %d to %d", before, got)
	}
	for range 3 { // as a supervisor does it
		r.refused(old, 0, store.ErrRefused)
	}
	r.stop(b)
	words := r.refused(old, 0, store.ErrRefused)
	if got := r.epochOf(old); got != before {
		t.Errorf("starts that are refused raise the epoch from %d to %d", before, got)
	}
	if !strings.Contains(words, "since 20") || !strings.Contains(words, "delete it") {
		t.Errorf("it does not say since when, or what to do: %s", words)
	}
	b = r.starts(real, 0)
	r.known(b)
	seen := b.main.Store.Epoch()
	if err := b.Err(); err != nil {
		t.Errorf("the copy is in the way of what it was copied from: %v", err)
	}
	r.stop(b)
	// The copy is the one to keep: that has to be said.
	above := r.accepts(words)
	r.refused(old, above-1, store.ErrRefused)
	b = r.starts(old, max(above, seen))
	if got := b.main.Store.Epoch(); got <= seen {
		t.Errorf("it begins at epoch %d, and %d has been", got, seen)
	}
	r.stop(b)
	r.stop(r.starts(old, 0))
}

// TestRolledBackNode: a node comes back on an older copy of its directory. It
// serves nothing, however often it is started, until it is told that the loss is
// accepted; then its versions are none that were given out before.
func TestRolledBackNode(t *testing.T) {
	r := newTwinRig(t)
	real := crashfs.New()
	b := r.starts(real, 0)
	birth(t, r.first, b)
	r.known(b)
	r.stop(b)
	old := r.cloned(real)
	b = r.starts(real, 0)
	seen := b.main.Store.Epoch()
	r.known(b)
	r.stop(b)

	if words := r.refused(old, 0, membership.ErrRolledBack); !strings.Contains(words, "--accept-rollback") {
		t.Errorf("it does not say how to go on: %s", words)
	}
	for range 3 {
		r.refused(old, 0, store.ErrRefused)
	}
	b = r.starts(old, seen)
	if got := b.main.Store.Epoch(); got <= seen {
		t.Errorf("it begins at epoch %d, and %d has been", got, seen)
	}
	r.stop(b)
	r.stop(r.starts(old, 0)) // and needs not be told again
}
