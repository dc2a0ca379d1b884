package upkeep

import (
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/store/internal/admit"
	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/clock"
	"github.com/rdmakv/rdmakv/store/internal/dedup"
	"github.com/rdmakv/rdmakv/store/internal/flight"
	"github.com/rdmakv/rdmakv/store/internal/pipeline"
	"github.com/rdmakv/rdmakv/store/internal/shard"
	"github.com/rdmakv/rdmakv/store/internal/sketch"
	"github.com/rdmakv/rdmakv/store/layout"
	"github.com/rdmakv/rdmakv/store/log"
	"github.com/rdmakv/rdmakv/store/reclaim"
	"github.com/rdmakv/rdmakv/store/region"
	"github.com/rdmakv/rdmakv/store/slab"
)

// A rig is a cache of two shards and a pipeline that keeps nothing: what a write needs to
// be ordered and published, without a store around it.
type rig struct {
	Env
	t    *testing.T
	pipe *pipeline.Pipeline
	wall time.Time // the server's time; the test moves it while nothing is going on
	// held, if not nil, is where commits wait before they are published.
	held chan struct{}
	at   log.Position // of every record, if there is a log
}

func newRig(t *testing.T, writes int) *rig {
	t.Helper()
	r := &rig{t: t, wall: time.Unix(1_800_000_000, 0)}
	start := r.wall
	fence := base.NewFence(slog.New(slog.DiscardHandler), func(error) {})
	m := &shard.Memory{
		Incarnation: 7, Seed: 9, Shards: 2, Fence: fence, Counts: new(base.Counters), Sketch: sketch.New(1 << 20),
		Clock: clock.New(func() (time.Time, time.Duration) { return r.wall, r.wall.Sub(start) }, 0),
	}
	var err error
	m.Table, err = region.NewTable(region.Config{
		Memory: &region.HeapMemory{}, Incarnation: m.Incarnation, Seed: m.Seed, Shards: m.Shards,
		RegionSize: 2 << 20, IndexRegionSize: 1 << 20, Limit: 16 << 20,
	})
	if err != nil {
		t.Fatal(err)
	}
	m.Reclaim = reclaim.New(m.Table, time.Second)
	m.Slabs = slab.New(m.Table, m.Reclaim)
	r.Env = Env{Life: base.NewLife(fence), Memory: m, Gate: admit.NewGate(1<<20, writes)}
	first := layout.MakeVersion(1, 1)
	for i := range m.Shards {
		sh, err := shard.New(uint16(i), m, first-1, false)
		if err != nil {
			t.Fatal(err)
		}
		sh.SetFull(0)
		r.Shards = append(r.Shards, sh)
	}
	results := dedup.New(16)
	r.pipe = pipeline.New(pipeline.Env{
		Append: func(*pipeline.Commit) error { return nil },
		Sync: func(*pipeline.Commit) error {
			if r.held != nil {
				select {
				case <-r.held:
				case <-fence.Down:
				}
			}
			return fence.Failed()
		},
		Publish: func(c *pipeline.Commit) {
			for _, f := range c.Flights {
				f.At = r.at
				r.Shards[f.Shard].Publish(f, results)
			}
		},
		Done: func(c *pipeline.Commit) {
			r.Gate.Leave(c.Bytes, len(c.Flights))
			for _, f := range c.Flights {
				f.Done(f)
			}
		},
	}, pipeline.Limits{Bytes: 1 << 20}, fence, first, first+1<<30)
	r.Order = pipeline.NewOrderer(r.pipe, pipeline.OrderEnv{
		Memory: m, Results: results,
		Reserve: func(size int, _ bool) (layout.Place, uint8, error) { return m.Slabs.Alloc(size) },
		Read:    func(*shard.Shard, []byte, bool) (flight.KeyState, error) { return flight.KeyState{}, nil },
	}).Order
	r.pipe.Start(r.Life)
	t.Cleanup(func() {
		r.pipe.Close()
		r.Life.End()
		<-r.Life.Done()
		if err := m.Table.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// put puts keys with a time to live.
func (r *rig) put(ttl time.Duration, keys ...string) {
	r.t.Helper()
	for i, key := range keys {
		f := newWrite(base.Op{Shard: uint16(i % 2), Key: []byte(key), Value: []byte("value"), TTL: ttl})
		if err := r.run([]*flight.Flight{f}); err != nil {
			r.t.Fatal(err)
		}
	}
}

// items counts those in memory.
func (r *rig) items() (n uint64) {
	for _, sh := range r.Shards {
		_, items := sh.Counts()
		n += items
	}
	return n
}

func numbered(what string, n int) (keys []string) {
	for i := range n {
		keys = append(keys, fmt.Sprintf("%s-%03d", what, i))
	}
	return keys
}

// TestCacheExpirer: keys whose time is over lose their memory, and others do not.
func TestCacheExpirer(t *testing.T) {
	r := newRig(t, 1000)
	r.put(0, numbered("for ever", 20)...)
	r.put(10*time.Second, numbered("short", 20)...)
	r.put(100*time.Second, numbered("long", 20)...)
	x := &CacheExpirer{Env: r.Env}
	class, _ := r.Memory.Slabs.Class(layout.ItemSize(len("short-000"), len("value"), true))
	for _, step := range []struct {
		pass time.Duration
		left uint64
	}{{0, 60}, {50 * time.Second, 40}, {50 * time.Second, 20}, {time.Hour, 20}} {
		r.wall = r.wall.Add(step.pass)
		look := func() {
			for c := uint8(1); c <= class+1; c++ {
				x.removeSome(c)
			}
		}
		// What is drawn is chance: one of 60 may be missed 100 times, and not 100,000 times.
		for n := 0; r.items() > step.left && n < 100_000; n++ {
			look()
		}
		for range 50 {
			look() // nothing else goes
		}
		if n := r.items(); n != step.left {
			t.Errorf("%v later: %d items, want %d", step.pass, n, step.left)
		}
	}
	if bytes, writes := r.Gate.Inside(); bytes != 0 || writes != 0 {
		t.Errorf("%d bytes, %d writes are still admitted", bytes, writes)
	}
}

// TestExpiredWriteIsJudged: a delete for a key whose time was over does nothing to a key
// that was written since.
func TestExpiredWriteIsJudged(t *testing.T) {
	r := newRig(t, 1000)
	r.put(10*time.Second, "k")
	due := clock.Second(uint64(r.wall.Add(10 * time.Second).UnixMicro()))
	r.wall = r.wall.Add(time.Minute)
	r.put(0, "k")
	if err := r.run([]*flight.Flight{dueWrite(0, []byte("k"), due)}); err != nil || r.items() != 1 {
		t.Errorf("%v; %d items", err, r.items())
	}
	r.put(10*time.Second, "k")
	due = clock.Second(uint64(r.wall.Add(10 * time.Second).UnixMicro()))
	r.wall = r.wall.Add(time.Minute)
	if err := r.run([]*flight.Flight{dueWrite(0, []byte("k"), due)}); err != nil || r.items() != 0 {
		t.Errorf("%v; %d items behind the time of the last", err, r.items())
	}
}

// TestRunFullGate: writes of the store's own do not pass a full gate; those that were
// ordered before are waited for, and leave it.
func TestRunFullGate(t *testing.T) {
	r := newRig(t, 3)
	r.held = make(chan struct{})
	var writes []*flight.Flight
	for _, key := range numbered("k", 5) {
		writes = append(writes, newWrite(base.Op{Key: []byte(key), Value: []byte("v")}))
	}
	over := make(chan error, 1)
	go func() { over <- r.run(writes) }()
	for r.Shards[0].Marks().Flying < 3 {
		time.Sleep(time.Millisecond)
	}
	select {
	case err := <-over:
		t.Errorf("over before what was ordered is published: %v", err)
	default:
	}
	close(r.held)
	if err := <-over; !errors.Is(err, base.ErrOverloaded) || r.items() != 3 {
		t.Errorf("%v; %d items", err, r.items())
	}
	if bytes, n := r.Gate.Inside(); bytes != 0 || n != 0 {
		t.Errorf("%d bytes, %d writes are still admitted", bytes, n)
	}
}

// TestRunFenced: nobody waits for a write that a fenced store will never publish.
func TestRunFenced(t *testing.T) {
	r := newRig(t, 3)
	r.held = make(chan struct{})
	over := make(chan error, 1)
	go func() { over <- r.run([]*flight.Flight{newWrite(base.Op{Key: []byte("k"), Value: []byte("v")})}) }()
	for r.Shards[0].Marks().Flying == 0 {
		time.Sleep(time.Millisecond)
	}
	r.Life.Fence.Fail(errors.New("the disk is gone"))
	if err := <-over; !errors.Is(err, base.ErrFatal) {
		t.Error(err)
	}
}

// TestRunIsPatientForAWhile: a write of a group of replicas that does not get on is left to the order, and what is due elsewhere is done.
func TestRunIsPatientForAWhile(t *testing.T) {
	r := newRig(t, 10)
	r.Patience = time.Millisecond
	r.Shards[1].Agreed.Store(true)
	order := r.Order
	r.Order = func(sh *shard.Shard, f *flight.Flight, w pipeline.Wait) error {
		if sh.ID == 1 {
			return nil // it is under way, for ever
		}
		return order(sh, f, w)
	}
	stuck := newWrite(base.Op{Shard: 1, Key: []byte("stuck"), Value: []byte("v")})
	over := make(chan []*flight.Flight, 1)
	go func() {
		left, err := r.runSome([]*flight.Flight{stuck, newWrite(base.Op{Key: []byte("k"), Value: []byte("v")})})
		if !errors.Is(err, base.ErrOverloaded) {
			t.Errorf("what came of it: %v", err)
		}
		over <- left
	}()
	select {
	case left := <-over:
		if len(left) != 1 || left[0] != stuck || r.items() != 1 {
			t.Errorf("%d writes are left, and %d were done", len(left), r.items())
		}
	case <-time.After(20 * time.Second):
		t.Fatal("it waits for ever")
	}
}
