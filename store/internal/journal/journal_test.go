package journal

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/checkpoint"
	"github.com/rdmakv/rdmakv/store/internal/dedup"
	"github.com/rdmakv/rdmakv/store/internal/flight"
	"github.com/rdmakv/rdmakv/store/internal/logged"
	"github.com/rdmakv/rdmakv/store/internal/pipeline"
	"github.com/rdmakv/rdmakv/store/layout"
	"github.com/rdmakv/rdmakv/store/log"
	"github.com/rdmakv/rdmakv/store/log/logtest"
)

var seedFlag = flag.Uint64("seed", 0, "the seed of the lives to live; 0: new ones")

// shards is how many a test has.
const shards = 3

// A life is a journal over a disk in memory, and what it was told.
type life struct {
	t    *testing.T
	rng  *rand.Rand
	disk *logtest.Disk
	sync log.Sync
	j    *Journal

	epoch   uint16
	next    layout.Version
	state   map[string]flight.Effect // the newest of each key, by shard and key
	results map[base.SlotKey]uint64  // the newest request of each slot
	facts   map[string]string
}

func newLife(t *testing.T, seed uint64) *life {
	t.Helper()
	l := &life{t: t, rng: rand.New(rand.NewPCG(seed, 3)), disk: logtest.New(logtest.Options{Seed: seed}),
		state: map[string]flight.Effect{}, results: map[base.SlotKey]uint64{}, facts: map[string]string{}}
	l.sync = []log.Sync{log.Always, log.Interval, log.Off}[l.rng.IntN(3)]
	return l
}

// open opens the journal and begins a life.
func (l *life) open() {
	l.t.Helper()
	j, err := l.reopen(checkpoint.Place{})
	if err != nil {
		l.t.Fatal(err)
	}
	l.j = j
	l.epoch++
	if err := j.Start(uint64(l.epoch)); err != nil {
		l.t.Fatal(err)
	}
	l.next = layout.MakeVersion(l.epoch, 1)
}

func (l *life) reopen(place checkpoint.Place) (*Journal, error) {
	fence := base.NewFence(slog.New(slog.DiscardHandler), func(err error) { l.t.Errorf("fenced: %v", err) })
	return Open(Config{
		Dir: l.disk, Store: [16]byte{9}, New: l.epoch == 0, Place: place, Sync: l.sync,
		Sizes: Sizes{Segment: 1 << 20, Frame: 128 << 10, Log: 64 << 20}, Shards: shards, Seed: 5,
		Results: dedup.New(1 << 10), Fence: fence, Logger: slog.New(slog.DiscardHandler),
	})
}

// write makes a write as it is when it is queued.
func (l *life) write() *flight.Flight {
	f := &flight.Flight{Op: &base.Op{}, Result: &base.Result{}, Shard: uint16(l.rng.IntN(shards))}
	if l.rng.IntN(3) == 0 {
		f.Op.ID = base.RequestID{Client: [16]byte{byte(l.rng.IntN(4))}, Slot: uint16(l.rng.IntN(3)), Seq: uint64(l.next)}
	}
	parts := 1
	if l.rng.IntN(4) == 0 {
		parts = 1 + l.rng.IntN(5)
		f.Op.Kind = base.OpBatch
	}
	for i := range parts {
		e := &flight.Effect{Effect: base.Effect{Shard: f.Shard, Key: fmt.Appendf(nil, "key-%d-%d", i, l.rng.IntN(6))}}
		switch l.rng.IntN(6) {
		case 0:
			e.Kind = base.OpDelete
		case 1:
			e.Kind, e.Noop = base.OpDelete, true
		default:
			size := l.rng.IntN(300)
			if l.rng.IntN(20) == 0 && parts == 1 {
				size = 90_000 + l.rng.IntN(400_000) // more than a record
			}
			e.Value = bytes.Repeat([]byte{byte(l.rng.Uint32())}, size)
		}
		f.Effects = append(f.Effects, e)
		f.Charge += int64(len(e.Key) + len(e.Value))
	}
	if parts == 1 {
		f.Noop = f.Effects[0].Noop
	}
	l.next = f.Number(l.next)
	return f
}

