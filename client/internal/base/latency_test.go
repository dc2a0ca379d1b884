package base

import (
	"testing"
	"time"
)

func TestLatencyBuckets(t *testing.T) {
	var l Latency
	for d, want := range map[time.Duration]int{
		0: 0, 1: 0, time.Microsecond: 0, time.Microsecond + 1: 1, 2 * time.Microsecond: 1, 2*time.Microsecond + 1: 2,
		1024 * time.Microsecond: 10, 1024*time.Microsecond + 1: 11, -1: 0,
	} {
		before := l.buckets[want].Load()
		if l.Observe(d); l.buckets[want].Load() != before+1 {
			t.Errorf("%v is not in bucket %d: %v", d, want, l.Snapshot())
		}
		if up := (LatencyHistogram{}).UpperBound(want); d > up {
			t.Errorf("%v is above the bound %v of its bucket", d, up)
		}
	}
	n := l.Snapshot().Count
	l.Observe(time.Hour) // in no bucket
	h := l.Snapshot()
	var in uint64
	for _, b := range h.Buckets {
		in += b
	}
	if h.Count != n+1 || in != n || h.Sum < time.Hour {
		t.Errorf("%+v", h)
	}
}
