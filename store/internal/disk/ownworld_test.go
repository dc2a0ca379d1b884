package disk_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/checkpoint"
	"github.com/rdmakv/rdmakv/store/internal/clock"
	"github.com/rdmakv/rdmakv/store/internal/disk"
	"github.com/rdmakv/rdmakv/store/internal/flight"
	"github.com/rdmakv/rdmakv/store/internal/logged"
	"github.com/rdmakv/rdmakv/store/layout"
	"github.com/rdmakv/rdmakv/store/log"
)

// Stores with a log of their own: writes go into the log, checkpoints take them into the
// base, and what a stopped store holds is looked at from outside.

const ownShards = 3

var ownSeed = flag.Uint64("ownseed", 0, "the seed of the store to live through; 0: a new one")

// An own is a store with its own log, and a model of what it holds.
type own struct {
	t     testing.TB
	rng   *rand.Rand
	fs    vfs.FS
	dir   string
	disk  *disk.Disk
	log   *log.Log
	place checkpoint.Place
	next  layout.Version
	model map[string]disk.Record // by shard and key
}

func newOwn(t testing.TB, seed uint64) *own {
	return &own{t: t, rng: rand.New(rand.NewPCG(seed, 3)), fs: vfs.NewMem(), dir: "/store", model: map[string]disk.Record{}}
}

// facts is a log as disk.FactLog.
type facts struct{ *log.Log }

func (f facts) Found() (epoch uint64, clean bool) {
	found := f.Log.Found()
	return found.Epoch, found.Clean
}

func (f facts) Fact(name string) (value []byte, ok bool) {
	for n, s := range disk.FactNames() {
		if s == name {
			return f.Log.Fact(1, n)
		}
	}
	return nil, false
}

func (f facts) Note(name string, value []byte, _ bool) error {
	for n, s := range disk.FactNames() {
		if s == name {
			_, err := f.Append(log.Record{Kind: log.Fact, Stream: 1, Name: n, Body: value})
			return err
		}
	}
	return fmt.Errorf("no fact %q", name)
}

// logConfig is how the tests open a log.
func logConfig(dir log.Dir, store [16]byte, place checkpoint.Place, reach log.Position) log.Config {
	return log.Config{Dir: dir, Store: store, Reach: reach, From: place.Frame, SegmentSize: 1 << 20, MaxFrame: 128 << 10, Sync: log.Off}
}

// must ends the test if there is an error.
func (o *own) must(err error) {
	o.t.Helper()
	if err != nil {
		o.t.Fatal(err)
	}
}

// open begins a life.
func (o *own) open() {
	o.t.Helper()
	c := disk.Config{Dir: o.dir, FS: o.fs, Shards: ownShards, CacheBytes: 1 << 20}
	o.disk = disk.New(c, base.NewFence(slog.New(slog.DiscardHandler), func(error) {}), &base.Counters{})
	_, _, err := o.disk.Open()
	o.must(err)
	raw, err := o.disk.Place()
	o.must(err)
	o.place = checkpoint.Place{}
	if raw != nil {
		o.place, err = checkpoint.ParsePlace(raw)
		o.must(err)
	}
	dir, err := o.disk.LogDir()
	o.must(err)
	lc := logConfig(dir, o.disk.ID(), o.place, o.disk.Reach())
	lc.Create = o.disk.NewLog()
	o.log, err = log.Open(lc)
	o.must(err)
	o.must(o.log.Replay(func(*log.Record) error { return nil }))
	o.must(o.disk.Join(facts{o.log}))
	o.must(o.disk.Begin(func() uint64 { return 1000 }))
	o.next = layout.MakeVersion(o.disk.Epoch(), 1)
}

// stop ends a life. Not clean: as if the process had been killed.
func (o *own) stop(clean bool) {
	o.t.Helper()
	var end *disk.End
	if clean {
		end = &disk.End{Version: o.next, Keys: make([]uint64, ownShards)}
		o.must(o.disk.MarkClean(end))
		o.checkpoint()
	}
	o.must(o.log.Close(clean))
	o.must(o.disk.Close(end))
}

