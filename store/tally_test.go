package store

import (
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/flight"
	"github.com/rdmakv/rdmakv/store/log"
)

// TestTally: what writes came to is counted, each once.
func TestTally(t *testing.T) {
	n := open(t, testConfig(memFS()))
	id := RequestID{Client: [16]byte{1}, Seq: 1}
	n.do(Write{Op: Op{Key: []byte("n"), Kind: OpIncrement, Delta: 1, ID: id}})
	n.do(Write{Op: Op{Key: []byte("n"), Kind: OpIncrement, Delta: 1, ID: id}})
	n.do(Write{Op: Op{Key: []byte("n"), If: CondAbsent, ID: RequestID{Client: [16]byte{1}, Slot: 1, Seq: 1}}})
	n.do(Write{Op: Op{Kind: OpBatch, Parts: []Part{{Key: []byte("a")}, {Key: []byte("b")}}}})
	n.do(Write{Op: Op{Kind: OpBatch, Parts: []Part{{Key: []byte("a"), If: CondAbsent}}}})
	n.do(Write{Op: Op{Key: []byte("e"), TTL: time.Millisecond}})
	n.checkpoint() // lists it
	waitFor(t, "the key to be removed", func() bool { return n.Stats().Expired == 1 })
	st := n.Stats()
	if st.Retries != 1 || st.Conditions != 2 || st.BatchWrites != 1 || st.Remembered != 2 || st.Published != 7 {
		t.Errorf("retries %d, conditions %d, batches %d, remembered %d, published %d",
			st.Retries, st.Conditions, st.BatchWrites, st.Remembered, st.Published)
	}
}

// TestFlightWithoutOp: a write that was judged elsewhere comes in as what it does to
// its keys alone.
func TestFlightWithoutOp(t *testing.T) {
	c := testConfig(memFS())
	n := open(t, c)
	n.fill()
	sh := n.shard(0)
	e := &flight.Effect{Effect: base.Effect{Key: []byte("k"), Value: []byte("v")}, Hash: n.hash("k")}
	var err error
	if e.Place, e.Class, err = n.evictor.Reserve(e.ItemSize(), true); err != nil {
		t.Fatal(err)
	}
	if _, err := n.gate.TryEnter(0, 1, log.Puts); err != nil {
		t.Fatal(err)
	}
	f := &flight.Flight{Effects: []*flight.Effect{e}}
	sh.Mu.Lock()
	if err = n.pipe.Push(f); err == nil {
		sh.NoteOrdered(f)
	}
	sh.Mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	if err := sh.WaitPublished(t.Context(), sh.Marks().Ordered); err != nil {
		t.Fatal(err)
	}
	n.want(0, "k", "v")
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	open(t, c).want(0, "k", "v")
}
