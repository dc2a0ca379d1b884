package warm

import (
	"errors"
	"slices"
	"testing"

	"github.com/rdmakv/rdmakv/store/layout"
	"github.com/rdmakv/rdmakv/store/region"
)

func someLife() Life {
	return Life{Fingerprint: 1, Seed: 2, Shards: 3, Versions: 4, Clock: 5, Incarnations: []uint64{6, 7}}
}

func same(a, b Life) bool {
	return a.Fingerprint == b.Fingerprint && a.Seed == b.Seed && a.Shards == b.Shards && a.Versions == b.Versions && a.Clock == b.Clock &&
		slices.Equal(a.Incarnations, b.Incarnations)
}

// TestRecord: what was changed last is read back, also if either place of the record is damaged, in any word; if both are, there is none.
func TestRecord(t *testing.T) {
	mem := make([]byte, region.RecordBytes)
	if _, err := ReadLife(mem); !errors.Is(err, ErrNoLife) {
		t.Errorf("of zeros: %v", err)
	}
	r := NewRecord(mem, someLife())
	want := someLife()
	for i := range 5 {
		want.Versions, want.Clock, want.Incarnations = layout.Version(100+i), uint64(200+i), []uint64{uint64(300 + i)}
		r.Change(func(l *Life) { l.Versions, l.Clock, l.Incarnations = want.Versions, want.Clock, want.Incarnations })
		for word := range recordWords {
			for first := range 2 {
				damaged := slices.Clone(mem)
				flip := func(place int) {
					off := place*placeBytes + 8*word
					layout.StoreWord(damaged, off, layout.LoadWord(damaged, off)^1<<17)
				}
				flip(first)
				if l, err := ReadLife(damaged); err != nil || !same(l, want) {
					t.Fatalf("word %d of place %d is damaged: %+v, %v; want %+v", word, first, l, err, want)
				}
				flip(1 - first)
				if l, err := ReadLife(damaged); !errors.Is(err, ErrNoLife) {
					t.Fatalf("word %d of both places is damaged: %+v, %v", word, l, err)
				}
			}
		}
	}
	// The next life takes the numbers of the places on.
	r = NewRecord(mem, someLife())
	if l, err := ReadLife(mem); err != nil || !same(l, someLife()) {
		t.Errorf("a record behind another: %+v, %v", l, err)
	}
	r.Change(func(l *Life) { l.Versions = 9 })
	if l, err := ReadLife(mem); err != nil || l.Versions != 9 {
		t.Errorf("a changed record behind another: %+v, %v", l, err)
	}
}

// TestRecordHostile: a record that says what no life says is none, though its checksum holds.
func TestRecordHostile(t *testing.T) {
	for name, change := range map[string]func(w *[recordWords]uint64){
		"no magic":               func(w *[recordWords]uint64) { w[wordMagic] = 0 },
		"another format":         func(w *[recordWords]uint64) { w[wordMagic]++ },
		"no shards":              func(w *[recordWords]uint64) { w[wordShards] = 0 },
		"many shards":            func(w *[recordWords]uint64) { w[wordShards] = 1 << 40 },
		"no version":             func(w *[recordWords]uint64) { w[wordVersions] = 0 },
		"versions at their end":  func(w *[recordWords]uint64) { w[wordVersions] = uint64(layout.MaxVersion) - 5 },
		"versions behind it":     func(w *[recordWords]uint64) { w[wordVersions] = ^uint64(0) },
		"a clock without end":    func(w *[recordWords]uint64) { w[wordClock] = ^uint64(0) },
		"no incarnation":         func(w *[recordWords]uint64) { w[wordCount] = 0 },
		"a thousand of them":     func(w *[recordWords]uint64) { w[wordCount] = 1000 },
		"more than can be named": func(w *[recordWords]uint64) { w[wordCount] = MaxIncarnations + 1 },
	} {
		mem := make([]byte, region.RecordBytes)
		NewRecord(mem, someLife())
		for at := 0; at < len(mem); at += placeBytes {
			var w [recordWords]uint64
			for i := range w {
				w[i] = layout.LoadWord(mem, at+8*i)
			}
			change(&w)
			w[wordSum] = sumOf(&w)
			for i := range w {
				layout.StoreWord(mem, at+8*i, w[i])
			}
		}
		if l, err := ReadLife(mem); !errors.Is(err, ErrNoLife) {
			t.Errorf("%s: %+v, %v", name, l, err)
		}
	}
}
