package dedup

import (
	"errors"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/store/internal/base"
)

// TestResultsMakeRoom: an owner that is alone has the whole table, and gives way to one
// that comes later, down to an equal part. Owners of which nothing is left are forgotten.
func TestResultsMakeRoom(t *testing.T) {
	d := New(Stripes * 30)
	st := &d.stripes[5]
	write := func(owner uint32, i int) {
		d.Ordered(&base.RequestID{Client: [16]byte{5, byte(owner)}, Owner: owner, Slot: uint16(i), Seq: 1}, 0)
		k := base.SlotKey{Client: [16]byte{5, byte(owner)}, Slot: uint16(i)}
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
	for range 3 * ForgetAfter / TickEvery {
		d.Tick()
	}
	if d.Count() != 0 || len(st.owners) != 0 {
		t.Errorf("%d results and %d owners are left", d.Count(), len(st.owners))
	}
}

// TestOldResultsMakeRoom: a record that names no owner may be of anybody, from before
// there were owners. When it had to go, nobody's retry is taken for new.
func TestOldResultsMakeRoom(t *testing.T) {
	d := New(Stripes * 2)
	old := base.SlotKey{Client: [16]byte{5, 1}, Slot: 7}
	st := d.stripe(&old)
	d.Load(0, old, Result{seq: 3})
	d.Load(0, base.SlotKey{Client: [16]byte{5, 1}, Slot: 8}, Result{seq: 3})
	d.Ordered(&base.RequestID{Client: [16]byte{5, 2}, Owner: 4, Slot: 1, Seq: 1}, 0)
	if st.entries[old] != nil {
		t.Fatal("the old record is still there")
	}
	retry := &base.RequestID{Client: old.Client, Owner: 9, Slot: old.Slot, Seq: 3, Age: time.Second}
	if _, err := d.Look(retry); !errors.Is(err, base.ErrOutcomeUnknown) {
		t.Errorf("a retry of what was done is taken for new: %v", err)
	}
}

// TestRenewedResultsMakeRoom: a client that was there before a restart and goes on has
// results whose owner is known. When one of them has to go, other owners do not notice.
func TestRenewedResultsMakeRoom(t *testing.T) {
	d := New(Stripes * 2)
	const mine, other = 0, 4
	id := func(owner uint32, slot uint16, seq uint64) base.RequestID {
		return base.RequestID{Client: [16]byte{5, byte(owner)}, Owner: owner, Slot: slot, Seq: seq}
	}
	for slot := range uint16(2) {
		i := id(mine, slot, 1)
		d.Load(0, i.SlotKey(), Result{seq: 1})
	}
	for range 10 {
		d.Tick()
	}
	for slot := range uint16(2) {
		i := id(mine, slot, 2)
		d.Ordered(&i, 0)
		k := i.SlotKey()
		d.stripe(&k).entries[k].flying = false
	}
	third := id(mine, 2, 1)
	d.Ordered(&third, 0) // one of the two goes
	first := id(other, 9, 3)
	first.Age = 5 * TickEvery // sent behind the restart, before that
	if _, err := d.Look(&first); err != nil {
		t.Errorf("another owner's first request: %v", err)
	}
}

// TestVoid: a write that will never take effect leaves its request new, and touches no other.
func TestVoid(t *testing.T) {
	d := New(100)
	id := base.RequestID{Seq: 5, Slot: 1}
	d.Ordered(&id, 3)
	other := base.RequestID{Seq: 9, Slot: 1}
	d.Void(&other)
	if again, err := d.Look(&id); !again || err != nil {
		t.Errorf("another request of the slot is void, and this one: %v, %v", again, err)
	}
	d.Void(&id)
	retry := id
	retry.Age = time.Second
	if again, err := d.Look(&retry); again || err != nil {
		t.Errorf("a retry of what is void: %v, %v", again, err)
	}
	d.Ordered(&retry, 3)
	d.Published(&retry, &base.Result{Version: 7}, false)
	d.Void(&retry)
	if again, err := d.Look(&retry); !again || err != nil {
		t.Errorf("what is published was taken back: %v, %v", again, err)
	}
}

// TestVoidForgetsNoRequest: behind a write that is void, a late copy of the request before it is not new, and nobody
// is told a result that it did not have.
func TestVoidForgetsNoRequest(t *testing.T) {
	d := New(100)
	first, second := base.RequestID{Seq: 5, Slot: 1}, base.RequestID{Seq: 6, Slot: 1}
	d.Ordered(&first, 3)
	d.Published(&first, &base.Result{Version: 7, Number: 9}, false)
	d.Ordered(&second, 3)
	d.Void(&second)
	late := first
	late.Age = time.Second
	if again, err := d.Look(&late); again || !errors.Is(err, base.ErrOutcomeUnknown) {
		t.Errorf("a late copy of the request before: %v, %v", again, err)
	}
	if again, err := d.Look(&second); again || err != nil {
		t.Errorf("the void one, again: %v, %v", again, err)
	}
	d.Load(3, second.SlotKey(), ResultOf(&second, &base.Result{Version: 8}))
	if again, err := d.Look(&second); !again || err != nil {
		t.Errorf("its result has come from another replica: %v, %v", again, err)
	}
}

// TestLoadedResultsStay: a result that comes from another replica is as young as one of this process's own.
func TestLoadedResultsStay(t *testing.T) {
	d := New(100)
	for range 2 * int(ForgetAfter/TickEvery) {
		d.Tick()
	}
	id := base.RequestID{Seq: 5, Slot: 1, Age: time.Second}
	d.Load(3, id.SlotKey(), ResultOf(&id, &base.Result{Version: 7}))
	d.Tick()
	if again, err := d.Look(&id); !again || err != nil {
		t.Errorf("a retry of what was loaded a moment ago: %v, %v", again, err)
	}
}

// TestLoadIsUse: a result that comes from another replica is a use of its slot: the silent ones go first.
func TestLoadIsUse(t *testing.T) {
	d := New(2 * Stripes)
	load := func(slot uint16, seq uint64) base.SlotKey {
		id := base.RequestID{Seq: seq, Slot: slot}
		d.Load(0, id.SlotKey(), ResultOf(&id, &base.Result{}))
		return id.SlotKey()
	}
	load(1, 1)
	silent := load(2, 1)
	d.Tick()
	busy := load(1, 2)
	load(3, 1) // one has to go
	if !d.Current(0, busy) || d.Current(0, silent) {
		t.Error("the slot that was used last was dropped, and the silent one stayed")
	}
	for i := range uint64(2 * ForgetAfter / TickEvery) {
		load(1, 3+i)
		d.Tick()
	}
	if n := d.Count(); n != 1 {
		t.Errorf("%d results remain after twice ForgetAfter, want that of the busy slot", n)
	}
}

// TestNewerResultBesideAnOlderWrite: a slot's requests are of keys of several groups. While an older one is on its way here, the newer one's result comes from
// another replica: a retry of that is told it, whatever has become of the older one by then, or becomes of it afterwards.
func TestNewerResultBesideAnOlderWrite(t *testing.T) {
	for name, end := range map[string]func(d *Table, old *base.RequestID){
		"the older one goes on":    func(*Table, *base.RequestID) {},
		"the older one is done":    func(d *Table, old *base.RequestID) { d.Published(old, &base.Result{Version: 3}, false) },
		"the older one never is":   func(d *Table, old *base.RequestID) { d.Void(old) },
		"it comes again, and goes": func(d *Table, old *base.RequestID) { d.Published(old, &base.Result{}, true); d.Void(old) },
	} {
		d := New(100)
		old, newer := base.RequestID{Seq: 5, Slot: 1}, base.RequestID{Seq: 6, Slot: 1}
		d.Ordered(&old, 1)
		d.Load(2, newer.SlotKey(), ResultOf(&newer, &base.Result{Version: 7}))
		end(d, &old)
		if again, err := d.Look(&newer); !again || err != nil {
			t.Errorf("%s: the newer one comes again: %v, %v", name, again, err)
		}
		var r base.Result
		if d.Published(&newer, &r, true); r.Err != nil || r.Version != 7 {
			t.Errorf("%s: the newer one is told %+v", name, r)
		}
		if again, err := d.Look(&old); again || !errors.Is(err, base.ErrOutcomeUnknown) {
			t.Errorf("%s: a late copy of the older one: %v, %v", name, again, err)
		}
	}
}

// TestVoidBehindAnotherGroups: a newer request of the slot is void while an older one, of another group, is on its way or was done elsewhere: a late copy of the
// older one is not new.
func TestVoidBehindAnotherGroups(t *testing.T) {
	for name, first := range map[string]func(d *Table, old, newer *base.RequestID){
		"it is on its way here": func(d *Table, old, newer *base.RequestID) { d.Ordered(old, 1); d.Ordered(newer, 2) },
		"it was done elsewhere": func(d *Table, old, newer *base.RequestID) {
			d.Ordered(newer, 2)
			d.Load(1, old.SlotKey(), ResultOf(old, &base.Result{Version: 3}))
		},
	} {
		d := New(100)
		old, newer := base.RequestID{Seq: 5, Slot: 1}, base.RequestID{Seq: 6, Slot: 1}
		first(d, &old, &newer)
		d.Void(&newer)
		if again, err := d.Look(&newer); again || err != nil {
			t.Errorf("%s: the void one comes again: %v, %v", name, again, err)
		}
		if again, err := d.Look(&old); again || !errors.Is(err, base.ErrOutcomeUnknown) {
			t.Errorf("%s: a late copy of the older one: %v, %v", name, again, err)
		}
	}
}

// TestResultOfACopyElsewhere: a request is on its way here and was done at another replica: its result is known, and a flight that is void does not take it away.
func TestResultOfACopyElsewhere(t *testing.T) {
	d := New(100)
	id := base.RequestID{Seq: 5, Slot: 1}
	d.Ordered(&id, 1)
	d.Load(1, id.SlotKey(), ResultOf(&id, &base.Result{Version: 3}))
	d.Void(&id)
	var r base.Result
	again, err := d.Look(&id)
	if d.Published(&id, &r, true); !again || err != nil || r.Err != nil || r.Version != 3 {
		t.Errorf("%v, %v, told %+v", again, err, r)
	}
}

// TestForget: the results of shards that a store has no more are told to nobody, and what is older than them is not taken for new; they come back with a replica.
func TestForget(t *testing.T) {
	d := New(1 << 10)
	id := func(client byte, seq uint64) *base.RequestID {
		return &base.RequestID{Client: [16]byte{client}, Seq: seq, Age: time.Second}
	}
	for client := range byte(3) {
		d.Load(uint16(client), id(client, 0).SlotKey(), ResultOf(id(client, 7), &base.Result{Version: 9}))
	}
	d.Ordered(id(4, 3), 1) // of a shard that is forgotten, and under way: the caller sees to it that there is none
	d.Forget([]uint16{1, 5})
	for client := range byte(3) {
		want := client != 1
		if again, err := d.Look(id(client, 7)); again != want || (err == nil) != want {
			t.Errorf("client %d asks again: %v, %v", client, again, err)
		}
		if again, err := d.Look(id(client, 6)); again || !errors.Is(err, base.ErrOutcomeUnknown) {
			t.Errorf("client %d, an older one: %v, %v", client, again, err)
		}
		if again, err := d.Look(id(client, 8)); again || err != nil {
			t.Errorf("client %d, a new one: %v, %v", client, again, err)
		}
	}
	d.Load(1, id(1, 0).SlotKey(), ResultOf(id(1, 7), &base.Result{Version: 9}))
	var r base.Result
	if again, err := d.Look(id(1, 7)); !again || err != nil {
		t.Errorf("loaded again: %v, %v", again, err)
	}
	if d.Published(id(1, 7), &r, true); r.Err != nil || r.Version != 9 {
		t.Errorf("loaded again: %+v", r)
	}
}
