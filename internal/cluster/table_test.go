package cluster

import (
	"errors"
	"reflect"
	"testing"

	"pgregory.net/rapid"
)

func drawRegion(t *rapid.T, id uint32) Region {
	r := Region{
		ID: id, Kind: uint8(rapid.IntRange(1, 2).Draw(t, "kind")), State: Serving,
		Base: uint64(id) << 20, Length: 1 << 20,
	}
	if rapid.Bool().Draw(t, "retired") {
		r.State = Retired
	}
	for dev := range uint8(rapid.IntRange(0, 2).Draw(t, "keys")) {
		r.Keys = append(r.Keys, RemoteKey{Device: dev, RKey: rapid.Uint32().Draw(t, "rkey"), Addr: rapid.Uint64().Draw(t, "addr")})
	}
	return r
}

// drawNext changes some regions of a table, adds some and takes some away.
func drawNext(t *rapid.T, old *Table, space int) *Table {
	next := &Table{Node: "n", Incarnation: 1, Version: 1, Devices: []string{"a", "b"}}
	if old != nil {
		next.Version = old.Version + uint64(rapid.IntRange(1, 3).Draw(t, "step"))
	}
	touch := rapid.SliceOfN(rapid.IntRange(0, space-1), 0, 6).Draw(t, "touch")
	touched := map[uint32]bool{}
	for _, id := range touch {
		touched[uint32(id)] = true
	}
	for id := range uint32(space) {
		var was *Region
		if old != nil {
			was = old.Region(id)
		}
		switch {
		case !touched[id] && was != nil:
			next.Regions = append(next.Regions, *was)
		case touched[id] && rapid.Bool().Draw(t, "there"):
			next.Regions = append(next.Regions, drawRegion(t, id))
		}
	}
	return next
}

// A delta of Diff leads exactly from one table to the other; deltas of a
// History lead to the last table from every version that they claim, whatever
// was missed in between, and stay within their limit.
func TestDeltasLead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var h History
		var all []*Table
		var last *Table
		space := rapid.IntRange(1, 40).Draw(t, "space")
		limit := rapid.IntRange(120, 1000).Draw(t, "limit")
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			next := drawNext(t, last, space)
			if last != nil {
				got, err := last.Apply(next.Diff(last))
				if err != nil || got.Digest() != next.Digest() {
					t.Fatalf("diff: %v\n%+v\n%+v", err, got, next)
				}
			}
			h.Add(next)
			all = append(all, next)
			last = next

			d := h.Delta(limit)
			b := AppendDelta(nil, d)
			if len(b) > limit {
				t.Fatalf("%d bytes, at most %d", len(b), limit)
			}
			if again, err := ParseDelta(b); err != nil || again.To != next.Version {
				t.Fatalf("parse: %v", err)
			}
			for _, old := range append(all, nil) {
				got, err := old.Apply(d)
				reaches := d.From != d.To && (d.From == 0 || old != nil && old.Version >= d.From) || old == next
				switch {
				case reaches && err != nil:
					t.Fatalf("from %v by %d->%d: %v", old, d.From, d.To, err)
				case reaches && got.Digest() != next.Digest():
					t.Fatalf("from %v by %d->%d: %+v", old, d.From, d.To, got)
				case !reaches && !errors.Is(err, ErrGap):
					t.Fatalf("from %v by %d->%d: %v", old, d.From, d.To, err)
				}
			}
		}
	})
}

// As long as everything fits, an advert is worth the whole table.
func TestSmallTablesTravelWhole(t *testing.T) {
	var h History
	table := sampleTable()
	h.Add(table)
	next := *table
	next.Version++
	next.Regions = next.Regions[:2]
	h.Add(&next)
	d := h.Delta(1000)
	if d.From != 0 {
		t.Fatalf("delta from %d", d.From)
	}
	got, err := (*Table)(nil).Apply(d)
	if err != nil || !reflect.DeepEqual(got.Regions, next.Regions) {
		t.Fatalf("%v %+v", err, got)
	}
}

// A history does not grow with the regions that were ever there.
func TestHistoryForgets(t *testing.T) {
	var h History
	for v := range uint64(20) {
		table := &Table{Node: "n", Incarnation: 1, Version: v + 1}
		for i := range uint32(5000) {
			table.Regions = append(table.Regions, Region{ID: uint32(v)*5000 + i, Kind: 2, State: Serving, Length: 8})
		}
		h.Add(table)
		if len(h.changes) > 2*MaxRegions+5000 {
			t.Fatalf("version %d: %d changes are kept", v+1, len(h.changes))
		}
		if d := h.Delta(1000); d.From != d.To {
			t.Fatalf("version %d: a delta from %d to %d in 1000 bytes", v+1, d.From, d.To)
		}
	}
	if h.first == 0 {
		t.Fatal("nothing was forgotten")
	}
	// What is still known leads on; what was forgotten does not.
	last, _ := h.Last()
	next := *last
	next.Version++
	next.Regions = next.Regions[1:]
	h.Add(&next)
	d := h.Delta(1000)
	if got, err := last.Apply(d); err != nil || got.Digest() != next.Digest() {
		t.Fatalf("%v", err)
	}
	old := &Table{Node: "n", Incarnation: 1, Version: 1}
	if _, err := old.Apply(d); !errors.Is(err, ErrGap) {
		t.Fatalf("from a forgotten version: %v", err)
	}
}

func TestTableCheck(t *testing.T) {
	for name, spoil := range map[string]func(*Table){
		"version 0":   func(t *Table) { t.Version = 0 },
		"node":        func(t *Table) { t.Node = "NODE" },
		"order":       func(t *Table) { t.Regions[0].ID = 50 },
		"state":       func(t *Table) { t.Regions[0].State = 3 },
		"empty":       func(t *Table) { t.Regions[0].Length = 0 },
		"overflow":    func(t *Table) { t.Regions[0].Base = ^uint64(0) },
		"device":      func(t *Table) { t.Regions[0].Keys[1].Device = 2 },
		"key order":   func(t *Table) { t.Regions[0].Keys[1].Device = 0 },
		"device name": func(t *Table) { t.Devices[0] = "a b" },
		"devices":     func(t *Table) { t.Devices = make([]string, 9) },
		"regions":     func(t *Table) { t.Regions = make([]Region, MaxRegions+1) },
	} {
		table := sampleTable()
		spoil(table)
		if err := table.Check(); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
