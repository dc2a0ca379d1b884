package upkeep

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/dedup"
	"github.com/rdmakv/rdmakv/store/internal/flight"
	"github.com/rdmakv/rdmakv/store/internal/pipeline"
	"github.com/rdmakv/rdmakv/store/internal/shard"
	"github.com/rdmakv/rdmakv/store/log"
)

// A dueList is the base's list of a shard's expiries: nothing leaves it but by a checkpoint.
type dueList struct {
	entries []dueEntry
	told    map[string]int // how often each key was told as one that is due
	err     error
}

type dueEntry struct {
	shard  uint16
	second uint64
	key    string
}

func (l *dueList) each(shard uint16, from uint64, first []byte, f func(second uint64, key []byte) bool) error {
	slices.SortFunc(l.entries, func(a, b dueEntry) int {
		return cmp.Or(cmp.Compare(a.second, b.second), cmp.Compare(a.key, b.key))
	})
	for _, e := range l.entries {
		if e.shard != shard || e.second < from || e.second == from && bytes.Compare([]byte(e.key), first) < 0 {
			continue
		}
		l.told[e.key]++
		if !f(e.second, []byte(e.key)) {
			l.told[e.key]-- // it was not taken
			return nil
		}
	}
	return l.err
}

// expiring is an expirer over a list, in a store whose time is so many seconds.
func (r *rig) expiring() (*Expirer, *dueList) {
	l := &dueList{told: make(map[string]int)}
	return &Expirer{Env: r.Env, list: l.each}, l
}

// all runs the expirer until it says that there is no more, as Run does.
func (r *rig) all(x *Expirer, n int) (calls int) {
	r.t.Helper()
	for more := true; more; calls++ {
		var err error
		if more, err = x.Remove(n); err != nil {
			r.t.Fatal(err)
		}
		if calls > 1000 {
			r.t.Fatal("the expirer does not end")
		}
	}
	return calls
}

// TestExpirerEnds: what stays listed is handled once, and not again before a checkpoint lists
// something; a key that comes late, under a second that is handled, is found.
func TestExpirerEnds(t *testing.T) {
	r := newRig(t, 1000)
	x, l := r.expiring()
	now := uint64(r.wall.Unix())
	for i, key := range numbered("k", 40) {
		l.entries = append(l.entries, dueEntry{uint16(i % 2), now - 100 + uint64(i/8), key})
	}
	l.entries = append(l.entries, dueEntry{0, now + 5, "later"})
	for _, sh := range r.Shards {
		sh.DueAt(0)
	}
	// A chunk ends within a second, and where one shard ends and the other begins.
	if calls := r.all(x, 3); calls != 40/3+1 {
		t.Errorf("%d calls for 40 keys", calls)
	}
	once := func(what string, times int) {
		t.Helper()
		for _, key := range numbered("k", 40) {
			if n := l.told[key]; n != times {
				t.Errorf("%s: %s was handled %d times, want %d", what, key, n, times)
			}
		}
	}
	once("a pass", 1)
	for _, sh := range r.Shards {
		sh.DueAt(0)
	}
	r.all(x, 3)
	once("another look", 1)
	if l.told["later"] != 0 {
		t.Error("a key was handled before its second")
	}
	// A checkpoint takes out what was removed, and brings a key under the last second.
	l.entries = []dueEntry{{0, now - 96, "k"}, {1, now - 200, "late"}, {0, now + 5, "later"}}
	r.Shards[0].Relist(now - 96)
	r.Shards[1].Relist(now - 200)
	r.all(x, 3)
	if l.told["k"] != 1 || l.told["late"] != 1 || l.told["later"] != 0 {
		t.Errorf("late keys were handled %d and %d times", l.told["k"], l.told["late"])
	}
	r.wall = r.wall.Add(6 * time.Second)
	r.all(x, 3)
	if l.told["later"] != 1 {
		t.Errorf("a key was handled %d times at its second", l.told["later"])
	}
}

