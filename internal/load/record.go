package load

import (
	"math"
	"math/bits"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Histograms hold 1 ns to 60 s with three figures. Longer times count as 60 s,
// except that the maximum is exact. One histogram takes about 220 KB.
const (
	histLow, histHigh = 1, int64(60 * time.Second)
	histFigures       = 3
)

// A dist is a distribution of times in nanoseconds. The zero value is empty; it
// takes memory with the first time.
//
// It counts in the buckets that an HDR histogram of these bounds has, and becomes
// one at the end: a library that does for any bounds takes three times as long
// for a call, and that is time within the latency of the next one.
type dist struct {
	counts         []int64
	n              int64
	sum            float64
	least, longest int64
}

// Buckets: 2,048 of one nanosecond, and then for each doubling 1,024, which are
// twice as wide each time.
const (
	bucketBits = 11
	bucketHalf = 1 << (bucketBits - 1)
)

// bucketOf is the bucket of a time.
func bucketOf(nanos int64) int {
	shift := max(bits.Len64(uint64(nanos))-bucketBits, 0)
	return shift*bucketHalf + int(nanos>>shift)
}

// bucketStart is the least time of a bucket.
func bucketStart(i int) int64 {
	if i < 2*bucketHalf {
		return int64(i)
	}
	shift := i/bucketHalf - 1
	return int64(i-shift*bucketHalf) << shift
}

// add counts n calls that took so long each.
func (d *dist) add(nanos, n int64) {
	if d.counts == nil {
		d.counts, d.least = make([]int64, bucketOf(histHigh)+1), math.MaxInt64
	}
	d.longest, d.least = max(d.longest, nanos), min(d.least, nanos)
	d.sum += float64(nanos) * float64(n)
	d.n += n
	d.counts[bucketOf(min(max(nanos, 0), histHigh))] += n
}

// merge adds the times of another distribution.
func (d *dist) merge(other *dist) {
	if other.counts == nil {
		return
	}
	if d.counts == nil {
		d.counts, d.least = make([]int64, len(other.counts)), math.MaxInt64
	}
	for i, n := range other.counts {
		d.counts[i] += n
	}
	d.n += other.n
	d.sum += other.sum
	d.longest, d.least = max(d.longest, other.longest), min(d.least, other.least)
}

func (d *dist) count() int64 { return d.n }

// histogram is the distribution as an HDR histogram.
func (d *dist) histogram() *hdrhistogram.Histogram {
	h := hdrhistogram.New(histLow, histHigh, histFigures)
	for i, n := range d.counts {
		if n > 0 {
			_ = h.RecordValues(bucketStart(i), n) // in range, so it cannot fail
		}
	}
	return h
}

// latency sums up the distribution, in microseconds.
func (d *dist) latency() (l Latency) {
	n := d.count()
	if n == 0 {
		return l
	}
	h := d.histogram()
	// A bucket of the histogram stands for its upper end, which the longest time
	// need not reach.
	at := func(percent float64) float64 { return micros(min(h.ValueAtQuantile(percent), d.longest)) }
	return Latency{Min: micros(d.least), Mean: d.sum / float64(n) / 1e3, P50: at(50), P90: at(90), P99: at(99), P999: at(99.9), Max: micros(d.longest)}
}

// curve is the distribution as quantiles, for a chart.
func (d *dist) curve() (list []Quantile) {
	if d.count() == 0 {
		return nil
	}
	h := d.histogram()
	for _, q := range curve() {
		list = append(list, Quantile{q, micros(min(h.ValueAtQuantile(q*100), d.longest))})
	}
	return list
}

// maxRecorders bounds how many recorders a run has, whatever its callers.
const maxRecorders = 16

// A recorder notes the calls of one caller, or, when there are many, of some of
// them: only then do they take turns.
type recorder struct {
	shared bool
	mu     sync.Mutex

	times    [numOps][numPaths]dist
	notFound [numOps]int64
	keys     [numOps]int64 // that scans have read
	lag      dist
	series   series
	_        [64]byte // no recorder shares a cache line with the next one
}

// note counts n answered, or failed, keys of one call that ended at a moment
// since the beginning of the measurement.
func (r *recorder) note(op Op, path Path, at, took, n int64) {
	if r.shared {
		r.mu.Lock()
		defer r.mu.Unlock()
	}
	r.times[op][path].add(took, n)
	r.series.add(at, took, n, path == pathFailed)
}

// noteMore counts what is seldom: keys that were not there, keys of scans.
func (r *recorder) noteMore(op Op, notFound, keys int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.notFound[op] += notFound
	r.keys[op] += keys
}

func (r *recorder) noteLag(nanos int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lag.add(nanos, 1)
}

// summarize adds all recorders up.
func summarize(recorders []*recorder, mix Mix, elapsed time.Duration) *Result {
	sum := recorders[0]
	for _, r := range recorders[1:] {
		for op := range r.times {
			for path := range r.times[op] {
				sum.times[op][path].merge(&r.times[op][path])
			}
			sum.notFound[op] += r.notFound[op]
			sum.keys[op] += r.keys[op]
		}
		sum.lag.merge(&r.lag)
		sum.series.merge(&r.series)
	}
	seconds := max(elapsed.Seconds(), 1e-9)
	res := &Result{Seconds: elapsed.Seconds(), Operations: map[string]OpResult{}, Series: sum.series.points(elapsed)}
	var all dist
	for op := range numOps {
		var ofOp dist
		o := OpResult{NotFound: sum.notFound[op], Keys: sum.keys[op], Paths: map[string]PathResult{}}
		for path := range sum.times[op] {
			d := &sum.times[op][path]
			if Path(path) == pathFailed {
				o.Errors = d.count()
			} else {
				ofOp.merge(d)
			}
		}
		o.Ops = ofOp.count()
		if o.Ops == 0 && o.Errors == 0 && mix[op] == 0 {
			continue
		}
		for path := range sum.times[op] {
			d := &sum.times[op][path]
			if path := Path(path); path != PathNone && d.count() > 0 {
				o.Paths[path.String()] = PathResult{Ops: d.count(), Share: float64(d.count()) / float64(o.Ops+o.Errors), Latency: d.latency(), Curve: d.curve()}
			}
		}
		o.OpsPerSecond, o.Latency, o.Curve = float64(o.Ops)/seconds, ofOp.latency(), ofOp.curve()
		res.Operations[op.String()] = o
		res.Ops += o.Ops
		res.Errors += o.Errors
		all.merge(&ofOp)
	}
	res.OpsPerSecond, res.Latency = float64(res.Ops)/seconds, all.latency()
	if sum.lag.count() > 0 {
		res.OpenLoop = &OpenLoop{Lag: sum.lag.latency()}
	}
	return res
}
