package residents

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/clock"
	"github.com/rdmakv/rdmakv/store/internal/dirty"
	"github.com/rdmakv/rdmakv/store/internal/flight"
	"github.com/rdmakv/rdmakv/store/internal/logged"
	"github.com/rdmakv/rdmakv/store/internal/newest"
	"github.com/rdmakv/rdmakv/store/internal/shard"
	"github.com/rdmakv/rdmakv/store/internal/sketch"
	"github.com/rdmakv/rdmakv/store/layout"
	"github.com/rdmakv/rdmakv/store/log"
	"github.com/rdmakv/rdmakv/store/reclaim"
	"github.com/rdmakv/rdmakv/store/region"
	"github.com/rdmakv/rdmakv/store/slab"
)

// A rig is one shard as a start finds it, and a log that is a list of records.
type rig struct {
	Env
	t       *testing.T
	sh      *shard.Shard
	records [][]byte
	last    layout.Version
	held    int
	during  func() // called before a record is read
}

func newRig(t *testing.T) *rig {
	r := &rig{t: t, last: 10}
	fence := base.NewFence(slog.New(slog.DiscardHandler), func(error) {})
	m := &shard.Memory{
		Incarnation: 7, Seed: 9, Shards: 1, Backed: true, Fence: fence, Counts: new(base.Counters), Sketch: sketch.New(1 << 20),
		Clock: clock.New(func() (time.Time, time.Duration) { return time.Unix(1_800_000_000, 0), 0 }, 0),
	}
	var err error
	m.Table, err = region.NewTable(region.Config{
		Memory: &region.HeapMemory{}, Incarnation: m.Incarnation, Seed: m.Seed, Shards: 1,
		RegionSize: 2 << 20, IndexRegionSize: 1 << 20, Limit: 16 << 20,
	})
	if err != nil {
		t.Fatal(err)
	}
	m.Reclaim = reclaim.New(m.Table, time.Millisecond)
	m.Slabs = slab.New(m.Table, m.Reclaim)
	if r.sh, err = shard.New(0, m, layout.MakeVersion(1, 1), false); err != nil {
		t.Fatal(err)
	}
	r.Env = Env{Memory: m, Shards: []*shard.Shard{r.sh}, Life: base.NewLife(fence),
		Newest: &newest.Reader{Log: r, Seed: m.Seed, Counts: m.Counts}}
	t.Cleanup(func() {
		if err := m.Table.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

func (r *rig) Hold() (func(), error) { r.held++; return func() { r.held-- }, nil }

func (r *rig) Near() func(at log.Position) (log.Record, error) { return r.ReadAt }

func (r *rig) ReadAt(at log.Position) (log.Record, error) {
	if r.held != 1 {
		r.t.Errorf("a record is read under %d holds", r.held)
	}
	if r.during != nil {
		r.during()
	}
	return log.Record{Kind: log.Write, Body: r.records[at-1]}, nil
}

// replay notes a write as a start finds it in the log.
func (r *rig) replay(kind base.Kind, key, value string) {
	r.last++
	op := base.Op{Kind: kind, Key: []byte(key), Value: []byte(value)}
	f := &flight.Flight{Op: &op, Result: new(base.Result)}
	f.Reset(r.Memory.Seed)
	f.Effects[0].State = flight.KeyState{Exists: true, Version: 1}
	f.Evaluate(r.Memory.Clock)
	f.Number(r.last)
	b := make([]byte, logged.Size(f))
	logged.Put(b, f)
	r.records = append(r.records, b)
	r.sh.Dirty.Note(layout.HashKey(r.Memory.Seed, op.Key), op.Key, dirty.Entry{
		Version: f.Effects[0].Version, Gone: kind == base.OpDelete, At: log.Position(len(r.records))})
}

// value is the value of a key's item; "": it has none.
func (r *rig) value(key string) string {
	r.sh.Mu.Lock()
	defer r.sh.Mu.Unlock()
	it, where := r.sh.Locate(layout.HashKey(r.Memory.Seed, []byte(key)), []byte(key))
	if where != shard.InMemory {
		return ""
	}
	return string(it.InPlace())
}

// filling returns a fill and a batch of its worker.
func (r *rig) filling() (*Fill, *fillBatch) {
	f := NewFill(r.Env, FillConfig{Workers: 1, Lease: time.Millisecond, Beat: time.Millisecond,
		Logger: slog.New(slog.DiscardHandler), Progress: func(Progress) {}}, time.Now())
	b := &fillBatch{f: f, sh: r.sh}
	r.t.Cleanup(func() { b.places.release(r.Memory.Slabs) })
	return f, b
}

// TestFillFromLog: the newest put of each key of the set comes in, what is deleted does not,
// and what cannot be read is counted; the log is held while it is read, and not longer.
func TestFillFromLog(t *testing.T) {
	r := newRig(t)
	const keys = 3*batchKeys + 7
	for i := range keys {
		r.replay(base.OpPut, fmt.Sprint("key", i), "old")
	}
	for i := range keys {
		if i%3 == 0 {
			r.replay(base.OpPut, fmt.Sprint("key", i), fmt.Sprint("new", i))
		}
		if i%3 == 1 {
			r.replay(base.OpDelete, fmt.Sprint("key", i), "")
		}
	}
	r.replay(base.OpPut, "damaged", "v")
	r.records[len(r.records)-1] = r.records[0]
	f, b := r.filling()
	if err := f.logged(b); err != nil {
		t.Fatal(err)
	}
	for i := range keys {
		want := [...]string{fmt.Sprint("new", i), "", "old"}[i%3]
		if v := r.value(fmt.Sprint("key", i)); v != want {
			t.Errorf("key%d is %q in memory, want %q", i, v, want)
		}
	}
	if ix, items := r.sh.Counts(); items != keys-(keys+1)/3 || r.held != 0 || r.Memory.Counts.Corrupt.Load() != 1 {
		t.Errorf("%d items, %d holds, %d damaged, %+v", items, r.held, r.Memory.Counts.Corrupt.Load(), ix)
	}
	if _, n, _, _ := f.Filled(); n != keys-(keys+1)/3+1 {
		t.Errorf("%d keys were read", n)
	}
}

// TestFillFromLogBesideCheckpoint: a key that leaves the set while the fill reads the log is
// left to the base, which is read later, and the fill ends.
func TestFillFromLogBesideCheckpoint(t *testing.T) {
	r := newRig(t)
	const keys = 2 * batchKeys
	for i := range keys {
		r.replay(base.OpPut, fmt.Sprint("key", i), "v")
	}
	reads := 0
	r.during = func() {
		if reads++; reads == batchKeys/2 {
			r.sh.Leave(r.last-batchKeys, 1<<20) // the first half
		}
	}
	f, b := r.filling()
	if err := f.logged(b); err != nil {
		t.Fatal(err)
	}
	if _, items := r.sh.Counts(); items != batchKeys || reads != keys {
		t.Errorf("%d items, %d reads", items, reads)
	}
}

// TestSweepMeetsNewer: behind the base's keys a pass meets those that were newer when it began.
func TestSweepMeetsNewer(t *testing.T) {
	for _, there := range []bool{true, false} {
		r := newRig(t)
		h := layout.HashKey(r.Memory.Seed, []byte("k"))
		for i := range 2 * SweepStep {
			r.replay(base.OpPut, fmt.Sprint("a", i), "v")
		}
		r.replay(base.OpPut, "k", "v")
		r.sh.SetFull(0)
		r.sh.Mu.Lock()
		ref, _ := r.sh.Index.Room(time.Now(), h)
		r.sh.Index.Set(ref, layout.PebbleSlot(h))
		r.sh.Trace(h)
		r.sh.Mu.Unlock()
		if !there {
			r.replay(base.OpDelete, "k", "")
		}
		sw := NewSweep(r.Env, nil)
		view, on := r.sh.BeginPass(1)
		if !on {
			t.Fatal("no pass")
		}
		sw.on, sw.based, sw.newer = true, true, view.Keys(nil, nil)
		for sw.on {
			if read, err := sw.step(SweepStep); err != nil || read > SweepStep {
				t.Fatal(read, err)
			}
		}
		if ix, _ := r.sh.Counts(); (ix.Pebble == 1) != there {
			t.Errorf("the key is there: %v; %d slots", there, ix.Pebble)
		}
	}
}
