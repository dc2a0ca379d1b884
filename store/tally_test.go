package store

import (
	"testing"
	"time"
)

// TestTally: what writes came to is counted, each once.
func TestTally(t *testing.T) {
	n := open(t, testConfig(memFS()))
	id := RequestID{Client: [16]byte{1}, Seq: 1}
	n.do(Write{Key: []byte("n"), Op: OpIncrement, Delta: 1, ID: id})
	n.do(Write{Key: []byte("n"), Op: OpIncrement, Delta: 1, ID: id})
	n.do(Write{Key: []byte("n"), If: CondAbsent, ID: RequestID{Client: [16]byte{1}, Slot: 1, Seq: 1}})
	n.do(Write{Op: OpBatch, Parts: []Part{{Key: []byte("a")}, {Key: []byte("b")}}})
	n.do(Write{Op: OpBatch, Parts: []Part{{Key: []byte("a"), If: CondAbsent}}})
	n.do(Write{Key: []byte("e"), TTL: time.Millisecond})
	waitFor(t, "the key to be removed", func() bool { return n.Stats().Expired == 1 })
	st := n.Stats()
	if st.Retries != 1 || st.Conditions != 2 || st.BatchWrites != 1 || st.Remembered != 2 || st.Published != 7 {
		t.Errorf("retries %d, conditions %d, batches %d, remembered %d, published %d",
			st.Retries, st.Conditions, st.BatchWrites, st.Remembered, st.Published)
	}
}
