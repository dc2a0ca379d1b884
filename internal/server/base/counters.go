package base

import (
	"math/bits"
	"sync/atomic"

	"github.com/rdmakv/rdmakv/internal/wire"
)

// Counters count what a space does. Everything is a plain atomic counter, so that a
// request pays a few additions. They are turned into Prometheus's form and into JSON
// when somebody asks.
type Counters struct {
	Ops      [wire.MaxRequest + 1][statusSlots]atomic.Uint64
	Latency  [wire.MaxRequest + 1]Histogram
	Ends     [CauseCount]atomic.Uint64 // sessions that ended or were refused, by cause
	BytesIn  atomic.Int64              // of messages, as is BytesOut
	BytesOut atomic.Int64

	RendezvousBytes atomic.Int64 // READ from clients
	Beats           atomic.Uint64
	LateBeats       atomic.Uint64
	Asked           atomic.Uint64 // writes that had to ask the disk
	Slowed          atomic.Uint64 // puts that waited because the log was nearly full
	Touches         atomic.Uint64 // keys that clients reported as read
	DamageReports   atomic.Uint64 // places that clients reported as damaged
}

// statusSlots holds every status of the protocol, and one for others.
const statusSlots = 32

// Observe counts a finished request, which took that many nanoseconds.
func (c *Counters) Observe(t wire.Type, st wire.Status, took int64) {
	if t > wire.MaxRequest {
		return
	}
	c.Ops[t][min(int(st), statusSlots-1)].Add(1)
	c.Latency[t].observe(took)
}

// Ended counts a session that ended, or was refused.
func (c *Counters) Ended(why Cause) { c.Ends[why].Add(1) }

// A Histogram counts durations in buckets of powers of two from 1 µs: coarse,
// and two additions per request.
type Histogram struct {
	Buckets [HistBuckets]atomic.Uint64
	Sum     atomic.Int64 // nanoseconds
}

// HistBuckets is how many buckets a Histogram has: bucket i holds durations below
// 1 µs << i, the last holds the rest (more than 8 s).
const HistBuckets = 25

func (h *Histogram) observe(ns int64) {
	us := uint64(max(ns, 0)) / 1000
	h.Buckets[min(bits.Len64(us), HistBuckets-1)].Add(1)
	h.Sum.Add(ns)
}

// HistBound is the upper end of bucket i in nanoseconds.
func HistBound(i int) int64 { return 1000 << i }

// Quantile returns an upper bound of the q-quantile, 0 ≤ q ≤ 1, in nanoseconds.
func (h *Histogram) Quantile(q float64) int64 {
	var counts [HistBuckets]uint64
	var total uint64
	for i := range counts {
		counts[i] = h.Buckets[i].Load()
		total += counts[i]
	}
	if total == 0 {
		return 0
	}
	rank := uint64(q * float64(total-1))
	var seen uint64
	for i, c := range counts {
		if seen += c; seen > rank {
			return HistBound(i)
		}
	}
	return HistBound(HistBuckets - 1)
}
