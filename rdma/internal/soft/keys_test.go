package soft

import "testing"

// TestKeys: keys differ, are not zero, and do not come in order.
func TestKeys(t *testing.T) {
	s := NewKeys()
	seen := make(map[uint32]bool)
	near := 0
	var last uint32
	for range 1 << 16 {
		next := s.Peek()
		v, ok := s.Draw()
		if !ok || v == 0 || seen[v] || next != v && next != 0 {
			t.Fatalf("key %#x, ok %v, seen %v, announced as %#x", v, ok, seen[v], next)
		}
		seen[v] = true
		if d := v - last; d < 1<<16 || -d < 1<<16 {
			near++
		}
		last = v
	}
	// Two random keys lie that close with probability 2^-15: 2 of 2^16.
	if near > 40 {
		t.Errorf("%d of 2^16 keys are close to the one before", near)
	}
	s.used = 1 << 32
	if _, ok := s.Draw(); ok {
		t.Error("drew a key when all were used")
	}
}

// TestQPNumbers: a number is 24 bits, never a special one, and never that of
// a QP that lives, also when all have been used once.
func TestQPNumbers(t *testing.T) {
	var n Numbers
	take := func(want uint32) {
		t.Helper()
		if got, ok := n.Take(); !ok || got != want {
			t.Errorf("QP %d, want %d", got, want)
		}
	}
	take(firstQPN)       // stays in use
	n.last = lastQPN - 1 // as after many
	for _, want := range []uint32{lastQPN, firstQPN + 1, firstQPN + 2} {
		take(want)
		n.Drop(want)
	}
	n.last = lastQPN
	take(firstQPN + 1) // given back, and free again
}
