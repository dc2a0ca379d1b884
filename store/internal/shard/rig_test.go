package shard

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/clock"
	"github.com/rdmakv/rdmakv/store/internal/dedup"
	"github.com/rdmakv/rdmakv/store/internal/flight"
	"github.com/rdmakv/rdmakv/store/internal/sketch"
	"github.com/rdmakv/rdmakv/store/layout"
	"github.com/rdmakv/rdmakv/store/reclaim"
	"github.com/rdmakv/rdmakv/store/region"
	"github.com/rdmakv/rdmakv/store/slab"
)

const testLease = 20 * time.Millisecond

// A rig is one shard with memory on the heap, a disk that is a map, and times that the
// test moves: the server's, by which keys expire, and that of leases.
type rig struct {
	*Shard
	t       testing.TB
	mem     *Memory
	results *dedup.Table
	next    layout.Version
	full    bool // there is no memory for what is ordered

	disk map[string]flight.KeyState // what Pebble has of each key
	asks int                        // how often it was asked
	// during is called while Pebble is asked, behind its look, with no lock held.
	during func()

	wall  time.Time
	lease time.Time
}

// newRig returns an empty shard, filled. backed: there is a disk.
func newRig(t testing.TB, backed bool) *rig {
	t.Helper()
	r := &rig{t: t, next: layout.MakeVersion(1, 1), disk: make(map[string]flight.KeyState),
		wall: time.Unix(1_800_000_000, 0), lease: time.Now(), results: dedup.New(1 << 10)}
	start := r.wall
	m := &Memory{
		Incarnation: 7, Seed: 9, Shards: 1, Backed: backed,
		Clock:  clock.New(func() (time.Time, time.Duration) { return r.wall, r.wall.Sub(start) }, 0),
		Fence:  base.NewFence(slog.New(slog.DiscardHandler), func(err error) { t.Errorf("fenced: %v", err) }),
		Counts: new(base.Counters), Sketch: sketch.New(1 << 20),
	}
	var err error
	m.Table, err = region.NewTable(region.Config{
		Memory: &region.HeapMemory{}, Incarnation: m.Incarnation, Seed: m.Seed, Shards: 1,
		RegionSize: 2 << 20, IndexRegionSize: 1 << 20, Limit: 16 << 20,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Table.Close(); err != nil {
			t.Error(err)
		}
	})
	m.Reclaim = reclaim.New(m.Table, testLease)
	m.Slabs = slab.New(m.Table, m.Reclaim)
	r.mem = m
	if r.Shard, err = New(0, m, r.next-1, false); err != nil {
		t.Fatal(err)
	}
	r.SetFull(0)
	r.pass()
	return r
}

// pass lets a lease pass: what waits for one is done.
func (r *rig) pass() {
	for range 3 {
		r.lease = r.lease.Add(time.Minute)
		r.mem.Reclaim.Tick(r.lease)
	}
}

func (r *rig) hash(key string) layout.Hash { return layout.HashKey(r.mem.Seed, []byte(key)) }

// ask is the disk.
func (r *rig) ask(_ *Shard, key []byte, value bool) (flight.KeyState, error) {
	r.asks++
	state := r.disk[string(key)]
	if !value {
		state.Value = nil
	}
	if r.during != nil {
		f := r.during
		r.during = nil
		f()
	}
	return state, nil
}

// order gives an operation its place in the order, as the pipeline does.
func (r *rig) order(op base.Op) *flight.Flight {
	r.t.Helper()
	f := &flight.Flight{Op: &op, Result: new(base.Result)}
	f.Reset(r.mem.Seed)
	if err := r.LockEffects(f.Effects, r.ask); err != nil {
		r.t.Fatal(err)
	}
	defer r.Mu.Unlock()
	f.Evaluate(r.mem.Clock)
	if !r.Hide(f) {
		r.t.Fatal("a key expired between two looks at a clock that stands")
	}
	for _, e := range f.Effects {
		if e.Puts() {
			if !r.full {
				e.Place, e.Class = r.alloc(e.ItemSize())
			}
			e.Value = append([]byte(nil), e.Value...)
		}
	}
	r.next = f.Number(r.next)
	r.NoteOrdered(f)
	return f
}

func (r *rig) alloc(size int) (layout.Place, uint8) {
	r.t.Helper()
	place, class, err := r.mem.Slabs.Alloc(size)
	if err != nil {
		r.t.Fatal(err)
	}
	return place, class
}

// publish makes a write durable and visible.
func (r *rig) publish(f *flight.Flight) *flight.Flight {
	for _, e := range f.Effects {
		switch {
		case e.Noop:
		case e.Removes():
			delete(r.disk, string(e.Key))
		default:
			r.disk[string(e.Key)] = flight.KeyState{Exists: true, Version: e.Version, Expiry: e.Expiry, Value: e.Value, Owned: true}
		}
	}
	r.Publish(f, r.results)
	return f
}

func put(key, value string) base.Op { return base.Op{Key: []byte(key), Value: []byte(value)} }
func del(key string) base.Op        { return base.Op{Key: []byte(key), Kind: base.OpDelete} }

// do orders and publishes an operation.
func (r *rig) do(op base.Op) *flight.Flight { r.t.Helper(); return r.publish(r.order(op)) }

// locate is what a read finds in memory.
func (r *rig) locate(key string) (value string, where Location) {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	it, where := r.Locate(r.hash(key), []byte(key))
	if where == InMemory {
		value = string(it.InPlace())
	}
	return value, where
}

// want compares what a read finds in memory with what it should.
func (r *rig) want(key, value string, where Location) {
	r.t.Helper()
	if v, w := r.locate(key); v != value || w != where {
		r.t.Errorf("%s is %q at %d; want %q at %d", key, v, w, value, where)
	}
}

// slot is the slot of a key's item.
func (r *rig) slot(key string) layout.Slot {
	r.t.Helper()
	r.Mu.Lock()
	defer r.Mu.Unlock()
	if _, ok := r.Find(r.hash(key), []byte(key)); !ok {
		r.t.Fatalf("%s has no slot", key)
	}
	return r.hit
}

// state is that of the item at the place of a slot.
func (r *rig) state(slot layout.Slot) layout.State {
	_, state := layout.LoadState(r.mem.Table.Bytes(slot.Place(), layout.ItemHeaderSize))
	return state
}

// victim describes a key's item.
func (r *rig) victim(key string) *Victim {
	slot := r.slot(key)
	it, ok := layout.PeekItem(r.mem.Table.Bytes(slot.Place(), layout.ClassSize(slot.Class())), nil)
	if !ok {
		r.t.Fatalf("no item of %s", key)
	}
	v := r.mem.Candidate(slot.Place(), slot.Class(), it)
	v.Key = []byte(key)
	return &v
}

// ended returns a context that is over.
func ended(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}
