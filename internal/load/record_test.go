package load

import (
	"math"
	"testing"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// TestDist compares the buckets with those of the library: the same quantiles,
// whatever the times.
func TestDist(t *testing.T) {
	rnd := newRNG(6, 0)
	var d, other dist
	h := hdrhistogram.New(histLow, histHigh, histFigures)
	sum, longest := 0.0, int64(0)
	for i := range 50_000 {
		nanos := int64(math.Exp(rnd.float() * 25)) // 1 ns to 72 s
		n := int64(1 + i%3)
		if i%2 == 0 {
			d.add(nanos, n)
		} else {
			other.add(nanos, n)
		}
		sum, longest = sum+float64(nanos)*float64(n), max(longest, nanos)
		if err := h.RecordValues(min(nanos, histHigh), n); err != nil {
			t.Fatal(err)
		}
	}
	d.merge(&other)
	got := d.histogram()
	for q := 0.0; q <= 100; q += 0.01 {
		if a, b := got.ValueAtQuantile(q), h.ValueAtQuantile(q); a != b {
			t.Fatalf("%v %%: %d, want %d", q, a, b)
		}
	}
	if d.count() != h.TotalCount() || math.Abs(d.sum-sum) > 1e-6*sum || d.latency().Max != micros(longest) {
		t.Errorf("%d times, sum %v, max %v; want %d, %v, %v", d.count(), d.sum, d.latency().Max, h.TotalCount(), sum, micros(longest))
	}
	for i := range bucketOf(histHigh) + 1 {
		if got := bucketOf(bucketStart(i)); got != i {
			t.Fatalf("bucket %d begins with %d, which is in bucket %d", i, bucketStart(i), got)
		}
	}
}
