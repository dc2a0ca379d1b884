package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/client"
)

// A majority of a group is lost for good.

// nodesOf are the nodes of a group.
func nodesOf(g *groupStatus) (ids []string) {
	for _, p := range g.Replicas {
		ids = append(ids, p.Node)
	}
	return ids
}

// TestRecover: two nodes of five are lost, and with them the majority of a group, or of several. Each is recovered from the node that is left of it: every write that all replicas had is there, puts go on, and the two nodes,
// which come back later with what they had, serve nothing of it.
func TestRecover(t *testing.T) {
	if testing.Short() {
		t.Skip("kills real nodes: make cluster-test")
	}
	parallel(t)
	w := newWorld(t)
	for i, name := range []string{"spare", "fifth"} {
		w.Nodes = append(w.Nodes, w.NewServer([]string{"n4", "n5"}[i], w.net.Host(name)))
	}
	if err := w.Start(within(t)); err != nil {
		t.Fatal(err)
	}
	w.must("east", "--server", w.Nodes[0].Addr(), "cluster", "init", "--replicas", "3", "n1", "n2", "n3", "n4", "n5")
	w.allTakePart(t)
	conn := w.dial("east")
	const keys = 300
	key := func(i int) []byte { return fmt.Appendf(nil, "kept %d", i) }
	for i := range keys {
		must(t, conn.Put(within(t), key(i), fmt.Appendf(nil, "before %d", i)))
	}
	w.allTakePart(t) // no replica lacks any of them

	list := w.groups(w.Nodes[0])
	lost := list[0]
	gone := nodesOf(&lost)[:2] // its leader most likely, and another one
	alive := w.Nodes[slices.IndexFunc(w.Nodes, func(s *Server) bool { return !slices.Contains(gone, s.ID) })]
	asked := func(args ...string) (out string, code int, errOut string) {
		return w.kvclient(t, w.net.Host("east"), append([]string{"--server", alive.Addr(), "cluster", "recover"}, args...)...)
	}
	refused := func(want int, words string, args ...string) {
		t.Helper()
		out, code, errOut := asked(args...)
		for ctx := within(t); strings.Contains(errOut, "it elects a leader by itself") && ctx.Err() == nil; {
			pause(ctx, 200*time.Millisecond) // on a busy machine it may just be without one
			out, code, errOut = asked(args...)
		}
		if code != want || strings.Count(errOut, "\n") != 1 || !strings.Contains(errOut, words) {
			t.Errorf("recover %q ends with %d, want %d and one line with %q:\n%s%s", args, code, want, words, out, errOut)
		}
	}
	group, left := fmt.Sprint(lost.ID), nodesOf(&lost)[2]
	refused(1, "has a leader", "--group", group, "--from", left, "--accept-loss")
	refused(2, "are needed", "--group", group)
	refused(2, "is no group", "--group", "x", "--from", left)
	refused(1, "has a leader", "--group", "0", "--from", left) // "group 0", or "the meta group", if that node leads it itself
	refused(1, "there is no group 99", "--group", "99", "--from", left)

	// Somebody writes on while the nodes go. What is acknowledged then may be lost: nobody is left who would know.
	ctx, stop := context.WithCancel(t.Context())
	wrote := make(chan struct{})
	go func() {
		defer close(wrote)
		for i := 0; ctx.Err() == nil; i++ {
			each, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
			_ = conn.Put(each, fmt.Appendf(nil, "late %d", i), []byte("v"))
			cancel()
		}
	}()
	for _, id := range gone {
		must(t, w.Node(id).Kill())
	}
	stop()
	<-wrote

	var dead []groupStatus // groups of which one node is left
	for _, g := range list {
		there := slices.DeleteFunc(nodesOf(&g), func(id string) bool { return slices.Contains(gone, id) })
		if len(there) == 1 {
			dead = append(dead, g)
		}
	}
	t.Logf("%v are lost; of %d groups of %d one node is left", gone, len(dead), len(list))
	refused(1, "does not answer", "--group", group, "--from", gone[0], "--accept-loss")
	for _, s := range w.Nodes {
		if !slices.Contains(nodesOf(&lost), s.ID) {
			refused(1, "has no replica of group", "--group", group, "--from", s.ID, "--accept-loss")
		}
	}
	// A follower forgets its leader within an election.
	for ctx := within(t); ; {
		out, code, errOut := asked("--group", group, "--from", left)
		if code == 1 && strings.Contains(out, "has entries up to") && strings.Contains(errOut, "--accept-loss") {
			break
		}
		if pause(ctx, 200*time.Millisecond); ctx.Err() != nil {
			t.Fatalf("without --accept-loss: %d\n%s%s", code, out, errOut)
		}
	}
	if now := w.groups(alive); !slices.ContainsFunc(now, func(g groupStatus) bool { return g.ID == lost.ID }) {
		t.Fatalf("it was recovered without --accept-loss: %+v", now)
	}

	made := map[uint32]bool{}
	for i, g := range dead {
		from := slices.DeleteFunc(nodesOf(&g), func(id string) bool { return slices.Contains(gone, id) })[0]
		args := []string{"--group", fmt.Sprint(g.ID), "--from", from, "--accept-loss"}
		if i == 0 { // a command that is cut short is given again
			p := w.begins(t, append([]string{"recover"}, args...)...)
			time.Sleep(50 * time.Millisecond)
			must(t, p.Signal(syscall.SIGKILL))
			p.ends(t)
		}
		for again := range 2 {
			out, code, errOut := asked(args...)
			if code != 0 || again == 1 && !strings.Contains(out, "recovered before") {
				t.Fatalf("recover %q: %d\n%s%s", args, code, out, errOut)
			}
			t.Logf("%s", out)
		}
		made[g.ID] = true
	}

	probe := w.dial("west", func(o *ConnOptions) { o.Addrs = []string{alive.Addr()} })
	read := func(c *Conn, want func(i int) string, when string) {
		t.Helper()
		for i := range keys {
			each, cancel := context.WithTimeout(t.Context(), servedWithin)
			got, err := c.Get(each, key(i))
			cancel()
			if err != nil || string(got) != want(i) {
				t.Fatalf("%s: key %q is %q, %v; want %q", when, key(i), got, err, want(i))
			}
		}
	}
	before := func(i int) string { return fmt.Sprintf("before %d", i) }
	read(probe, before, "after the recovery")
	read(conn, before, "by a client of before") // whose sessions, leaders and words were the old group's
	for i := range keys {
		if i%2 == 0 {
			must(t, probe.Put(within(t), key(i), fmt.Appendf(nil, "after %d", i)))
		}
	}
	after := func(i int) string {
		if i%2 == 0 {
			return fmt.Sprintf("after %d", i)
		}
		return before(i)
	}
	read(conn, after, "behind the puts")

	// Those that were lost come back, both at once: they would be a majority of what they had.
	for _, id := range gone {
		must(t, w.Node(id).Start(within(t)))
	}
	back := w.dial("west", func(o *ConnOptions) { o.Addrs = []string{w.Node(gone[0]).Addr(), w.Node(gone[1]).Addr()} })
	read(back, after, "asked at the nodes that are back")
	for _, g := range w.groups(w.Node(gone[0])) {
		if made[g.ID] {
			t.Errorf("group %d is back: %+v", g.ID, g)
		}
	}
	w.must("east", "--server", alive.Addr(), "--timeout", "60s", "cluster", "replicas", "3", "--yes")
	w.well(t)
	read(conn, after, "with three replicas again")
	w.alikeFrom(t, w.net.Host("east"), len(list))
	if _, err := conn.Get(within(t), []byte("never")); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("a key that never was: %v", err)
	}
}

