package simcluster

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/rdmakv/rdmakv/internal/server"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/store"
)

// What is held to each other at the end of a run: the replicas of each group at all of its nodes.

// groups are a node's replicas; nil: it is down.
func (n *Node) groups() []wire.GroupStatus {
	if srv := n.server(); srv != nil {
		return server.GroupsForTests(srv)
	}
	return nil
}

// leads says whether the node leads a group, as it thinks.
func (n *Node) leads() bool {
	for _, g := range n.groups() {
		if g.State == "leads" {
			return true
		}
	}
	return false
}

// settle waits until all replicas of each group have published the same entries, and nobody has more.
func (w *World) settle() error {
	var why string
	for range 1200 {
		if why = w.unsettled(); why == "" {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return fmt.Errorf("a minute after the last fault: %s", why)
}

// unsettled says what keeps the replicas from being equal; "": nothing.
func (w *World) unsettled() string {
	type found struct {
		applied  uint64
		leaders  int
		replicas int
	}
	all := map[uint32]*found{}
	for _, n := range w.nodes {
		for _, g := range n.groups() {
			f := all[g.ID]
			if f == nil {
				f = &found{applied: g.Applied}
				all[g.ID] = f
			}
			f.replicas++
			if g.State == "leads" {
				f.leaders++
			}
			if g.State != "leads" && g.State != "follows" {
				return fmt.Sprintf("the replica of group %d at %s %s: %s", g.ID, n.id, g.State, g.Why)
			}
			if g.Applied != f.applied || g.Last != g.Applied {
				return fmt.Sprintf("the replica of group %d at %s has published %d of %d entries, another one %d", g.ID, n.id, g.Applied, g.Last, f.applied)
			}
		}
	}
	for id, f := range all {
		want := w.replicas()
		if w.want != nil {
			want = w.want[id]
		}
		if f.leaders != 1 || f.replicas != want {
			return fmt.Sprintf("group %d has %d leaders and %d replicas", id, f.leaders, f.replicas)
		}
	}
	if len(all) != w.sc.Groups {
		return fmt.Sprintf("there are %d groups of %d", len(all), w.sc.Groups)
	}
	return ""
}

// A content is what a store has of a key.
type content struct {
	version, expiry uint64
	value           string
}

// contentOf is what a node has published in some shards.
func (n *Node) contentOf(ids []uint16) (map[string]content, error) {
	srv := n.server()
	if srv == nil {
		return nil, fmt.Errorf("%s is down", n.id)
	}
	s, all := server.StoreForTests(srv), map[string]content{}
	for _, id := range ids {
		for req := (store.ScanRequest{Shards: []uint16{id}}); ; {
			page, err := s.Scan(context.Background(), req)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", n.id, err)
			}
			for _, e := range page.Entries {
				all[string(e.Key)] = content{uint64(e.Version), e.Expiry, string(bytes.Clone(e.Value))}
			}
			if !page.More {
				break
			}
			req.After = page.Next
		}
	}
	return all, nil
}

// equal holds the replicas of each group to each other: keys, values, versions and expiries.
func (w *World) equal() error {
	first := map[uint32]map[string]content{}
	of := map[uint32]*Node{}
	for _, n := range w.nodes {
		for _, g := range n.groups() {
			has, err := n.contentOf(g.Shards)
			if err != nil {
				return err
			}
			want, ok := first[g.ID]
			if !ok {
				first[g.ID], of[g.ID] = has, n
				continue
			}
			for key, c := range want {
				if got, ok := has[key]; !ok || got != c {
					return fmt.Errorf("%s has %q with %+v, and %s with %+v (there: %v)", of[g.ID].id, key, c, n.id, got, ok)
				}
			}
			if len(has) != len(want) {
				return fmt.Errorf("%s has %d keys of group %d, and %s has %d", of[g.ID].id, len(want), g.ID, n.id, len(has))
			}
		}
	}
	return nil
}
