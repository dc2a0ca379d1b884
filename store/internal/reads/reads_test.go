package reads

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/shard"
	"github.com/rdmakv/rdmakv/store/layout"
)

// testReads are reads of a store of two shards that are never looked into.
func testReads(holdBytes int64) *Reads {
	fence := base.NewFence(slog.New(slog.DiscardHandler), func(error) {})
	return New(Env{
		Door:   base.NewDoor(fence),
		Memory: &shard.Memory{Fence: fence, Counts: new(base.Counters)},
		Shards: make([]*shard.Shard, 2), HoldBytes: holdBytes,
	})
}

// TestRefused: what can be refused is refused before any shard is looked into, and leaves
// nobody in the door.
func TestRefused(t *testing.T) {
	r := testReads(1)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		ctx   context.Context
		shard uint16
		key   []byte
		want  error
	}{
		{over, 0, []byte("k"), context.Canceled},
		{t.Context(), 0, nil, base.ErrKeyEmpty},
		{t.Context(), 0, make([]byte, layout.MaxKeyLen+1), base.ErrKeyTooLarge},
		{t.Context(), 2, []byte("k"), base.ErrShard},
	} {
		_, get := r.Get(c.ctx, c.shard, c.key, nil)
		_, stat := r.Stat(c.ctx, c.shard, c.key)
		_, hold := r.Hold(c.ctx, c.shard, c.key)
		for _, err := range []error{get, stat, hold} {
			if err != c.want {
				t.Errorf("%v, want %v", err, c.want)
			}
		}
	}
	select {
	case <-r.env.Door.Close():
	default:
		t.Error("a call that was refused is still inside")
	}
	if _, err := r.Get(t.Context(), 0, []byte("k"), nil); err != base.ErrClosed {
		t.Errorf("behind Close: %v", err)
	}
	if _, err := r.Scan(t.Context(), ScanRequest{}); err != base.ErrClosed {
		t.Errorf("a scan behind Close: %v", err)
	}
}

// TestHoldBudget: small answers have a part of the budget that large ones cannot take, one
// answer alone may exceed it, and what is refused takes nothing.
func TestHoldBudget(t *testing.T) {
	const limit = 64 << 10
	small, large := int(limit/smallHolds), int(limit/2)
	for _, c := range []struct {
		name  string
		sizes []int
		fits  []bool
	}{
		{"large ones", []int{large, large, large, 8}, []bool{true, true, false, true}},
		{"one alone", []int{3 * limit, large, small}, []bool{true, false, false}},
		{"small behind large", []int{limit, small, small + 8, small}, []bool{true, true, false, true}},
	} {
		r := testReads(limit)
		sum := 0
		for i, size := range c.sizes {
			err := r.budgetHold(size)
			if (err == nil) != c.fits[i] || err != nil && !errors.Is(err, base.ErrOverloaded) {
				t.Errorf("%s: %d bytes behind %d: %v", c.name, size, sum, err)
			}
			if err == nil {
				sum += size
			}
			if used, most := r.HoldUse(); used != int64(sum) || most != limit {
				t.Errorf("%s: %d of %d are used, want %d", c.name, used, most, sum)
			}
		}
	}
	r := testReads(limit)
	n := 0
	for r.budgetHold(small) == nil {
		n += small
	}
	if n != limit+limit/SmallHoldExtra {
		t.Errorf("small answers take %d, want %d", n, limit+limit/SmallHoldExtra)
	}
}

// TestFitted: what does not fit a page ends it, unless it is the first: then it is told
// without its value.
func TestFitted(t *testing.T) {
	for _, c := range []struct {
		valLen, left    int
		keysOnly, first bool
		kind            entryKind
		omitted         bool
	}{
		{valLen: 7, left: 10, kind: entryFits},
		{valLen: 8, left: 10, kind: entryTooLarge},
		{valLen: 8, left: 10, first: true, kind: entryLast, omitted: true},
		{valLen: 8, left: 10, keysOnly: true, kind: entryFits},
		{valLen: 0, left: 10, kind: entryFits},
	} {
		e := ScanEntry{Key: []byte("key"), ValLen: c.valLen}
		if c.valLen > 0 {
			e.Value = make([]byte, c.valLen)
		}
		e, kind, err := e.fitted(room{left: c.left, keysOnly: c.keysOnly, first: c.first})
		if err != nil || kind != c.kind || e.Omitted != c.omitted || c.omitted && e.Value != nil {
			t.Errorf("%+v: kind %d, omitted %v, %v", c, kind, e.Omitted, err)
		}
		if kind == entryFits && !c.keysOnly && e.Value == nil {
			t.Errorf("%+v: an empty value is told as none", c)
		}
	}
}

// TestScanOfSome: the pages of a scan of some shards have all keys of those, whatever is asked for, and none of the others, and no page is
// short because of these.
func TestScanOfSome(t *testing.T) {
	const shards, keys = 4, 200
	w := newWorld(t, shards, vfs.NewMem())
	for i := range keys {
		if w.do(put(fmt.Sprintf("%c%03d", 'a'+i%7, i), "v")); i == keys/2 {
			w.checkpoint() // half of them are in the base, the others in what is newer
		}
	}
	for _, some := range [][]uint16{nil, {}, {2}, {0, 3}, {3, 1, 0}} {
		var want, got []string
		for key, rec := range w.state {
			if some == nil || slices.Contains(some, rec.shard) {
				want = append(want, key)
			}
		}
		slices.Sort(want)
		req := ScanRequest{Limit: 7, Shards: some}
		for {
			p, err := w.reads.Scan(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			if p.More && len(p.Entries) != req.Limit {
				t.Errorf("shards %v: a page of %d, and there are more", some, len(p.Entries))
			}
			for _, e := range p.Entries {
				got = append(got, string(e.Key))
			}
			if req.After = p.Next; !p.More {
				break
			}
		}
		if !slices.Equal(got, want) || len(some) > 0 && (len(got) == 0 || len(got) == keys) {
			t.Errorf("shards %v: %d keys, want %d", some, len(got), len(want))
		}
	}
	if _, err := w.reads.Scan(t.Context(), ScanRequest{Shards: []uint16{0, shards}}); err != base.ErrShard {
		t.Errorf("a shard that is not there: %v", err)
	}
}
