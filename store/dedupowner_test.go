package store

import (
	"errors"
	"testing"
	"time"
)

// TestResultsOfOwners: one owner, whose requests fill the table of results many times
// over with conditions that do not hold, pushes out his own alone. Another's retries
// are answered as before, at once and after a crash, and so is what he sends again of
// which the server never heard.
func TestResultsOfOwners(t *testing.T) {
	c := testConfig(memFS())
	c.noKeeper, c.dedupEntries = true, dedupStripes*32
	n := open(t, c)
	n.put(0, "exists", "v")
	victim := func(slot uint16) RequestID {
		return RequestID{Client: [16]byte{byte(slot), 1}, Owner: 1, Slot: slot, Seq: 3}
	}
	flood := func(i int) RequestID {
		return RequestID{Client: [16]byte{byte(i), byte(i >> 8), 2}, Owner: 2, Slot: uint16(i), Seq: 1}
	}
	const mine = 2 * dedupStripes // two of 32 in each stripe
	first := make([]*Write, mine)
	for i := range first {
		first[i] = n.do(Write{Key: []byte("n"), Op: OpIncrement, Delta: 1, ID: victim(uint16(i))})
	}
	const floods = 64 * dedupStripes
	attack := func() {
		for i := range floods {
			if i%100 == 0 {
				n.dedup.tick()
			}
			if w := n.do(Write{Key: []byte("exists"), If: CondAbsent, ID: flood(i)}); !errors.Is(w.Err, ErrCondition) {
				t.Fatalf("the flood: %v", w.Err)
			}
		}
	}
	attack()
	check := func(when string) {
		t.Helper()
		for i, want := range first {
			w := n.do(Write{Key: []byte("n"), Op: OpIncrement, Delta: 1, ID: victim(uint16(i)).sent(time.Minute)})
			if w.Err != nil || w.Number != want.Number || w.Version != want.Version {
				t.Fatalf("%s: retry %d says %d at %#x, %v; before %d at %#x", when, i, w.Number, w.Version, w.Err, want.Number, want.Version)
			}
		}
		if got := n.dedup.count(); got > c.dedupEntries {
			t.Errorf("%s: %d results are kept, bound %d", when, got, c.dedupEntries)
		}
	}
	check("beside the flood")
	if w := n.do(Write{Key: []byte("late"), ID: victim(1000).sent(time.Minute)}); w.Err != nil {
		t.Errorf("a retry of which nothing ever came: %v", w.Err)
	}
	if err := n.Do(t.Context(), &Write{Key: []byte("exists"), If: CondAbsent, ID: flood(0).sent(time.Minute)}); err != ErrOutcomeUnknown {
		t.Errorf("a retry of the flood's first: %v", err)
	}
	_, limit, evicted := n.ResultUse()
	if want := uint64(floods + mine + 1 - limit); evicted < want || evicted != n.Stats().ResultsEvicted {
		t.Errorf("%d evictions are counted, want %d at least", evicted, want)
	}
	// The records say whose they are: a start does not mix them.
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	c.Memory = newHeapMemory()
	n = open(t, c)
	check("after a restart")
	attack()
	check("beside a flood after a restart")
}

// TestResultsMakeRoom: an owner who is alone has the whole table, and gives way to one
// who comes later, down to an equal part. Owners of whom nothing is left are forgotten.
func TestResultsMakeRoom(t *testing.T) {
	d := newDedup(dedupStripes * 30)
	st := &d.stripes[5]
	write := func(owner uint32, i int) {
		d.ordered(&Write{ID: RequestID{Client: [16]byte{5, byte(owner)}, Owner: owner, Slot: uint16(i), Seq: 1}})
		k := dedupKey{client: [16]byte{5, byte(owner)}, slot: uint16(i)}
		st.entries[k].flying = false
	}
	have := func(want ...int) {
		t.Helper()
		for owner, n := range want {
			got := 0
			if o := st.owners[uint32(owner)]; o != nil {
				got = o.n
			}
			if got != n {
				t.Errorf("owner %d has %d results, want %d of %v", owner, got, n, want)
			}
		}
	}
	for i := range 100 {
		write(0, i)
	}
	have(30)
	for i := range 100 {
		write(1, i)
	}
	have(15, 15)
	for i := range 6 {
		write(2, i)
	}
	have(12, 12, 6)
	for i := range 100 {
		write(1, 200+i)
	}
	have(12, 12, 6)
	for range 3 * forgetAfter / dedupTick {
		d.tick()
	}
	if d.count() != 0 || len(st.owners) != 0 {
		t.Errorf("%d results and %d owners are left", d.count(), len(st.owners))
	}
}

// TestOldResultsMakeRoom: a record that names no owner may be of anybody, from before
// there were owners. When it had to go, nobody's retry is taken for new.
func TestOldResultsMakeRoom(t *testing.T) {
	d := newDedup(dedupStripes * 2)
	old := dedupKey{client: [16]byte{5, 1}, slot: 7}
	st := d.stripe(&old)
	d.load(0, old, result{seq: 3})
	d.load(0, dedupKey{client: [16]byte{5, 1}, slot: 8}, result{seq: 3})
	d.ordered(&Write{ID: RequestID{Client: [16]byte{5, 2}, Owner: 4, Slot: 1, Seq: 1}})
	if st.entries[old] != nil {
		t.Fatal("the old record is still there")
	}
	retry := &Write{ID: RequestID{Client: old.client, Owner: 9, Slot: old.slot, Seq: 3, Age: time.Second}}
	if _, err := d.look(retry); !errors.Is(err, ErrOutcomeUnknown) {
		t.Errorf("a retry of what was done is taken for new: %v", err)
	}
}

// TestRenewedResultsMakeRoom: a client that was there before a restart and goes on has
// results whose owner is known. When one of them has to go, that is his matter alone.
func TestRenewedResultsMakeRoom(t *testing.T) {
	d := newDedup(dedupStripes * 2)
	const mine, other = 0, 4
	id := func(owner uint32, slot uint16, seq uint64) RequestID {
		return RequestID{Client: [16]byte{5, byte(owner)}, Owner: owner, Slot: slot, Seq: seq}
	}
	for slot := range uint16(2) {
		i := id(mine, slot, 1)
		d.load(0, i.key(), result{seq: 1})
	}
	for range 10 {
		d.tick()
	}
	for slot := range uint16(2) {
		w := &Write{ID: id(mine, slot, 2)}
		d.ordered(w)
		i := w.ID
		k := i.key()
		d.stripe(&k).entries[k].flying = false
	}
	d.ordered(&Write{ID: id(mine, 2, 1)}) // one of the two goes
	w := &Write{ID: id(other, 9, 3)}
	w.ID.Age = 5 * dedupTick // sent behind the restart, before that
	if _, err := d.look(w); err != nil {
		t.Errorf("another owner's first request: %v", err)
	}
}
