package ckpt

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/checkpoint"
	"github.com/rdmakv/rdmakv/store/internal/clock"
	"github.com/rdmakv/rdmakv/store/internal/dirty"
	"github.com/rdmakv/rdmakv/store/internal/disk"
	"github.com/rdmakv/rdmakv/store/internal/flight"
	"github.com/rdmakv/rdmakv/store/internal/logged"
	"github.com/rdmakv/rdmakv/store/internal/shard"
	"github.com/rdmakv/rdmakv/store/internal/sketch"
	"github.com/rdmakv/rdmakv/store/internal/tables"
	"github.com/rdmakv/rdmakv/store/layout"
	"github.com/rdmakv/rdmakv/store/log"
	"github.com/rdmakv/rdmakv/store/log/logtest"
	"github.com/rdmakv/rdmakv/store/reclaim"
	"github.com/rdmakv/rdmakv/store/region"
	"github.com/rdmakv/rdmakv/store/slab"
)

const (
	shards  = 3
	stream  = 1
	segment = 1 << 20
	bound   = 8 * segment
)

var seedFlag = flag.Uint64("seed", 0, "the seed of the world to live through; 0: a new one")

// seeded returns a generator, and has its seed named if the test fails.
func seeded(t *testing.T) *rand.Rand {
	seed := rand.Uint64()
	if *seedFlag != 0 {
		seed = *seedFlag
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("again: go test ./store/internal/ckpt -run '^%s$' -seed %d", t.Name(), seed)
		}
	})
	return rand.New(rand.NewPCG(seed, 1))
}

// A rig is a log, a base, shards, and a keeper over them.
type rig struct {
	*Keeper
	t      testing.TB
	dir    *logtest.Disk
	log    *log.Log
	db     *pebble.DB
	fs     vfs.FS
	opts   *pebble.Options
	shards []*shard.Shard
	life   *base.Life
	fenced atomic.Pointer[error]
	next   layout.Version

	// publishing is held while a frame is published.
	publishing sync.Mutex
	// At every moment under publishing: of each key of each shard the newest version that is
	// published; 0: it is deleted.
	model map[string]layout.Version

	// begin is called when a round begins its ingest, and says how it fails.
	begin func() error
	rate  []int64 // of the ingests
}

// newRig makes an empty world. change may alter what the keeper is told.
func newRig(t testing.TB, change func(*Config)) *rig {
	t.Helper()
	r := &rig{t: t, fs: vfs.NewMem(), next: layout.MakeVersion(1, 1), model: map[string]layout.Version{}}
	r.dir = logtest.New(logtest.Options{})
	r.openLog(0)
	var err error
	r.opts = &pebble.Options{FS: r.fs, FormatMajorVersion: pebble.FormatNewest}
	tables.Options(r.opts)
	if r.db, err = pebble.Open("base", r.opts); err != nil {
		t.Fatal(err)
	}
	fence := base.NewFence(slog.New(slog.DiscardHandler), func(err error) { r.fenced.Store(&err) })
	r.life = base.NewLife(fence)
	r.shards = newShards(t, fence)
	c := Config{
		Log: r.log, Stream: stream, Shards: r.shards, Base: r, Facts: map[uint16]string{1: "clock"}, Epoch: func() uint64 { return 1 },
		LogBytes: bound, Segment: segment, Life: r.life,
	}
	if change != nil {
		change(&c)
	}
	r.Keeper = New(c)
	t.Cleanup(func() {
		r.life.End()
		<-r.life.Done()
		if err := errors.Join(r.db.Close(), r.log.Close(false)); err != nil && r.log.Err() == nil {
			t.Error(err)
		}
	})
	return r
}

