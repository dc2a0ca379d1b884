package cluster

import (
	"testing"
	"time"
)

// east is the place from which kvclient looks at the cluster.
func (d *drill) east() Place { return d.places["east"] }

// cutGossip cuts the gossip of the victim from both others.
func (d *drill) cutGossip(cut func(a, b string, ports ...uint16) error) error {
	for _, id := range []string{"n1", "n3"} {
		if err := cut(d.victim(), d.Node(id).Place().Name(), GossipPort); err != nil {
			return err
		}
	}
	return nil
}

// gossipCut: gossip says which nodes are alive; the map and the data path decide
// which own and which answer.
func (d *drill) gossipCut(meanwhile func(t *testing.T)) {
	d.part("gossip cut", d.both("n1", "n2", "n3"), func(t *testing.T) {
		before, err := d.status(t, d.east(), d.Node("n1"))
		must(t, err)
		must(t, d.cutGossip(d.net.Cut))
		d.awaitViews(t, d.east(), []string{"n1", "n3"}, "n2", "dead")
		d.awaitViews(t, d.east(), []string{"n2"}, "n1", "dead")
		d.awaitViews(t, d.east(), []string{"n2"}, "n3", "dead")
		d.allWell(t, "while gossip is cut")
		meanwhile(t)
		after, err := d.status(t, d.east(), d.Node("n1"))
		must(t, err)
		if after.Map.Digest != before.Map.Digest || after.Map.Version != before.Map.Version {
			t.Errorf("the shard map was %+v and is %+v", before.Map, after.Map)
		}
		for _, n := range after.Nodes {
			if !n.Reached {
				t.Errorf("node %s is not reached", n.ID)
			}
		}
		must(t, d.net.Heal())
		d.awaitAlive(t, d.east())
	})
}

func (d *drill) gossipCutOneWay() {
	d.part("gossip cut one way", d.both("n1", "n2", "n3"), func(t *testing.T) {
		must(t, d.cutGossip(d.net.CutOneWay))
		d.awaitViews(t, d.east(), []string{"n1"}, "n2", "suspect", "dead")
		d.allWell(t, "while the others do not hear it")
		must(t, d.net.Heal())
		d.awaitAlive(t, d.east())
	})
}

// dataCut: being alive is not being reachable.
func (d *drill) dataCut(ports ...uint16) {
	d.part("data path cut", d.others(), func(t *testing.T) {
		for host := range d.stations {
			must(t, d.net.Cut(d.at[host], d.victim(), ports...))
		}
		d.allLost(t, "cut")
		d.awaitViews(t, d.east(), []string{"n1", "n3"}, "n2", "alive")
		must(t, d.net.Heal())
	})
}

// nodeCutOff cuts every link of the victim: a partition.
func (d *drill) nodeCutOff() {
	d.part("node cut off", d.others(), func(t *testing.T) {
		cut := map[string]bool{d.victim(): true}
		for _, p := range d.places {
			if !cut[p.Name()] {
				cut[p.Name()] = true
				must(t, d.net.Cut(p.Name(), d.victim()))
			}
		}
		d.allLost(t, "cut off")
		d.awaitViews(t, d.east(), []string{"n1", "n3"}, "n2", "dead")
		must(t, d.net.Heal())
		d.awaitAlive(t, d.east())
	})
}

// TestGossip cuts gossip and the data path apart from each other, and a node from
// all others.
func TestGossip(t *testing.T) {
	if testing.Short() {
		t.Skip("cuts links for minutes: make cluster-test")
	}
	parallel(t)
	w := newWorld(t)
	w.needsFaults()
	d := newDrill(w.born())
	d.awaitAlive(t, d.east())
	records := realData(t, 5000)
	w.imports("west", records)
	d.gossipCut(func(t *testing.T) {
		// A client that comes now finds all nodes, and reads their memory.
		c := w.dial("west")
		must(t, c.WaitOneSided(within(t)))
		table, err := c.ReadAll(within(t), records)
		must(t, err)
		t.Log(table)
	})
	d.gossipCutOneWay()
	d.dataCut(DataPort)
	d.nodeCutOff()
	d.slowLink()
	d.end()
}

// TestMove starts a node on another host, with its own data: clients find it.
func TestMove(t *testing.T) {
	if testing.Short() {
		t.Skip("starts nodes: make cluster-test")
	}
	parallel(t)
	w := newWorld(t)
	d := newDrill(w.born())
	n3 := w.Node("n3")
	d.part("moved", d.both("n1", "n2"), func(t *testing.T) {
		must(t, n3.Stop(patience))
		n3.MoveTo(w.net.Host("spare"))
		must(t, n3.Start(within(t)))
		d.allWell(t, "at another address")
		d.awaitAlive(t, d.east())
	})
	d.part("moved back, killed", d.both("n1", "n2"), func(t *testing.T) {
		must(t, n3.Kill())
		n3.MoveTo(w.net.Host("three"))
		pause(t.Context(), time.Second)
		must(t, n3.Start(within(t)))
	})
	d.end()
}
