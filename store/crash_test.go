package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rdmakv/rdmakv/store/layout"
	"github.com/rdmakv/rdmakv/test/crashfs"
)

// acked is what a writer was told, per key: the last state that is certain and
// those that came after it without an answer.
type acked struct {
	certain modelValue // of the newest acknowledged write; value "" and version v: deleted
	deleted bool
	pending []*Write // submitted after it, oldest first
}

// TestCrash cuts the power at many moments under load. Every acknowledged
// write is there afterwards (policy Always), nothing is half there, and no
// version is given out twice, not even those that the crash took.
func TestCrash(t *testing.T) {
	const keys = 20
	rounds := 12
	if underRace {
		rounds = 4
	}
	for _, seed := range []uint64{1, 2, 3} {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			fs := crashfs.New()
			state := make([]acked, keys)
			var newest layout.Version // of all versions ever told, acknowledged or not
			for round := range rounds {
				c := testConfig(fs)
				c.PredecessorGone = true
				n := open(t, c)
				if first := n.put(3, "first", "x"); first <= newest {
					t.Fatalf("round %d: version %v given out again after %v", round, first, newest)
				}
				for i := range state {
					checkCrashed(t, n, i, &state[i])
				}
				if rng.IntN(2) == 0 {
					n.fill()
				}
				clone := vfs.CrashCloneCfg{UnsyncedDataPercent: rng.IntN(101), RNG: rand.New(rand.NewPCG(rng.Uint64(), 2))}
				newest = max(newest, loadUntilCrash(n, rng, state, func() { fs = fs.CrashClone(clone) }))
				if err := n.Close(); err != nil { // of the world in which nothing happened
					t.Fatal(err)
				}
			}
		})
	}
}

// loadUntilCrash submits writes from several goroutines, each with keys of its
// own, crashes at some moment, and notes in state what was acknowledged before
// that moment and what was on its way. It returns the newest version told.
func loadUntilCrash(n *node, rng *rand.Rand, state []acked, crash func()) layout.Version {
	const writers = 4
	var mu sync.Mutex // guards state and newest; held across the crash, so that "before" is certain
	var newest layout.Version
	stop := make(chan struct{})
	crashAfter := rng.IntN(200)
	acks := 0
	var wg sync.WaitGroup
	for id := range writers {
		wg.Add(1)
		wrng := rand.New(rand.NewPCG(rng.Uint64(), 0))
		go func() {
			defer wg.Done()
			for {
				select {
				case <-stop:
					return
				default:
				}
				i := id + writers*wrng.IntN(len(state)/writers)
				w := &Write{Op: Op{Shard: uint16(i % 4), Key: fmt.Appendf(nil, "crash-%d", i), Kind: deleteIf(wrng.IntN(4) == 0)}}
				if w.Kind != OpDelete {
					w.Value = []byte(pattern(wrng.IntN(3000), fmt.Sprintf("%x", wrng.Uint64())))
				}
				done := make(chan struct{})
				w.Done = func(*Write) {
					mu.Lock()
					defer mu.Unlock()
					defer close(done)
					select {
					case <-stop:
						return // after the crash
					default:
					}
					s := &state[i]
					s.certain, s.deleted = modelValue{w.Version, string(w.Value)}, w.Kind == OpDelete
					s.pending = s.pending[1:]
					if acks++; acks == crashAfter+1 {
						crash()
						close(stop)
					}
				}
				mu.Lock()
				select {
				case <-stop:
					mu.Unlock()
					return
				default:
				}
				state[i].pending = append(state[i].pending, w)
				mu.Unlock()
				// A slow disk may leave no room for a while. Nothing was ordered then, and the write is
				// on its way as before.
				err := n.Submit(w)
				for end := time.Now().Add(testPatience); errors.Is(err, ErrOverloaded) && time.Now().Before(end); err = n.Submit(w) {
					time.Sleep(100 * time.Microsecond)
				}
				if err != nil {
					panic(err)
				}
				if wrng.IntN(2) == 0 {
					<-done // else: several in flight
				}
			}
		}()
	}
	wg.Wait()
	<-n.gateIdle()
	for i := range state {
		newest = max(newest, state[i].certain.version)
		for _, w := range state[i].pending {
			newest = max(newest, w.Version)
		}
	}
	return newest
}

// gateIdle returns a channel that is closed when no write is in flight.
func (n *node) gateIdle() <-chan struct{} {
	waitFor(n.t, "writes to end", func() bool { _, w := n.gate.Inside(); return w == 0 })
	c := make(chan struct{})
	close(c)
	return c
}

