package mem

import (
	"errors"
	"testing"
)

// TestZeroLedger: a ledger that a program declares, and does not make with NewLedger,
// counts and has no limit.
func TestZeroLedger(t *testing.T) {
	var l Ledger
	if u := l.Of("x"); u.Tag != "x" || u.Bytes != 0 || len(l.Usage()) != 0 {
		t.Errorf("empty: %+v, %v", u, l.Usage())
	}
	b, err := Alloc(100, Options{Kind: Heap, Tag: "x", Ledger: &l})
	if err != nil {
		t.Fatal(err)
	}
	if u := l.Of("x"); u.Bytes != 104 || u.Blocks != 1 || l.Total() != 104 {
		t.Errorf("%+v, %d in all", u, l.Total())
	}
	if err := errors.Join(b.Free(), b.Free()); err != nil || l.Total() != 0 {
		t.Errorf("freed twice: %v, %d bytes left", err, l.Total())
	}
}
