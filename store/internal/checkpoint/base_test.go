package checkpoint

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/objstorage/objstorageprovider"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/clock"
	"github.com/rdmakv/rdmakv/store/internal/dedup"
	"github.com/rdmakv/rdmakv/store/internal/disk"
	"github.com/rdmakv/rdmakv/store/internal/flight"
	"github.com/rdmakv/rdmakv/store/internal/tables"
	"github.com/rdmakv/rdmakv/store/log"
)

// baseOptions are those of a base without a log of its own.
func baseOptions(fs vfs.FS) *pebble.Options {
	o := &pebble.Options{FS: fs, FormatMajorVersion: pebble.FormatNewest, Logger: quiet{}}
	tables.Options(o)
	return o
}

// quiet is a logger that says nothing.
type quiet struct{}

func (quiet) Infof(string, ...any)  {}
func (quiet) Errorf(string, ...any) {}
func (quiet) Fatalf(format string, args ...any) {
	panic(fmt.Sprintf(format, args...))
}

// readPlace returns how far a base is.
func readPlace(db *pebble.DB) (Place, error) {
	b, done, err := db.Get(PositionKey())
	if errors.Is(err, pebble.ErrNotFound) {
		return Place{}, nil
	}
	if err != nil {
		return Place{}, err
	}
	defer done.Close()
	return ParsePlace(b)
}

// A plain is an ingest made by hand: a table for what stands between two cuts.
type plain struct {
	db    *pebble.DB
	fs    vfs.FS
	names []string
	w     *sstable.Writer
	cut   bool
	last  []byte
}

func beginPlain(db *pebble.DB, fs vfs.FS) (*plain, error) {
	if err := fs.RemoveAll("in"); err != nil {
		return nil, err
	}
	return &plain{db: db, fs: fs}, fs.MkdirAll("in", 0o755)
}

func (t *plain) next(key []byte) error {
	if t.last != nil && bytes.Compare(t.last, key) >= 0 {
		return fmt.Errorf("key %x comes after %x", key, t.last)
	}
	t.last = append(t.last[:0], key...)
	if t.w != nil && !t.cut {
		return nil
	}
	if err := t.end(); err != nil {
		return err
	}
	name := t.fs.PathJoin("in", fmt.Sprint(len(t.names)))
	f, err := t.fs.Create(name, "test")
	if err != nil {
		return err
	}
	t.names = append(t.names, name)
	o := baseOptions(t.fs)
	o.EnsureDefaults()
	t.w = sstable.NewWriter(objstorageprovider.NewFileWritable(f), o.MakeWriterOptions(0, t.db.TableFormat()))
	return nil
}

func (t *plain) end() (err error) {
	if t.w != nil {
		err = t.w.Close()
	}
	t.w, t.cut = nil, false
	return err
}

func (t *plain) Set(key, value []byte) error {
	if err := t.next(key); err != nil {
		return err
	}
	return t.w.Set(key, value)
}

func (t *plain) Delete(key []byte) error {
	if err := t.next(key); err != nil {
		return err
	}
	return t.w.Delete(key)
}

func (t *plain) CutHere() { t.cut = true }
func (t *plain) Cut()     { t.cut = true }

func (t *plain) DeleteRange(start, end []byte) error {
	if err := t.next(start); err != nil {
		return err
	}
	return t.w.DeleteRange(start, end)
}

func (t *plain) Take(path string) error {
	name := t.fs.PathJoin("in", t.fs.PathBase(path))
	t.names = append(t.names, name)
	return vfs.LinkOrCopy(t.fs, path, name)
}

func (t *plain) Abort() error { return t.end() }

func (t *plain) Commit(ctx context.Context) (tables.Stats, error) {
	if err := t.end(); err != nil {
		return tables.Stats{}, err
	}
	d, err := t.fs.OpenDir("in")
	if err == nil {
		err = errors.Join(d.Sync(), d.Close())
	}
	if err != nil {
		return tables.Stats{}, err
	}
	return tables.Stats{}, t.db.Ingest(ctx, t.names)
}

// wanted is what a base must hold at a position: what becomes of every key and every result,
// one write behind the other.
func (w *world) wanted(at log.Position) map[string]string {
	want := map[string]string{}
	for _, s := range w.said {
		if s.at >= at {
			break
		}
		if s.flight == nil {
			if names[s.fact] == "" {
				continue
			}
			key := disk.AppendKey(nil, disk.StoreShard, disk.KindMeta, []byte(names[s.fact]))
			rec := make([]byte, disk.RecordSize(len(s.body), false))
			disk.PutRecord(rec, key, disk.Record{Value: s.body})
			if want[string(key)] = string(rec); len(s.body) == 0 {
				delete(want, string(key))
			}
			continue
		}
		putFlight(want, s.flight)
	}
	return want
}