// checkCrashed compares one key with what its writer knows, and makes what is
// there the new certainty.
func checkCrashed(t *testing.T, n *node, i int, s *acked) {
	t.Helper()
	key := fmt.Sprintf("crash-%d", i)
	got, err := n.Get(context.Background(), uint16(i%4), []byte(key), nil)
	absent := errors.Is(err, ErrNotFound)
	if err != nil && !absent {
		t.Fatalf("%s: %v", key, err)
	}
	ok := s.certain.version == 0 && absent || s.certain.version != 0 &&
		(s.deleted && absent || !s.deleted && !absent && string(got.Data) == s.certain.value && got.Version == s.certain.version)
	for _, w := range s.pending {
		ok = ok || w.Kind == OpDelete && absent || !(w.Kind == OpDelete) && !absent && string(got.Data) == string(w.Value) && got.Version == w.Version
	}
	if !ok {
		t.Fatalf("%s: %s of %v (absent %v); acknowledged: %s of %v (deleted %v); %d more were in flight",
			key, clip(string(got.Data)), got.Version, absent, clip(s.certain.value), s.certain.version, s.deleted, len(s.pending))
	}
	*s = acked{certain: modelValue{got.Version, string(got.Data)}, deleted: absent}
	if absent {
		s.certain.version = 0
	}
}

// TestVisibleImpliesDurable watches registered memory from outside while
// writes go on. Whatever a reader saw before the power went is there after it.
func TestVisibleImpliesDurable(t *testing.T) {
	const keys = 8
	fs := crashfs.New()
	c := testConfig(fs)
	c.InflightWrites = 64
	n := open(t, c)
	n.fill()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for i := range keys {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for v := 0; ctx.Err() == nil; v++ {
				_, err := n.Put(ctx, uint16(i%4), fmt.Appendf(nil, "key-%d", i), fmt.Appendf(nil, "%d:%d", i, v))
				if err != nil && ctx.Err() == nil {
					t.Error(err)
				}
			}
		}()
	}
	r := n.reader()
	for range 15 {
		seen := make(map[int]layout.Version)
		for j := range 40 {
			i := j % keys
			if v, _, found, _ := r.get(i%4, fmt.Sprintf("key-%d", i)); found {
				if v < seen[i] {
					t.Errorf("key-%d went back from %v to %v", i, seen[i], v)
				}
				seen[i] = v
			}
		}
		again := testConfig(fs.CrashClone(vfs.CrashCloneCfg{}))
		again.PredecessorGone = true
		after := open(t, again)
		for i, v := range seen {
			info, err := after.Stat(context.Background(), uint16(i%4), fmt.Appendf(nil, "key-%d", i))
			if err != nil || info.Version < v {
				t.Errorf("key-%d: seen %v, after the crash %v, %v", i, v, info.Version, err)
			}
		}
		if err := after.Close(); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	wg.Wait()
	if r.found == 0 {
		t.Error("the reader never saw anything")
	}
}

// TestIntervalSyncs: under Interval a write is acknowledged before it is
// durable, and durable soon after; under Off nobody sees to that.
func TestIntervalSyncs(t *testing.T) {
	fs := crashfs.New()
	c := testConfig(fs)
	c.Sync, c.SyncInterval = Interval, time.Millisecond
	n := open(t, c)
	n.put(0, "k", "v")
	waitFor(t, "the write to be durable", func() bool {
		c := testConfig(fs.CrashClone(vfs.CrashCloneCfg{}))
		after := open(t, c)
		defer after.Close()
		_, ok := after.get(0, "k")
		return ok
	})
}

// TestKilledLater: a put that was acknowledged some time ago outlives its process
// under every policy, although nothing is put after it: all that was written to
// files is there, synced or not, and nothing else.
func TestKilledLater(t *testing.T) {
	for _, policy := range []SyncPolicy{Always, Interval, Off} {
		t.Run(policy.String(), func(t *testing.T) {
			fs := crashfs.New()
			c := testConfig(fs)
			c.Sync = policy
			n := open(t, c)
			n.put(0, "k", "v")
			waitFor(t, "the kernel to have the write", func() bool {
				after := open(t, testConfig(fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))})))
				defer after.Close()
				_, ok := after.get(0, "k")
				return ok
			})
		})
	}
}

// TestStatsJSON: the server shows Stats as JSON.
func TestStatsJSON(t *testing.T) {
	n := open(t, testConfig(memFS()))
	n.put(0, "k", "v")
	b, err := json.Marshal(n.Stats())
	if err != nil || !strings.Contains(string(b), `"keys":1`) {
		t.Errorf("%s, %v", b, err)
	}
}