// TestRecoverMeta: three nodes of five are lost, and with them the majority of the meta group and of every group. The meta group is made anew at a node that is left, then each group is recovered; every write that all
// replicas had is there, and nodes that come back take part in what is new, and in nothing else.
func TestRecoverMeta(t *testing.T) {
	if testing.Short() {
		t.Skip("kills real nodes: make cluster-test")
	}
	parallel(t)
	w := newWorld(t)
	for i, name := range []string{"spare", "fifth"} {
		w.Nodes = append(w.Nodes, w.NewServer([]string{"n4", "n5"}[i], w.net.Host(name)))
	}
	if err := w.Start(within(t)); err != nil {
		t.Fatal(err)
	}
	w.must("east", "--server", w.Nodes[0].Addr(), "cluster", "init", "--replicas", "5", "--groups", "3", "n1", "n2", "n3", "n4", "n5")
	w.allTakePart(t)
	conn := w.dial("east")
	const keys = 100
	key := func(i int) []byte { return fmt.Appendf(nil, "kept %d", i) }
	for i := range keys {
		must(t, conn.Put(within(t), key(i), fmt.Appendf(nil, "v %d", i)))
	}
	w.allTakePart(t)
	w.awaitLevel(t, 1, "n1:1 n2:1 n3:1 n4:1 n5:1", "")
	list := w.groups(w.Nodes[0])
	gone, left := w.Nodes[2:], w.Nodes[:2]
	run := func(args ...string) (out string, code int, errOut string) {
		return w.kvclient(t, w.net.Host("east"), append([]string{"--server", left[0].Addr() + "," + left[1].Addr(), "cluster"}, args...)...)
	}
	if out, code, errOut := run("recover", "--group", "0", "--from", "n1", "--accept-loss"); code != 1 || !strings.Contains(errOut, "leader") && !strings.Contains(errOut, "a majority") {
		t.Fatalf("a meta group that lives: %d\n%s%s", code, out, errOut)
	}
	for _, s := range gone {
		must(t, s.Kill())
	}
	if out, code, errOut := run("recover", "--group", "0", "--from", "n3", "--accept-loss", "--timeout", "5s"); code == 0 {
		t.Fatalf("from a node that is lost: %d\n%s%s", code, out, errOut)
	}
	// recovers has a group recovered from whichever of the two nodes has as much as the other one, and the command says which.
	recovers := func(group string) {
		t.Helper()
		for ctx, from := within(t), "n1"; ; {
			out, code, errOut := run("recover", "--group", group, "--from", from, "--accept-loss")
			if code == 0 {
				t.Logf("%s", out)
				if out, code, errOut := run("recover", "--group", group, "--from", from, "--accept-loss"); code != 0 || !strings.Contains(out, "recovered before") {
					t.Fatalf("group %s again: %d\n%s%s", group, code, out, errOut)
				}
				return
			}
			if strings.Contains(errOut, "recover from n2") {
				from = "n2"
			}
			if pause(ctx, 200*time.Millisecond); ctx.Err() != nil {
				t.Fatalf("group %s, from %s: %d\n%s%s", group, from, code, out, errOut)
			}
		}
	}
	recovers("0")
	w.levelIs(t, 1, left...) // as before, and not by a rise: lost nodes say no more what they read
	for _, g := range list {
		recovers(fmt.Sprint(g.ID))
	}
	probe := w.dial("west", func(o *ConnOptions) { o.Addrs = []string{left[0].Addr(), left[1].Addr()} })
	read := func(c *Conn, when string) {
		t.Helper()
		for i := range keys {
			each, cancel := context.WithTimeout(t.Context(), servedWithin)
			got, err := c.Get(each, key(i))
			cancel()
			if want := fmt.Sprintf("v %d", i); err != nil || string(got) != want {
				t.Fatalf("%s: key %q is %q, %v; want %q", when, key(i), got, err, want)
			}
		}
	}
	read(probe, "after the recovery")
	must(t, probe.Put(within(t), key(0), []byte("v 0"))) // and puts go on
	for _, s := range gone {
		must(t, s.Start(within(t))) // all three: a majority of the old meta group, and of each old group
	}
	read(w.dial("west", func(o *ConnOptions) { o.Addrs = []string{gone[0].Addr(), gone[1].Addr(), gone[2].Addr()} }), "asked at the nodes that are back")
	for _, g := range w.groups(gone[0]) {
		if slices.ContainsFunc(list, func(o groupStatus) bool { return o.ID == g.ID }) {
			t.Errorf("group %d is back: %+v", g.ID, g)
		}
	}
	for _, args := range [][]string{{"rebalance", "--yes"}, {"replicas", "3", "--yes"}} {
		if out, code, errOut := run(append(args, "--timeout", "60s")...); code != 0 {
			t.Fatalf("%v: %d\n%s%s", args, code, out, errOut)
		}
	}
	w.well(t)
	read(conn, "in the end")
	w.alikeFrom(t, w.net.Host("east"), len(list))
}
