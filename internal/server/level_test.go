package server

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/feature"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// comesTo waits until f holds.
func comesTo(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !f(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it does not come to this: %s", what)
		}
	}
}

// TestLevelOfNodes: nodes of this program are at its newest level soon after their cluster was made, tell each other by gossip what they read, and tell operators. One whose program does
// not read the level stands down when it hears of it, does not start again, and says why; one of a program that does starts.
func TestLevelOfNodes(t *testing.T) {
	r := startReplicas(t)
	newest := feature.Here().Newest
	for _, srv := range r.nodes {
		comesTo(t, "every node has heard of the level", func() bool { return srv.member.Levels.At() == newest })
		st := statusOf(t, srv)
		if l := st.Levels; l == nil || *l != (wire.LevelStatus{Level: uint8(newest), Oldest: uint8(feature.Here().Oldest), Newest: uint8(newest)}) {
			t.Errorf("its status says %+v", l)
		}
		for _, other := range []string{"a", "b", "c"} {
			comesTo(t, "gossip tells of what nodes read", func() bool {
				got, known := srv.member.Levels.ReadsOf(other)
				return known && got == newest
			})
		}
	}
	if _, known := r.nodes[0].member.Levels.ReadsOf("z"); known {
		t.Error("gossip knows a node that there is none")
	}

	// The cluster goes to a level that this program does not read.
	srv := r.nodes[2]
	if err := srv.member.Levels.Raise(newest + 1); !errors.Is(err, feature.ErrUnread) {
		t.Errorf("it hears of a level that it does not read: %v", err)
	}
	comesTo(t, "it stands down", func() bool { return srv.Err() != nil })
	if !errors.Is(srv.Err(), feature.ErrUnread) || !MustNotServe(srv.Err()) {
		t.Errorf("it stands down for %v", srv.Err())
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	_ = srv.Shutdown(ctx) // says again why it has stood down
	r.nodes[2] = nil
	again := func(reads *feature.Range) (*Server, error) {
		cfg := testConfig()
		clusterOf("c", r.seeds...)(&cfg)
		replicaOf(&cfg, r.dirs[2])
		cfg.Cluster.Reads = reads
		srv, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		return srv, srv.Start(ctx)
	}
	if srv, err := again(nil); !errors.Is(err, feature.ErrUnread) || !MustNotServe(err) || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "start this node with a newer program") {
		srv.Shutdown(ctx)
		t.Errorf("it starts again: %v", err)
	}
	next, err := again(&feature.Range{Oldest: newest, Newest: newest + 1})
	if err != nil {
		t.Fatalf("a program that reads the level: %v", err)
	}
	defer next.Shutdown(ctx)
	if at := next.member.Levels.At(); at != newest+1 {
		t.Errorf("it starts at level %d", at)
	}
}