// putFlight puts what becomes of a write into a state.
func putFlight(want map[string]string, f *flight.Flight) {
	for _, e := range f.Effects {
		putEffect(want, &e.Effect)
	}
	if f.Recorded() {
		value := make([]byte, dedup.ValueLen)
		result := dedup.ResultOf(&f.Op.ID, f.Result)
		result.Encode(value)
		slot := f.Op.ID.SlotKey()
		put(want, disk.AppendKey(nil, f.Shard, disk.KindDedup, slot.Append(nil)), disk.Record{Version: f.Version, Value: value})
	}
	for i := range f.Forget {
		delete(want, string(disk.AppendKey(nil, f.Shard, disk.KindDedup, f.Forget[i].Append(nil))))
	}
}

// put puts a record into a state.
func put(state map[string]string, pkey []byte, r disk.Record) {
	rec := make([]byte, disk.RecordSize(len(r.Value), r.Expiry != 0))
	disk.PutRecord(rec, pkey, r)
	state[string(pkey)] = string(rec)
}

// putEffect puts what becomes of a key into a state: its record, and the entries of the list
// of what expires.
func putEffect(state map[string]string, e *base.Effect) {
	key := disk.AppendKey(nil, e.Shard, disk.KindData, e.Key)
	listed := func(second uint64) []byte { return disk.AppendExpiryKey(nil, e.Shard, second, e.Key) }
	if e.Due != 0 {
		delete(state, string(listed(e.Due)))
	}
	if e.Noop {
		return
	}
	if e.Unlist != 0 {
		delete(state, string(listed(e.Unlist)))
	}
	if e.Kind == base.OpDelete {
		delete(state, string(key))
		return
	}
	put(state, key, disk.Record{Version: e.Version, Value: e.Value, Expiry: e.Expiry})
	if e.Expiry != 0 {
		put(state, listed(clock.Second(e.Expiry)), disk.Record{Version: e.Version})
	}
}

// dump returns what a Pebble holds, but for the position. A value that stands apart is put
// back into its record, and one that no record notes is an error.
func dump(t *testing.T, db *pebble.DB) map[string]string {
	got := map[string]string{}
	it, err := db.NewIter(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer it.Close()
	for it.First(); it.Valid(); it.Next() {
		v, err := it.ValueAndErr()
		if err != nil {
			t.Fatal(err)
		}
		got[string(it.Key())] = string(v)
	}
	if err := it.Error(); err != nil {
		t.Fatal(err)
	}
	delete(got, string(PositionKey()))
	for k, v := range got {
		shard, kind, key, _ := disk.ParseKey([]byte(k))
		if kind == disk.KindValue {
			continue // its record asks for it
		}
		r, note, apart, err := disk.ParseNoted([]byte(v), []byte(k))
		if err != nil {
			t.Fatalf("%x: %v", k, err)
		}
		if !apart {
			continue
		}
		pkey := disk.AppendKey(nil, shard, disk.KindValue, key)
		value, err := disk.ParseRecord([]byte(got[string(pkey)]), pkey)
		if err == nil {
			err = note.Matches(r.Version, value)
		}
		if err != nil {
			t.Fatalf("%x: its value: %v", k, err)
		}
		r.Value = value.Value
		whole := make([]byte, disk.RecordSize(len(r.Value), r.Expiry != 0))
		disk.PutRecord(whole, []byte(k), r)
		got[k] = string(whole)
		delete(got, string(pkey))
	}
	return got
}

// compare says how a base differs from what it must be at its position.
func (w *world) compare(what string) {
	w.t.Helper()
	place, err := readPlace(w.db)
	if err != nil {
		w.t.Fatal(err)
	}
	want, got := w.wanted(place.At), dump(w.t, w.db)
	for k, v := range want {
		if got[k] != v {
			w.t.Errorf("%s: at %v: %x is %.60x, want %.60x", what, place.At, k, got[k], v)
		}
	}
	for k, v := range got {
		if _, ok := want[k]; !ok {
			w.t.Errorf("%s: at %v: %x is %.60x, want nothing", what, place.At, k, v)
		}
	}
}
