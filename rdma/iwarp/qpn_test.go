package iwarp

import (
	"testing"

	"github.com/rdmakv/rdmakv/rdma"
)

// TestQPNumbers: a number is 24 bits, never a special one, and never that of
// a QP that lives, also when all have been used once.
func TestQPNumbers(t *testing.T) {
	f := New(Options{})
	old := newEnd(t, f, rdma.QPConfig{})
	defer old.close()
	if old.qp.QPN() != firstQPN {
		t.Fatalf("the first QP is %d", old.qp.QPN())
	}
	f.qpns.last = lastQPN - 1 // as after many
	for _, want := range []uint32{lastQPN, firstQPN + 1, firstQPN + 2} {
		e := newEnd(t, f, rdma.QPConfig{})
		if got := e.qp.QPN(); got != want {
			t.Errorf("QP %d, want %d", got, want)
		}
		e.close()
	}
	f.qpns.last = lastQPN
	again := newEnd(t, f, rdma.QPConfig{})
	defer again.close()
	if got := again.qp.QPN(); got != firstQPN+1 {
		t.Errorf("QP %d: a number given back is to be had again", got)
	}
}
