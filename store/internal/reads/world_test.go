package reads

import (
	"bytes"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/clock"
	"github.com/rdmakv/rdmakv/store/internal/dedup"
	"github.com/rdmakv/rdmakv/store/internal/disk"
	"github.com/rdmakv/rdmakv/store/internal/flight"
	"github.com/rdmakv/rdmakv/store/internal/logged"
	"github.com/rdmakv/rdmakv/store/internal/newest"
	"github.com/rdmakv/rdmakv/store/internal/residents"
	"github.com/rdmakv/rdmakv/store/internal/shard"
	"github.com/rdmakv/rdmakv/store/internal/sketch"
	"github.com/rdmakv/rdmakv/store/layout"
	"github.com/rdmakv/rdmakv/store/log"
	"github.com/rdmakv/rdmakv/store/reclaim"
	"github.com/rdmakv/rdmakv/store/region"
	"github.com/rdmakv/rdmakv/store/slab"
)

// A world is shards with memory on the heap, a base that is a Pebble in memory, a log that
// is a map, and what the test does in place of the pipeline and of checkpoints: it orders,
// publishes, brings a range into the base, and has it leave the sets, a step at a time.
type world struct {
	testing.TB
	reads   *Reads
	mem     *shard.Memory
	shards  []*shard.Shard
	disk    *disk.Disk
	log     *mapLog
	results *dedup.Table

	publishing, leaving sync.Mutex // as newest.Moment has them

	next    layout.Version
	wall    time.Time
	full    bool             // there is no memory for what is ordered
	flying  []*flight.Flight // ordered, oldest first
	history []*flight.Flight // published, and not in the base
	brought layout.Version   // the base has all up to here
	state   map[string]record
}

// A record is what the model has of a key.
type record struct {
	shard   uint16
	version layout.Version
	value   string
	expiry  uint64
}

// mostBody is how many bytes a record of the log may have: values beyond go in pieces.
const mostBody = 150_000

// newWorld returns a world of some shards, filled, with a base on a file system.
func newWorld(t testing.TB, shards int, fs vfs.FS) *world {
	t.Helper()
	w := &world{TB: t, next: layout.MakeVersion(1, 1), wall: time.Unix(1_800_000_000, 0), results: dedup.New(1 << 10),
		log: &mapLog{bodies: make(map[log.Position][]byte), holds: make(map[int]log.Position), end: 1, place: 1}, state: make(map[string]record)}
	w.brought = w.next - 1
	start := w.wall
	fence := base.NewFence(slog.New(slog.DiscardHandler), func(err error) { t.Errorf("fenced: %v", err) })
	m := &shard.Memory{
		Incarnation: 7, Seed: 9, Shards: shards, Backed: true, Fence: fence, Counts: new(base.Counters), Sketch: sketch.New(1 << 20),
		Clock: clock.New(func() (time.Time, time.Duration) { return w.wall, w.wall.Sub(start) }, 0),
	}
	m.Clock.SetBound(1 << 62) // as in a store of which any key may expire
	var err error
	m.Table, err = region.NewTable(region.Config{
		Memory: &region.HeapMemory{}, Incarnation: m.Incarnation, Seed: m.Seed, Shards: shards,
		RegionSize: 4 << 20, IndexRegionSize: 1 << 20, Limit: 32 << 20,
	})
	w.fatal(err)
	m.Reclaim = reclaim.New(m.Table, 20*time.Millisecond)
	m.Slabs = slab.New(m.Table, m.Reclaim)
	w.mem = m
	for i := range shards {
		sh, err := shard.New(uint16(i), m, w.next-1, false)
		w.fatal(err)
		w.shards = append(w.shards, sh)
		sh.SetFull(0)
	}
	for i := range 3 { // what waits for a lease is done
		m.Reclaim.Tick(time.Now().Add(time.Duration(i+1) * time.Minute))
	}
	w.disk = disk.New(disk.Config{Dir: "store", FS: fs, Shards: shards, MinFreeBytes: -1}, fence, m.Counts)
	_, _, err = w.disk.Open()
	w.fatal(err)
	t.Cleanup(func() {
		if err := w.disk.ForTests().Drop(); err != nil {
			t.Error(err)
		}
		if err := m.Table.Close(); err != nil {
			t.Error(err)
		}
	})
	newer := &newest.Reader{Base: w.disk, Log: w.log, Seed: m.Seed, Counts: m.Counts}
	env := residents.Env{Memory: m, Shards: w.shards, Disk: w.disk, Life: base.NewLife(fence)}
	w.reads = New(Env{
		Door: base.NewDoor(fence), Memory: m, Shards: w.shards, Disk: w.disk, Evictor: residents.NewEvictor(env, 16<<20, time.Second),
		Ask: newer.Ask(), Newest: newer, Moment: w.moment, HoldBytes: 1 << 30,
	})
	fence.Opening.Store(false)
	return w
}

