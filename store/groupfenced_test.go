package store

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/internal/consensus/driver"
)

// A failingEngine runs a replica whose machine fails from some moment on, as one does that meets an entry of a newer program.
type failingEngine struct {
	*driver.Node
	fail consensus.GroupID
	on   atomic.Bool
}

func (e *failingEngine) Start(ctx context.Context, g consensus.GroupID, id consensus.ReplicaID, m consensus.Machine) error {
	if g == e.fail {
		m = &failingMachine{m, e}
	}
	return e.Node.Start(ctx, g, id, m)
}

type failingMachine struct {
	consensus.Machine
	e *failingEngine
}

func (m *failingMachine) Apply(list []consensus.Entry) error {
	if m.e.on.Load() {
		return errBroken
	}
	return m.Machine.Apply(list)
}

// openFailing opens a store with group 7 of shard 0, which can be made to fail, group 8 of shard 1, and shards 2 and 3 of its own.
func openFailing(t *testing.T, set func(*Config)) (*node, *failingEngine) {
	broken := &failingEngine{fail: 7}
	cfg := alone(memFS())
	cfg.LogBytes = MinLogBytes
	cfg.Engine = func(e EngineEnv) (Engine, error) {
		broken.Node = driver.New(driver.Config{Name: "n0", Log: e.Log, Stream: e.Stream, Fenced: e.Fenced, Link: nobody{}})
		return broken, nil
	}
	if set != nil {
		set(&cfg)
	}
	n := openWith(t, cfg, aGroup(7, 0), aGroup(8, 1))
	n.leads(0)
	n.leads(1)
	return n, broken
}

// TestFencedReplicaAnswers: a write that is under way when its replica is fenced is answered: nothing else ever will happen to it.
func TestFencedReplicaAnswers(t *testing.T) {
	n, broken := openFailing(t, func(cfg *Config) { cfg.groupPatience = time.Hour })
	broken.on.Store(true)
	done := make(chan error, 1)
	w := &Write{Op: Op{Shard: 0, Key: []byte("k"), Value: []byte("v")}, Done: func(w *Write) { done <- w.Err }}
	if err := n.Submit(w); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the replica to be fenced", func() bool { st, _ := broken.Status(7); return st.Fenced != nil })
	select {
	case err := <-done:
		t.Log(err)
	case <-time.After(3 * time.Second):
		bytes, writes := n.gate.Inside()
		t.Errorf("nobody answers; %d bytes of %d writes are in the gate", bytes, writes)
	}
}

// TestFencedReplicaLeavesTheLog: a replica that is fenced takes part in nothing, and the others of its store go on: the log lets go
// what their bases have.
func TestFencedReplicaLeavesTheLog(t *testing.T) {
	n, broken := openFailing(t, nil)
	n.put(0, "k", "v")
	broken.on.Store(true)
	_ = n.Submit(&Write{Op: Op{Shard: 0, Key: []byte("k"), Value: []byte("w")}, Done: func(*Write) {}})
	waitFor(t, "the replica to be fenced", func() bool { st, _ := broken.Status(7); return st.Fenced != nil })
	value := []byte(pattern(30_000, "v"))
	for written := 0; written < 3*MinLogBytes; written += len(value) {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		err := n.Do(ctx, &Write{Op: Op{Shard: 1 + uint16(written/len(value)%3), Key: fmt.Appendf(nil, "k%d", written%100), Value: value}})
		cancel()
		if err != nil {
			t.Fatalf("behind %d KiB, of a log of %d KiB: %v; the store is fenced: %v; %+v", written>>10, MinLogBytes>>10, err, n.fence.Failed(), n.Stats().Log)
		}
	}
}

// TestFencedReplicaStopsNoExpirer: keys of other shards are removed when their time is over, whatever becomes of one group.
func TestFencedReplicaStopsNoExpirer(t *testing.T) {
	for _, fail := range []bool{false, true} {
		n, broken := openFailing(t, func(c *Config) { c.LogBytes = 2 * MinLogBytes })
		put := func(shard uint16, ttl time.Duration) {
			if err := n.Do(t.Context(), &Write{Op: Op{Shard: shard, Key: []byte("ttl"), Value: []byte("v"), TTL: ttl}}); err != nil {
				t.Fatal(err)
			}
		}
		put(0, 300*time.Millisecond)
		n.checkpoint()
		broken.on.Store(fail)
		if fail {
			waitFor(t, "the replica to be fenced", func() bool { st, _ := broken.Status(7); return st.Fenced != nil })
		}
		before := n.counts.Expired.Load()
		put(3, 100*time.Millisecond)
		put(1, 100*time.Millisecond)
		n.checkpoint()
		for deadline := time.Now().Add(6 * time.Second); n.counts.Expired.Load() < before+2; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Errorf("failing %v: %d of 2 expired keys of other shards were removed in 6 s", fail, n.counts.Expired.Load()-before)
				break
			}
		}
		if err := n.Close(); err != nil && !errors.Is(err, consensus.ErrFenced) {
			t.Error(err)
		}
	}
}
