package pipeline

import (
	"errors"
	"io"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/clock"
	"github.com/rdmakv/rdmakv/store/internal/dedup"
	"github.com/rdmakv/rdmakv/store/internal/flight"
	"github.com/rdmakv/rdmakv/store/internal/shard"
	"github.com/rdmakv/rdmakv/store/internal/sketch"
	"github.com/rdmakv/rdmakv/store/layout"
	"github.com/rdmakv/rdmakv/store/reclaim"
	"github.com/rdmakv/rdmakv/store/region"
	"github.com/rdmakv/rdmakv/store/slab"
)

// heap is registered memory that is not registered.
type heap struct{}

func (heap) Alloc(_ uint32, _ layout.RegionKind, size int) ([]byte, error) {
	return make([]byte, size), nil
}
func (heap) Free(uint32) error { return nil }

// An office orders writes of one shard whose disk is a map, in a test. Nothing is
// published until the test says so.
type office struct {
	*Orderer
	t       *testing.T
	sh      *shard.Shard
	disk    map[string]flight.KeyState
	reading func() // what happens while the disk is read
	short   error  // of Reserve
	mem     *shard.Memory
}

func newOffice(t *testing.T) *office {
	o := &office{t: t, disk: map[string]flight.KeyState{}}
	fence := base.NewFence(slog.New(slog.NewTextHandler(io.Discard, nil)), func(error) {})
	table, err := region.NewTable(region.Config{Memory: heap{}, Incarnation: 1, Shards: 1, Limit: 16 << 20})
	if err != nil {
		t.Fatal(err)
	}
	reclaimer := reclaim.New(table, time.Second)
	o.mem = &shard.Memory{
		Incarnation: 1, Shards: 1, Backed: true, Table: table, Reclaim: reclaimer, Slabs: slab.New(table, reclaimer),
		Sketch: sketch.New(1 << 10), Fence: fence, Counts: new(base.Counters),
		Clock: clock.New(func() (time.Time, time.Duration) { return time.UnixMicro(1_000_000), 0 }, 0),
	}
	if o.sh, err = shard.New(0, o.mem, 0, false); err != nil {
		t.Fatal(err)
	}
	pipe := New(Env{}, Limits{Bytes: 1 << 20}, fence, 1, 1<<40) // not started: what is ordered stays queued
	o.Orderer = NewOrderer(pipe, OrderEnv{
		Memory: o.mem, Results: dedup.New(100),
		Reserve: func(size int, wait bool) (layout.Place, uint8, error) {
			if o.short != nil {
				return 0, 0, o.short
			}
			return o.mem.Slabs.Alloc(size)
		},
		Read: func(_ *shard.Shard, key []byte, _ bool) (flight.KeyState, error) {
			if !o.sh.Mu.TryLock() {
				t.Error("the disk is read under the shard's lock")
			} else {
				o.sh.Mu.Unlock()
			}
			state := o.disk[string(key)]
			if o.reading != nil {
				o.reading()
			}
			return state, nil
		},
	})
	t.Cleanup(func() { table.Close() })
	return o
}

// order orders an operation; wait says for what it may.
func (o *office) order(op base.Op, wait Wait) (*flight.Flight, error) {
	f := &flight.Flight{Op: &op, Result: &base.Result{}, Done: func(*flight.Flight) {}, Charge: 1 << 10}
	return f, o.Order(o.sh, f, wait)
}

func (o *office) must(op base.Op) *flight.Flight {
	o.t.Helper()
	f, err := o.order(op, Wait{Disk: true, Memory: true})
	if err != nil {
		o.t.Fatal(err)
	}
	return f
}

// live returns how many places are in use.
func (o *office) live() uint64 { return o.mem.Slabs.Stats().Live }

