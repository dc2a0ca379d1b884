package store

import (
	"errors"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/store/internal/dedup"
)

// TestResultsOfOwners: one owner, whose requests fill the table of results many times
// over with conditions that do not hold, pushes out his own alone. Another's retries
// are answered as before, at once and after a crash, and so is what he sends again of
// which the server never heard.
func TestResultsOfOwners(t *testing.T) {
	c := testConfig(memFS())
	c.noKeeper, c.dedupEntries = true, dedup.Stripes*32
	n := open(t, c)
	n.put(0, "exists", "v")
	victim := func(slot uint16) RequestID {
		return RequestID{Client: [16]byte{byte(slot), 1}, Owner: 1, Slot: slot, Seq: 3}
	}
	flood := func(i int) RequestID {
		return RequestID{Client: [16]byte{byte(i), byte(i >> 8), 2}, Owner: 2, Slot: uint16(i), Seq: 1}
	}
	const mine = 2 * dedup.Stripes // two of 32 in each stripe
	first := make([]*Write, mine)
	for i := range first {
		first[i] = n.do(Write{Op: Op{Key: []byte("n"), Kind: OpIncrement, Delta: 1, ID: victim(uint16(i))}})
	}
	const floods = 64 * dedup.Stripes
	attack := func() {
		for i := range floods {
			if i%100 == 0 {
				n.dedup.Tick()
			}
			if w := n.do(Write{Op: Op{Key: []byte("exists"), If: CondAbsent, ID: flood(i)}}); !errors.Is(w.Err, ErrCondition) {
				t.Fatalf("the flood: %v", w.Err)
			}
		}
	}
	attack()
	check := func(when string) {
		t.Helper()
		for i, want := range first {
			w := n.do(Write{Op: Op{Key: []byte("n"), Kind: OpIncrement, Delta: 1, ID: sent(victim(uint16(i)), time.Minute)}})
			if w.Err != nil || w.Number != want.Number || w.Version != want.Version {
				t.Fatalf("%s: retry %d says %d at %#x, %v; before %d at %#x", when, i, w.Number, w.Version, w.Err, want.Number, want.Version)
			}
		}
		if got := n.dedup.Count(); got > c.dedupEntries {
			t.Errorf("%s: %d results are kept, bound %d", when, got, c.dedupEntries)
		}
	}
	check("beside the flood")
	if w := n.do(Write{Op: Op{Key: []byte("late"), ID: sent(victim(1000), time.Minute)}}); w.Err != nil {
		t.Errorf("a retry of which nothing ever came: %v", w.Err)
	}
	if err := n.Do(t.Context(), &Write{Op: Op{Key: []byte("exists"), If: CondAbsent, ID: sent(flood(0), time.Minute)}}); err != ErrOutcomeUnknown {
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
