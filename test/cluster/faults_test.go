package cluster

import (
	"syscall"
	"testing"
)

// TestFaults does to a cluster under load what happens to clusters: docs/failures.md
// has the table of what is expected.
func TestFaults(t *testing.T) {
	if testing.Short() {
		t.Skip("starts and kills nodes for minutes: make cluster-test")
	}
	w := newWorld(t).born()
	d := newDrill(w)
	others := d.both("n1", "n3")

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
		d.unharmed(t, d.both("n1", "n2", "n3"), func() {
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
			if err := w.net.Cut("east", "two"); err != nil {
				t.Fatal(err)
			}
			d.lost(t, "cut", "east", "n2")
			if err := w.net.Heal(); err != nil {
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
				if err := w.net.CutOneWay(way.from, way.to); err != nil {
					t.Fatal(err)
				}
				d.lost(t, "cut", "east", "n2")
				if err := w.net.Heal(); err != nil {
					t.Fatal(err)
				}
				d.allWell(t, "healed")
			})
		})
	}

	d.run("rolling restart", func(t *testing.T) {
		for i, s := range d.Nodes {
			rest := append(append([]*Server{}, d.Nodes[:i]...), d.Nodes[i+1:]...)
			d.unharmed(t, d.both(rest[0].ID, rest[1].ID), func() {
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
