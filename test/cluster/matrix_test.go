package cluster

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/test/linear"
)

// What is done to a cluster with replicas beside what TestReplicas does: links that lose or carry one way, and disks that are gone or were set
// back; disks_test.go has those that hang, are slow, or are full. Each scene is under load, whose histories are judged.

var roundsFlag = flag.Int("rounds", 1, "how often each fault of the matrix is done to each node in question")

// A siege is a cluster with replicas under load, to which one thing after the other is done.
type siege struct {
	*world
	load  *Load
	conns []*Conn
	probe *Conn
}

// besiege starts a cluster and a load. change may put data directories on disks of their own.
func besiege(t *testing.T, name string, change func(*world)) *siege {
	t.Helper()
	w := newWorld(t)
	if change != nil {
		change(w)
	}
	s := &siege{world: w.replicated()}
	s.load, s.conns = w.startLoad(name)
	s.probe = w.dial("west")
	s.serves(t, "before anything goes wrong")
	return s
}

// startLoad starts a load of two clients on each host; change may change what it does.
func (w *world) startLoad(name string, change ...func(*LoadOptions)) (load *Load, conns []*Conn) {
	var stores []linear.Store
	for _, host := range clientHosts {
		for range 2 {
			conns = append(conns, w.dial(host))
			stores = append(stores, conns[len(conns)-1].Store())
		}
	}
	o := LoadOptions{Name: name + "-" + w.net.Kind(), Seed: *seedFlag, Stores: stores, Dir: outDir(), Pace: 20 * time.Millisecond, Replicas: true}
	for _, f := range change {
		f(&o)
	}
	return StartLoad(w.t.Context(), o), conns
}

// serves puts and gets keys of all nodes.
func (s *siege) serves(t *testing.T, when string) {
	t.Helper()
	s.servesAll(t, s.probe, when)
}

// servesAll puts and gets keys of all nodes by a client.
func (w *world) servesAll(t *testing.T, probe *Conn, when string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), servedWithin)
	defer cancel()
	took, err := served(ctx, probe, when)
	if err != nil {
		out, _, errOut := w.kvclient(t, w.net.Host("east"), "--server", w.Nodes[0].Addr(), "cluster", "status")
		t.Fatalf("%s: %v\n%s%s", when, err, out, errOut)
	}
	t.Logf("%s: the slowest key took %v", when, took.Round(time.Millisecond))
}

// scene does a fault, and waits until the cluster is as it was before.
func (s *siege) scene(name string, f func(t *testing.T)) {
	for range *roundsFlag {
		if s.t.Failed() {
			return // what comes after tells nothing
		}
		s.t.Run(name, func(t *testing.T) {
			began := time.Now()
			f(t)
			s.serves(t, "afterwards")
			s.allTakePart(t)
			t.Logf("it took %v", time.Since(began).Round(time.Millisecond))
		})
	}
}

// lift stops the load and judges it.
func (s *siege) lift() {
	s.t.Helper()
	judge(s.t, s.load)
}

// judge stops a load and judges it.
func judge(t *testing.T, load *Load) {
	t.Helper()
	v, err := load.Finish(within(t))
	t.Log(v)
	if err != nil || len(v.Wrong) > 0 {
		t.Errorf("the load: %v; histories that contradict every order: %v", err, v.Wrong)
	}
	if v.Ops < 100 || v.Ops == v.Refused {
		t.Errorf("too little was done: %v", v)
	}
}

// lapseFree: each call of the load that had its whole time got an answer. Some calls are given up to 50 ms only (StartLoad); the outcome of such a put is unknown when it takes
// longer than that, which is no failure of the cluster. But no call goes on for long behind its deadline, whichever it is.
func lapseFree(t *testing.T, load *Load) {
	t.Helper()
	list, short := load.Lapses()
	for i := range list {
		switch l := &list[i]; {
		case outlives(l):
			t.Errorf("a call has outlived its deadline: %v", l)
		case !l.Stopped:
			t.Errorf("a call has no answer: %v", l)
		}
	}
	t.Logf("%d calls had no answer in the time of up to 50 ms that they were given; all others had one", short)
}

// hasRead tells how the clients of a load have got what they asked for; some of it by READs.
func hasRead(t *testing.T, conns []*Conn) {
	t.Helper()
	var reads, sends uint64
	for _, c := range conns {
		n := c.Counters()
		reads, sends = reads+n.OneSidedHits+n.OneSidedMisses, sends+n.SendGets
	}
	if t.Logf("%d gets of the load were READs, and %d SENDs", reads, sends); reads == 0 {
		t.Error("no get was a READ: what words promise was not tried")
	}
}

// others are the nodes beside one.
func (w *world) othersOf(s *Server) (list []*Server) {
	for _, o := range w.Nodes {
		if o != s {
			list = append(list, o)
		}
	}
	return list
}

