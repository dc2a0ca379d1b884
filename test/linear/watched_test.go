package linear

import (
	"strings"
	"testing"
)

// TestWatchJudged: what a watch may show of a history, and what not.
func TestWatchJudged(t *testing.T) {
	ops := []*Op{
		at(1, 2, put(1), version(10)),
		at(3, 4, put(2), version(11)),
		at(5, 6, both(3, 4), version(13)),
		at(7, 8, incr(5), Output{NotNumber: true}),
		at(9, Infinity, put(5), unknown),
		at(11, 12, del(), Output{Present: true, Version: 15}),
		at(13, 14, put(6), version(16)),
	}
	e := func(version uint64, key int, n int64) WatchEvent {
		return WatchEvent{Key: key, Val: Value{N: n}, HasVal: true, Version: version}
	}
	gone := WatchEvent{Gone: true, Version: 15}
	gap := WatchEvent{Skipped: true}
	all := []WatchEvent{e(10, 0, 1), e(11, 0, 2), e(12, 0, 3), e(13, 1, 4), e(14, 0, 5), gone, e(16, 0, 6)}
	without := func(i int) []WatchEvent {
		return append(append([]WatchEvent{}, all[:i]...), all[i+1:]...)
	}
	swapped := append([]WatchEvent{}, all...)
	swapped[1], swapped[2] = swapped[2], swapped[1]
	for _, c := range []struct {
		name   string
		events []WatchEvent
		since  int64
		wrong  string // a part of the error; "" is none
	}{
		{"all", all, 0, ""},
		{"without what is unknown", without(4), 0, ""},
		{"one left out", without(1), 0, "left out version 11"},
		{"the first left out", without(0), 0, "left out version 10"},
		{"the first was before the watch", without(0), 2, ""},
		{"the delete left out", without(5), 0, "left out version 15"},
		{"part of a batch left out", without(3), 0, "of the batch"},
		{"out of order", swapped, 0, "after"},
		{"twice", append(append([]WatchEvent{}, all[:2]...), all[1:]...), 0, "after"},
		{"a gap that is announced", []WatchEvent{all[0], gap, all[5], all[6]}, Infinity, ""},
		{"a gap that is not", []WatchEvent{all[0], all[5], all[6]}, Infinity, "left out"},
		{"one left out behind a gap", []WatchEvent{all[0], gap, all[1], all[5]}, Infinity, "of the batch"},
		{"another value", []WatchEvent{e(10, 0, 2)}, 0, "which was put"},
		{"from nowhere", []WatchEvent{e(9, 0, 77)}, Infinity, "nobody wrote"},
		{"the wrong key", []WatchEvent{e(10, 1, 1)}, 0, "which was put"},
		{"lags behind", all[:2], 0, ""},
		{"nothing yet", nil, 0, ""},
	} {
		err := checkWatch(&Object{ID: 1, Keys: 2, Ops: ops}, c.events, c.since)
		if c.wrong == "" && err != nil || c.wrong != "" && (err == nil || !strings.Contains(err.Error(), c.wrong)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.wrong)
		}
	}
}