// write makes writes in a frame each, and notes them in the model.
func (o *own) write(n int) {
	for range n {
		f := &flight.Flight{Op: &base.Op{}, Result: &base.Result{}, Shard: uint16(o.rng.IntN(ownShards))}
		if o.rng.IntN(3) == 0 {
			f.Op.ID = base.RequestID{Slot: uint16(o.rng.IntN(4)), Seq: 1 + o.rng.Uint64N(99), Owner: 3}
		}
		key := fmt.Sprintf("key-%02d", o.rng.IntN(20))
		at := fmt.Sprintf("%d/%s", f.Shard, key)
		was, there := o.model[at]
		e := base.Effect{Shard: f.Shard, Kind: base.OpPut, Key: []byte(key)}
		if was.Expiry != 0 {
			e.Unlist = clock.Second(was.Expiry)
		}
		if e.Noop = !there && o.rng.IntN(8) == 0; e.Noop || o.rng.IntN(4) == 0 {
			e.Kind = base.OpDelete
			e.Noop = !there
		} else {
			size := []int{0, 9, disk.SeparateFrom - 1, disk.SeparateFrom, 5000}[o.rng.IntN(5)]
			e.Value = bytes.Repeat([]byte{byte(o.rng.Uint32())}, size)
			if o.rng.IntN(3) == 0 {
				e.Expiry = uint64(1+o.rng.IntN(9)) * 1_000_000
			}
		}
		f.Noop = e.Noop
		f.Effects = []*flight.Effect{{Effect: e}}
		o.next = f.Number(o.next)
		body := make([]byte, logged.Size(f))
		if len(body) == 0 {
			continue
		}
		logged.Put(body, f)
		_, err := o.log.Append(log.Record{Kind: log.Write, Stream: 1, Body: body})
		o.must(err)
		switch e = f.Effects[0].Effect; {
		case e.Noop:
		case e.Kind == base.OpDelete:
			delete(o.model, at)
		default:
			o.model[at] = disk.Record{Version: e.Version, Expiry: e.Expiry, Value: e.Value}
		}
	}
}

// checkpoint takes all into the base.
func (o *own) checkpoint() {
	o.t.Helper()
	values, err := o.disk.Values()
	o.must(err)
	defer values.Close()
	done, err := checkpoint.Run(context.Background(), checkpoint.Config{
		Log: o.log, Stream: 1, From: o.place, Epoch: uint64(o.disk.Epoch()), Facts: disk.FactNames(), Values: values,
		Begin: func(ctx context.Context) (checkpoint.Ingest, error) { return o.disk.Tables(ctx, 0) },
	})
	o.must(err)
	o.place = done.Place
	o.log.Release(1, o.place.Frame)
}

// checkBase compares what the base shows with the model, which it must have whole.
func (o *own) checkBase() {
	o.t.Helper()
	left := len(o.model)
	for shard := range uint16(ownShards) {
		lower, upper := disk.KindBounds(shard, disk.KindData)
		walk, err := o.disk.Records(lower, upper)
		o.must(err)
		for walk.First(); walk.Valid(); walk.Next() {
			left--
			_, _, key, _ := disk.ParseKey(walk.Key())
			want := o.model[fmt.Sprintf("%d/%s", shard, key)]
			size, apart := walk.Size()
			if size != disk.RecordSize(len(want.Value), want.Expiry != 0) || apart != (size >= disk.SeparateFrom) {
				o.t.Errorf("%d/%s: size %d, %v of %d bytes", shard, key, size, apart, len(want.Value))
			}
			rec, damage, err := walk.Whole()
			if damage != nil || err != nil || !same(rec, want) {
				o.t.Errorf("walk at %d/%s: version %v, %v, %v", shard, key, rec.Version, damage, err)
			}
			rec, closer, err := o.disk.Read(shard, key)
			o.must(err)
			if !same(rec, want) {
				o.t.Errorf("read of %d/%s: version %v, want %v", shard, key, rec.Version, want.Version)
			}
			o.must(closer.Close())
		}
		o.must(walk.Close())
	}
	if left != 0 {
		o.t.Errorf("%d keys are missing in the base", left)
	}
}

