package cluster

import (
	"fmt"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/lab"
)

// TestLabReplicas: a cluster with replicas on three guests with Soft-RoCE, whose data is on disks of their own. Whatever becomes of one node, of its links
// and of its machine, every key can be put and got within the time of a patient call, and what clients saw is judged. There are few groups and one station:
// three emulated nodes leave no processor for more.
func TestLabReplicas(t *testing.T) {
	l := newLab(t, "lab-replicas", func(c *lab.Config, o *Options) {
		c.Disk = filepath.Join(c.Dir, "disk")
		for n := range 3 {
			must(t, lab.NewDisk(filepath.Join(c.Dir, fmt.Sprintf("g%d-disk", n+1)), 4096))
		}
		o.Disk = "/data"
	})
	l.must(t, l.east(), "--server", l.Nodes[0].Addr(), "cluster", "init", "--replicas", "3", "--groups", "3", "n1", "n2", "n3")
	l.awaitAlive(t, l.east())
	l.takePart(t, l.east())
	list, said, err := l.groupsFrom(t, l.east(), l.Nodes[0])
	if err != nil || len(list) == 0 {
		t.Fatalf("%d groups: %v: %s", len(list), err, said)
	}
	l.replicas = true
	l.start("east", "-replicas")
	l.allWell(t, "before anything goes wrong")

	n2 := l.Node("n2")
	l.served("kill -9", "killed", func(*testing.T) error { return n2.Kill() }, func(t *testing.T) error { return n2.Start(within(t)) })
	l.served("pause of the process", "stopped", // the adapter goes on answering
		func(*testing.T) error { return n2.Signal(syscall.SIGSTOP) }, func(*testing.T) error { return n2.Signal(syscall.SIGCONT) })
	l.served("pause of the machine", "the machine stands still",
		func(*testing.T) error { return l.cl.Guest(2).Pause() }, func(*testing.T) error { return l.cl.Guest(2).Continue() })
	heal := func(*testing.T) error { return l.net.Heal() }
	l.served("cut", "cut", func(t *testing.T) error { return l.toOthers(l.net.Cut) }, heal)
	l.served("cut one way, from it", "nobody hears it", func(t *testing.T) error { return l.toOthers(l.net.CutOneWay) }, heal)
	l.served("cut one way, to it", "it hears nobody", func(t *testing.T) error {
		return l.toOthers(func(it, other string, ports ...uint16) error { return l.net.CutOneWay(other, it, ports...) })
	}, heal)
	l.served("loss", "one frame of fifty is lost", func(t *testing.T) error {
		return l.toOthers(func(it, other string, _ ...uint16) error { return l.net.Lose(it, other, 0.02) })
	}, heal)
	l.clockStep()
	for _, n := range l.Nodes {
		l.served("restart of "+n.ID, "away", func(*testing.T) error { return n.Stop(patience) }, func(t *testing.T) error { return n.Start(within(t)) })
	}
	l.served("power cut", "the machine is off", func(*testing.T) error { return l.cl.Guest(2).Kill() }, func(t *testing.T) error {
		n2.ended()
		if err := l.cl.Reboot(within(t), 2); err != nil {
			return err
		}
		l.takePrograms(t, 2)
		return n2.Start(within(t))
	})
	l.end()
	l.alikeFrom(t, l.east(), len(list))
}

// toOthers does something to the links between the victim and the other two places.
func (l *labDrill) toOthers(do func(victim, other string, ports ...uint16) error) error {
	for _, s := range l.Nodes {
		if s.ID != "n2" {
			if err := do(l.victim(), s.Place().Name()); err != nil {
				return err
			}
		}
	}
	return nil
}

// served is a fault of the victim in which every key is served: no patient call fails, from before it until every replica takes part again. The station
// is well, keys of the groups that the victim has led included, before harm is undone.
func (l *labDrill) served(name, when string, harm, undo func(t *testing.T) error) {
	l.part(name, l.both("n1", "n2", "n3"), func(t *testing.T) {
		l.leads(t, "n2")
		began := time.Now()
		must(t, harm(t))
		l.allWell(t, when)
		t.Logf("%s: all keys are served after %v", when, time.Since(began).Round(time.Millisecond))
		began = time.Now()
		must(t, undo(t))
		l.takePart(t, l.east())
		t.Logf("all replicas take part %v after that is over", time.Since(began).Round(time.Millisecond))
	})
}

// leads waits until a node leads a group: it takes the lead of those that the map gives it when they have been quiet for a minute.
func (l *labDrill) leads(t *testing.T, id string) {
	t.Helper()
	ctx := within(t)
	for {
		list, said, err := l.groupsFrom(t, l.east(), l.Node("n1"))
		if slices.ContainsFunc(list, func(g groupStatus) bool { return g.Leader == id }) {
			return
		}
		if pause(ctx, 2*time.Second); ctx.Err() != nil {
			t.Fatalf("%s leads no group: %v: %s", id, err, said)
		}
	}
}
