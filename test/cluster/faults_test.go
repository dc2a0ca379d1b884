package cluster

import (
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/test/linear"
)

// A drill is a world under a load, in which one thing after the other goes wrong.
type drill struct {
	*world
	load   *Load
	probes map[string]map[string]pair // by client's host, then by node
}

// clientHosts are the hosts of clients.
var clientHosts = []string{"east", "west"}

func newDrill(t *testing.T) *drill {
	t.Helper()
	w := newWorld(t).born()
	d := &drill{world: w}
	clients := map[string]*conn{}
	var stores []linear.Store
	for _, host := range clientHosts {
		clients[host] = w.dial(host)
		stores = append(stores, w.dial(host).store(), w.dial(host, func(c *client.Config) { c.CacheEntries = -1 }).store())
	}
	d.load = StartLoad(t.Context(), LoadOptions{
		Name: "cluster-" + w.net.Kind(), Seed: *seedFlag, Stores: stores, Dir: outDir(), Pace: 20 * time.Millisecond,
	})
	d.probes = w.startProbes(t.Context(), clients)
	d.allWell(t, "before anything goes wrong")
	return d
}

// enough calls in a row show that a node answers.
const enough = 6

// allWell waits until every client reaches every node.
func (d *drill) allWell(t *testing.T, when string) {
	t.Helper()
	for _, host := range clientHosts {
		d.well(t, when, host, "n1", "n2", "n3")
	}
}

// well waits until a client reaches some nodes.
func (d *drill) well(t *testing.T, when, host string, ids ...string) {
	t.Helper()
	for _, id := range ids {
		p := d.probes[host][id]
		if err := errors.Join(p.patient.WaitWell(within(t), enough), p.soon.WaitWell(within(t), enough)); err != nil {
			t.Fatalf("%s: %v", when, err)
		}
	}
}

// lost waits until calls of a client to a node fail.
func (d *drill) lost(t *testing.T, when, host, id string) {
	t.Helper()
	if err := d.probes[host][id].soon.WaitFailed(within(t)); err != nil {
		t.Fatalf("%s: %v", when, err)
	}
}

// unharmed checks, at the end of f, that meanwhile no call between a client and a
// node has failed, of those that expected names, and that there were some.
func (d *drill) unharmed(t *testing.T, expected map[string][]string, f func()) {
	t.Helper()
	before := map[*Probe]Tally{}
	for host, ids := range expected {
		for _, id := range ids {
			p := d.probes[host][id].patient
			before[p] = p.Tally()
		}
	}
	f()
	for p, was := range before {
		// What began during the fault is to end, too.
		if err := p.WaitWell(within(t), enough); err != nil {
			t.Error(err)
		}
		if since := p.Since(was); since.Failed > 0 {
			t.Errorf("%s must not be touched by it: %v; the last error: %s", p.o.Name, since, since.Last)
		}
	}
}

// both is the same nodes for both clients.
func both(ids ...string) map[string][]string {
	return map[string][]string{"east": ids, "west": ids}
}

// run runs a drill's part, unless an earlier one has failed: what comes after it
// tells nothing.
func (d *drill) run(name string, f func(t *testing.T)) {
	if d.t.Failed() {
		return
	}
	d.t.Run(name, func(t *testing.T) {
		start, ops := time.Now(), d.load.Ops()
		f(t)
		t.Logf("%v, %d operations of the load", time.Since(start).Round(time.Millisecond), d.load.Ops()-ops)
	})
}

// end stops everything and judges it.
func (d *drill) end() {
	d.t.Helper()
	for _, host := range clientHosts {
		for _, s := range d.Nodes {
			pair := d.probes[host][s.ID]
			for _, p := range []*Probe{pair.patient, pair.soon} {
				p.judge(d.t)
			}
		}
	}
	v, err := d.load.Finish(within(d.t))
	if err != nil {
		d.t.Error(err)
	}
	for _, f := range v.Wrong {
		d.t.Error(f)
	}
	if v.Ops < 500 || v.Refused == 0 {
		d.t.Errorf("the load did too little: %v", v)
	}
	fmt.Printf("linear cluster-%s: %v\n", d.net.Kind(), v)
}

