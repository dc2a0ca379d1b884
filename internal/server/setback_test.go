package server

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/teeth"
	"github.com/rdmakv/rdmakv/membership"
	"github.com/rdmakv/rdmakv/store"
)

// A node of a cluster with replicas whose data directory was set back.

// keep copies the data directory of a node that is stopped.
func (r *replicas) keep(i int) (copied string) {
	r.t.Helper()
	copied = r.t.TempDir()
	if err := os.CopyFS(copied, os.DirFS(r.dirs[i])); err != nil {
		r.t.Fatal(err)
	}
	return copied
}

// refused starts a node on a directory that the others must not hear, and returns why it ends. above is what the operator accepts.
func (r *replicas) refused(i int, dir string, above uint16) string {
	r.t.Helper()
	cfg := testConfig()
	clusterOf(string(rune('a'+i)), r.seeds...)(&cfg)
	replicaOf(&cfg, dir)
	cfg.EpochAbove = above
	srv, err := New(cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(r.t.Context(), teeth.Patience(20*time.Second))
	defer cancel()
	if err = srv.Start(ctx); err == nil {
		select {
		case <-srv.Fatal():
			err = srv.Err()
		case <-ctx.Done():
		}
		if end := srv.Shutdown(context.Background()); end != nil && err == nil {
			r.t.Error(end)
		}
	}
	if !errors.Is(err, membership.ErrRolledBack) && !errors.Is(err, store.ErrRefused) || !MustNotServe(err) {
		r.t.Fatalf("on %s, with %d accepted, it ends with %v", dir, above, err)
	}
	return err.Error()
}

// TestSetBackReplica: a node whose directory was set back takes part in nothing, although the others have restarted since they saw it, however often
// it was started before they did, and also if its operator accepts the loss (R18). The others go on; with its newest directory it is back.
func TestSetBackReplica(t *testing.T) {
	r := startReplicas(t)
	r.put(keyOf(0), "before")
	r.stop(2)
	old, often := r.keep(2), ""
	r.start(2)
	for shard := range uint16(4) {
		r.put(keyOf(shard), "since")
	}
	for i := range 3 { // so that gossip has forgotten
		r.stop(i)
	}
	// One copy is started again and again while nobody is there who knows: then its epoch is higher than any that was seen.
	often = t.TempDir()
	if err := os.CopyFS(often, os.DirFS(old)); err != nil {
		t.Fatal(err)
	}
	newest := r.dirs[2]
	r.dirs[2] = often
	seeds := r.seeds
	r.seeds = nil
	for range 3 {
		r.start(2)
		r.stop(2)
	}
	r.seeds = seeds
	r.start(0)
	r.start(1)
	for _, c := range []struct {
		name, dir string
		accept    uint16
	}{{"an older copy", old, 0}, {"one that was started often", often, 1000}} {
		words := r.refused(2, c.dir, 0)
		for _, part := range []string{"node c", "epoch", "older copy"} {
			if !strings.Contains(words, part) {
				t.Errorf("%s: it does not say %q: %s", c.name, part, words)
			}
		}
		if words = r.refused(2, c.dir, 0); !strings.Contains(words, "must not be served, since") {
			t.Errorf("%s, started again: %s", c.name, words)
		}
		if c.accept != 0 {
			r.refused(2, c.dir, c.accept)
		}
	}
	for shard := range uint16(4) {
		r.want(keyOf(shard), "since")
		r.put(keyOf(shard), "later")
	}
	// Gossip has seen a higher epoch of the copies, but the others know this directory.
	r.dirs[2], r.above = newest, 2000
	r.start(2)
	r.stop(0)
	for shard := range uint16(4) {
		r.want(keyOf(shard), "later")
	}
}
