package server

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/rdmakv/rdmakv/internal/server/groups"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// readyIs says whether /readyz of a node answers with a status, and a text that has some words.
func readyIs(t *testing.T, srv *Server, code int, words ...string) func() bool {
	return func() bool {
		got, text := httpGet(t, srv, "/readyz")
		return got == code && !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(text, w) })
	}
}

// TestReadyReplicas: a node with replicas is ready once they have caught up, and stays so while the others are away. Alone it waits for them, whoever of
// them comes.
func TestReadyReplicas(t *testing.T) {
	r := startUnmapped(t)
	for _, srv := range r.nodes {
		eventually(t, "ready to be given a map", readyIs(t, srv, 200, "cluster init"))
	}
	r.agree()
	for _, srv := range r.nodes {
		eventually(t, "ready with new replicas", readyIs(t, srv, 200, "ready, filled"))
	}
	r.put(keyOf(0), "1")
	r.stop(0)
	r.stop(1)
	for range 20 { // the others' absence is no fault of its own
		if !readyIs(t, r.nodes[2], 200)() {
			t.Fatal("not ready any more because others are away")
		}
	}
	r.stop(2)
	r.start(0)
	eventually(t, "alone it says what it waits for", readyIs(t, r.nodes[0], 503, "do not stop another node", "knows no leader"))
	r.start(1)
	for _, srv := range r.nodes[:2] {
		eventually(t, "two are a majority", readyIs(t, srv, 200))
	}
	r.start(2)
	eventually(t, "the third comes later", readyIs(t, r.nodes[2], 200))
}

// TestReadyMeansCaughtUp: a node that was away is ready when it has what the others wrote meanwhile, and not before.
func TestReadyMeansCaughtUp(t *testing.T) {
	r := startReplicas(t)
	key := keyOf(0)
	lead := r.leader(0)
	r.put(key, "v")
	away := (lead + 1) % 3
	r.stop(away)
	p := dial(t, r.nodes[lead], peerOptions{})
	for i := 0; i < 800; {
		switch err := p.put(key, fmt.Sprint(i)); {
		case err == nil:
			i++
		case wire.StatusOf(err) == wire.StatusNotLeader: // a busy machine
			p.close()
			p = dial(t, r.nodes[r.leader(0)], peerOptions{})
		default:
			t.Fatal(err)
		}
	}
	p.close()
	id := r.m.Replication.Groups[r.m.Replication.Group[0]].ID
	of := func(srv *Server) (st wire.GroupStatus) {
		for _, g := range srv.groups.Status() {
			if g.ID == id {
				st = g
			}
		}
		return st
	}
	had := of(r.nodes[r.leader(0)]).Applied
	srv := r.start(away)
	eventually(t, "ready", func() bool {
		ready := readyIs(t, srv, 200)()
		if has := of(srv).Applied; ready && has+300 < had { // a few may be missing
			t.Fatalf("ready with %d entries of %d", has, had)
		}
		return ready
	})
	r.want(key, "799")
}

// TestLackingText: what is listed is bounded, and says which groups.
func TestLackingText(t *testing.T) {
	var list []groups.Lacking
	for i := range 20 {
		list = append(list, groups.Lacking{Group: uint32(i + 1), Why: "it sleeps"})
	}
	if got := strings.Split(lackingText(list), "\n"); len(got) != 10 || got[1] != "group 1: it sleeps" || got[9] != "and 12 more" {
		t.Errorf("%q", got)
	}
	if got := lackingText([]groups.Lacking{{Why: "none"}}); !strings.HasSuffix(got, "\nnone") {
		t.Errorf("%q", got)
	}
}