// judge stops a probe and looks through its books.
func (p *Probe) judge(t *testing.T) {
	t.Helper()
	sum, wrong := p.Stop()
	t.Logf("%s: %v", p.o.Name, sum)
	for _, text := range wrong {
		t.Errorf("%s: %s (seed %d)", p.o.Name, text, *seedFlag)
	}
	if n := sum.Classes["untyped"]; n > 0 {
		t.Errorf("%s: %d errors of no class; the last error: %s", p.o.Name, n, sum.Last)
	}
	if sum.Longest > p.o.Limit+patience/2 {
		t.Errorf("%s: a call with a deadline of %v took %v", p.o.Name, p.o.Limit, sum.Longest)
	}
}

// TestFaults does to a cluster under load what happens to clusters: docs/failures.md
// has the table of what is expected.
func TestFaults(t *testing.T) {
	if testing.Short() {
		t.Skip("starts and kills nodes for minutes: make cluster-test")
	}
	d := newDrill(t)
	others := both("n1", "n3")

	d.run("kill -9", func(t *testing.T) {
		d.unharmed(t, others, func() {
			if err := d.Node("n2").Kill(); err != nil {
				t.Fatal(err)
			}
			d.lost(t, "killed", "east", "n2")
			d.lost(t, "killed", "west", "n2")
			if err := d.Node("n2").Start(within(t)); err != nil {
				t.Fatal(err)
			}
			d.allWell(t, "started again")
		})
	})

	d.run("kill -9, soon back", func(t *testing.T) {
		// Calls wait for the node as long as their deadlines allow.
		d.unharmed(t, others, func() {
			for range 2 {
				if err := d.Node("n2").Kill(); err != nil {
					t.Fatal(err)
				}
				if err := d.Node("n2").Start(within(t)); err != nil {
					t.Fatal(err)
				}
				d.allWell(t, "started again")
			}
		})
	})

	d.run("pause", func(t *testing.T) {
		d.unharmed(t, others, func() {
			if err := d.Node("n2").Signal(syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			d.lost(t, "stopped", "east", "n2")
			d.lost(t, "stopped", "west", "n2")
			pause(t.Context(), 2*d.opt.Lease) // no client may believe its memory any more
			if err := d.Node("n2").Signal(syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
			d.allWell(t, "going on")
		})
	})

	d.run("short pauses", func(t *testing.T) {
		d.unharmed(t, both("n1", "n2", "n3"), func() {
			for _, s := range d.Nodes {
				if err := s.Signal(syscall.SIGSTOP); err != nil {
					t.Fatal(err)
				}
				pause(t.Context(), 2*d.opt.Lease)
				if err := s.Signal(syscall.SIGCONT); err != nil {
					t.Fatal(err)
				}
				d.allWell(t, "going on")
			}
		})
	})

	d.run("link cut", func(t *testing.T) {
		// Between one client and one node: the other client goes on.
		d.unharmed(t, map[string][]string{"east": {"n1", "n3"}, "west": {"n1", "n2", "n3"}}, func() {
			if err := d.net.Cut("east", "two"); err != nil {
				t.Fatal(err)
			}
			d.lost(t, "cut", "east", "n2")
			if err := d.net.Heal(); err != nil {
				t.Fatal(err)
			}
			d.allWell(t, "healed")
		})
	})

	for _, way := range []struct{ name, from, to string }{
		{"cut one way, questions lost", "east", "two"}, {"cut one way, answers lost", "two", "east"},
	} {
		d.run(way.name, func(t *testing.T) {
			d.unharmed(t, map[string][]string{"east": {"n1", "n3"}, "west": {"n1", "n2", "n3"}}, func() {
				if err := d.net.CutOneWay(way.from, way.to); err != nil {
					t.Fatal(err)
				}
				d.lost(t, "cut", "east", "n2")
				if err := d.net.Heal(); err != nil {
					t.Fatal(err)
				}
				d.allWell(t, "healed")
			})
		})
	}

	d.run("rolling restart", func(t *testing.T) {
		for i, s := range d.Nodes {
			rest := append(append([]*Server{}, d.Nodes[:i]...), d.Nodes[i+1:]...)
			d.unharmed(t, both(rest[0].ID, rest[1].ID), func() {
				if err := s.Stop(patience); err != nil {
					t.Fatal(err)
				}
				if err := s.Start(within(t)); err != nil {
					t.Fatal(err)
				}
				d.allWell(t, "started again")
			})
		}
	})

	d.run("all killed", func(t *testing.T) {
		for _, s := range d.Nodes {
			if err := s.Kill(); err != nil {
				t.Fatal(err)
			}
		}
		if err := d.Start(within(t)); err != nil {
			t.Fatal(err)
		}
		d.allWell(t, "started again")
	})

	d.end()
}
