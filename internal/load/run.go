package load

import (
	"context"
	"errors"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// A run is one call of Run.
type run struct {
	o        Options
	base     time.Time // of the clock
	values   *values
	template keyTemplate
	bounds   [numOps]uint64
	frontier *frontier
	failures failures
	workers  []*worker
	pace     *pace // nil in the closed loop

	stop atomic.Bool
	left atomic.Int64 // operations that may still be begun in this phase
	// missing is not found where deletes are in the mix, and keys go.
	missing bool
}

// now is the clock of a run: nanoseconds since its beginning. A time.Since of a
// time with a monotonic clock reads that clock alone, which takes half as long as
// time.Now.
func (r *run) now() int64 { return int64(time.Since(r.base)) }

// never is the end of a phase without one.
const never = math.MaxInt64

// Run makes the load that the options ask for, of keys that Fill has stored, and
// tells what came of it. Calls that fail are counted; it fails itself with
// ErrOptions or if a store cannot be opened or closed. When ctx ends, so does the
// run, and the result tells what was done until then.
func Run(ctx context.Context, o Options) (*Result, error) {
	o = o.withDefaults()
	if err := o.Validate(); err != nil {
		return nil, err
	}
	stores, err := openAll(ctx, o, o.Workers, o.Batch > 1)
	if err != nil {
		return nil, errors.Join(err, closeAll(stores))
	}
	r := newRun(o, stores)
	release := context.AfterFunc(ctx, func() { r.stop.Store(true) })
	defer release()

	res := r.measure(ctx)
	res.Interrupted = ctx.Err() != nil
	return res, closeAll(stores)
}

// newRun makes a run over stores that are open, one for each worker.
func newRun(o Options, stores []Store) *run {
	r := &run{
		o: o, base: time.Now(), values: newValues(o.Values), template: o.Keys.template(), bounds: o.Mix.bounds(),
		frontier: newFrontier(o.Records), failures: failures{classify: o.Classify}, missing: o.Mix[OpDelete] > 0,
	}
	if o.Rate > 0 {
		r.pace = &pace{now: r.now, stop: &r.stop, period: 1e9 * float64(o.Batch) / o.Rate}
	}
	choose := newChooser(o.Choice, o.Theta, o.Records, o.Seed, 0)
	for i, s := range stores {
		r.workers = append(r.workers, newWorker(r, uint64(i), s, choose))
	}
	return r
}

// recorders gives each worker a recorder, which is new for each phase.
func (r *run) recorders() (list []*recorder) {
	n := min(len(r.workers), maxRecorders)
	for range n {
		list = append(list, &recorder{shared: len(r.workers) > n})
	}
	for i, w := range r.workers {
		w.rec = list[i%n]
	}
	return list
}

// measure warms up and measures.
func (r *run) measure(ctx context.Context) *Result {
	o := &r.o
	if o.Warmup > 0 {
		o.Progress.Warming.Store(true)
		r.recorders() // what they have noted is forgotten
		r.phase(ctx, o.Warmup, 0)
		o.Progress.Warming.Store(false)
	}
	o.Progress.reset()
	before := r.failures.total()
	recorders := r.recorders()
	runtime.GC() // garbage of loading and warming up must not be collected during the measurement
	if o.Measuring != nil {
		o.Measuring()
	}
	start, ended := r.phase(ctx, o.Duration, o.Operations)
	res := summarize(recorders, o.Mix, time.Duration(ended-start))
	res.ErrorKinds = r.failures.list()
	res.WarmupErrors = before
	if r.pace != nil {
		if res.OpenLoop == nil {
			res.OpenLoop = new(OpenLoop)
		}
		res.OpenLoop.Rate = o.Rate
		due, missed := r.pace.due(ended)
		res.OpenLoop.Due, res.OpenLoop.Missed = due*int64(o.Batch), missed*int64(o.Batch)
	}
	return res
}

// phase lets all workers work for a time or a number of operations; 0 is no
// bound. It returns when it began and when the last call had ended.
func (r *run) phase(ctx context.Context, d time.Duration, ops uint64) (start, ended int64) {
	r.left.Store(math.MaxInt64)
	most := uint64(math.MaxInt64)
	if ops > 0 {
		r.left.Store(int64(ops))
		most = (ops + uint64(r.o.Batch) - 1) / uint64(r.o.Batch)
	}
	start = r.now()
	end := int64(never)
	if d > 0 {
		end = start + int64(d)
	}
	if r.pace != nil {
		r.pace.begin(start, end, most)
	}
	var wg sync.WaitGroup
	for _, w := range r.workers {
		w.start, w.end, w.last = start, end, start
		wg.Go(func() {
			if r.pace != nil {
				w.open(ctx)
			} else {
				w.closed(ctx)
			}
			w.publish()
		})
	}
	wg.Wait()
	ended = start
	for _, w := range r.workers {
		ended = max(ended, w.last)
	}
	if r.pace != nil && end != never && !r.stop.Load() && ops == 0 {
		ended = max(ended, end) // the pause behind the last call belongs to the rate
	}
	return start, ended
}

// claim returns how many of n operations may be begun.
func (r *run) claim(n int) int {
	if left := r.left.Add(-int64(n)) + int64(n); left < int64(n) {
		return int(max(left, 0))
	}
	return n
}
