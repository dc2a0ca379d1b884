package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/rdmakv/rdmakv/test/crashfs"
)

// TestCrashAtEveryCall cuts the power before every call of the file system
// that changes something, in the making of a store, in puts, flushes,
// compactions, clean stops, and in starts after clean stops and after crashes.
// At each moment everything that can be seen is looked at, by one-sided READs
// too; then what the disk would have kept (of what was not synced, some) is
// opened and must bear it out.
func TestCrashAtEveryCall(t *testing.T) {
	total, lives := 0, 0
	usual := 1
	if *crashFull {
		usual = 8
	}
	seeds(t, usual, func(seed uint64) {
		n, l := crashWorld(t, seed)
		total, lives = total+n, lives+l
	})
	tally(t, "%d crashes in %d lives, each followed by a start that lost nothing", total, lives)
}

// raceCalls: of the calls of a life one in so many crashes in make race. The start that follows
// is what takes long there; make crash crashes at each call.
const raceCalls = 11

// crashWorld lives through some lives of a store and returns how many crashes
// and lives there were.
func crashWorld(t *testing.T, seed uint64) (crashes, lives int) {
	w := newWorld(t, seed)
	disk := crashfs.New()
	fault := func(err error) {
		t.Errorf("%v\nagain: %s", err, replay(t, seed))
	}
	// Checks run beside the world that goes on, a few at a time.
	type crash struct {
		disk *crashfs.Disk
		know knowledge
		what string
	}
	pending := make(chan crash, 4)
	var checkers sync.WaitGroup
	for range 2 {
		checkers.Go(func() {
			for c := range pending {
				if t.Failed() {
					continue
				}
				if _, err := w.survive(c.disk, &c.know); err != nil {
					fault(fmt.Errorf("crash before %s: %w", c.what, err))
				}
			}
		})
	}
	var look func() // reads all that can be seen one-sidedly
	w.atCall = func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() != errorfs.OpIsWrite || op.Kind == errorfs.OpFileClose || op.Kind == errorfs.OpLock {
			return nil
		}
		w.mu.Lock()
		if look != nil {
			look()
		}
		if w.calls++; underRace && testing.Short() && w.calls%raceCalls != 0 {
			w.mu.Unlock()
			return nil
		}
		c := crash{what: fmt.Sprintf("call %d, %v of %s", w.calls, op.Kind, op.Path), know: w.know()}
		c.disk = disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: w.rng.IntN(101), RNG: rand.New(rand.NewPCG(w.rng.Uint64(), 3))})
		w.mu.Unlock()
		pending <- c
		return nil
	}
	end := 6
	if underRace {
		end = 2
	}
	for lives = 1; lives <= end && !t.Failed(); lives++ {
		s, err := Open(context.Background(), w.config(w.fs(disk)))
		if err != nil {
			fault(fmt.Errorf("life %d: %w", lives, err))
			break
		}
		n := &node{Store: s, t: t, heap: s.cfg.Memory.(*heapMemory), now: time.Now()}
		r := n.reader()
		w.mu.Lock()
		look = func() { w.lookAround(r) }
		w.mu.Unlock()
		w.live(n)
		w.mu.Lock()
		look = nil
		k := w.know()
		clone := disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: w.rng.IntN(101), RNG: rand.New(rand.NewPCG(w.rng.Uint64(), 3))})
		w.mu.Unlock()
		if err := s.Close(); err != nil {
			fault(err)
			break
		}
		if lives%2 == 0 { // else the next start is one after a clean stop
			// The check opens the disk, and would leave it cleanly stopped.
			states, err := w.survive(clone.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))}), &k)
			if err != nil {
				fault(err)
				break
			}
			w.adopt(states)
			w.mu.Lock()
			disk = clone
			w.mu.Unlock()
		}
	}
	close(pending)
	checkers.Wait()
	return w.calls, lives - 1
}

// lookAround reads every key as a client does that has no time to ask. Caller
// holds mu.
func (w *world) lookAround(r *reader) {
	for i := range w.keys {
		h := &w.keys[i]
		_, value, found, ask := r.get(h.shard, h.key)
		if ask {
			continue
		}
		n, err := h.state(h.told, value, found)
		if err != nil {
			w.t.Errorf("one-sided read of %s: %v", h.key, err)
			return
		}
		h.told = max(h.told, n)
	}
}

// live uses a store: writers with several writes in flight, readers by SEND,
// a flush, a compaction.
func (w *world) live(n *node) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	rounds := 10
	var wg sync.WaitGroup
	for id := range 2 {
		rng := w.random()
		wg.Go(func() { // a writer, with keys of its own
			for range rounds {
				var waits []func() error
				for range 1 + rng.IntN(4) {
					waits = append(waits, w.submit(n.Store, 2*rng.IntN(worldKeys/2)+id, rng.IntN(4) == 0))
				}
				for _, wait := range waits {
					if err := wait(); err != nil {
						w.t.Errorf("write: %v", err)
					}
				}
			}
		})
	}
	var readers sync.WaitGroup
	rng := w.random()
	readers.Go(func() { // who asks by SEND
		for ctx.Err() == nil {
			w.ask(ctx, n.Store, rng.IntN(worldKeys))
			if rng.IntN(8) == 0 {
				w.scan(ctx, n.Store)
			}
		}
	})
	wg.Wait()
	cancel()
	readers.Wait()
	n.checkpoint()
	if err := n.disk.ForTests().DB().Flush(); err != nil {
		w.t.Error(err)
	}
	n.disk.Heartbeat()
	for i := range 3 {
		if err := w.submit(n.Store, i, i == 1)(); err != nil {
			w.t.Error(err)
		}
	}
	if err := n.disk.ForTests().DB().Compact(context.Background(), []byte{0}, []byte{0xff, 0xff, 0xff}, false); err != nil {
		w.t.Error(err)
	}
	for i := range 3 {
		if err := w.submit(n.Store, 3+i, false)(); err != nil {
			w.t.Error(err)
		}
	}
}

// ask reads one key by SEND.
func (w *world) ask(ctx context.Context, s *Store, i int) {
	h, from := &w.keys[i], w.certain(i)
	got, err := s.Get(ctx, uint16(h.shard), []byte(h.key), nil)
	switch {
	case err == nil:
		w.saw(i, from, string(got.Data), true)
	case errors.Is(err, ErrNotFound):
		w.saw(i, from, "", false)
	case ctx.Err() == nil:
		w.t.Errorf("get of %s: %v", h.key, err)
	}
}

// scan reads all keys by SEND.
func (w *world) scan(ctx context.Context, s *Store) {
	page, err := s.Scan(ctx, ScanRequest{})
	if err != nil {
		if ctx.Err() == nil {
			w.t.Errorf("scan: %v", err)
		}
		return
	}
	for _, e := range page.Entries {
		for i := range w.keys {
			if w.keys[i].key == string(e.Key) {
				w.saw(i, 0, string(e.Value), true)
			}
		}
	}
}
