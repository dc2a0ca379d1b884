package cluster

import (
	"strings"
	"syscall"
	"testing"
	"time"
)

// Nodes come and go while clients work.

// founded starts five nodes, and makes a cluster of three of them in which each key is on three.
func founded(t *testing.T, change ...func(*Options)) *world {
	t.Helper()
	w := newWorld(t, change...)
	for i, name := range []string{"spare", "fifth"} {
		w.Nodes = append(w.Nodes, w.NewServer([]string{"n4", "n5"}[i], w.net.Host(name)))
	}
	if err := w.Start(within(t)); err != nil {
		t.Fatal(err)
	}
	w.must("east", "--server", w.Nodes[0].Addr(), "cluster", "init", "--replicas", "3", "n1", "n2", "n3", "n4:0", "n5:0")
	return w
}

// changes runs a command that changes the cluster, and waits until its task is over.
func (w *world) changes(t *testing.T, args ...string) {
	t.Helper()
	began := time.Now()
	out := w.must("east", append([]string{"--server", w.Nodes[0].Addr(), "--timeout", "60s", "cluster"}, append(args, "--yes")...)...)
	t.Logf("%s: %v\n%s", strings.Join(args, " "), time.Since(began).Round(time.Millisecond), out)
}

// TestLive: nodes come and go, replicas move, the number of replicas changes, nodes are killed meanwhile; every key can be put and got all the time, no call fails, and
// nothing that clients saw contradicts any order of their calls.
func TestLive(t *testing.T) {
	if testing.Short() {
		t.Skip("moves replicas between real nodes: make cluster-test")
	}
	parallel(t)
	w := founded(t)
	load, conns := w.startLoad("live")
	probe := w.dial("west")
	serves := func(t *testing.T, when string) {
		t.Helper()
		w.servesAll(t, probe, when)
	}
	serves(t, "before anything changes")
	growing, late := w.grow(20*time.Millisecond), w.late()
	step := func(name string, f func(t *testing.T)) {
		if !t.Run(name, func(t *testing.T) {
			f(t)
			serves(t, "afterwards")
		}) {
			t.FailNow()
		}
	}
	n2, n3 := w.Nodes[1], w.Nodes[2]
	step("two nodes come", func(t *testing.T) { w.changes(t, "add", "n4", "n5") })
	step("a node is killed, and another one takes its place", func(t *testing.T) {
		w.changes(t, "remove", "n5")
		must(t, n2.Kill())
		w.changes(t, "replace", "n2", "n5")
		must(t, n2.Start(within(t))) // it finds that it is out
	})
	step("one more replica", func(t *testing.T) {
		w.changes(t, "replicas", "1")
		w.changes(t, "replicas", "3")
	})
	step("a node is killed while replicas move", func(t *testing.T) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			time.Sleep(2 * time.Second)
			must(t, n3.Signal(syscall.SIGKILL))
			must(t, n3.Kill())
			time.Sleep(time.Second)
			must(t, n3.Start(within(t)))
		}()
		w.changes(t, "remove", "n4")
		<-done
	})
	step("the node that was out comes back", func(t *testing.T) { w.changes(t, "add", "n2") })
	growing(t)
	late(t)
	judge(t, load)
	lapseFree(t, load)
	list := w.groups(w.Nodes[0])
	for _, g := range list {
		if len(g.Replicas) != 3 {
			t.Errorf("group %d: %+v", g.ID, g)
		}
	}
	w.alikeFrom(t, w.net.Host("east"), len(list))
	hasRead(t, conns)
}
