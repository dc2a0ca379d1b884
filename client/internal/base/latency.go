package base

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// How long calls take, as a histogram with a bucket for each power of two: cheap
// to fill, and what a monitor wants. Of gets one in LatencyEvery is measured,
// for two readings of the clock cost a percent of a get that is one READ; of
// writes all are.

const (
	LatencyEvery   = 8 // a power of two
	latencyBuckets = 24
	latencyFirst   = time.Microsecond // upper bound of bucket 0; the last is about 8 s
)

// A LatencyHistogram counts calls by how long they took, refused ones and those
// that failed left out.
type LatencyHistogram struct {
	// Buckets: bucket i counts calls of up to 2^i µs that are above the bucket
	// before; what is above the last one is in Count alone.
	Buckets [latencyBuckets]uint64
	Count   uint64        // calls measured
	Sum     time.Duration // of all that were measured
}

// UpperBound is the longest time in bucket i.
func (LatencyHistogram) UpperBound(i int) time.Duration { return latencyFirst << i }

// Latencies are the times of calls since Dial.
type Latencies struct {
	Gets   LatencyHistogram // of one in 8 gets of one key
	Writes LatencyHistogram // of every put, delete, increment, touch, batch; MultiPut is left out
}

// Latency is the live form of a LatencyHistogram.
type Latency struct {
	buckets [latencyBuckets]atomic.Uint64
	count   atomic.Uint64
	sum     atomic.Uint64 // nanoseconds
}

func (l *Latency) Observe(d time.Duration) {
	d = max(d, 0)
	if i := bits.Len64(uint64(max(d-1, 0) / latencyFirst)); i < latencyBuckets {
		l.buckets[i].Add(1)
	}
	l.sum.Add(uint64(d))
	l.count.Add(1)
}

func (l *Latency) Snapshot() (h LatencyHistogram) {
	for i := range l.buckets {
		h.Buckets[i] = l.buckets[i].Load()
	}
	h.Count, h.Sum = l.count.Load(), time.Duration(l.sum.Load())
	return h
}
