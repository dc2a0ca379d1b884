package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/store/layout"
)

// TestConcurrent lets writers, deleters, one-sided readers, readers by SEND,
// holders and a scanner loose on few keys and little memory. No reader may see
// a key go back in its order, by whatever way it reads; at the end the store
// holds what the last writes said.
func TestConcurrent(t *testing.T) {
	c := testConfig(memFS())
	c.MemoryLimit, c.RegionSize = 6<<20, 1<<20
	n := open(t, c)
	const keys, writers, readers = 24, 4, 4
	rounds := 150
	if testing.Short() {
		rounds = 40
	}
	ctx, cancel := context.WithCancel(t.Context())
	var beats, work sync.WaitGroup
	var leases sync.RWMutex // what is held may be given to others when a lease is over
	beats.Go(func() {
		for ctx.Err() == nil {
			leases.Lock()
			n.lease()
			leases.Unlock()
			time.Sleep(time.Millisecond)
		}
	})
	var final [keys]atomic.Pointer[Write] // newest write of each key; one writer per key
	for id := range writers {
		work.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(id), 5))
			for range rounds {
				i := id + writers*rng.IntN(keys/writers)
				w := &Write{Op: Op{Shard: uint16(i % 4), Key: fmt.Appendf(nil, "key-%d", i), Kind: deleteIf(rng.IntN(5) == 0)}}
				if w.Kind != OpDelete {
					size := 200
					if rng.IntN(10) == 0 {
						size = 200_000
					}
					w.Value = []byte(pattern(rng.IntN(size), fmt.Sprint(rng.Uint64())))
				}
				done := make(chan struct{})
				w.Done = func(*Write) { close(done) }
				err := n.Submit(w)
				for ; errors.Is(err, ErrOverloaded) && ctx.Err() == nil; err = n.Submit(w) {
					time.Sleep(time.Millisecond) // the log's next file is on its way
				}
				if err != nil {
					t.Error(err)
					return
				}
				final[i].Store(w)
				if rng.IntN(3) > 0 {
					<-done
				}
			}
		})
	}
	var reads, stop atomic.Int64
	var look sync.WaitGroup
	for id := range readers {
		look.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(id), 6))
			r := n.reader()
			var seen [keys]layout.Version
			for stop.Load() == 0 {
				i := rng.IntN(keys)
				key := fmt.Sprintf("key-%d", i)
				var v layout.Version
				var err error
				switch rng.IntN(8) {
				case 0:
					var got Value
					got, err = n.Get(ctx, uint16(i%4), []byte(key), nil)
					v = got.Version
				case 1:
					var info Info
					info, err = n.Stat(ctx, uint16(i%4), []byte(key))
					v = info.Version
				case 2:
					var h *Held
					leases.RLock()
					if h, err = n.Hold(ctx, uint16(i%4), []byte(key)); err == nil {
						v = h.Version
						it, perr := layout.ParseItem(r.read(h.Place, h.Size), n.Incarnation(), h.Place)
						if perr == nil && (it.Version != v || string(it.Key()) != key) {
							t.Errorf("held %q of %v at the place of %s of %v", it.Key(), it.Version, key, v)
						}
						h.Release()
					}
					leases.RUnlock()
				case 3:
					_, err = n.Scan(ctx, ScanRequest{Limit: 5, MaxBytes: 4096})
				default:
					v, _, _, err = r.getAny(ctx, i%4, key)
				}
				if err != nil && !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrOverloaded) {
					t.Errorf("%s: %v", key, err)
					return
				}
				if v != 0 && v < seen[i] {
					t.Errorf("%s went back from %v to %v", key, seen[i], v)
				}
				seen[i] = max(seen[i], v)
				reads.Add(1)
			}
		})
	}
	work.Wait()
	<-n.gateIdle()
	stop.Store(1)
	look.Wait()
	cancel()
	beats.Wait()
	for i := range final {
		w := final[i].Load()
		key := fmt.Sprintf("key-%d", i)
		switch {
		case w == nil || w.Kind == OpDelete:
			n.wantAbsent(i%4, key)
		default:
			n.want(i%4, key, string(w.Value))
		}
	}
	if st := n.Stats(); st.Damaged != 0 || st.Corrupt != 0 || st.Inflight != 0 || st.HeldBytes != 0 {
		t.Errorf("%+v", st)
	}
	t.Logf("%d reads", reads.Load())
}