// TestReplicaLinks: links between nodes that carry one way alone, or lose and delay what they carry, and a client that reaches two nodes of three.
func TestReplicaLinks(t *testing.T) {
	if testing.Short() {
		t.Skip("cuts links: make cluster-test")
	}
	parallel(t)
	s := besiege(t, "replica-links", func(w *world) { w.needsFaults() })
	s.scene("leader to followers cut", func(t *testing.T) {
		lead := s.leading(t, 0)
		for _, o := range s.othersOf(lead) {
			must(t, s.net.CutOneWay(lead.Place().Name(), o.Place().Name()))
		}
		s.serves(t, "the others do not hear "+lead.ID)
		must(t, s.net.Heal())
	})
	s.scene("followers to leader cut", func(t *testing.T) {
		lead := s.leading(t, 1)
		for _, o := range s.othersOf(lead) {
			must(t, s.net.CutOneWay(o.Place().Name(), lead.Place().Name()))
		}
		s.serves(t, lead.ID+" does not hear the others")
		must(t, s.net.Heal())
	})
	s.scene("one frame of ten is lost, the others are late", func(t *testing.T) {
		for i, a := range s.Nodes {
			for _, b := range s.Nodes[i+1:] {
				must(t, s.net.Lose(a.Place().Name(), b.Place().Name(), 0.1))
				must(t, s.net.Delay(a.Place().Name(), b.Place().Name(), 5*time.Millisecond))
			}
		}
		for began := time.Now(); time.Since(began) < 3*time.Second; {
			s.serves(t, "losing and late")
			pause(t.Context(), 300*time.Millisecond)
		}
		must(t, s.net.Heal())
	})
	s.scene("a client is cut from one node", func(t *testing.T) {
		must(t, s.net.Cut("east", s.leading(t, 2).Place().Name()))
		pause(t.Context(), 1500*time.Millisecond) // the load calls on from there
		s.serves(t, "cut from a client")
		must(t, s.net.Heal())
	})
	s.lift()
}

// TestReplicaRestarts: all nodes are stopped and started, one after the other, and no call fails; the longest one is told.
func TestReplicaRestarts(t *testing.T) {
	if testing.Short() {
		t.Skip("starts nodes: make cluster-test")
	}
	parallel(t)
	s := besiege(t, "replica-restarts", nil)
	ctx, stop := context.WithCancel(t.Context())
	var longest time.Duration
	var calls int
	var failed error
	var wg sync.WaitGroup
	wg.Go(func() {
		for ; ctx.Err() == nil && failed == nil; calls++ {
			each, cancel := context.WithTimeout(t.Context(), servedWithin)
			key, began := fmt.Appendf(nil, "restarting %d", calls%64), time.Now()
			failed = s.probe.Put(each, key, key)
			if got, err := s.probe.Get(each, key); failed == nil && (err != nil || string(got) != string(key)) {
				failed = fmt.Errorf("%q is read: %w", got, err)
			}
			cancel()
			longest = max(longest, time.Since(began))
		}
	})
	for _, n := range s.Nodes {
		s.scene("restart of "+n.ID, func(t *testing.T) {
			must(t, n.Stop(patience))
			must(t, n.Start(within(t)))
		})
	}
	stop()
	wg.Wait()
	t.Logf("%d calls meanwhile, the longest put and get of a key took %v", calls, longest.Round(time.Millisecond))
	if failed != nil || calls == 0 {
		t.Errorf("of %d calls meanwhile: %v", calls, failed)
	}
	s.lift()
	lapseFree(t, s.load)
}

// TestReplicaDirectories: a node comes back under its old name without its data directory, or with an older copy of it. It takes part in nothing, and says
// why; the others go on, nothing is lost, and with its newest directory it is back.
func TestReplicaDirectories(t *testing.T) {
	if testing.Short() {
		t.Skip("starts nodes: make cluster-test")
	}
	parallel(t)
	s := besiege(t, "replica-directories", nil)
	aside := func(t *testing.T, n *Server) (newest string) {
		t.Helper()
		newest = n.Dir() + ".newest"
		must(t, os.Rename(n.Dir(), newest))
		return newest
	}
	back := func(t *testing.T, n *Server, newest string) {
		t.Helper()
		must(t, os.RemoveAll(n.Dir()))
		must(t, os.Rename(newest, n.Dir()))
		must(t, n.Start(within(t)))
	}
	s.scene("wiped", func(t *testing.T) {
		n := s.Nodes[1]
		must(t, n.Kill())
		newest := aside(t, n)
		must(t, n.Start(within(t)))
		s.serves(t, "a node without its directory is there")
		if said := n.Said(); !strings.Contains(said, "its data directory is not the one that it had") {
			t.Errorf("it does not say that it has nothing: %s", said)
		}
		if code, text := s.admin(n, "GET", "/readyz"); code != 503 || !strings.Contains(text, "old one") {
			t.Errorf("/readyz: %d %s", code, text)
		}
		if out, code, _ := s.kvclient(t, s.net.Host("east"), "--server", s.Nodes[0].Addr(), "cluster", "check", "--compare=false"); code != 1 || !strings.Contains(out, "start it with its old data directory") {
			t.Errorf("cluster check: %d\n%s", code, out)
		}
		for _, g := range s.groups(s.Nodes[0]) {
			if g.Leader == n.ID {
				t.Errorf("it leads group %d", g.ID)
			}
		}
		must(t, n.Kill())
		back(t, n, newest)
	})
	s.scene("set back", func(t *testing.T) {
		n := s.Nodes[2]
		must(t, n.Stop(patience))
		old := n.Dir() + ".old"
		must(t, os.CopyFS(old, os.DirFS(n.Dir())))
		must(t, n.Start(within(t)))
		s.serves(t, "what the copy does not have")
		s.allTakePart(t)
		must(t, n.Kill())
		for _, o := range s.othersOf(n) { // so that no gossip remembers it
			must(t, o.Kill())
		}
		newest := aside(t, n)
		must(t, os.Rename(old, n.Dir()))
		for _, o := range s.othersOf(n) {
			must(t, o.Start(within(t)))
		}
		err := n.Start(within(t))
		code := 3
		if err == nil {
			code, err = n.Process().WaitExit(patience)
		} else if !strings.Contains(err.Error(), "older copy") {
			t.Errorf("it does not start for another reason: %v", err)
			err = nil
		}
		if said := n.Said(); code != 3 || err != nil || !strings.Contains(said, "older copy") {
			t.Errorf("it ends with %d, %v: %s", code, err, said)
		}
		n.ended()
		s.serves(t, "a node with an older copy was there")
		back(t, n, newest)
	})
	s.lift()
}
