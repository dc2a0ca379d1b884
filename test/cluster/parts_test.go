package cluster

import (
	"syscall"
	"testing"
	"time"
)

// The parts of a drill: what happens to processes and to links. The victim is n2;
// the stations east and west are elsewhere.

// part is one thing that goes wrong, and is over at its end.
func (d *drill) part(name string, unharmed map[string][]string, f func(t *testing.T)) {
	d.run(name, func(t *testing.T) {
		d.unharmed(t, unharmed, func() {
			f(t)
			d.allWell(t, "afterwards")
		})
	})
}

// others are the nodes beside the victim, for all stations.
func (d *drill) others() map[string][]string { return d.both("n1", "n3") }

// allLost waits until no station reaches the victim.
func (d *drill) allLost(t *testing.T, when string) {
	t.Helper()
	for host := range d.stations {
		d.lost(t, when, host, "n2")
	}
}

func (d *drill) kill9() {
	d.part("kill -9", d.others(), func(t *testing.T) {
		must(t, d.Node("n2").Kill())
		d.allLost(t, "killed")
		must(t, d.Node("n2").Start(within(t)))
	})
}

func (d *drill) killSoonBack(times int) {
	d.part("kill -9, soon back", d.others(), func(t *testing.T) {
		for range times {
			must(t, d.Node("n2").Kill())
			must(t, d.Node("n2").Start(within(t)))
			d.allWell(t, "started again")
		}
	})
}

func (d *drill) pause() {
	d.part("pause", d.others(), func(t *testing.T) {
		must(t, d.Node("n2").Signal(syscall.SIGSTOP))
		d.allLost(t, "stopped")
		pause(t.Context(), 2*d.opt.Lease) // no client may believe its memory any more
		must(t, d.Node("n2").Signal(syscall.SIGCONT))
	})
}

func (d *drill) shortPauses() {
	d.part("short pauses", d.both("n1", "n2", "n3"), func(t *testing.T) {
		for _, s := range d.Nodes {
			must(t, s.Signal(syscall.SIGSTOP))
			pause(t.Context(), 2*d.opt.Lease)
			must(t, s.Signal(syscall.SIGCONT))
			d.allWell(t, "going on")
		}
	})
}

func (d *drill) rollingRestart() {
	d.run("rolling restart", func(t *testing.T) {
		for i, s := range d.Nodes {
			rest := d.both(d.Nodes[(i+1)%3].ID, d.Nodes[(i+2)%3].ID)
			d.unharmed(t, rest, func() {
				must(t, s.Stop(patience))
				must(t, s.Start(within(t)))
				d.allWell(t, "started again")
			})
		}
	})
}

func (d *drill) allKilled() {
	d.part("all killed", nil, func(t *testing.T) {
		for _, s := range d.Nodes {
			must(t, s.Kill())
		}
		must(t, d.Start(within(t)))
	})
}

// eastOnly are the nodes that a fault between east and the victim does not touch.
func (d *drill) eastOnly() map[string][]string {
	return map[string][]string{"east": {"n1", "n3"}, "west": {"n1", "n2", "n3"}}
}

func (d *drill) linkCut() {
	d.part("link cut", d.eastOnly(), func(t *testing.T) {
		must(t, d.net.Cut(d.at["east"], d.victim()))
		d.lost(t, "cut", "east", "n2")
		must(t, d.net.Heal())
	})
}

// victim is the place of n2.
func (d *drill) victim() string { return d.Node("n2").Place().Name() }

func (d *drill) oneWayCuts() {
	for _, way := range []struct {
		name, from, to string
	}{
		{"cut one way, questions lost", d.at["east"], d.victim()},
		{"cut one way, answers lost", d.victim(), d.at["east"]},
	} {
		d.part(way.name, d.eastOnly(), func(t *testing.T) {
			must(t, d.net.CutOneWay(way.from, way.to))
			d.lost(t, "cut", "east", "n2")
			must(t, d.net.Heal())
		})
	}
}

// newKeys gives every region another rkey, twice, while clients read.
func (d *drill) newKeys() {
	d.part("rkeys rotate", d.both("n1", "n2", "n3"), func(t *testing.T) {
		for range 2 {
			d.must(t, d.places["east"], "--server", d.Node("n1").Addr(), "admin", "rotate-rkeys", "--all")
			d.allWell(t, "with other rkeys")
			pause(t.Context(), 2*d.opt.Lease) // the old ones are withdrawn
		}
	})
}

func (d *drill) slowLink() {
	d.part("slow link", d.both("n1", "n2", "n3"), func(t *testing.T) {
		must(t, d.net.Delay(d.at["east"], d.victim(), 50*time.Millisecond))
		d.allWell(t, "slow")
		must(t, d.net.Heal())
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
