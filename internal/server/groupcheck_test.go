package server

import (
	"fmt"
	"testing"

	"github.com/rdmakv/rdmakv/internal/wire"
)

// TestGroupCheck: the leader of a group puts a check for an operator, all its replicas come to one digest, and whoever cannot be asked or asks what
// is no question is told so.
func TestGroupCheck(t *testing.T) {
	r := startReplicas(t)
	r.put(keyOf(0), "1")
	r.put(keyOf(1), "2")
	lead := r.leader(0)
	id := r.m.Replication.Groups[r.m.Replication.Group[0]].ID
	ask := func(srv *Server, o peerOptions, text string) (c wire.GroupCheck, err error) {
		p := dial(t, srv, o)
		defer p.close()
		err = p.admin(wire.AdminCheck, text, &c)
		return c, err
	}
	put := wire.CheckQuestion{Group: id}
	var index uint64
	eventually(t, "a check is put", func() bool {
		lead = r.leader(0)
		c, err := ask(r.nodes[lead], peerOptions{}, put.String())
		if err != nil || !c.Valid(put) {
			t.Fatalf("%+v, %v", c, err)
		}
		index = c.Index
		return c.State == wire.CheckPut
	})
	at := wire.CheckQuestion{Group: id, Index: index}
	var digests []wire.GroupCheck
	for i, srv := range r.nodes {
		eventually(t, fmt.Sprintf("node %c comes to a digest", 'a'+i), func() bool {
			c, err := ask(srv, peerOptions{}, at.String())
			if err != nil || !c.Valid(at) || c.Final() && c.State != wire.CheckDone {
				t.Fatalf("node %c: %+v, %v", 'a'+i, c, err)
			}
			if c.State == wire.CheckDone {
				digests = append(digests, c)
			}
			return c.Final()
		})
		if digests[i] != digests[0] || digests[i].Keys == 0 {
			t.Errorf("node %c: %+v, node a: %+v", 'a'+i, digests[i], digests[0])
		}
		if c, err := ask(srv, peerOptions{}, wire.CheckQuestion{Group: id, Index: index + 100}.String()); err != nil || c.State != wire.CheckBehind {
			t.Errorf("node %c: an entry that is not there: %+v, %v", 'a'+i, c, err)
		}
		if c, err := ask(srv, peerOptions{}, wire.CheckQuestion{Group: id, Index: 1}.String()); err != nil || c.State != wire.CheckUnknown {
			t.Errorf("node %c: an entry that is no check: %+v, %v", 'a'+i, c, err)
		}
		if i != lead {
			if c, err := ask(srv, peerOptions{}, put.String()); err == nil && c.State != wire.CheckNotLeader && r.leader(0) != lead {
				t.Logf("node %c has taken over meanwhile", 'a'+i)
			} else if err != nil || c.State != wire.CheckNotLeader || c.Index != 0 || c.Leader != string(rune('a'+lead)) && c.Leader != "" {
				t.Errorf("node %c, and %c leads: %+v, %v", 'a'+i, 'a'+lead, c, err)
			}
		}
		for text, want := range map[string]wire.Status{
			"put 99999": wire.StatusNotFound, "at 99999 1": wire.StatusNotFound, "": wire.StatusBadRequest, "put": wire.StatusBadRequest, "at 1 0": wire.StatusBadRequest, "put 0": wire.StatusBadRequest,
		} {
			if _, err := ask(srv, peerOptions{}, text); wire.StatusOf(err) != want {
				t.Errorf("node %c: %q: %v, want %v", 'a'+i, text, err, want)
			}
		}
	}
	alone := startServer(t, nil)
	if _, err := ask(alone, peerOptions{}, "put 1"); wire.StatusOf(err) != wire.StatusUnsupported {
		t.Errorf("a server that is alone: %v", err)
	}
}
