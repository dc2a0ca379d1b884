package places

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/rdmakv/rdmakv/store/layout"
)

func retiredPages(from uint64, places ...layout.Place) (entries []layout.Retired) {
	for i, p := range places {
		entries = append(entries, layout.Retired{Version: from + uint64(i), Place: p, Pages: 2})
	}
	return entries
}

func TestRetiredLog(t *testing.T) {
	log := NewRetired(10)
	log = log.Extend(retiredPages(11, 512, 4096, 8192)) // versions 11, 12, 13; 8 KiB each
	for _, tc := range []struct {
		place layout.Place
		size  uint32
		since uint64
		want  bool
	}{
		{512, 64, 10, true},                // in the page retired as 11
		{512, 64, 11, false},               // known good after that
		{512 + 1023, 8, 10, true},          // its last word
		{512 + 1024, 8, 10, false},         // behind it
		{0, 512 * 8, 10, false},            // ends where it begins
		{0, 512*8 + 8, 10, true},           // reaches into it
		{8192, 64, 12, true},               // 13 came after 12
		{8192, 64, 13, false},              //
		{8192, 64, 99, false},              // stamped under a newer log
		{1 << 30, 64, 10, false},           // elsewhere
		{1 << 30, 64, 9, true},             // before the log begins: it is not known
		{4096 - 1, 2*4096*8 + 8, 10, true}, // larger than the page, on both sides
	} {
		if got := log.Has(tc.place, tc.size, tc.since); got != tc.want {
			t.Errorf("retired(%v, %d, since %d) = %v", tc.place, tc.size, tc.since, got)
		}
	}
	forgot := log.Forget(40)
	if !forgot.Has(1<<30, 8, 39) || forgot.Has(1<<30, 8, 40) {
		t.Error("a log that forgot everything must retire everything before, and nothing after")
	}
}

func TestRetiredLogIsBounded(t *testing.T) {
	log := NewRetired(0)
	for v := uint64(1); v <= 3*maxRetired; v++ {
		log = log.Extend(retiredPages(v, layout.Place(v*1024)))
	}
	if len(log.entries) != maxRetired || log.Version != 3*maxRetired || log.floor != 2*maxRetired {
		t.Fatalf("%d entries, floor %d, version %d", len(log.entries), log.floor, log.Version)
	}
	if !log.Has(1, 8, 2*maxRetired-1) || log.Has(1, 8, 2*maxRetired) {
		t.Error("the floor is not where it should be")
	}
	if v := uint64(2*maxRetired + 5); !log.Has(layout.Place(v*1024), 8, v-1) || log.Has(layout.Place(v*1024), 8, v) {
		t.Error("an entry is not at its version")
	}
}

// The spans cover exactly the entries between, in ring order.
func TestRingSpan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		entries := rapid.Uint32Range(1, 5000).Draw(t, "entries")
		have := rapid.Uint64Range(0, 1<<40).Draw(t, "have")
		want := have + rapid.Uint64Range(1, 2000).Draw(t, "ahead")
		first, second, ok := RingSpan(have, want, entries)
		if !ok {
			if n := want - have; n <= maxRetired/2 && n <= uint64(entries)/2 {
				t.Fatalf("%d entries of a ring of %d refused", n, entries)
			}
			return
		}
		if first < 1 || second < 0 || uint64(first+second) != want-have {
			t.Fatalf("%d + %d entries for %d", first, second, want-have)
		}
		start := (have + 1) % uint64(entries)
		if start+uint64(first) > uint64(entries) || second > 0 && start+uint64(first) != uint64(entries) {
			t.Fatalf("%d entries from %d of %d, then %d", first, start, entries, second)
		}
	})
}

func TestParseRing(t *testing.T) {
	h := layout.RegionHeader{ReclaimOffset: 0, ReclaimEntries: 8}
	mem := make([]byte, 8*layout.RetiredSize)
	for v := uint64(1); v <= 11; v++ { // 9, 10, 11 overwrite 1, 2, 3
		layout.PutRetired(mem, h, layout.Retired{Version: v, Place: layout.Place(v * 512), Pages: 1})
	}
	at := func(v uint64) []byte { return mem[v%8*layout.RetiredSize:] }
	if got, ok := ParseRing(nil, at(4), 4, 4); !ok || len(got) != 4 || got[3].Place != 7*512 {
		t.Errorf("%+v %v", got, ok)
	}
	if _, ok := ParseRing(nil, at(1), 1, 1); ok {
		t.Error("an entry that was overwritten passed for the one before it")
	}
	if _, ok := ParseRing(nil, make([]byte, layout.RetiredSize), 1, 1); ok {
		t.Error("an entry that was never written passed")
	}
}
