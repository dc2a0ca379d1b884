package disk

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/layout"
)

// memDisk returns a disk over an empty Pebble in memory.
func memDisk(t testing.TB) *Disk {
	t.Helper()
	db, err := pebble.Open("data", &pebble.Options{FS: vfs.NewMem(), FormatMajorVersion: pebble.FormatNewest, Logger: quiet{}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	d := New(Config{}, base.NewFence(nil, func(error) {}), &base.Counters{})
	d.db = db
	return d
}

// quiet is a logger that says nothing.
type quiet struct{}

func (quiet) Infof(string, ...any)  {}
func (quiet) Errorf(string, ...any) {}
func (quiet) Fatalf(format string, args ...any) {
	panic(fmt.Sprintf(format, args...))
}

// setApart puts a record whose value stands apart into a batch.
func setApart(t testing.TB, b *pebble.Batch, shard uint16, key string, v layout.Version, expiry uint64, value []byte) {
	t.Helper()
	pkey := AppendKey(nil, shard, KindData, []byte(key))
	rec := make([]byte, NotedSize(expiry != 0))
	PutNoted(rec, pkey, v, expiry, NoteOf(value))
	vkey := AppendKey(nil, shard, KindValue, []byte(key))
	if err := errors.Join(b.Set(pkey, rec, nil), b.Set(vkey, recordBytes(vkey, Record{Version: v, Value: value}), nil)); err != nil {
		t.Fatal(err)
	}
}

// recordBytes returns a record as it stands under pkey.
func recordBytes(pkey []byte, r Record) []byte {
	b := make([]byte, RecordSize(len(r.Value), r.Expiry != 0))
	PutRecord(b, pkey, r)
	return b
}

// apply changes the base by one batch.
func (d *Disk) apply(t testing.TB, f func(b *pebble.Batch)) {
	t.Helper()
	b := d.db.NewBatch()
	defer b.Close()
	f(b)
	if err := b.Commit(pebble.NoSync); err != nil {
		t.Fatal(err)
	}
}

// TestReadApart: a value is read wherever it stands, by Read and by walks, of one moment.
func TestReadApart(t *testing.T) {
	d := memDisk(t)
	large, inline := bytes.Repeat([]byte("a"), 5000), bytes.Repeat([]byte("i"), 3000)
	d.apply(t, func(b *pebble.Batch) {
		setApart(t, b, 1, "a", 7, 99, large)
		setApart(t, b, 1, "b", 8, 0, large[:SeparateFrom])
		for _, k := range []string{"c", "d"} {
			pkey := AppendKey(nil, 1, KindData, []byte(k))
			r := Record{Version: 9, Expiry: 5, Value: inline}
			if k == "d" {
				r.Value = []byte("small")
			}
			if err := b.Set(pkey, recordBytes(pkey, r), nil); err != nil {
				t.Fatal(err)
			}
		}
	})
	want := map[string]Record{
		"a": {Version: 7, Expiry: 99, Value: large}, "b": {Version: 8, Value: large[:SeparateFrom]},
		"c": {Version: 9, Expiry: 5, Value: inline}, "d": {Version: 9, Expiry: 5, Value: []byte("small")},
	}
	same := func(a, b Record) bool {
		return a.Version == b.Version && a.Expiry == b.Expiry && bytes.Equal(a.Value, b.Value)
	}
	for k, r := range want {
		got, closer, err := d.Read(1, []byte(k))
		if err != nil || !same(got, r) {
			t.Fatalf("%s: %+v, %v", k, got, err)
		}
		if err := closer.Close(); err != nil {
			t.Error(err)
		}
	}
	lower, upper := KindBounds(1, KindData)
	snap := d.Snapshot()
	defer snap.Close()
	ofSnap, err := snap.Records(lower, upper)
	if err != nil {
		t.Fatal(err)
	}
	defer ofSnap.Close()
	now, err := d.Records(lower, upper)
	if err != nil {
		t.Fatal(err)
	}
	defer now.Close()
	// What changes now is not seen by either walk.
	d.apply(t, func(b *pebble.Batch) {
		setApart(t, b, 1, "a", 17, 0, inline)
		if err := errors.Join(b.Delete(AppendKey(nil, 1, KindData, []byte("b")), nil), b.Delete(AppendKey(nil, 1, KindValue, []byte("b")), nil)); err != nil {
			t.Fatal(err)
		}
	})
	for _, walk := range []Records{ofSnap, now} {
		n := 0
		for walk.First(); walk.Valid(); walk.Next() {
			n++
			_, _, key, _ := ParseKey(walk.Key())
			r := want[string(key)]
			size, apart := walk.Size()
			if size != RecordSize(len(r.Value), r.Expiry != 0) || apart != (len(r.Value) > 100) {
				t.Errorf("%s: size %d, %v", key, size, apart)
			}
			head, note, noted := walk.Noted()
			if noted != (string(key) < "c") || noted && (head.Version != r.Version || head.Expiry != r.Expiry || note != NoteOf(r.Value)) {
				t.Errorf("%s: noted %v, %+v, %+v", key, noted, head, note)
			}
			if got, damage, err := walk.Whole(); damage != nil || err != nil || !same(got, r) {
				t.Errorf("%s: %+v, %v, %v", key, got, damage, err)
			}
		}
		if n != len(want) || walk.Error() != nil {
			t.Errorf("%d records, %v", n, walk.Error())
		}
	}
}

// TestReadApartDamaged: a record and a value that do not belong together are damage, for
// Read and for a walk, which goes on behind it.
func TestReadApartDamaged(t *testing.T) {
	value := bytes.Repeat([]byte("v"), 2000)
	pkey, vkey := AppendKey(nil, 1, KindData, []byte("k")), AppendKey(nil, 1, KindValue, []byte("k"))
	set := func(key, rec []byte) func(*pebble.Batch) error {
		return func(b *pebble.Batch) error { return b.Set(key, rec, nil) }
	}
	noted := make([]byte, NotedSize(false))
	PutNoted(noted, pkey, 7, 0, NoteOf(value))
	flipped := bytes.Clone(noted)
	flipped[len(flipped)-1] ^= 1
	huge := make([]byte, NotedSize(false))
	PutNoted(huge, pkey, 7, 0, Note{Length: 1 << 62})
	for name, breakIt := range map[string]func(*pebble.Batch) error{
		"no value":         func(b *pebble.Batch) error { return b.Delete(vkey, nil) },
		"another version":  set(vkey, recordBytes(vkey, Record{Version: 6, Value: value})),
		"another length":   set(vkey, recordBytes(vkey, Record{Version: 7, Value: value[1:]})),
		"another value":    set(vkey, recordBytes(vkey, Record{Version: 7, Value: bytes.Repeat([]byte("w"), 2000)})),
		"damaged value":    set(vkey, []byte("gibberish, longer than the head of a record")),
		"another's value":  set(vkey, recordBytes(pkey, Record{Version: 7, Value: value})),
		"damaged note":     set(pkey, flipped),
		"impossible note":  set(pkey, huge),
		"damaged record":   set(pkey, []byte("gibberish")),
		"value is no data": set(vkey, noted),
	} {
		t.Run(name, func(t *testing.T) {
			d := memDisk(t)
			d.apply(t, func(b *pebble.Batch) {
				setApart(t, b, 1, "k", 7, 0, value)
				setApart(t, b, 1, "l", 8, 0, value)
				if err := breakIt(b); err != nil {
					t.Fatal(err)
				}
			})
			_, _, err := d.Read(1, []byte("k"))
			var damage *base.CorruptError
			if !errors.As(err, &damage) || string(damage.Key) != "k" || damage.Shard != 1 || d.counts.Corrupt.Load() != 1 {
				t.Errorf("Read: %v, counted %d", err, d.counts.Corrupt.Load())
			}
			lower, upper := KindBounds(1, KindData)
			walk, err := d.Records(lower, upper)
			if err != nil {
				t.Fatal(err)
			}
			defer walk.Close()
			walk.First()
			if _, damage, err := walk.Whole(); err != nil || damage == nil || string(damage.Key) != "k" || damage.Shard != 1 {
				t.Errorf("Whole: %v, %v", damage, err)
			}
			if n, _ := walk.Size(); n < 0 {
				t.Errorf("a size of %d", n)
			}
			walk.Next()
			if rec, damage, err := walk.Whole(); err != nil || damage != nil || !bytes.Equal(rec.Value, value) {
				t.Errorf("behind it: %v, %v", damage, err)
			}
		})
	}
}

// TestReadApartChanging: Read never takes a change between its two gets for damage.
func TestReadApartChanging(t *testing.T) {
	d := memDisk(t)
	value := func(v layout.Version) []byte {
		return bytes.Repeat([]byte{byte(v)}, SeparateFrom+int(v%7))
	}
	put := func(v layout.Version) {
		d.apply(t, func(b *pebble.Batch) { setApart(t, b, 1, "k", v, 0, value(v)) })
	}
	put(1)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for v := layout.Version(2); ctx.Err() == nil; v++ {
			put(v)
		}
	}()
	for range 2000 {
		rec, closer, err := d.Read(1, []byte("k"))
		if err != nil {
			t.Error(err)
			break
		}
		if !bytes.Equal(rec.Value, value(rec.Version)) {
			t.Errorf("version %v with another value", rec.Version)
		}
		if err := closer.Close(); err != nil {
			t.Error(err)
		}
	}
	cancel()
	<-done
}

// FuzzNotedPair: whatever stands under the two keys, Read and a walk say the same, and show
// only a value that the record notes.
func FuzzNotedPair(f *testing.F) {
	pkey, vkey := AppendKey(nil, 1, KindData, []byte("k")), AppendKey(nil, 1, KindValue, []byte("k"))
	value := bytes.Repeat([]byte("v"), 100)
	for _, expiry := range []uint64{0, 2} {
		b := make([]byte, NotedSize(expiry != 0))
		PutNoted(b, pkey, 7, expiry, NoteOf(value))
		f.Add(b, recordBytes(vkey, Record{Version: 7, Value: value}), true)
		f.Add(b, recordBytes(vkey, Record{Version: 6, Value: value}), true)
		f.Add(b, recordBytes(vkey, Record{Version: 7, Expiry: expiry, Value: value[1:]}), false)
		f.Add(recordBytes(pkey, Record{Version: 1, Value: value}), []byte("x"), false)
	}
	d := memDisk(f)
	f.Fuzz(func(t *testing.T, b, vb []byte, there bool) {
		d.apply(t, func(batch *pebble.Batch) {
			err := errors.Join(batch.Set(pkey, b, nil), batch.Delete(vkey, nil))
			if there {
				err = errors.Join(err, batch.Set(vkey, vb, nil))
			}
			if err != nil {
				t.Fatal(err)
			}
		})
		lower, upper := KindBounds(1, KindData)
		walk, err := d.Records(lower, upper)
		if err != nil {
			t.Fatal(err)
		}
		defer walk.Close()
		walk.First()
		if n, _ := walk.Size(); n < 0 || n > len(b)+RecordSize(layout.MaxValueLen, true) {
			t.Errorf("a size of %d", n)
		}
		whole, damage, err := walk.Whole()
		if err != nil {
			t.Fatal(err)
		}
		rec, closer, err := d.Read(1, []byte("k"))
		if (err == nil) != (damage == nil) {
			t.Fatalf("Read: %v; Whole: %v", err, damage)
		}
		if err != nil {
			return
		}
		defer closer.Close()
		if rec.Version != whole.Version || rec.Expiry != whole.Expiry || !bytes.Equal(rec.Value, whole.Value) {
			t.Errorf("Read: %+v; Whole: %+v", rec, whole)
		}
		if _, note, apart, err := ParseNoted(b, pkey); err != nil || apart && NoteOf(rec.Value) != note {
			t.Errorf("a value that is not the noted one: %v", err)
		}
	})
}

func BenchmarkRead(b *testing.B) {
	for _, size := range []int{100, 1 << 10, 64 << 10} {
		for _, apart := range []bool{false, true} {
			name := fmt.Sprintf("%d/inline", size)
			if apart {
				name = fmt.Sprintf("%d/apart", size)
			}
			b.Run(name, func(b *testing.B) {
				d := memDisk(b)
				value := make([]byte, size)
				d.apply(b, func(batch *pebble.Batch) {
					for i := range 1000 {
						key := fmt.Sprintf("key-%04d", i)
						if apart {
							setApart(b, batch, 1, key, 7, 0, value)
							continue
						}
						pkey := AppendKey(nil, 1, KindData, []byte(key))
						if err := batch.Set(pkey, recordBytes(pkey, Record{Version: 7, Value: value}), nil); err != nil {
							b.Fatal(err)
						}
					}
				})
				if err := d.db.Flush(); err != nil {
					b.Fatal(err)
				}
				key := []byte("key-0500")
				b.ReportAllocs()
				for b.Loop() {
					_, closer, err := d.Read(1, key)
					if err != nil {
						b.Fatal(err)
					}
					closer.Close()
				}
			})
		}
	}
}