// TestOrderOnFlight: an increment is judged on the one in flight before it. Only the
// first has to ask the disk: once for the size of what it will need, and once more when
// it has memory for that.
func TestOrderOnFlight(t *testing.T) {
	o := newOffice(t)
	o.disk["n"] = flight.KeyState{Exists: true, Version: 1, Value: []byte("40"), Owned: true}
	reads := 0
	o.reading = func() { reads++ }
	add := base.Op{Key: []byte("n"), Kind: base.OpIncrement, Delta: 1}
	for want := int64(41); want < 44; want++ {
		if f := o.must(add); f.Result.Number != want {
			t.Errorf("%d, want %d", f.Result.Number, want)
		}
	}
	if reads != 2 {
		t.Errorf("the disk was read %d times", reads)
	}
	if m := o.sh.Marks(); m.Ordered != 3 || m.Published != 0 || m.Flying != 1 {
		t.Errorf("%+v", m)
	}
}

// TestOrderOvertaken: a write that is ordered while the disk is read is what counts.
func TestOrderOvertaken(t *testing.T) {
	o := newOffice(t)
	var once sync.Once
	o.reading = func() {
		once.Do(func() { o.must(base.Op{Key: []byte("k"), Value: []byte("overtaking")}) })
	}
	f := o.must(base.Op{Key: []byte("k"), Value: []byte("v"), If: base.CondAbsent})
	if !errors.Is(f.Result.Err, base.ErrCondition) || f.Result.Actual != 1 {
		t.Errorf("%+v", *f.Result)
	}
}

// TestOrderRefused: an error orders nothing and keeps no memory.
func TestOrderRefused(t *testing.T) {
	o := newOffice(t)
	touch := base.Op{Key: []byte("k"), Kind: base.OpTouch, TTL: time.Hour}
	cond := base.Op{Key: []byte("k"), Value: []byte("v"), If: base.CondAbsent}
	if _, err := o.order(cond, Wait{Memory: true}); !errors.Is(err, base.ErrMustAsk) {
		t.Errorf("without leave to read the disk: %v", err)
	}
	o.disk["k"] = flight.KeyState{Exists: true, Version: 1, Value: make([]byte, 2<<10), Owned: true}
	if f, err := o.order(touch, Wait{Disk: true, Memory: true}); err != ErrCharge || f.Charge != 1+2<<10 {
		t.Errorf("a touch of more than was admitted: %v, charge %d", err, f.Charge)
	}
	o.short = base.ErrGrowing
	if _, err := o.order(cond, Wait{Disk: true}); !errors.Is(err, base.ErrGrowing) {
		t.Errorf("without leave to wait for memory: %v", err)
	}
	o.short = nil
	o.pipe.(*Pipeline).Close()
	if _, err := o.order(cond, Wait{Disk: true, Memory: true}); !errors.Is(err, base.ErrClosed) {
		t.Errorf("behind Close: %v", err)
	}
	if m := o.sh.Marks(); m.Ordered != 0 || m.Flying != 0 || o.live() != 0 {
		t.Errorf("%+v, %d places in use", m, o.live())
	}
}

// TestAgreedExpiryHidesNothing: where all replicas agree on what has expired, a touch that is ordered leaves the item
// as it is for readers, because it may never take effect.
func TestAgreedExpiryHidesNothing(t *testing.T) {
	for _, agreed := range []bool{false, true} {
		o := newOffice(t)
		o.sh.Agreed.Store(agreed)
		put, err := o.order(base.Op{Key: []byte("k"), Value: []byte("v"), TTL: time.Hour}, Wait{Disk: true, Memory: true})
		if err != nil {
			t.Fatal(err)
		}
		o.sh.Publish(put, o.env.Results)
		if _, err := o.order(base.Op{Kind: base.OpTouch, Key: []byte("k"), TTL: 2 * time.Hour}, Wait{Disk: true, Memory: true}); err != nil {
			t.Fatal(err)
		}
		o.sh.Mu.Lock()
		_, shown := o.sh.Resident(layout.HashKey(o.mem.Seed, []byte("k")), []byte("k"))
		o.sh.Mu.Unlock()
		if shown != agreed {
			t.Errorf("agreed %v: the item is shown: %v", agreed, shown)
		}
	}
}
