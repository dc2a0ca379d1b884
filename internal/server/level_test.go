package server

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
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

// TestLevelOfNodes: nodes of this program are at its newest level soon after their cluster was made, tell each other by gossip what they read, and tell operators. They believe no node
// that says something else. One whose program does not read the level that was agreed on stands down; a program does not start where a level is noted that it does not read, and says why.
func TestLevelOfNodes(t *testing.T) {
	r := startReplicas(t)
	newest := feature.Here().Newest
	for _, srv := range r.nodes {
		comesTo(t, "every node has heard of the level", func() bool { return srv.member.Levels.At() == newest })
		st := statusOf(t, srv)
		if l := st.Levels; l == nil || *l != (wire.LevelStatus{Level: uint8(newest), Oldest: uint8(feature.Here().Oldest), Newest: uint8(newest)}) {
			t.Errorf("its status says %+v", l)
		}
		for _, want := range []string{fmt.Sprintf("rdmakv_cluster_feature_level %d\n", newest), fmt.Sprintf("rdmakv_cluster_feature_level_newest %d\n", newest)} {
			if _, text := httpGet(t, srv, "/metrics"); !strings.Contains(text, want) {
				t.Errorf("its metrics do not say %q", want)
			}
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

	// Another node says that the cluster is at a level that it is not at. Nobody believes it.
	said := append([]byte{wire.QuestionPoll, byte(newest + 1)}, make([]byte, 38)...)
	binary.LittleEndian.PutUint64(said[24:], 1) // of the map that all have
	for i, srv := range r.nodes[:2] {
		if answer, err := r.nodes[2].groups.Ask(t.Context(), string(rune('a'+i)), said); err == nil || !strings.Contains(err.Error(), "has not confirmed the feature level") {
			t.Errorf("node %c answers with %q, %v", 'a'+i, answer, err)
		}
		if at, err := srv.member.Levels.At(), srv.Err(); at != newest || err != nil {
			t.Errorf("node %c is at level %d, and %v", 'a'+i, at, err)
		}
	}

	// The meta group comes to a level that a program does not read: it stands down. It has noted nothing of that, so it starts again, should it not be so any more.
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
	srv, err := again(nil)
	if err != nil {
		t.Fatalf("it starts again: %v", err)
	}
	if at := srv.member.Levels.At(); at != newest {
		t.Errorf("it starts again at level %d", at)
	}
	if err := srv.Shutdown(ctx); err != nil {
		t.Error(err)
	}

	// A program that reads the next level is told of it, and notes it. From then on the one before does not start.
	next, err := again(&feature.Range{Oldest: newest, Newest: newest + 1})
	if err != nil {
		t.Fatalf("a program that reads the level: %v", err)
	}
	if err := errors.Join(next.member.Levels.Raise(newest+1), next.Shutdown(ctx)); err != nil {
		t.Fatal(err)
	}
	if srv, err := again(nil); !errors.Is(err, feature.ErrUnread) || !MustNotServe(err) || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "start this node with a newer program") {
		srv.Shutdown(ctx)
		t.Errorf("the program before starts: %v", err)
	}
}