func (w *world) fatal(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) shardOf(key string) *shard.Shard { return w.shards[int(key[0])%len(w.shards)] }
func (w *world) hash(key string) layout.Hash     { return layout.HashKey(w.mem.Seed, []byte(key)) }

// moment is what a store does for a page.
func (w *world) moment() (m newest.Moment, err error) {
	w.publishing.Lock()
	defer w.publishing.Unlock()
	w.leaving.Lock()
	defer w.leaving.Unlock()
	if m.Release, err = w.log.Hold(); err != nil {
		return m, err
	}
	m.Base = w.disk.Snapshot()
	for _, sh := range w.shards {
		sh.Mu.Lock()
		m.Views = append(m.Views, sh.Dirty.View())
		sh.Mu.Unlock()
	}
	return m, nil
}

// order gives an operation its place in the order.
func (w *world) order(op base.Op) *flight.Flight {
	w.Helper()
	f := &flight.Flight{Op: &op, Result: new(base.Result)}
	f.Reset(w.mem.Seed)
	sh := w.shards[op.Shard]
	w.fatal(sh.LockEffects(f.Effects, w.reads.env.Ask))
	defer sh.Mu.Unlock()
	f.Evaluate(w.mem.Clock)
	if !sh.Hide(f) {
		w.Fatal("a key expired between two looks at a clock that stands")
	}
	for _, e := range f.Effects {
		if e.Puts() {
			if !w.full {
				if place, class, err := w.mem.Slabs.Alloc(e.ItemSize()); err == nil {
					e.Place, e.Class = place, class
				}
			}
			e.Value = bytes.Clone(e.Value)
			if e.Value == nil {
				e.Value = []byte{}
			}
		}
	}
	w.next = f.Number(w.next)
	sh.NoteOrdered(f)
	w.flying = append(w.flying, f)
	return f
}

// publish publishes the oldest write in flight.
func (w *world) publish() {
	f := w.flying[0]
	w.flying = w.flying[1:]
	w.log.append(f)
	w.publishing.Lock()
	w.shards[f.Shard].Publish(f, w.results)
	w.publishing.Unlock()
	w.history = append(w.history, f)
	for _, e := range f.Effects {
		switch {
		case e.Noop:
		case e.Removes():
			delete(w.state, string(e.Key))
		default:
			w.state[string(e.Key)] = record{e.Shard, e.Version, string(e.Value), e.Expiry}
		}
	}
}

// do orders an operation and publishes it, and all before it.
func (w *world) do(op base.Op) *flight.Flight {
	w.Helper()
	if op.Kind != base.OpBatch {
		op.Shard = w.shardOf(string(op.Key)).ID
	}
	f := w.order(op)
	w.land()
	return f
}

// land publishes all that is in flight.
func (w *world) land() {
	for len(w.flying) > 0 {
		w.publish()
	}
}

func put(key, value string) base.Op { return base.Op{Key: []byte(key), Value: []byte(value)} }
func del(key string) base.Op        { return base.Op{Key: []byte(key), Kind: base.OpDelete} }

// bring has the base show the first n of the writes that it does not have, at once. plain:
// values stand in their records, as older stores have them.
func (w *world) bring(n int, plain bool) {
	w.Helper()
	b := w.disk.ForTests().DB().NewBatch()
	for _, f := range w.history[:n] {
		for _, e := range f.Effects {
			if !e.Noop {
				w.fatal(bringEffect(b, &e.Effect, plain))
			}
		}
		w.brought = f.Version
	}
	w.fatal(b.Commit(pebble.NoSync))
	w.history = w.history[n:]
}

func bringEffect(b *pebble.Batch, e *base.Effect, plain bool) error {
	key := disk.AppendKey(nil, e.Shard, disk.KindData, e.Key)
	value := disk.AppendKey(nil, e.Shard, disk.KindValue, e.Key)
	if err := b.Delete(value, nil); err != nil {
		return err
	}
	switch {
	case e.Kind == base.OpDelete:
		return b.Delete(key, nil)
	case len(e.Value) < disk.SeparateFrom || plain:
		rec := make([]byte, disk.RecordSize(len(e.Value), e.Expiry != 0))
		disk.PutRecord(rec, key, disk.Record{Version: e.Version, Expiry: e.Expiry, Value: e.Value})
		return b.Set(key, rec, nil)
	}
	rec := make([]byte, disk.RecordSize(len(e.Value), false))
	disk.PutRecord(rec, value, disk.Record{Version: e.Version, Value: e.Value})
	if err := b.Set(value, rec, nil); err != nil {
		return err
	}
	rec = make([]byte, disk.NotedSize(e.Expiry != 0))
	disk.PutNoted(rec, key, e.Version, e.Expiry, disk.NoteOf(e.Value))
	return b.Set(key, rec, nil)
}