// TestGrowth fills an index from empty, while readers read, and counts bytes.
func TestGrowth(t *testing.T) {
	c := testConfig(memFS())
	// Regions that last: where a busy machine is late with the next one, keys go
	// without a slot for a while, as they may.
	c.RegionSize, c.IndexRegionSize = 16<<20, 8<<20
	keys := 20_000
	if testing.Short() {
		keys = 4000
	}
	n := open(t, c)
	n.fill()
	var wg sync.WaitGroup
	var put atomic.Int64
	for range 2 {
		wg.Go(func() {
			r := n.reader()
			for {
				top := int(put.Load())
				if top == keys {
					return
				}
				if top == 0 {
					continue
				}
				i := rand.IntN(top)
				key := fmt.Sprintf("key-%d", i)
				if _, value, found, ask := r.get(i%4, key); !ask && (!found || value != key) {
					t.Errorf("one-sided get of %s: %q, %v", key, value, found)
					return
				}
			}
		})
	}
	done := make(chan struct{}, 64)
	for i := range keys {
		key := fmt.Appendf(nil, "key-%d", i)
		n.submit(&Write{Op: Op{Shard: uint16(i % 4), Key: key, Value: key}, Done: func(*Write) { done <- struct{}{} }})
		if i >= 50 {
			<-done
			put.Store(int64(i - 50)) // in order: those before are published
		}
	}
	for range 50 {
		<-done
	}
	put.Store(int64(keys))
	wg.Wait()
	n.lease()
	r := n.reader()
	for i := range keys { // whatever the counts below say, no key is missed
		key := fmt.Sprintf("key-%d", i)
		if _, value, found, ask := r.get(i%4, key); !ask && (!found || value != key) {
			t.Errorf("one-sided get of %s afterwards: %q, %v", key, value, found)
		}
	}
	st := n.Stats()
	if st.Keys != uint64(keys) || st.Slotless != 0 {
		t.Errorf("%d keys with a slot, %d without; want %d, 0", st.Keys, st.Slotless, keys)
	}
	t.Logf("%.1f index bytes per key, %d regions", float64(st.IndexBytes)/float64(keys), st.Regions)
}

// TestDeleteJudged: what a delete is told about the key's existence, when only
// Pebble knows it and writes of the key are on their way.
func TestDeleteJudged(t *testing.T) {
	c := testConfig(memFS())
	c.Memory.(*heapMemory).limit = 1 << 20 // no slots: Pebble has to be asked
	n := open(t, c)
	n.fill()
	var order []*Write
	done := make(chan *Write, 16)
	submit := func(del bool) {
		w := &Write{Op: Op{Key: []byte("k"), Kind: deleteIf(del)}, Done: func(w *Write) { done <- w }}
		if err := n.Submit(w); err != nil {
			t.Fatal(err)
		}
		order = append(order, w)
	}
	n.put(0, "k", "v")
	n.put(0, "k2", "same bucket, perhaps")
	submit(true)  // existed
	submit(true)  // no more
	submit(false) //
	submit(true)  // again
	submit(false)
	n.put(0, "k", "v")
	submit(true)
	for range order {
		<-done
	}
	var got []bool
	for _, w := range order {
		if w.Kind == OpDelete {
			got = append(got, w.Existed)
		}
	}
	want := []bool{true, false, true, true}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("existed: %v, want %v", got, want)
	}
	n.wantAbsent(0, "k")
}

// TestProbeTold: while a delete asks Pebble, others write the key. The delete
// is judged on what they leave.
func TestProbeTold(t *testing.T) {
	for _, tc := range []struct {
		name    string
		writes  []bool // deletes
		existed bool
	}{
		{"put", []bool{false}, true},
		{"put, delete", []bool{false, true}, false},
		{"nothing", nil, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := testConfig(memFS())
			c.Memory.(*heapMemory).limit = 1 << 20
			n := open(t, c)
			n.fill()
			n.put(0, "other", "v") // makes the index doubt
			sh, h := n.shard(0), n.hash("k")
			sh.Mu.Lock()
			p := sh.AddProbe(h, []byte("k"))
			sh.Mu.Unlock()
			for _, del := range tc.writes {
				if del {
					n.del(0, "k")
				} else {
					n.put(0, "k", "v")
				}
			}
			sh.Mu.Lock()
			sh.DropProbe(p)
			sh.Mu.Unlock()
			if state, told := p.Heard(); told != (len(tc.writes) > 0) || state.Exists != tc.existed {
				t.Errorf("told %v, state %+v", told, state)
			}
		})
	}
}

