package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/test/node"
)

// The upgrade of a cluster, one node after another, with the programs of the previous release and those of this one.

// A levels is as much as is needed of what "cluster status -o json" prints.
type levels struct {
	Level    *uint8 `json:"level"`
	LevelWhy string `json:"level_why"`
	Nodes    []struct {
		ID     string `json:"id"`
		Status *struct {
			Levels *struct {
				Level  uint8 `json:"level"`
				Newest uint8 `json:"newest"`
			} `json:"levels"`
		} `json:"status"`
	} `json:"nodes"`
}

// heard are the levels that the nodes have heard of, as "n1:1 n2:-", where a dash is a program that knows no levels.
func (l *levels) heard() string {
	var all []string
	for _, n := range l.Nodes {
		switch {
		case n.Status == nil:
			all = append(all, n.ID+":?")
		case n.Status.Levels == nil:
			all = append(all, n.ID+":-")
		default:
			all = append(all, fmt.Sprintf("%s:%d", n.ID, n.Status.Levels.Level))
		}
	}
	return strings.Join(all, " ")
}

// levels asks the cluster for its level.
func (w *world) levels(t *testing.T) (l levels) {
	t.Helper()
	out := w.must("east", w.asked("cluster", "status", "-o", "json")...)
	if err := json.Unmarshal([]byte(out), &l); err != nil {
		t.Fatalf("cluster status: %v: %s", err, out)
	}
	return l
}

// awaitLevel waits until the cluster is at a level, and its first three nodes have heard so; why is in what is in the way of a higher one.
func (w *world) awaitLevel(t *testing.T, level uint8, heard, why string) {
	t.Helper()
	for ctx := within(t); ; {
		l := w.levels(t)
		if l.Level != nil && *l.Level == level && strings.HasPrefix(l.heard(), heard) && strings.Contains(l.LevelWhy, why) {
			return
		}
		if pause(ctx, 100*time.Millisecond); ctx.Err() != nil {
			t.Fatalf("level %v, heard %q, %q; want %d, %q, %q", l.Level, l.heard(), l.LevelWhy, level, heard, why)
		}
	}
}

// levelIs has the meta group say soon that the cluster is at a level, by some nodes that are asked; others may be lost.
func (w *world) levelIs(t *testing.T, level uint8, asked ...*Server) {
	t.Helper()
	var at []string
	for _, s := range asked {
		at = append(at, s.Addr())
	}
	for ctx := within(t); ; {
		out, code, errOut := w.kvclient(t, w.net.Host("east"), "--server", strings.Join(at, ","), "cluster", "status", "-o", "json") // the exit code is that of nodes that are away
		var l levels
		err := json.Unmarshal([]byte(out), &l)
		if err == nil && l.Level != nil {
			if *l.Level != level {
				t.Errorf("the cluster is at level %d, want %d", *l.Level, level)
			}
			return
		}
		if pause(ctx, 200*time.Millisecond); ctx.Err() != nil {
			t.Fatalf("nobody says the level: %d, %v: %s%s", code, err, out, errOut)
		}
	}
}

// ready waits until a node is ready, as whoever restarts one node after the other has to (docs/operations.md).
func (w *world) ready(t *testing.T, s *Server) {
	t.Helper()
	for ctx := within(t); ; {
		code, text := w.admin(s, "GET", "/readyz")
		if code == 200 {
			return
		}
		if pause(ctx, 100*time.Millisecond); ctx.Err() != nil {
			t.Fatalf("node %s is not ready: %d %s", s.ID, code, text)
		}
	}
}