// leave has what the base shows leave the sets, most records of each at a time, and when all
// of it has left, the log's beginning rise. more: there is more.
func (w *world) leave(most int) (more bool) {
	for _, sh := range w.shards {
		w.leaving.Lock()
		more = sh.Leave(w.brought, most) || more
		w.leaving.Unlock()
	}
	if !more {
		at := w.log.end
		if len(w.history) > 0 {
			at = w.log.first[w.history[0].Version]
		}
		w.log.raise(at)
	}
	return more
}

// checkpoint brings all into the base.
func (w *world) checkpoint() {
	w.bring(len(w.history), false)
	for w.leave(1 << 20) {
	}
}

// evict takes a key out of memory.
func (w *world) evict(key string) {
	sh, h := w.shardOf(key), w.hash(key)
	sh.Mu.Lock()
	ref, ok := sh.Find(h, []byte(key))
	sh.Mu.Unlock()
	if !ok {
		return
	}
	slot := ref.Slot()
	it, ok := layout.PeekItem(w.mem.Table.Bytes(slot.Place(), layout.ClassSize(slot.Class())), nil)
	if ok {
		v := w.mem.Candidate(slot.Place(), slot.Class(), it)
		v.Key = []byte(key)
		sh.Evict(&v)
	}
}

// keysOf returns those of a state, in order.
func keysOf(state map[string]record) []string { return slices.Sorted(maps.Keys(state)) }

// A mapLog is a log in memory, which forgets what is freed at once.
type mapLog struct {
	mu     sync.Mutex
	bodies map[log.Position][]byte
	first  map[layout.Version]log.Position // of the first record of a write
	end    log.Position
	place  log.Position // the base's
	freed  log.Position // what stood before is gone
	holds  map[int]log.Position
	made   int
	reads  int
	err    error                 // of what is read
	before func(at log.Position) // called before a read
}

// append writes a flight, in pieces if it is large.
func (l *mapLog) append(f *flight.Flight) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.first == nil {
		l.first = make(map[layout.Version]log.Position)
	}
	l.first[f.Version] = l.end
	if logged.Size(f) == 0 {
		return
	}
	if !logged.Apart(f, mostBody) {
		body := make([]byte, logged.Size(f))
		logged.Put(body, f)
		f.At = l.add(body)
		return
	}
	var at []uint64
	for i := range logged.Pieces(f, mostBody) {
		body := make([]byte, logged.PieceSize(f, i, mostBody))
		logged.PutPiece(body, f, i, mostBody)
		at = append(at, uint64(l.add(body)))
	}
	body := make([]byte, logged.SizeApart(f, mostBody))
	logged.PutApart(body, f, mostBody, at)
	f.At = l.add(body)
}

func (l *mapLog) add(body []byte) log.Position {
	at := l.end
	l.bodies[at], l.end = body, at+log.Position(len(body))
	return at
}

// raise sets the position of the base.
func (l *mapLog) raise(at log.Position) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.place = at
	l.free()
}

func (l *mapLog) free() {
	needed := l.place
	for _, at := range l.holds {
		needed = min(needed, at)
	}
	if needed <= l.freed {
		return
	}
	l.freed = needed
	maps.DeleteFunc(l.bodies, func(at log.Position, _ []byte) bool { return at < needed })
}

func (l *mapLog) Hold() (release func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.made++
	n := l.made
	l.holds[n] = l.place
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.holds, n)
		l.free()
	}, nil
}

func (l *mapLog) Near() func(at log.Position) (log.Record, error) { return l.ReadAt }

func (l *mapLog) ReadAt(at log.Position) (log.Record, error) {
	if l.before != nil {
		l.before(at)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reads++
	if l.err != nil {
		return log.Record{}, l.err
	}
	body, ok := l.bodies[at]
	if !ok {
		return log.Record{}, &log.DamageError{File: "freed", At: at, Detail: "the segment was freed"}
	}
	return log.Record{Kind: log.Write, Stream: 1, Position: at, Body: bytes.Clone(body)}, nil
}

// clip is a value for an error text.
func clip(v string) string {
	if len(v) > 20 {
		return fmt.Sprintf("%s… (%d bytes)", v[:20], len(v))
	}
	return v
}