// TestExpirerFails: what could not be ordered is handled again, a while later, and nothing
// before it is.
func TestExpirerFails(t *testing.T) {
	r := newRig(t, 3)
	x, l := r.expiring()
	now := uint64(r.wall.Unix())
	l.entries = []dueEntry{{1, now - 3, "a"}, {1, now - 2, "b"}}
	r.Shards[1].DueAt(0)
	r.all(x, 10)
	l.entries = append(l.entries, dueEntry{1, now - 2, "c"}, dueEntry{1, now - 2, "d"}, dueEntry{1, now - 1, "e"})
	r.Shards[1].DueAt(0)
	for range 3 {
		if _, err := r.Gate.TryEnter(1, 1, log.Deletes); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := x.Remove(10); !errors.Is(err, base.ErrOverloaded) {
		t.Fatal(err)
	}
	r.Gate.Leave(3, 3)
	if more, err := x.Remove(10); more || err != nil || l.told["c"] != 1 {
		t.Errorf("tried again at once: %v, %d times", err, l.told["c"])
	}
	r.wall = r.wall.Add(ExpireRetry * time.Second)
	if _, err := x.Remove(10); err != nil {
		t.Error(err)
	}
	for key, want := range map[string]int{"a": 1, "b": 1, "c": 2, "d": 2, "e": 2} {
		if n := l.told[key]; n != want {
			t.Errorf("%s was handled %d times, want %d", key, n, want)
		}
	}
}

// TestExpirerDamage: a list that cannot be read is not read again at once, and what was read
// of it counts.
func TestExpirerDamage(t *testing.T) {
	r := newRig(t, 100)
	x, l := r.expiring()
	now := uint64(r.wall.Unix())
	l.entries, l.err = []dueEntry{{0, now - 1, "k"}}, &base.CorruptError{}
	r.Shards[0].DueAt(0)
	for range 10 {
		if more, err := x.Remove(10); more || err != nil && !errors.Is(err, base.ErrCorrupt) {
			t.Error(more, err)
		}
	}
	if l.told["k"] != 1 || r.Shards[0].TakeDue(now+59) || !r.Shards[0].TakeDue(now+60) {
		t.Errorf("handled %d times, or not looked at again a minute later", l.told["k"])
	}
}

// TestForgetterWaits: a removal that the base does not have yet is not ordered again.
func TestForgetterWaits(t *testing.T) {
	r := newRig(t, 100)
	r.at = 4096
	x := NewForgetter(r.Env, dedup.New(16), slog.New(slog.DiscardHandler))
	told := 0
	each := func(shard uint16, _ []byte, f func([]byte, base.SlotKey, dedup.Result) bool) error {
		if shard == 1 {
			for i := range 3 {
				told++
				f([]byte{byte(i)}, base.SlotKey{Slot: uint16(i)}, dedup.Result{})
			}
		}
		return nil
	}
	for range 5 {
		if err := x.some(each); err != nil {
			t.Fatal(err)
		}
	}
	if told != 3 {
		t.Errorf("%d records were looked at that a checkpoint will remove", told)
	}
	v := r.Shards[1].Marks().Published
	r.Shards[1].Leave(v-1, 10)
	if err := x.some(each); err != nil || told != 3 {
		t.Errorf("%v; %d records behind a checkpoint that ends before the removal", err, told)
	}
	r.Shards[1].Leave(v, 10)
	if err := x.some(each); err != nil || told != 6 {
		t.Errorf("%v; %d records behind the checkpoint", err, told)
	}
	// Without a log the base has it at once.
	r.at, x.removed[1] = 0, removal{}
	for range 2 {
		if err := x.some(each); err != nil {
			t.Fatal(err)
		}
	}
	if told != 12 {
		t.Errorf("%d records without a log", told)
	}
}

// TestExpirerLosesTheLead: removals that were ordered and not done, because another replica leads by then, are tried again; where another one
// leads the list is left alone.
func TestExpirerLosesTheLead(t *testing.T) {
	r := newRig(t, 100)
	x, l := r.expiring()
	leads := true
	x.Orders = func(shard uint16) bool { return shard == 1 && leads }
	order := x.Order
	x.Order = func(sh *shard.Shard, f *flight.Flight, w pipeline.Wait) error {
		if string(f.Op.Key) != "b" || !leads {
			return order(sh, f, w)
		}
		leads = false
		f.Result.Err = base.ErrNotLeader // it was taken, and is void
		x.Gate.Leave(f.Charge, 1)
		f.Done(f)
		return nil
	}
	now := uint64(r.wall.Unix())
	l.entries = []dueEntry{{0, now - 3, "other"}, {1, now - 3, "a"}, {1, now - 2, "b"}, {1, now - 1, "c"}}
	r.Shards[0].DueAt(0)
	r.Shards[1].DueAt(0)
	if _, err := x.Remove(10); !errors.Is(err, base.ErrNotLeader) {
		t.Fatalf("%v", err)
	}
	for range 3 {
		r.wall = r.wall.Add(ExpireRetry * time.Second)
		if _, err := x.Remove(10); err != nil {
			t.Fatal(err)
		}
	}
	if l.told["b"] != 1 || l.told["other"] != 0 {
		t.Errorf("handled %v while another leads", l.told)
	}
	leads = true
	x.Order = order
	r.all(x, 10)
	for key, want := range map[string]int{"a": 1, "b": 2, "other": 0} {
		if n := l.told[key]; n != want {
			t.Errorf("%s was handled %d times, want %d", key, n, want)
		}
	}
}

// TestRemoveExpired: who asks is told when it is published; what was void is told, too; and one who has no more time is let go.
func TestRemoveExpired(t *testing.T) {
	r := newRig(t, 100)
	ctx := context.Background()
	if err := r.RemoveExpired(ctx, 1, []byte("k"), 7); err != nil {
		t.Error(err)
	}
	r.held = make(chan struct{})
	short, cancel := context.WithTimeout(ctx, 5*time.Millisecond)
	defer cancel()
	if err := r.RemoveExpired(short, 1, []byte("k"), 7); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	close(r.held)
	order := r.Order
	r.Order = func(*shard.Shard, *flight.Flight, pipeline.Wait) error { return base.ErrNotLeader }
	if err := r.RemoveExpired(ctx, 1, []byte("k"), 7); !errors.Is(err, base.ErrNotLeader) {
		t.Errorf("%v", err)
	}
	r.Order = order
	waitIdle := func() bool { n, _ := r.Gate.Inside(); return n == 0 }
	for deadline := time.Now().Add(10 * time.Second); !waitIdle(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("something is left in the gate")
		}
	}
}