// commit takes some writes all the way, but for their publishing in shards.
func (l *life) commit(writes ...*flight.Flight) {
	l.t.Helper()
	c := &pipeline.Commit{Flights: writes}
	if err := l.j.Append(c); err != nil {
		l.t.Fatal(err)
	}
	if err := l.j.Sync(c); err != nil {
		l.t.Fatal(err)
	}
	c.Flights = nil
	l.j.Publish(c, nil, nil)
	for _, f := range writes {
		if (f.At != 0) != (logged.Size(f) != 0) {
			l.t.Fatalf("a write of %d bytes in the log stands at %v", logged.Size(f), f.At)
		}
		for _, e := range f.Effects {
			if !e.Noop {
				l.state[fmt.Sprint(f.Shard, string(e.Key))] = *e
			}
		}
		if f.Recorded() {
			l.results[f.Op.ID.SlotKey()] = f.Op.ID.Seq
		}
	}
}

// some writes commits of some writes, as the pipeline would cut them.
func (l *life) some(n int) {
	l.t.Helper()
	limit := l.j.c.Sizes.CommitMost()
	for range n {
		var batch []*flight.Flight
		size := int64(0)
		for range 1 + l.rng.IntN(8) {
			f := l.write()
			if n := int64(logged.Size(f)); f.Charge+Overhead(f) < n {
				l.t.Fatalf("a write of %d bytes is counted as %d", n, f.Charge+Overhead(f))
			}
			if size += f.Charge + Overhead(f); size > limit && len(batch) > 0 {
				l.commit(batch...)
				batch, size = nil, f.Charge+Overhead(f)
			}
			batch = append(batch, f)
		}
		l.commit(batch...)
		if l.rng.IntN(4) == 0 {
			name, value := []string{"clock", "short", "keys"}[l.rng.IntN(3)], fmt.Sprint(l.rng.IntN(1000))
			if err := l.j.Note(name, []byte(value), true); err != nil {
				l.t.Fatal(err)
			}
			l.facts[name] = value
		}
	}
}

// check compares what a replay has found with what was committed.
func (l *life) check(j *Journal) {
	l.t.Helper()
	found := 0
	for id := range j.Sets {
		it := j.Sets[id].View().Keys(nil, nil)
		for it.Next() {
			found++
			e, want := it.Entry(), l.state[fmt.Sprint(id, string(it.Key()))]
			if e.Version != want.Version || e.Gone != want.Removes() {
				l.t.Errorf("shard %d, %s: version %v, gone %v; committed %v, %v", id, it.Key(), e.Version, e.Gone, want.Version, want.Removes())
				continue
			}
			if got := l.read(j, e.At, int(e.Part)); !bytes.Equal(got.Key, want.Key) || !bytes.Equal(got.Value, want.Value) {
				l.t.Errorf("shard %d, %s: the record has %s with %d bytes, committed were %d", id, it.Key(), got.Key, len(got.Value), len(want.Value))
			}
		}
	}
	if found != len(l.state) {
		l.t.Errorf("%d keys are dirty, %d were written", found, len(l.state))
	}
	for slot, seq := range l.results {
		again, err := j.c.Results.Look(&base.RequestID{Client: slot.Client, Slot: slot.Slot, Seq: seq})
		if !again || err != nil {
			l.t.Errorf("request %d of %v: again %v, %v", seq, slot, again, err)
		}
	}
	for name, want := range l.facts {
		if got, ok := j.Fact(name); !ok || string(got) != want {
			l.t.Errorf("%s is %q, %v; noted was %q", name, got, ok, want)
		}
	}
}

// read reads an effect of a record, with its value.
func (l *life) read(j *Journal, at log.Position, part int) base.Effect {
	l.t.Helper()
	rec, err := j.ReadAt(at)
	if err != nil {
		l.t.Fatal(err)
	}
	w, err := logged.Parse(rec.Body)
	if err != nil {
		l.t.Fatal(err)
	}
	for e := range w.Effects {
		if part--; part >= 0 {
			continue
		}
		if e.Apart {
			if e.Value, err = w.Join(e, func(at uint64) ([]byte, error) {
				piece, err := j.ReadAt(log.Position(at))
				return piece.Body, err
			}); err != nil {
				l.t.Fatal(err)
			}
		}
		return e
	}
	l.t.Fatalf("record at %v has no such effect", at)
	return base.Effect{}
}