// TestRolling: a cluster of the previous release gets the programs of this one, a node at a time, some go back meanwhile, and clients of either release work with nodes of either one; no
// put or scan of those that go on all the time fails (grow), and nothing that the clients of the load saw contradicts any order of their calls. The feature level rises when the last node is upgraded and none holds it; from
// then on the programs of the previous release are refused, with a line that says so, and its clients are not.
func TestRolling(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the previous release, and restarts real nodes: make cluster-test")
	}
	old := previous(t)
	w := newWorld(t)
	for _, s := range w.Nodes {
		s.RunBy(old)
	}
	must(t, w.Start(within(t)))
	before := *w.Rig // the same cluster, whose kvclient is of the previous release
	before.opt.Bin = old
	before.must(t, w.net.Host("west"), "--server", w.Nodes[0].Addr(), "cluster", "init", "--replicas", "3", "n1", "n2", "n3")

	load, _ := w.startLoad("rolling")
	probe := w.dial("west")
	growing := w.grow(20 * time.Millisecond)
	n1, n2, n3 := w.Nodes[0], w.Nodes[1], w.Nodes[2]
	// bothClients has kvclient of either release do what is done with keys and clusters.
	bothClients := func(t *testing.T, when string) {
		t.Helper()
		w.servesAll(t, probe, when)
		for name, r := range map[string]*Rig{"previous": &before, "this": w.Rig} {
			at := w.net.Host("east")
			for _, s := range w.Nodes[:3] {
				key, value := "rolling-"+name, when+" by "+s.ID
				r.must(t, at, "--server", s.Addr(), "put", key, value)
				if got := r.must(t, at, "--server", s.Addr(), "get", key); got != value {
					t.Errorf("%s: kvclient of the %s release has %q of node %s, want %q", when, name, got, s.ID, value)
				}
			}
			r.must(t, at, w.asked("cluster", "status")...)
			r.must(t, at, w.asked("cluster", "tasks")...)
		}
	}
	step := func(name string, f func(t *testing.T)) {
		if !t.Run(name, func(t *testing.T) {
			f(t)
			w.allTakePart(t)
			bothClients(t, name)
		}) {
			t.FailNow()
		}
	}
	restart := func(t *testing.T, s *Server, bin string, more ...string) {
		t.Helper()
		must(t, s.Stop(patience))
		s.RunBy(bin)
		must(t, s.Start(within(t), more...))
	}
	step("all nodes are of the previous release", func(t *testing.T) { w.awaitLevel(t, 0, "n1:- n2:- n3:-", "") })
	step("one node is new", func(t *testing.T) {
		restart(t, n1, "")
		w.awaitLevel(t, 0, "n1:0 n2:- n3:-", "")
	})
	step("it goes back", func(t *testing.T) {
		restart(t, n1, old)
		w.awaitLevel(t, 0, "n1:- n2:- n3:-", "")
	})
	step("two nodes are new", func(t *testing.T) {
		restart(t, n1, "")
		w.ready(t, n1)
		restart(t, n2, "")
		w.awaitLevel(t, 0, "n1:0 n2:0 n3:-", "")
	})
	step("all are new, and one holds the level", func(t *testing.T) {
		restart(t, n3, "", "--cluster-hold-level")
		w.awaitLevel(t, 0, "n1:0 n2:0 n3:0", "node n3 holds the level")
	})
	step("one goes back", func(t *testing.T) {
		restart(t, n2, old)
		w.awaitLevel(t, 0, "n1:0 n2:- n3:0", "")
	})
	step("all are new", func(t *testing.T) {
		restart(t, n2, "")
		w.ready(t, n2)
		restart(t, n3, "")
		w.awaitLevel(t, 1, "n1:1 n2:1 n3:1", "")
	})
	step("the previous release does not start behind the rise", func(t *testing.T) {
		must(t, n2.Stop(patience))
		n2.RunBy(old)
		err := n2.Start(within(t))
		var ended *node.ExitError
		if !errors.As(err, &ended) || ended.Code == 0 || !strings.Contains(ended.Stderr, "NODE is written by a newer version of this program") {
			t.Errorf("a node of the previous release: %v", err)
		}
		n2.RunBy("")
		must(t, n2.Start(within(t)))
		w.awaitLevel(t, 1, "n1:1 n2:1 n3:1", "")
	})
	step("a node of the previous release does not come", func(t *testing.T) {
		s := w.NewServer("n4", w.net.Host("spare"))
		w.Nodes = append(w.Nodes, s)
		s.RunBy(old)
		must(t, s.Start(within(t)))
		w.refuses(t, 1, "node n4 runs a program that reads no level above 0, and the cluster is at level 1", "add", "n4", "--yes")
		restart(t, s, "")
		w.changes(t, "add", "n4")
		w.awaitLevel(t, 1, "n1:1 n2:1 n3:1 n4:1", "")
	})
	growing(t)
	judge(t, load)
	lapseFree(t, load)
	w.alikeFrom(t, w.net.Host("east"), len(w.groups(n1)))
}