func same(a, b disk.Record) bool {
	return a.Version == b.Version && a.Expiry == b.Expiry && bytes.Equal(a.Value, b.Value)
}

// inspect looks at a stopped store from outside, and compares it with the model.
func (o *own) inspect(dir string, problems int) disk.Inspection {
	o.t.Helper()
	seen, last, size := 0, "", uint64(0)
	in, err := disk.Inspect(context.Background(), dir, disk.InspectOptions{FS: o.fs, Tail: openTail, Each: func(e disk.InspectEntry) error {
		at := fmt.Sprintf("%d/%s", e.Shard, e.Key)
		if want, ok := o.model[at]; !ok || e.Version != want.Version || !bytes.Equal(e.Value, want.Value) {
			return fmt.Errorf("%s of version %v, want %v, %v", at, e.Version, want.Version, ok)
		}
		if at <= last {
			return fmt.Errorf("%s behind %s", at, last)
		}
		seen, last, size = seen+1, at, size+uint64(len(e.Value))
		return nil
	}})
	o.must(err)
	if in.ProblemCount != problems || problems == 0 && (seen != len(o.model) || in.Keys != uint64(seen) || in.Bytes != size) {
		o.t.Errorf("%d of %d keys, %d and %d bytes, problems: %v", seen, len(o.model), in.Bytes, size, in.Problems)
	}
	return in
}

// A tail reads a log as package journal does.
type tail struct {
	log   *log.Log
	place checkpoint.Place
	list  []*checkpoint.Range
}

func openTail(_ context.Context, c disk.TailConfig) (disk.Tail, error) {
	t := &tail{}
	if c.Place != nil {
		var err error
		if t.place, err = checkpoint.ParsePlace(c.Place); err != nil {
			return nil, err
		}
	}
	lc := logConfig(c.Dir, c.Store, t.place, c.Reach)
	lc.ReadOnly = true
	l, err := log.Open(lc)
	if err != nil {
		return nil, err
	}
	t.log = l
	newRange := func() *checkpoint.Range {
		return checkpoint.NewRange(1, disk.FactNames(), checkpoint.Bound{Keys: 40})
	}
	t.list = append(t.list, newRange())
	err = l.Replay(func(r *log.Record) error {
		if r.Position < t.place.At {
			return nil
		}
		if t.list[len(t.list)-1].Full() {
			t.list = append(t.list, newRange())
		}
		return t.list[len(t.list)-1].Add(r)
	})
	if err != nil {
		return nil, errors.Join(err, l.Close(false))
	}
	return t, nil
}

func (t *tail) Found() (uint64, bool) { return facts{t.log}.Found() }
func (t *tail) Close() error          { return t.log.Close(false) }

func (t *tail) Write(_ context.Context, to disk.TailSink) error {
	for _, r := range t.list {
		values, err := to.Values()
		if err == nil {
			_, err = r.Write(to, values)
			err = errors.Join(err, values.Close())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// copyOf copies the files that a backup consists of, but for STORE, which is returned.
func (o *own) copyOf(from, to string) (id []byte) {
	o.t.Helper()
	names, sizes, err := disk.BackupFiles(from, disk.InspectOptions{FS: o.fs})
	o.must(err)
	for i, name := range names {
		path := o.fs.PathJoin(to, name)
		o.must(o.fs.MkdirAll(o.fs.PathDir(path), 0o700))
		o.must(vfs.Copy(o.fs, o.fs.PathJoin(from, name), path))
		if info, err := o.fs.Stat(path); err != nil || info.Size() != sizes[i] {
			o.t.Errorf("%s: %d bytes said, %v", name, sizes[i], err)
		}
	}
	f, err := o.fs.Open(o.fs.PathJoin(to, "STORE"))
	o.must(err)
	id = make([]byte, 4096)
	n, _ := f.Read(id)
	o.must(f.Close())
	o.must(o.fs.Remove(o.fs.PathJoin(to, "STORE")))
	return id[:n]
}
