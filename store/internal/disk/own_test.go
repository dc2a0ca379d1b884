package disk_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/checkpoint"
	"github.com/rdmakv/rdmakv/store/internal/disk"
	"github.com/rdmakv/rdmakv/store/internal/flight"
	"github.com/rdmakv/rdmakv/store/internal/logged"
	"github.com/rdmakv/rdmakv/store/log"
)

// TestOwn lives through stores with their own log: whatever was written, checkpointed and
// killed, base, Inspect, and a copy that was adopted show what the model says.
func TestOwn(t *testing.T) {
	for range 12 {
		seed := rand.Uint64()
		if *ownSeed != 0 {
			seed = *ownSeed
		}
		liveOwn(t, seed)
		if t.Failed() {
			t.Fatalf("again: go test ./store/internal/disk -run '^TestOwn$' -ownseed %d", seed)
		}
		if *ownSeed != 0 {
			return
		}
	}
}

func liveOwn(t *testing.T, seed uint64) {
	o := newOwn(t, seed)
	for life := range 3 {
		o.open()
		epoch := o.disk.Epoch()
		for range 1 + o.rng.IntN(3) {
			o.write(o.rng.IntN(60))
			if o.rng.IntN(2) == 0 {
				o.checkpoint()
				o.checkBase()
			}
		}
		if o.rng.IntN(2) == 0 {
			o.backup(life)
		}
		o.write(o.rng.IntN(60))
		clean := o.rng.IntN(2) == 0
		o.stop(clean)
		if in := o.inspect(o.dir, 0); in.CleanStop != clean || in.Backup || !in.Log || in.Epoch != epoch || in.Format != 4 {
			t.Errorf("stopped, clean %v: %+v", clean, in)
		}
		o.adopted(o.dir, fmt.Sprintf("/copy-%d", life), epoch)
	}
}

// backup makes a backup while the store serves, and a store out of it.
func (o *own) backup(life int) {
	o.t.Helper()
	backup := fmt.Sprintf("/backup-%d", life)
	o.checkpoint()
	o.must(o.disk.Checkpoint(backup))
	o.must(o.disk.SealBackup(backup))
	if in := o.inspect(backup, 0); !in.Backup || in.CleanStop || in.Log || in.Epoch != o.disk.Epoch() {
		o.t.Errorf("a backup: %+v", in)
	}
	o.adopted(backup, fmt.Sprintf("/adopted-%d", life), o.disk.Epoch())
}

// adopted makes a store out of a copy of dir, and looks at it before its first start and
// after.
func (o *own) adopted(dir, to string, epoch uint16) {
	o.t.Helper()
	id := o.copyOf(dir, to)
	newID, err := disk.Adopt(to, disk.InspectOptions{FS: o.fs, Tail: openTail}, id)
	o.must(err)
	in := o.inspect(to, 0)
	if in.ID != newID || in.Epoch != epoch+disk.EpochsPerRestore || in.CleanStop || in.Backup || in.Source == nil {
		o.t.Errorf("adopted: %+v, expected epoch %d", in, epoch+disk.EpochsPerRestore)
	}
	db, err := pebble.Open(to+"/data", &pebble.Options{FS: o.fs, ReadOnly: true, Logger: silent{}})
	o.must(err)
	if _, _, err := db.Get(checkpoint.PositionKey()); !errors.Is(err, pebble.ErrNotFound) {
		o.t.Errorf("it has a position in a log that is not its own: %v", err)
	}
	o.must(db.Close())
	c := *o
	c.dir = to
	c.open()
	if c.disk.Epoch() != in.Epoch+1 {
		o.t.Errorf("it starts with epoch %d behind %d", c.disk.Epoch(), in.Epoch)
	}
	c.checkBase()
	c.stop(true)
	if in := o.inspect(to, 0); in.Source != nil || !in.CleanStop {
		o.t.Errorf("after a start: %+v", in)
	}
}

