package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/admin"
	"github.com/rdmakv/rdmakv/client/internal/clienttest"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/store/layout"
)

// onReplicas runs f with three nodes that have replicas of all groups, and a client that knows it.
func onReplicas(t *testing.T, groups int, change func(*client.Config), f func(t *testing.T, r *clienttest.Replicas, c *client.Client)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := clienttest.ReplicaCluster(t, 3, 3, groups)
		f(t, r, dialFakes(t, r.Nodes, change))
	})
}

// What a program does goes on while leaders fall one after the other: every increment counts once, no get goes
// back, and no call waits much longer than an election takes.
func TestFleetLeadersFall(t *testing.T) {
	onReplicas(t, 2, nil, func(t *testing.T, r *clienttest.Replicas, c *client.Client) {
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			defer cancel()
			for round := range 9 {
				n := r.Nodes[round%3]
				r.Stop(n)
				time.Sleep(300 * time.Millisecond)
				for i := range 20 {
					if key := fmt.Sprintf("k%d", i); r.Leader(key) == n.ID {
						r.Elect(key, r.Nodes[(round+1)%3])
					}
				}
				time.Sleep(2 * time.Second)
				r.Start(n)
				time.Sleep(2 * time.Second)
			}
		})
		for i := range 20 {
			wg.Go(func() {
				key := []byte(fmt.Sprintf("k%d", i))
				for n := 1; ctx.Err() == nil; n++ {
					begun := time.Now()
					if _, err := c.Increment(t.Context(), key, 1); err != nil {
						t.Errorf("increment %d of %s: %v", n, key, err)
						return
					}
					if done := r.Done(string(key)); done != n {
						t.Errorf("%s was incremented %d times in %d calls", key, done, n)
						return
					}
					if _, err := c.Get(t.Context(), key); err != nil {
						t.Errorf("get %s: %v", key, err)
						return
					}
					if took := time.Since(begun); took > time.Second {
						t.Errorf("two calls took %v", took)
					}
					time.Sleep(7 * time.Millisecond)
				}
			})
		}
		wg.Wait()
		if n := c.Counters(); n.Timeouts != 0 || n.OutcomeUnknown != 0 || n.Puts != 0 {
			t.Errorf("%+v", n)
		}
	})
}

// A value in parts is stored and read although the leader falls in the middle of each.
func TestFleetPartsOverAFall(t *testing.T) {
	onReplicas(t, 1, smallParts, func(t *testing.T, r *clienttest.Replicas, c *client.Client) {
		for _, n := range r.Nodes {
			n.Welcome = func(w *wire.Welcome) { w.Flags |= wire.WelcomeClustered; w.MaxValue = layout.MaxWholeLen }
		}
		for _, n := range r.Nodes { // the first session is of another bound
			n.Cut()
		}
		synctest.Wait()
		value := noise(900_000, 1)
		n := 0
		r.Draw(func(x clienttest.Copied) clienttest.Fate {
			if n++; n != 7 {
				return clienttest.Fate{}
			}
			go r.Elect("k", r.At("k")[1])
			return clienttest.Fate{Cut: true}
		})
		if err := c.Put(t.Context(), []byte("k"), value); err != nil {
			t.Fatal(err)
		}
		keys := map[string]bool{}
		for _, x := range r.Copies() {
			keys[x.Key] = true
			if done := r.Done(x.Key); done != 1 {
				t.Errorf("%q took effect %d times", x.Key, done)
			}
		}
		if len(keys) < 15 {
			t.Errorf("%d parts", len(keys))
		}
	})
}

// A value of a Buffer is staged at each node that it goes to, and the Buffer is free afterwards.
func TestFleetBufferOverAFall(t *testing.T) {
	onReplicas(t, 1, nil, func(t *testing.T, r *clienttest.Replicas, c *client.Client) {
		b, err := c.NewBuffer(200_000)
		if err != nil {
			t.Fatal(err)
		}
		defer b.Free()
		copy(b.Bytes(), bytes.Repeat([]byte("x"), 200_000))
		r.Draw(func(x clienttest.Copied) clienttest.Fate {
			if x.Node == r.Nodes[0].ID {
				return clienttest.Fate{Cut: true, Undone: true}
			}
			return clienttest.Fate{}
		})
		r.Elect("k", r.Nodes[1])
		if _, err := b.Put(t.Context(), []byte("k"), 200_000, client.PutOptions{}); err != nil || b.Busy() || r.Done("k") != 1 {
			t.Errorf("%v; it took effect %d times", err, r.Done("k"))
		}
	})
}

// What nodes with replicas do not do yet is told as such, at once; and a client of one node alone is told
// that another leads.
func TestFleetUnsupportedOfReplicas(t *testing.T) {
	onReplicas(t, 1, nil, func(t *testing.T, r *clienttest.Replicas, c *client.Client) {
		for _, n := range r.Nodes {
			serve := n.OnRequest
			n.OnRequest = func(h wire.Header, msg []byte) ([]byte, bool) {
				if h.Type != wire.TypeScan && h.Type != wire.TypeWatch {
					return serve(h, msg)
				}
				out := wire.AppendError(nil, h.Type, h.ID, wire.StatusUnsupported, "not with replicas")
				wire.SetCredits(out, 1)
				return out, true
			}
		}
		begun := time.Now()
		for _, err := range c.Scan(t.Context(), client.ScanOptions{}) {
			if !errors.Is(err, client.ErrUnsupported) {
				t.Error(err)
			}
		}
		for _, err := range c.Watch(t.Context(), nil, client.WatchOptions{}) {
			if !errors.Is(err, client.ErrUnsupported) {
				t.Error(err)
			}
		}
		if took := time.Since(begun); took != 0 {
			t.Errorf("it took %v", took)
		}
		r.Elect("k", r.Nodes[1])
		if n, err := admin.Of(c).NodeOf([]byte("k")); err != nil || n.ID() != r.At("k")[0].ID {
			t.Error(err)
		}
		direct := dialFakes(t, r.Nodes, func(cfg *client.Config) { cfg.Direct = true })
		err := direct.Put(t.Context(), []byte("k"), nil)
		if e := (*client.Error)(nil); !errors.As(err, &e) || !errors.Is(err, client.ErrMoved) || errors.Is(err, client.ErrOutcomeUnknown) {
			t.Error(err)
		}
		t.Log(err)
	})
}

// A client of one node alone READs nothing there either, if the node has but replicas.
func TestFleetDirectOfReplicas(t *testing.T) {
	for _, replicas := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			reads := 0
			nodes := clienttest.Cluster(t, 1, true)
			if replicas {
				r := clienttest.ReplicaCluster(t, 3, 3, 1)
				r.Set("k", "v")
				r.Elect("k", r.Nodes[0])
				nodes = r.Nodes
			} else {
				nodes[0].Data["k"] = "v"
			}
			nodes[0].OnRead = func(place uint64, dst []byte) {
				if copy(dst, nodes[0].Mem[place:]); place != layout.BeatOffset {
					reads++
				}
			}
			c := dialFakes(t, nodes, func(cfg *client.Config) { cfg.Direct = true })
			if v, err := c.Get(t.Context(), []byte("k")); err != nil || string(v) != "v" || (reads == 0) != replicas {
				t.Errorf("replicas %v: %q, %v; %d READs", replicas, v, err, reads)
			}
		})
	}
}
