package load

import (
	"context"
	"errors"
	"time"
)

// A worker is one caller.
type worker struct {
	r      *run
	store  Store
	many   BatchStore // with Options.Batch
	rec    *recorder
	choose chooser
	rnd    rng // of what is no choice of keys

	start, end int64 // of the phase
	last       int64 // end of the last call

	block  block
	batch  *batch
	number uint64   // of the next value: no two of a run are equal
	again  []uint64 // numbers of inserts that failed, to be made again
	twice  bool     // values are so large that the clock is read once more

	fails       int   // in a row
	done, wrong int64 // not yet in the run's Progress
	publishAt   int64
}

// A block is operations chosen before they are made.
type block struct {
	size int // keys at most
	ops  []Op
	keys []uint64
	text []byte // the keys written out, one behind the other
	span []int  // of scans
}

// These bound a block: it is long enough that its cost is spread, and short
// enough that keys chosen as the latest are still among the latest.
const (
	blockKeys  = 64
	blockBytes = 16 << 10
)

// largeValue is from how many bytes of values in a call on the clock is read
// before it, too.
const largeValue = 1 << 10

const (
	publishEvery = int64(20 * time.Millisecond)
	// failsFree is how many calls in a row may fail before the worker rests after
	// each, so that it does not spend the machine on a store that is away.
	failsFree = 8
	failsRest = time.Millisecond
)

// newWorker makes the worker of a store. Its random numbers follow from seed and id
// alone.
func newWorker(r *run, id uint64, store Store, choose chooser) *worker {
	o := &r.o
	choose.rnd = newRNG(o.Seed, 2*id)
	w := &worker{
		r: r, store: store, choose: choose, rnd: newRNG(o.Seed, 2*id+1), batch: newBatch(o.Batch),
		number: (id + 1) << 44, twice: o.Values.Max()*o.Batch > largeValue,
	}
	w.many, _ = store.(BatchStore)
	if s, ok := store.(RoomyStore); ok && o.Batch == 1 {
		w.batch.values[0] = s.Room()[:0]
	}
	size := max(1, min(blockKeys, blockBytes/o.Keys.Size))
	if o.Operations > 0 { // so that some are left for every worker
		size = max(1, int(min(uint64(size), o.Operations/uint64(4*o.Workers))))
	}
	size = (size + o.Batch - 1) / o.Batch * o.Batch
	w.block = block{size: size, ops: make([]Op, size), keys: make([]uint64, size), text: make([]byte, 0, size*o.Keys.Size)}
	if o.Mix[OpScan] > 0 {
		w.block.span = make([]int, size)
	}
	return w
}

// plan chooses the next n operations. Those of one call are of one kind.
func (w *worker) plan(n int) {
	r, b := w.r, &w.block
	b.text = b.text[:0]
	var op Op
	for i := range n {
		if i%r.o.Batch == 0 {
			bits := w.rnd.next()
			for op = 0; bits >= r.bounds[op] && op < numOps-1; op++ {
			}
		}
		b.ops[i] = op
		if op == OpInsert { // its key is taken when it is made
			b.text = b.text[:len(b.text)+r.o.Keys.Size]
			continue
		}
		key := w.choose.next(r.frontier.limit.Load())
		b.keys[i], b.text = key, r.template.append(b.text, key)
		if op == OpScan {
			b.span[i] = 1 + int(w.rnd.below(uint64(r.o.ScanMax)))
		}
	}
}

// key is key i of the block, written out.
func (b *block) key(i, size int) []byte { return b.text[i*size : (i+1)*size : (i+1)*size] }

// closed makes one call after the other.
func (w *worker) closed(ctx context.Context) {
	r := w.r
	for {
		n := r.claim(w.block.size)
		if n == 0 {
			return
		}
		w.plan(n)
		begun := r.now()
		for i := 0; i < n; i += r.o.Batch {
			if begun >= w.end || r.stop.Load() {
				return
			}
			if w.twice {
				begun = r.now()
			}
			out := w.call(ctx, i, min(r.o.Batch, n-i))
			now := r.now()
			w.note(&out, now, now-begun)
			begun = now
			if out.failed > 0 && w.rest() {
				begun = r.now()
			}
		}
	}
}

// open makes calls when they are due.
func (w *worker) open(ctx context.Context) {
	r := w.r
	for {
		w.plan(w.block.size)
		for i := 0; i < w.block.size; i += r.o.Batch {
			due, ok := r.pace.next()
			if !ok {
				return
			}
			w.rec.noteLag(max(r.now()-due, 0))
			out := w.call(ctx, i, r.o.Batch)
			now := r.now()
			w.note(&out, now, now-due)
			if out.failed > 0 {
				w.rest()
			}
		}
	}
}

// An outcome is what came of a call.
type outcome struct {
	op       Op
	path     Path
	ok       int64 // keys
	failed   int64
	notFound int64 // of ok
	scanned  int64
}

// note notes a call that ended now. A call that the end of the context has ended
// counts neither way.
func (w *worker) note(out *outcome, now, took int64) {
	if out.ok|out.failed == 0 {
		return
	}
	w.last = now
	if out.ok > 0 {
		w.rec.note(out.op, out.path, now-w.start, took, out.ok)
		w.fails = 0
	}
	if out.failed > 0 {
		w.rec.note(out.op, pathFailed, now-w.start, took, out.failed)
		w.fails++
	}
	if out.notFound|out.scanned != 0 {
		w.rec.noteMore(out.op, out.notFound, out.scanned)
	}
	w.done += out.ok
	w.wrong += out.failed
	if now >= w.publishAt {
		w.publishAt = now + publishEvery
		w.publish()
	}
}

// publish brings the run's Progress up to date.
func (w *worker) publish() {
	w.r.o.Progress.Ops.Add(w.done)
	w.r.o.Progress.Errors.Add(w.wrong)
	w.done, w.wrong = 0, 0
}

// rest pauses after many failures in a row.
func (w *worker) rest() bool {
	if w.fails < failsFree {
		return false
	}
	time.Sleep(failsRest)
	return true
}

// fail counts n keys of a call that failed, but not if the run was ended.
func (w *worker) fail(ctx context.Context, out *outcome, err error, n int64) {
	if ctx.Err() != nil {
		return
	}
	out.failed += n
	w.r.failures.add(err, n)
}

// settle judges an answer to a call for one key.
func (w *worker) settle(ctx context.Context, out *outcome, err error) {
	switch {
	case err == nil:
		out.ok++
	case w.r.missing && errors.Is(err, ErrNotFound):
		out.ok++
		out.notFound++
	default:
		w.fail(ctx, out, err, 1)
	}
}
