package transport

import (
	"errors"
	"slices"
	"testing"
)

// TestFlow: a SEND needs a slot and a credit, and a node gives no more credits than it has
// receives.
func TestFlow(t *testing.T) {
	f := &flow{free: []int{0, 1, 2}, slots: 3, credits: 2, most: 2}
	claims := func(want ...int) {
		t.Helper()
		var got []int
		for {
			slot, signaled, ok, err := f.claim()
			if err != nil || !ok {
				break
			}
			if !signaled {
				t.Errorf("the SEND of slot %d is not signaled: one of three slots at a time may be silent, so each must be", slot)
			}
			got = append(got, slot)
		}
		if !slices.Equal(got, want) {
			t.Errorf("SENDs of slots %v leave, expected %v", got, want)
		}
	}
	gives := func(credits int, slots ...int) {
		t.Helper()
		if err := f.give(slots, credits); err != nil {
			t.Error(err)
		}
	}
	claims(2, 1)
	gives(0, 2)
	claims()
	gives(1)
	claims(2)
	gives(2, 1)
	if err := f.give(nil, 1); !errors.Is(err, errProtocol) {
		t.Errorf("a credit too many: %v", err)
	}
	f.fail(errProtocol)
	claims()
}

// TestFlowIsSilent: of eight slots every fourth SEND is signaled, its completion gives back those before it, and the other node owes
// something only while one that is signaled is not completed.
func TestFlowIsSilent(t *testing.T) {
	f := &flow{free: []int{0, 1, 2, 3, 4, 5, 6, 7}, slots: 8, credits: 100, most: 100}
	var signals []int
	claims := func(n int) {
		t.Helper()
		for range n {
			slot, signaled, ok, err := f.claim()
			if err != nil || !ok {
				t.Fatalf("no slot: %v", err)
			}
			if signaled {
				signals = append(signals, slot)
			}
		}
	}
	claims(3)
	if len(signals) != 0 || f.waits() {
		t.Fatalf("of three SENDs %v are signaled, something is owed: %t", signals, f.waits())
	}
	claims(5)
	if _, _, ok, _ := f.claim(); ok || len(signals) != 2 || !f.waits() {
		t.Fatalf("with all slots posted: another one leaves %t, %v are signaled, something is owed: %t", ok, signals, f.waits())
	}
	if err := f.give(signals[:1], 4); err != nil {
		t.Fatal(err)
	}
	if len(f.free) != 4 || !f.waits() {
		t.Errorf("behind the first completion %d slots are free, expected 4; something is owed: %t", len(f.free), f.waits())
	}
	if err := f.give(signals[1:], 4); err != nil {
		t.Fatal(err)
	}
	if len(f.free) != 8 || f.waits() {
		t.Errorf("behind all completions %d slots are free, expected 8; something is owed: %t", len(f.free), f.waits())
	}
	if err := f.give(signals[1:], 0); err == nil {
		t.Error("a completion of a SEND that was not posted is believed")
	}
	// Completions come late, and no slot is lost or given out twice.
	signals = nil
	for i := range 1000 {
		if len(f.free) == 0 || i%3 == 0 && len(signals) > 0 {
			if err := f.give(signals[:1], 4); err != nil {
				t.Fatal(err)
			}
			signals = signals[1:]
		} else {
			claims(1)
		}
		all := append(slices.Clone(f.free), f.posted...)
		slices.Sort(all)
		if !slices.Equal(all, []int{0, 1, 2, 3, 4, 5, 6, 7}) {
			t.Fatalf("free are %v, posted %v", f.free, f.posted)
		}
	}
}
