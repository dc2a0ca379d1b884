package cluster

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/iwarp"
)

// TestAdopt: a server that was alone with its keys becomes the first node of a cluster, in place: init --adopt, two more nodes, three replicas, under a judged load; and when the first node is killed, every key is
// there, with its value and its time to live.
func TestAdopt(t *testing.T) {
	if testing.Short() {
		t.Skip("moves replicas between real nodes: make cluster-test")
	}
	parallel(t)
	w := newWorld(t)
	n1, east := w.Nodes[0], w.net.Host("east")
	must(t, n1.StartAlone(within(t)))
	alone, err := client.Dial(within(t), client.Config{Servers: []string{n1.Addr()}, Fabrics: []rdma.Fabric{east.Fabric(iwarp.New(iwarp.Options{}))}, Secret: w.Secret, Timeout: PatientLimit})
	must(t, err)
	const keys = 400
	key := func(i int) []byte { return fmt.Appendf(nil, "kept %d", i) }
	value := func(i int) []byte { // some stand apart from their records, some in tables
		return []byte(strings.Repeat(fmt.Sprintf("before %d ", i), []int{1, 200, 10_000}[i%3]))
	}
	for i := range keys {
		var o client.PutOptions
		if i%10 == 0 {
			o.TTL = 10 * patience
		}
		_, err := alone.PutWith(within(t), key(i), value(i), o)
		must(t, err)
	}
	_, err = alone.Delete(within(t), key(1))
	must(t, err)
	must(t, alone.Close())
	adopt := func(more ...string) []string {
		return append([]string{"--server", n1.Addr(), "cluster", "init", "--adopt"}, more...)
	}
	w.refused([]string{"alone"}, adopt("n1")...)
	must(t, n1.Stop(patience))
	must(t, w.Start(within(t))) // now with a name, and two others

	w.refused([]string{"holds keys"}, "--server", n1.Addr(), "cluster", "init", "--replicas", "3", "n1", "n2", "n3")
	w.refused([]string{"one node"}, adopt("n1", "n2")...)
	w.refused([]string{"cluster replicas 3"}, adopt("--replicas", "3", "n1")...)
	out := w.must("east", adopt("--groups", "4", "n1")...)
	if !strings.Contains(out, "4 groups with 1 replicas on 1 nodes") {
		t.Errorf("init --adopt says:\n%s", out)
	}
	w.must("east", adopt("n1")...) // again: done already
	w.refused([]string{"there is another shard map"}, adopt("--groups", "5", "n1")...)
	w.refused([]string{"there is another shard map"}, "--server", n1.Addr(), "cluster", "init", "n1")

	check := func(c *Conn) {
		t.Helper()
		for i := range keys {
			got, err := c.Get(within(t), key(i))
			if i == 1 {
				if !errors.Is(err, client.ErrNotFound) {
					t.Errorf("%s was deleted, and is there: %v", key(i), err)
				}
				continue
			}
			if err != nil || string(got) != string(value(i)) {
				t.Fatalf("%s has %d bytes (%v), and had %d", key(i), len(got), err, len(value(i)))
			}
			if info, err := c.Stat(within(t), key(i)); err != nil || (i%10 == 0) == info.Expiry.IsZero() {
				t.Errorf("%s: %+v, %v", key(i), info, err)
			}
		}
	}
	probe := w.dial("west", func(o *ConnOptions) { o.Addrs = []string{n1.Addr()} })
	check(probe)
	load, _ := w.startLoad("adopt")
	w.changes(t, "add", "n2", "n3")
	w.changes(t, "replicas", "3")
	w.must("east", adopt("n1")...) // still done
	w.awaitAlive(t, east)
	w.allTakePart(t)
	must(t, n1.Kill())
	check(probe)
	must(t, probe.Put(within(t), key(1), []byte("v")))
	must(t, n1.Start(within(t)))
	judge(t, load)
	w.allTakePart(t)
	w.alikeFrom(t, east, 4)
}