// TestOwnUpgraded: of a store whose log has yet to be made, STORE says whether the life
// before ended cleanly, and the base, which may be a copy, does not.
func TestOwnUpgraded(t *testing.T) {
	for _, c := range []struct {
		base  bool
		store string
		clean bool
	}{{true, "log new\n", false}, {false, "log new\nstop clean\n", true}, {true, "log new\nstop clean\n", true}, {true, "", false}} {
		o := newOwn(t, 4)
		o.open()
		if c.base {
			key := disk.AppendKey(nil, disk.StoreShard, disk.KindMeta, []byte("clean"))
			rec := make([]byte, disk.RecordSize(8, false))
			disk.PutRecord(rec, key, disk.Record{Value: make([]byte, 8)})
			db := o.disk.ForTests().DB()
			o.must(errors.Join(db.Set(key, rec, pebble.NoSync), db.Flush()))
		}
		o.stop(false)
		text := fmt.Sprintf("rdmakv store\nformat 4\nreader 4\nshards %d\nid %x\n%s", ownShards, o.disk.ID(), c.store)
		f, err := o.fs.Create(o.dir+"/STORE", "test")
		o.must(err)
		_, err = f.Write([]byte(text))
		o.must(errors.Join(err, f.Close()))
		if in := o.inspect(o.dir, 0); in.CleanStop != c.clean || in.Log != (c.store == "") {
			t.Errorf("%+v: %+v", c, in)
		}
	}
}

// silent is a logger that says nothing.
type silent struct{}

func (silent) Infof(string, ...any)  {}
func (silent) Errorf(string, ...any) {}
func (silent) Fatalf(format string, args ...any) {
	panic(fmt.Sprintf(format, args...))
}

// TestOwnDamage: what does not belong together in a base is a problem that names the key.
func TestOwnDamage(t *testing.T) {
	value := bytes.Repeat([]byte("v"), 2000)
	for name, c := range map[string]struct {
		breakIt func(b *pebble.Batch, pkey, vkey []byte) error
		want    string
	}{
		"a value is missing":       {func(b *pebble.Batch, _, vkey []byte) error { return b.Delete(vkey, nil) }, "is missing"},
		"a record is missing":      {func(b *pebble.Batch, pkey, _ []byte) error { return b.Delete(pkey, nil) }, "no record that notes it"},
		"a record without a note":  {setRecord(false, disk.Record{Version: 1 << 41, Value: []byte("small")}), "no record that notes it"},
		"a value of another write": {setRecord(true, disk.Record{Version: 1 << 40, Value: value}), "of version"},
		"a shorter value":          {setRecord(true, disk.Record{Version: 1<<40 + 7, Value: value[1:]}), "expected 2000"},
		"a damaged value":          {func(b *pebble.Batch, _, vkey []byte) error { return b.Set(vkey, []byte("gibberish"), nil) }, "its value"},
		"a damaged note": {func(b *pebble.Batch, pkey, _ []byte) error {
			return b.Set(pkey, make([]byte, disk.NotedSize(false)), nil)
		}, "record format"},
	} {
		t.Run(name, func(t *testing.T) {
			o := newOwn(t, 1)
			o.open()
			pkey := disk.AppendKey(nil, 1, disk.KindData, []byte("broken"))
			vkey := disk.AppendKey(nil, 1, disk.KindValue, []byte("broken"))
			db := o.disk.ForTests().DB()
			b := db.NewBatch()
			noted := make([]byte, disk.NotedSize(false))
			disk.PutNoted(noted, pkey, 1<<40+7, 0, disk.NoteOf(value))
			rec := make([]byte, disk.RecordSize(len(value), false))
			disk.PutRecord(rec, vkey, disk.Record{Version: 1<<40 + 7, Value: value})
			o.must(errors.Join(b.Set(pkey, noted, nil), b.Set(vkey, rec, nil), c.breakIt(b, pkey, vkey)))
			o.must(errors.Join(b.Commit(pebble.NoSync), b.Close(), db.Flush()))
			o.stop(false)
			in, err := disk.Inspect(t.Context(), o.dir, disk.InspectOptions{FS: o.fs, Tail: openTail})
			var damage *base.CorruptError
			if err != nil || in.ProblemCount != 1 || !errors.As(in.Problems[0], &damage) || string(damage.Key) != "broken" || damage.Shard != 1 {
				t.Fatalf("%v, problems %v", err, in.Problems)
			}
			if !strings.Contains(damage.Error(), c.want) {
				t.Errorf("%v: it does not say %q", damage, c.want)
			}
		})
	}
}

// setRecord sets a plain record in the place of a record, or of its value.
func setRecord(value bool, r disk.Record) func(b *pebble.Batch, pkey, vkey []byte) error {
	return func(b *pebble.Batch, pkey, vkey []byte) error {
		key := pkey
		if value {
			key = vkey
		}
		rec := make([]byte, disk.RecordSize(len(r.Value), false))
		disk.PutRecord(rec, key, r)
		return b.Set(key, rec, nil)
	}
}

