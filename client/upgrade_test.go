package client_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/admin"
	"github.com/rdmakv/rdmakv/client/internal/clienttest"
	"github.com/rdmakv/rdmakv/internal/server"
	"github.com/rdmakv/rdmakv/store"
)

// TestUpgrade: a cluster without replicas gets groups, and then three replicas of each, while clients that were there before read, write, count, scan and watch. No call fails, no write is lost or done twice, every history can
// be put in order, each scan finds every key that nobody touches, and a watch goes on behind a gap that it tells of.
func TestUpgrade(t *testing.T) {
	nodes := startCluster(t, 3, func(cfg *server.Config) { cfg.LogBytes = store.MinGroupLogBytes })
	ctx := clienttest.Within(t, 3*time.Minute)
	patient := func(cfg *client.Config) { cfg.Timeout = time.Minute }
	operator := dialCluster(t, nodes, patient)
	if _, err := admin.Of(operator).ClusterInit(ctx, []admin.NodeWeight{{ID: "n1"}, {ID: "n2"}, {ID: "n3"}}); err != nil {
		t.Fatal(err)
	}
	const still = 300
	for i := range still {
		if err := operator.Put(ctx, fmt.Appendf(nil, "still%04d", i), fmt.Appendf(nil, "value %d", i)); err != nil {
			t.Fatal(err)
		}
	}

	run, stop := context.WithCancel(ctx)
	defer stop()
	var wg sync.WaitGroup
	failed := make(chan error, 64)
	fail := func(what string, err error) {
		select {
		case failed <- fmt.Errorf("%s: %w", what, err):
		default:
		}
	}
	begun := time.Now()
	now := func() int64 { return int64(time.Since(begun)) }

	// Registers, whose history is judged.
	const registers = 12
	var mu sync.Mutex
	var history []porcupine.Operation
	var value atomic.Uint64
	var calls atomic.Int64
	for worker := range 4 {
		c := dialCluster(t, nodes, patient)
		rng := rand.New(rand.NewPCG(1, uint64(worker)))
		wg.Go(func() {
			for run.Err() == nil {
				in := regInput{key: rng.IntN(registers), write: rng.IntN(2) == 0}
				key := fmt.Appendf(nil, "register%d", in.key)
				op := porcupine.Operation{ClientId: worker, Call: now()}
				var err error
				if in.write {
					in.value = value.Add(1)
					err = c.Put(ctx, key, selfChecking(in.value, 64))
					op.Output = uint64(0)
				} else {
					var v []byte
					if v, err = c.Get(ctx, key); errors.Is(err, client.ErrNotFound) {
						op.Output, err = uint64(0), nil
					} else if err == nil {
						op.Output = binary.LittleEndian.Uint64(v)
					}
				}
				if err != nil {
					fail("a call on a register", err)
					return
				}
				op.Input, op.Return = in, now()
				calls.Add(1)
				mu.Lock()
				history = append(history, op)
				mu.Unlock()
			}
		})
	}
	// Counters: each increment counts once.
	var counts [4]atomic.Int64
	for i := range counts {
		c := dialCluster(t, nodes, patient)
		wg.Go(func() {
			for run.Err() == nil {
				if _, err := c.Increment(ctx, fmt.Appendf(nil, "counter%d", i), 1); err != nil {
					fail("an increment", err)
					return
				}
				counts[i].Add(1)
			}
		})
	}
	// Many at a time, one-sided where it can be.
	many := dialCluster(t, nodes, patient)
	wg.Go(func() {
		for n := 0; run.Err() == nil; n++ {
			var pairs []client.Pair
			var keys [][]byte
			for i := range 20 {
				key := fmt.Appendf(nil, "many%d", i)
				keys, pairs = append(keys, key), append(pairs, client.Pair{Key: key, Value: fmt.Append(nil, n)})
			}
			if err := many.MultiPut(ctx, pairs); err != nil {
				fail("MultiPut", err)
				return
			}
			got, err := many.MultiGet(ctx, keys)
			if err != nil {
				fail("MultiGet", err)
				return
			}
			for i, r := range got {
				if string(r.Value) != fmt.Sprint(n) {
					fail("MultiGet", fmt.Errorf("%s has %q behind %d", keys[i], r.Value, n))
					return
				}
			}
		}
	})
	scans := dialCluster(t, nodes, patient)
	var scanned atomic.Int64
	wg.Go(func() {
		for run.Err() == nil {
			n := 0
			for e, err := range scans.Scan(ctx, client.ScanOptions{Prefix: []byte("still")}) {
				if err != nil {
					fail("a scan", err)
					return
				}
				if want := fmt.Sprintf("still%04d", n); string(e.Key) != want || string(e.Value) != fmt.Sprintf("value %d", n) {
					fail("a scan", fmt.Errorf("%s (%q) where %s is next", e.Key, e.Value, want))
					return
				}
				if n++; n%100 == 0 {
					time.Sleep(time.Millisecond) // pages of before and of behind
				}
			}
			if n != still {
				fail("a scan", fmt.Errorf("%d keys of %d", n, still))
				return
			}
			scanned.Add(1)
		}
	})
	watcher := dialCluster(t, nodes, patient)
	watching, unwatch := context.WithCancel(ctx)
	defer unwatch()
	var skipped, seen atomic.Int64
	var watched sync.WaitGroup
	watched.Go(func() {
		for e, err := range watcher.Watch(watching, []byte("seen"), client.WatchOptions{Values: true}) {
			switch {
			case err != nil && watching.Err() == nil:
				fail("the watch", err)
				return
			case err != nil:
				return
			case e.Skipped:
				skipped.Add(1)
			default:
				seen.Store(int64(binary.LittleEndian.Uint64(e.Value)))
			}
		}
	})
	mark := func(n int64) { // the watch sees what is written now
		t.Helper()
		clienttest.Eventually(t, "the watch tells what is written", func() bool {
			for i := range 8 {
				if err := operator.Put(ctx, fmt.Appendf(nil, "seen%d", i), binary.LittleEndian.AppendUint64(nil, uint64(n))); err != nil {
					t.Fatal(err)
				}
			}
			return seen.Load() == n
		})
	}
	goOn := func(what string) {
		t.Helper()
		from, fromScans := calls.Load(), scanned.Load()
		clienttest.Eventually(t, what, func() bool { return len(failed) > 0 || calls.Load() > from+200 && scanned.Load() > fromScans+1 })
		select {
		case err := <-failed:
			t.Fatal(what, ": ", err)
		default:
		}
	}
	goOn("before")
	mark(1)

	if p, err := admin.Of(operator).Upgrade(ctx, admin.UpgradeOptions{Dry: true}); err != nil || p.Done || p.Begun || p.Groups != 6 || len(p.Nodes) != 3 {
		t.Fatalf("%+v, %v", p, err)
	}
	if m := rt(operator).Map(); m.Replication != nil {
		t.Fatal("a dry run has put a map in force")
	}
	if p, err := admin.Of(operator).Upgrade(ctx, admin.UpgradeOptions{}); err != nil || !p.Done || p.Groups != 6 {
		t.Fatalf("%+v, %v", p, err)
	}
	goOn("with groups")
	mark(2)
	if skipped.Load() == 0 {
		t.Error("the watch goes on with groups, whose events are others, and tells of no gap")
	}
	clienttest.Eventually(t, "the cluster takes a change", func() bool {
		_, err := admin.Of(operator).Change(ctx, admin.ChangeRequest{Kind: admin.SetReplicas, Replicas: 3})
		return err == nil
	})
	clienttest.Eventually(t, "each group has three replicas", func() bool {
		select {
		case err := <-failed:
			t.Fatal(err)
		default:
		}
		tasks, err := admin.Of(operator).Tasks(ctx)
		return err == nil && len(tasks.Tasks) > 0 && tasks.Tasks[len(tasks.Tasks)-1].State == "done"
	})
	goOn("with replicas")
	mark(3)
	if p, err := admin.Of(operator).Upgrade(ctx, admin.UpgradeOptions{}); err != nil || !p.Done || !p.Begun {
		t.Errorf("again: %+v, %v", p, err)
	}
	nodes[0].Stop() // the others have all
	goOn("without a node")
	mark(4)

	stop()
	wg.Wait()
	unwatch()
	watched.Wait()
	for i := range counts {
		if n, err := operator.Increment(ctx, fmt.Appendf(nil, "counter%d", i), 0); err != nil || n != counts[i].Load() {
			t.Errorf("counter %d is %d, and %d increments were acknowledged: %v", i, n, counts[i].Load(), err)
		}
	}
	slices.SortFunc(history, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
	if r := porcupine.CheckOperationsTimeout(registerModel, history, time.Minute); r != porcupine.Ok {
		t.Errorf("a history of %d calls is %v", len(history), r)
	}
}
