package image

import (
	"bytes"
	"fmt"
	"maps"
	"testing"

	"github.com/cockroachdb/pebble/v2"

	"github.com/rdmakv/rdmakv/store/internal/disk"
)

// A tracked sink also counts what it hands on.
type tracked struct {
	Ranges
	cuts int
}

func (s *tracked) Cut() {
	s.cuts++
	s.Ranges.Cut()
}

// contents is everything that a base has of some shards.
func contents(t testing.TB, d *disk.Disk, shards ...uint16) map[string]string {
	t.Helper()
	got := map[string]string{}
	for _, id := range shards {
		records, err := d.Records(disk.AppendKey(nil, id, 0, nil), disk.AppendKey(nil, id+1, 0, nil))
		if err != nil {
			t.Fatal(err)
		}
		for records.First(); records.Valid(); records.Next() {
			value, err := records.Value()
			if err != nil {
				t.Fatal(err)
			}
			got[string(records.Key())] = string(value)
		}
		if err := records.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return got
}

// TestReplacement: an image takes the place of all that a base has of its shards, before, between and behind the image's keys, whether it
// is one table or many; other shards stay as they are.
func TestReplacement(t *testing.T) {
	for name, c := range map[string]struct {
		most   int
		shards []uint16
		empty  bool
	}{
		"one table":                 {tableBytes, []uint16{1, 3}, false},
		"a table for each key":      {1, []uint16{3, 1}, false},
		"some tables":               {5000, []uint16{0, 1, 4}, false},
		"shards without keys too":   {1000, []uint16{2, 6, 7}, false},
		"an image that has nothing": {5000, []uint16{1, 2, 3}, true},
	} {
		t.Run(name, func(t *testing.T) {
			from, _ := aBase(t)
			if c.empty {
				from, _ = emptyBase(t)
			}
			to, _ := aBase(t)
			// What is here and not in the image: before, between and behind its keys, of every kind.
			b := to.ForTests().DB().NewBatch()
			for id := range uint16(8) {
				for _, kind := range []disk.Kind{disk.KindData, disk.KindDedup, disk.KindExpiry, disk.KindValue} {
					for i := range 5 {
						if err := b.Set(disk.AppendKey(nil, id, kind, fmt.Appendf(nil, "k%02d-old", i*7)), []byte("old"), nil); err != nil {
							t.Fatal(err)
						}
					}
				}
			}
			if err := b.Commit(pebble.NoSync); err != nil {
				t.Fatal(err)
			}
			if err := to.ForTests().DB().Flush(); err != nil {
				t.Fatal(err)
			}
			want := contents(t, to, 0, 1, 2, 3, 4, 5, 6, 7)
			for k := range contents(t, to, c.shards...) {
				delete(want, k)
			}
			maps.Copy(want, contents(t, from, c.shards...))
			in, err := to.Incoming(t.Context(), 9, 0)
			if err != nil {
				t.Fatal(err)
			}
			sink := &tracked{Ranges: in}
			r := NewReplacement(sink, c.shards)
			r.most = c.most
			if _, _, err := Load(t.Context(), bytes.NewReader(imageOf(t, from, c.shards...)), c.shards, r); err != nil {
				t.Fatal(err)
			}
			if err := r.End(); err != nil {
				t.Fatal(err)
			}
			if err := in.Ready(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := contents(t, to, c.shards...); len(got) == len(contents(t, from, c.shards...)) {
				t.Error("the base has the image before the ingest")
			}
			if _, err := in.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := contents(t, to, 0, 1, 2, 3, 4, 5, 6, 7); !maps.Equal(got, want) {
				for k := range got {
					if _, ok := want[k]; !ok {
						t.Errorf("%q is there still", k)
					}
				}
				t.Errorf("%d records, want %d", len(got), len(want))
			}
			if cut := c.most < tableBytes && !c.empty && len(contents(t, from, c.shards...)) > 0; cut != (sink.cuts > 0) {
				t.Errorf("%d cuts", sink.cuts)
			}
		})
	}
}

// TestLargeReplacement: shards that have more than a table takes come in as tables that do not overlap, wherever these would end by themselves.
func TestLargeReplacement(t *testing.T) {
	to, _ := emptyBase(t)
	in, err := to.Incoming(t.Context(), 9, 0)
	if err != nil {
		t.Fatal(err)
	}
	sink := &tracked{Ranges: in}
	r := NewReplacement(sink, []uint16{1, 2})
	value, want := make([]byte, 256<<10), 0
	for _, c := range []struct {
		shard uint16
		keys  int
	}{{1, 72}, {2, 300}} { // 18 and 75 MiB
		for i := range c.keys {
			key := disk.AppendKey(nil, c.shard, disk.KindData, fmt.Appendf(nil, "k%04d", i))
			rec := make([]byte, disk.RecordSize(len(value), false))
			disk.PutRecord(rec, key, disk.Record{Value: value})
			if err := r.Set(key, rec); err != nil {
				t.Fatal(err)
			}
			want++
		}
	}
	if err := r.End(); err != nil {
		t.Fatal(err)
	}
	if _, err := in.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := contents(t, to, 1, 2); len(got) != want || sink.cuts < 2 {
		t.Errorf("%d records, want %d; %d cuts", len(got), want, sink.cuts)
	}
}