// TestSubmitRefuses is the table of writes that are no good.
func TestSubmitRefuses(t *testing.T) {
	n := open(t, testConfig(memFS()))
	for _, tc := range []struct {
		name string
		w    Write
		want error
	}{
		{"no key", Write{}, ErrKeyEmpty},
		{"a long key", Write{Op: Op{Key: make([]byte, layout.MaxKeyLen+1)}}, ErrKeyTooLarge},
		{"a large value", Write{Op: Op{Key: []byte("k"), Value: make([]byte, layout.MaxValueLen+1)}}, ErrTooLarge},
		{"no such shard", Write{Op: Op{Key: []byte("k"), Shard: 4}}, ErrShard},
	} {
		tc.w.Done = func(*Write) { t.Errorf("%s: Done was called", tc.name) }
		if err := n.Submit(&tc.w); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", tc.name, err, tc.want)
		}
	}
	longest := strings.Repeat("k", layout.MaxKeyLen)
	n.put(1, longest, "v")
	n.want(1, longest, "v")
	for _, get := range []func(key []byte) error{
		func(key []byte) error { _, err := n.Get(t.Context(), 0, key, nil); return err },
		func(key []byte) error { _, err := n.Stat(t.Context(), 0, key); return err },
		func(key []byte) error { _, err := n.Hold(t.Context(), 0, key); return err },
		func(key []byte) error { _, err := n.Delete(t.Context(), 0, key); return err },
	} {
		if err := get(nil); !errors.Is(err, ErrKeyEmpty) {
			t.Error(err)
		}
		if err := get(make([]byte, layout.MaxKeyLen+1)); !errors.Is(err, ErrKeyTooLarge) {
			t.Error(err)
		}
	}
}

// TestOverload: Submit refuses beyond the bound, Put waits, and a Put whose
// context ends while it is under way says that it does not know.
func TestOverload(t *testing.T) {
	fs := newStalledFS()
	c := testConfig(fs)
	c.InflightWrites = 2
	n := open(t, c)
	release := fs.stall()
	defer release()
	acks := make(chan struct{}, 2)
	for range 2 {
		if err := n.Submit(&Write{Op: Op{Key: []byte("k")}, Done: func(*Write) { acks <- struct{}{} }}); err != nil {
			t.Fatal(err)
		}
	}
	if err := n.Submit(&Write{Op: Op{Key: []byte("k")}}); !errors.Is(err, ErrOverloaded) {
		t.Errorf("Submit at the bound: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := n.Put(ctx, 0, []byte("k"), nil); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrOutcomeUnknown) {
		t.Errorf("Put that never got in: %v", err)
	}
	put := make(chan error)
	go func() {
		_, err := n.Put(context.Background(), 0, []byte("k"), []byte("last"))
		put <- err
	}()
	release()
	if err := <-put; err != nil {
		t.Error(err)
	}
	<-acks
	<-acks
	n.want(0, "k", "last")

	release = fs.stall()
	defer release()
	ctx, cancel = context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := n.Put(ctx, 0, []byte("k"), []byte("who knows")); !errors.Is(err, ErrOutcomeUnknown) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Put whose context ended: %v", err)
	}
	release()
	<-n.gateIdle()
	n.want(0, "k", "who knows")
}

// TestCloseDrains: Close finishes and answers what was accepted.
func TestCloseDrains(t *testing.T) {
	fs := memFS()
	var acks, groups atomic.Int64
	c := testConfig(fs)
	c.OnCommit = func() { groups.Add(1) }
	n := open(t, c)
	for i := range 500 {
		n.submit(&Write{Op: Op{Key: fmt.Appendf(nil, "key-%d", i), Value: []byte("v")}, Done: func(*Write) { acks.Add(1) }})
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	if acks.Load() != 500 || groups.Load() == 0 {
		t.Errorf("%d acknowledged, %d groups", acks.Load(), groups.Load())
	}
	n = open(t, testConfig(fs))
	for i := range 500 {
		n.want(0, fmt.Sprintf("key-%d", i), "v")
	}
}
