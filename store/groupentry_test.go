package store

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// TestGroupLargestWrite: a write to a group is done or refused, whatever its size. An entry that the engine never takes must not come
// to be, because it would fence the store.
func TestGroupLargestWrite(t *testing.T) {
	cfg := alone(memFS())
	cfg.LogBytes, cfg.groupEntry = MinGroupLogBytes, 0
	cfg.OnFatal = func(err error) { t.Errorf("the store is fenced: %v", err) }
	n := openWith(t, cfg, aGroup(7, 0))
	n.leads(0)
	for _, size := range []int{200 << 10, 900 << 10, 1 << 20, 1500 << 10, 2<<20 - 9000, 2<<20 - 4000, 2<<20 - 200} {
		done := make(chan error, 1)
		w := &Write{Op: Op{Shard: 0, Key: []byte("k"), Value: make([]byte, size)}, Done: func(w *Write) { done <- w.Err }}
		err := n.Submit(w)
		for ; errors.Is(err, ErrOverloaded); err = n.Submit(w) {
			time.Sleep(time.Millisecond) // the log has to be let go of first
		}
		if err != nil {
			if !errors.Is(err, ErrTooLarge) || size < 2<<20-9000 {
				t.Errorf("%d bytes: %v", size, err)
			}
			continue
		}
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("%d bytes: %v", size, err)
			}
		case <-n.fence.Down:
			t.Fatalf("%d bytes: the store is fenced", size)
		case <-time.After(10 * time.Second):
			t.Fatalf("%d bytes: nothing comes of it", size)
		}
	}
}

// TestGroupEntriesFit: what is queued is cut into entries that the engine takes, with the smallest log as with others.
func TestGroupEntriesFit(t *testing.T) {
	cfg := alone(memFS())
	cfg.LogBytes = MinLogBytes
	cfg.OnFatal = func(err error) { t.Errorf("the store is fenced: %v", err) }
	n := openWith(t, cfg, aGroup(7, 0))
	n.leads(0)
	for i := range 3000 {
		w := &Write{Op: Op{Shard: 0, Key: fmt.Appendf(nil, "k%d", i%100), Value: make([]byte, 4000)}, Done: func(*Write) {}}
		for n.Submit(w) != nil && n.fence.Failed() == nil {
			time.Sleep(time.Millisecond)
		}
	}
	n.put(0, "last", "v")
}

// TestGroupNeedsLog: a store whose log does not take the largest entry of the others gets no replica, because it would stand still at
// that entry.
func TestGroupNeedsLog(t *testing.T) {
	cfg := alone(memFS())
	cfg.LogBytes, cfg.groupEntry = MinGroupLogBytes-(8<<20), 0
	n := open(t, cfg)
	if err := AddGroup(t.Context(), n.Store, aGroup(7, 0)); !errors.Is(err, ErrGroups) {
		t.Fatal(err)
	}
	n.put(0, "k", "v")
}