// openLog begins a life of the log, behind what the base has.
func (r *rig) openLog(from log.Position) {
	r.t.Helper()
	var err error
	r.log, err = log.Open(log.Config{
		Dir: r.dir, Store: [16]byte{1}, Create: from == 0, SegmentSize: segment, MaxFrame: 128 << 10, MaxBytes: bound, Sync: log.Off, From: from,
	})
	if err == nil {
		err = errors.Join(r.log.Replay(nil), r.log.Start(r.log.Found().Epoch+1))
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// newShards makes shards that know no keys.
func newShards(t testing.TB, fence *base.Fence) (list []*shard.Shard) {
	m := &shard.Memory{
		Incarnation: 7, Seed: 9, Shards: shards, Fence: fence, Counts: new(base.Counters), Sketch: sketch.New(1 << 20),
		Clock: clock.New(func() (time.Time, time.Duration) { return time.Unix(1_800_000_000, 0), 0 }, 0),
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
	for i := range shards {
		sh, err := shard.New(uint16(i), m, layout.MakeVersion(1, 1)-1, false)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, sh)
	}
	t.Cleanup(func() {
		if err := m.Table.Close(); err != nil {
			t.Error(err)
		}
	})
	return list
}

// Tables is Base.
func (r *rig) Tables(ctx context.Context, rate int64) (*tables.Tables, error) {
	r.rate = append(r.rate, rate)
	if r.begin != nil {
		if err := r.begin(); err != nil {
			return nil, err
		}
	}
	return tables.Begin(ctx, r.db, tables.Config{FS: r.fs, Options: r.opts, Dir: "way", Rate: rate, Down: r.life.Fence.Down})
}

// Values is Base.
func (r *rig) Values() (*disk.ValueWalk, error) { return disk.NewValueWalk(r.db) }

// A write is what a test has written.
type write struct {
	shard   uint16
	key     string
	version layout.Version
	gone    bool
	expiry  uint64
}

func (w *write) name() string { return fmt.Sprint(w.shard, w.key) }

// valueOf is the value of a version: it says which it is.
func valueOf(v layout.Version, n int) []byte {
	return binary.BigEndian.AppendUint64(make([]byte, 0, n+8), uint64(v))[:max(8, n)]
}

// write writes one frame, and publishes it.
func (r *rig) write(size int, writes ...write) {
	r.t.Helper()
	f := r.log.Begin()
	flights := make([]*flight.Flight, len(writes))
	offsets := make([]int, len(writes))
	for i := range writes {
		w := &writes[i]
		e := &flight.Effect{Effect: base.Effect{Shard: w.shard, Key: []byte(w.key), Expiry: w.expiry}, Hash: layout.HashKey(9, []byte(w.key))}
		if w.gone {
			e.Kind = base.OpDelete
		} else {
			e.Value = valueOf(r.next, size)
		}
		fl := &flight.Flight{Shard: w.shard, Effects: []*flight.Effect{e}}
		r.next = fl.Number(r.next)
		w.version, flights[i], offsets[i] = fl.Version, fl, f.Bytes()
		b, err := f.Add(&log.Record{Kind: log.Write, Stream: stream}, logged.Size(fl))
		if err != nil {
			r.t.Fatal(err)
		}
		logged.Put(b, fl)
	}
	if err := errors.Join(f.Seal(), f.Write(), f.Turn()); err != nil {
		r.t.Fatal(err)
	}
	r.publishing.Lock()
	for i, fl := range flights {
		r.publish(&writes[i], fl.Effects[0], f.PositionOf(offsets[i]))
	}
	r.publishing.Unlock()
	f.Pass()
}

// publish notes a write in its set, and in the model.
func (r *rig) publish(w *write, e *flight.Effect, at log.Position) {
	sh := r.shards[w.shard]
	sh.Mu.Lock()
	sh.Dirty.Note(e.Hash, e.Key, dirty.Entry{Version: w.version, Gone: w.gone, At: at})
	sh.Mu.Unlock()
	r.model[w.name()] = w.version
	if w.gone {
		r.model[w.name()] = 0
	}
}

// fill writes about so many bytes, of 1000 keys.
func (r *rig) fill(bytes int) {
	r.t.Helper()
	for n := 0; n < bytes; n += 64 << 10 {
		var frame []write
		for i := range 16 {
			frame = append(frame, write{shard: uint16(i % shards), key: fmt.Sprint("fill-", (n>>12+i)%1000)})
		}
		r.write(4<<10, frame...)
	}
}

// read returns the newest version of a key, as a get does: 0, if there is none.
func (r *rig) read(shard uint16, key string) (layout.Version, error) {
	sh := r.shards[shard]
	sh.Mu.Lock()
	e, found := sh.Dirty.Find(layout.HashKey(9, []byte(key)), []byte(key))
	if !found {
		sh.Mu.Unlock()
		return readBase(r.db, shard, []byte(key))
	}
	release, err := r.Hold()
	sh.Mu.Unlock()
	if err != nil {
		return 0, fmt.Errorf("hold: %w", err)
	}
	defer release()
	return r.entry(e)
}

// entry reads what stands behind an entry of a set.
func (r *rig) entry(e dirty.Entry) (layout.Version, error) {
	rec, err := r.log.ReadAt(e.At)
	if err != nil {
		return 0, fmt.Errorf("the record of an entry: %w", err)
	}
	w, err := logged.Parse(rec.Body)
	if err != nil || w.Version != e.Version {
		return 0, fmt.Errorf("the record of %v has %v: %w", e.Version, w.Version, err)
	}
	if e.Gone {
		return 0, nil
	}
	return e.Version, nil
}

// readBase returns the version that a base has of a key.
func readBase(db pebble.Reader, shard uint16, key []byte) (layout.Version, error) {
	pkey := disk.AppendKey(nil, shard, disk.KindData, key)
	b, done, err := db.Get(pkey)
	if errors.Is(err, pebble.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer done.Close()
	rec, _, _, err := disk.ParseNoted(b, pkey)
	if err != nil {
		return 0, err
	}
	return rec.Version, nil
}

// place reads the place that stands in the base.
func (r *rig) inBase() checkpoint.Place {
	r.t.Helper()
	b, done, err := r.db.Get(checkpoint.PositionKey())
	if errors.Is(err, pebble.ErrNotFound) {
		return checkpoint.Place{}
	}
	if err != nil {
		r.t.Fatal(err)
	}
	defer done.Close()
	p, err := checkpoint.ParsePlace(b)
	if err != nil {
		r.t.Fatal(err)
	}
	return p
}

// waitFor waits for something that is about to be.
func waitFor(t testing.TB, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !f(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within 30 s", what)
		}
	}
}
