package cluster

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/iwarp"
)

// TestCopies: a copy of a node's data directory is started on another host while
// gossip between the two is cut, so that both serve. When the cut heals, the one
// that began later stands down, whichever is the copy; the other goes on, and
// every view of the cluster shows both.
func TestCopies(t *testing.T) {
	if testing.Short() {
		t.Skip("starts nodes: make cluster-test")
	}
	parallel(t)
	for _, tc := range []struct {
		name      string
		copyFirst bool
	}{{"the copy began later", false}, {"the copy began first", true}} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			w.needsFaults()
			w.born()
			n2, spare := w.Node("n2"), w.net.Host("spare")
			keys := w.dial("east").KeysOf("n2", "copies", 8)
			must(t, n2.Kill())
			twin := w.NewServer("n2", spare)
			twin.dir = filepath.Join(w.dir, "copy-of-n2")
			must(t, os.Remove(filepath.Join(n2.Dir(), "control.sock"))) // no file that can be copied
			must(t, os.CopyFS(twin.dir, os.DirFS(n2.Dir())))
			defer func() { must(t, twin.Kill()) }()
			for _, name := range names[:3] {
				must(t, w.net.Cut("spare", name))
			}
			stays, goes := n2, twin
			if tc.copyFirst {
				stays, goes = twin, n2
			}
			must(t, stays.Start(within(t)))
			must(t, goes.Start(within(t)))
			first, second := w.writer("east", stays, keys), w.writer("west", goes, keys)
			first.await(t, 20)
			second.await(t, 20)

			must(t, w.net.Heal())
			healed := time.Now()
			code, err := goes.Process().WaitExit(patience)
			must(t, err)
			took := time.Since(healed)
			if code != 3 {
				t.Errorf("it ends with exit code %d, want 3, by which a supervisor knows not to start it again", code)
			}
			acked := second.acks.Load()
			for _, ip := range []string{stays.Place().IP(), goes.Place().IP(), "node id"} {
				if !strings.Contains(goes.Said(), ip) {
					t.Errorf("it does not say %q:\n%s", ip, goes.Said())
				}
			}
			if took > time.Minute {
				t.Errorf("both served for %v after the heal", took)
			}
			// From here on there is one.
			first.await(t, first.acks.Load()+20)
			if got := second.acks.Load(); got != acked {
				t.Errorf("%d writes are acknowledged by a node that stood down", got-acked)
			}
			for _, args := range [][]string{{"cluster", "check"}, {"cluster", "status"}} {
				out, code, errOut := w.kvclient(t, w.net.Host("east"), append([]string{"--server", w.Node("n1").Addr()}, args...)...)
				if code != 1 || !strings.Contains(out, stays.Place().IP()) || !strings.Contains(out, goes.Place().IP()) {
					t.Errorf("kvclient %v: exit code %d, want 1 and both addresses\n%s%s", args, code, out, errOut)
				}
			}
			if err := goes.Start(within(t)); err == nil {
				t.Error("it serves at its next start")
			} else if !strings.Contains(err.Error(), "must not be served") {
				t.Errorf("its next start: %v", err)
			}
			t.Logf("after the heal both served for %v; acknowledged by the one that stands down until then: %d", took.Round(time.Millisecond), acked)
		})
	}
}

// A writer puts to one server, whatever its state in the cluster is.
type writer struct{ acks atomic.Int64 }

func (w *world) writer(host string, s *Server, keys [][]byte) *writer {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.t.Context())
	c, err := client.Dial(within(w.t), client.Config{
		Servers: []string{s.Addr()}, Direct: true, Secret: w.Secret, Timeout: 2 * time.Second, Fabrics: []rdma.Fabric{w.net.Host(host).Fabric(iwarp.New(iwarp.Options{}))},
	})
	if err != nil {
		cancel()
		w.t.Fatal(err)
	}
	out, done := &writer{}, make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ctx.Err() == nil; i++ {
			if err := c.Put(ctx, keys[i%len(keys)], []byte(host)); err == nil {
				out.acks.Add(1)
			}
			pause(ctx, 10*time.Millisecond)
		}
	}()
	w.t.Cleanup(func() {
		cancel()
		<-done
		_ = c.Close()
	})
	return out
}

// await waits until so many writes have been acknowledged.
func (w *writer) await(t *testing.T, n int64) {
	t.Helper()
	for ctx := within(t); w.acks.Load() < n; pause(ctx, 10*time.Millisecond) {
		if ctx.Err() != nil {
			t.Fatalf("%d writes are acknowledged, want %d", w.acks.Load(), n)
		}
	}
}