// TestOwnLogMissing: a store whose log is gone, or cannot be read, is not taken for one
// that has nothing in it.
func TestOwnLogMissing(t *testing.T) {
	o := newOwn(t, 2)
	o.open()
	o.write(50)
	o.checkpoint()
	model := len(o.model)
	o.write(50)
	o.stop(false)
	id := o.copyOf(o.dir, "/copy")
	o.must(o.fs.RemoveAll("/copy/log"))
	if _, err := disk.Adopt("/copy", disk.InspectOptions{FS: o.fs, Tail: openTail}, id); !errors.Is(err, base.ErrCorrupt) {
		t.Errorf("a copy without its log was adopted: %v", err)
	}
	if _, err := o.fs.Stat("/copy/STORE"); err == nil {
		t.Error("there is a STORE")
	}
	none := errors.New("the log cannot be read")
	fails := func(context.Context, disk.TailConfig) (disk.Tail, error) { return nil, none }
	in, err := disk.Inspect(t.Context(), o.dir, disk.InspectOptions{FS: o.fs, Tail: fails})
	if err != nil || in.ProblemCount != 1 || !errors.Is(in.Problems[0], none) || in.Log || in.Keys == 0 || in.Keys > uint64(model) {
		t.Errorf("%+v, %v", in, err)
	}
	many := func(context.Context, disk.TailConfig) (disk.Tail, error) {
		return nil, fmt.Errorf("open: %w", disk.Damages{none, base.ErrCorrupt, none})
	}
	if in, err := disk.Inspect(t.Context(), o.dir, disk.InspectOptions{FS: o.fs, Tail: many}); err != nil || in.ProblemCount != 3 || in.Problems[1] != base.ErrCorrupt {
		t.Errorf("several damages: %+v, %v", in, err)
	}
	if in, err := disk.Inspect(t.Context(), o.dir, disk.InspectOptions{FS: o.fs}); err != nil || in.ProblemCount != 1 {
		t.Errorf("nobody reads the log: %+v, %v", in, err)
	}
	o.must(o.fs.RemoveAll(o.dir + "/log"))
	if in, err := disk.Inspect(t.Context(), o.dir, disk.InspectOptions{FS: o.fs, Tail: openTail}); err != nil || in.ProblemCount != 1 || !errors.Is(in.Problems[0], base.ErrCorrupt) {
		t.Errorf("the log is gone: %+v, %v", in, err)
	}
}

// TestOwnPinned fails when what stands in a base changes.
func TestOwnPinned(t *testing.T) {
	o := newOwn(t, 3)
	o.open()
	w := func(e base.Effect) {
		f := &flight.Flight{Op: &base.Op{}, Result: &base.Result{}, Shard: 1}
		e.Shard = 1
		f.Effects = []*flight.Effect{{Effect: e}}
		o.next = f.Number(o.next)
		body := make([]byte, logged.Size(f))
		logged.Put(body, f)
		_, err := o.log.Append(log.Record{Kind: log.Write, Stream: 1, Body: body})
		o.must(err)
	}
	w(base.Effect{Key: []byte("apart"), Value: bytes.Repeat([]byte("v"), disk.SeparateFrom), Expiry: 5_000_000})
	w(base.Effect{Key: []byte("gone"), Value: []byte("v")})
	w(base.Effect{Key: []byte("gone"), Kind: base.OpDelete})
	w(base.Effect{Key: []byte("small"), Value: []byte("v")})
	o.checkpoint()
	db := o.disk.ForTests().DB()
	lower, upper := disk.AppendKey(nil, 1, 0, nil), disk.AppendKey(nil, 2, 0, nil)
	it, err := db.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper})
	o.must(err)
	var got []string
	for it.First(); it.Valid(); it.Next() {
		got = append(got, fmt.Sprintf("%q %.96x", it.Key(), it.Value()))
	}
	o.must(it.Close())
	o.stop(false)
	if text := strings.Join(got, "\n"); text != ownPinned {
		t.Errorf("the base has\n%s", text)
	}
}

const ownPinned = `"\x00\x01\x01apart" 01030000000000000100000000020000404b4c0000000000f0f7269a74da0b950004000000000000952d9e6ab4bf9add
"\x00\x01\x01small" 0100000000000000040000000002000068c9bbe40e19bae976
"\x00\x01\x04\x00\x00\x00\x00\x00\x00\x00\x05apart" 01000000000000000100000000020000d3d71dd36abbd3c6
"\x00\x01\x05apart" 01000000000000000100000000020000c056638536e084dc767676767676767676767676767676767676767676767676767676767676767676767676767676767676767676767676767676767676767676767676767676767676767676767676`