// TestLives writes, ends each life by a kill or a stop, and compares what the next one finds:
// all that was committed and nothing else, each with its record, its result, its facts.
func TestLives(t *testing.T) {
	for range 12 {
		seed := rand.Uint64()
		if *seedFlag != 0 {
			seed = *seedFlag
		}
		l := newLife(t, seed)
		for range 3 {
			l.open()
			l.check(l.j)
			l.some(10)
			clean := l.rng.IntN(2) == 0
			if !clean {
				// A kill: what the kernel has stays. Nobody is left who writes to the disk.
				killed := l.disk.Kill(l.rng.Uint64())
				_ = l.j.Close(false) // of a disk that is gone
				l.disk = killed
				continue
			}
			l.close(true)
		}
		l.open()
		l.check(l.j)
		l.close(true)
		if t.Failed() {
			t.Fatalf("again: go test ./store/internal/journal -run '^TestLives$' -seed %d", seed)
		}
	}
}

func (l *life) close(clean bool) {
	l.t.Helper()
	if err := l.j.Close(clean); err != nil {
		l.t.Fatal(err)
	}
	l.j = nil
}

// TestReplayBehindThePlace: writes before the base's position are not dirty; one whose version
// does not follow what the base has is an error that names its position.
func TestReplayBehindThePlace(t *testing.T) {
	l := newLife(t, 1)
	l.open()
	put := func(key string) *flight.Flight {
		f := &flight.Flight{Op: &base.Op{}, Result: &base.Result{}}
		f.Effects = []*flight.Effect{{Effect: base.Effect{Key: []byte(key), Value: []byte("v")}}}
		l.next = f.Number(l.next)
		return f
	}
	first, second, third := put("first"), put("second"), put("third")
	l.commit(first)
	l.commit(second, third)
	var frame log.Position // in which second and third stand
	if _, err := l.j.log.ScanFrames(1, third.At+1, func(at log.Position) { frame = at }, func(*log.Record) error { return nil }); err != nil {
		t.Fatal(err)
	}
	l.close(true)
	place := checkpoint.Place{At: third.At, Frame: frame, Newest: second.Version, Epoch: 1}
	j, err := l.reopen(place)
	if err != nil {
		t.Fatal(err)
	}
	if n, _ := j.Sets[0].Counts(); n != 1 {
		t.Errorf("%d writes are dirty, want that behind the place alone", n)
	}
	if err := j.Close(false); err != nil {
		t.Fatal(err)
	}
	place.Newest = third.Version
	_, err = l.reopen(place)
	var record *checkpoint.RecordError
	if !errors.As(err, &record) || record.At != third.At {
		t.Errorf("a write that is not newer than the base: %v", err)
	}
}

// TestNoteEnds: a fact for which the log has no room, and never will have, is refused after a
// while, and what was set aside for it is free again.
func TestNoteEnds(t *testing.T) {
	l := newLife(t, 2)
	l.open()
	defer l.close(false)
	l.j.c.Patience = 20 * time.Millisecond
	// The maker of free files makes more room for a while after the start: until it has made
	// three, and no further.
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		made := l.j.log.Stats().Free >= 3 // before the room is looked at, or the last file may come between
		taken, _ := l.j.Room(log.Facts)
		if made && taken == 0 {
			break
		}
		if err := l.j.Reserve(taken, log.Facts); err != nil && !errors.Is(err, log.ErrFull) {
			t.Fatal(err)
		}
		if time.Now().After(end) {
			t.Fatalf("the log is never full: %+v", l.j.log.Stats())
		}
	}
	if err := l.j.Note("clock", []byte("1"), false); !errors.Is(err, log.ErrFull) {
		t.Errorf("a fact in a full log: %v", err)
	}
}
