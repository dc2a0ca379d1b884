package sketch

import "testing"

// TestSketch: what is used often is told from what is not, and forgotten in
// time.
func TestSketch(t *testing.T) {
	k := New(4 << 10)
	if k.Bytes() != 0 || k.Estimate(1) != 0 {
		t.Errorf("before the first use it takes %d bytes, and estimates %d", k.Bytes(), k.Estimate(1))
	}
	hash := func(key uint64) uint64 { // its upper half, as a hash of the store has one
		x := (key + 1) * 0x9e3779b97f4a7c15
		x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
		return x ^ x>>27
	}
	for key := range uint64(1000) {
		for range 1 + key%8 {
			k.Add(hash(key))
		}
	}
	if k.Bytes() != 4<<10 {
		t.Errorf("it takes %d bytes, want 4096", k.Bytes())
	}
	var sum [8]int // of those used 1 … 8 times
	for key := range uint64(1000) {
		sum[key%8] += int(k.Estimate(hash(key)))
	}
	for i := 2; i < len(sum); i++ {
		if sum[i] <= sum[i-2] {
			t.Errorf("%d uses are estimated no higher than %d: %v", i+1, i-1, sum)
		}
	}
	hot := hash(5)
	for range 100 {
		k.Add(hot)
	}
	if got := k.Estimate(hot); got != Max {
		t.Errorf("after 100 uses the estimate is %d", got)
	}
	for key := uint64(1 << 20); k.Estimate(hot) > 1; key++ {
		k.Add(hash(key))
		if key > 1<<24 {
			t.Fatalf("used no more, and still %d", k.Estimate(hot))
		}
	}
}

func BenchmarkSketchAdd(b *testing.B) {
	k := New(16 << 20)
	x := uint64(1)
	for b.Loop() {
		x = x*6364136223846793005 + 1442695040888963407
		k.Add(x)
	}
}
