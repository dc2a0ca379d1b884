package cluster

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/client"
)

// upgrade is a command line of cluster upgrade.
func (w *world) upgrade(args ...string) []string {
	return w.asked(append([]string{"--timeout", "60s", "cluster", "upgrade"}, args...)...)
}

// TestUpgrade: a cluster of three nodes without replicas, with keys that the programs of the previous release have written, gets this release, one node after the other, and then replicas in place. It is refused as long as a node
// is of the previous release, or away, and for what cannot be. A judged load goes on across; kvclient is killed meanwhile, and the same command finishes what it has begun. When a node is killed at the end every key is there.
func TestUpgrade(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the previous release, and moves replicas between real nodes: make cluster-test")
	}
	old := previous(t)
	w := newWorld(t)
	n1, n3, east := w.Nodes[0], w.Nodes[2], w.net.Host("east")
	for _, s := range w.Nodes {
		s.RunBy(old)
	}
	must(t, w.Start(within(t)))
	before := *w.Rig // the same cluster, whose kvclient is of the previous release
	before.opt.Bin = old
	before.must(t, w.net.Host("west"), "--server", n1.Addr(), "cluster", "init", "n1", "n2", "n3")

	const keys = 300
	key := func(i int) []byte { return fmt.Appendf(nil, "kept %d", i) }
	value := func(i int) []byte { // some stand apart from their records, some in tables
		return []byte(strings.Repeat(fmt.Sprintf("before %d ", i), []int{1, 200, 10_000}[i%3]))
	}
	fill := w.dial("east")
	for i := range keys {
		var o client.PutOptions
		if i%10 == 0 {
			o.TTL = 10 * patience
		}
		_, err := fill.PutWith(within(t), key(i), value(i), o)
		must(t, err)
	}
	_, err := fill.Delete(within(t), key(1))
	must(t, err)
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

	w.refused([]string{"n1, which runs", "n2, which runs", "n3, which runs"}, w.upgrade("--replicas", "3", "--yes")...)
	for _, s := range w.Nodes[:3] {
		must(t, s.Stop(patience))
		s.RunBy("")
		must(t, s.Start(within(t)))
		w.ready(t, s)
		if s != n3 {
			w.refused([]string{"n3, which runs", "start with this release"}, w.upgrade("--replicas", "3", "--yes")...)
		}
	}
	check(fill)
	w.refused([]string{"--replicas is missing"}, w.upgrade("--yes")...)
	w.refused([]string{"--replicas 2", "even number"}, w.upgrade("--replicas", "2", "--yes")...)
	w.refused([]string{"needs as many nodes", "the cluster has 3"}, w.upgrade("--replicas", "5", "--yes")...)
	w.refused([]string{"n4", "not in the cluster"}, w.upgrade("--replicas", "3", "--yes", "n1@r1", "n2@r2", "n4@r3")...)
	w.refused([]string{"2 of 3 nodes have a zone"}, w.upgrade("--replicas", "3", "--yes", "n1@r1", "n2@r2")...)
	must(t, n3.Kill())
	w.refused([]string{"n3"}, w.upgrade("--replicas", "3", "--yes")...)
	must(t, n3.Start(within(t)))
	w.ready(t, n3)
	for ctx := within(t); ; {
		out, code, errOut := w.kvclient(t, east, w.upgrade("--replicas", "3", "--dry-run")...)
		if code == 0 {
			if !strings.Contains(out, "6 groups") || !strings.Contains(out, "no way back") || !strings.Contains(out, "none") {
				t.Errorf("--dry-run says:\n%s", out)
			}
			break
		}
		if pause(ctx, 200*time.Millisecond); ctx.Err() != nil { // until gossip has found n3 again
			t.Fatalf("--dry-run: %s%s", out, errOut)
		}
	}
	check(fill)

	probe := w.dial("west")
	load, _ := w.startLoad("upgrade")
	for ctx := within(t); load.Ops() < 300; { // it is at work
		if pause(ctx, 50*time.Millisecond); ctx.Err() != nil {
			t.Fatal("the load does nothing")
		}
	}
	r := w.begins(t, "upgrade", "--replicas", "3", "--yes")
	pause(within(t), 300*time.Millisecond) // wherever it is by then
	must(t, r.Signal(syscall.SIGKILL))
	_ = r.ends(t)
	began := time.Now()
	out := w.must("east", w.upgrade("--replicas", "3", "--yes")...)
	t.Logf("upgrade: %v\n%s", time.Since(began).Round(time.Millisecond), out)
	if out := w.must("east", w.upgrade("--replicas", "3", "--yes")...); !strings.Contains(out, "nothing is left to do") {
		t.Errorf("a second time: %s", out)
	}
	check(probe)
	check(fill)
	w.allTakePart(t)
	w.awaitLevel(t, 1, "n1:1 n2:1 n3:1", "")
	if _, code, errOut := before.kvclient(t, east, w.asked("get", "k")...); code == 0 || !strings.Contains(errOut, "upgrade this client") {
		t.Errorf("kvclient of the previous release: %d %s", code, errOut)
	}
	must(t, n1.Kill())
	check(probe)
	must(t, probe.Put(within(t), key(1), []byte("v")))
	must(t, n1.Start(within(t)))
	judge(t, load)
	w.allTakePart(t)
	w.alikeFrom(t, east, 6)
}
