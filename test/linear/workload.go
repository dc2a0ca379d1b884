package linear

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// A Config says what the workers do. Stores and Done are required; zero fields
// mean their defaults.
type Config struct {
	Seed   uint64
	Ops    int     // end after so many operations; 0: when the context ends
	Stores []Store // worker i uses Stores[i%len]
	Can    Abilities

	Workers      int    // default 8
	Readers      int    // workers beside them that only read
	Objects      int    // in use at a time; default 12
	OpsPerObject int    // an object makes room for a new one after so many; default 800
	Unknowns     int    // or after so many unknown outcomes, which are hard to judge; default 5
	Resting      int    // objects that are only read now and then before they are judged; default 32
	Prefix       string // of all keys
	Sizes        []int  // of records, in bytes; default a mix up to 2 KiB

	Timeout    time.Duration // of a call; default 20 s
	ShortEvery int           // one call in so many has a timeout below ShortUpTo; 0: none
	ShortUpTo  time.Duration
	TTLFrom    time.Duration // of what is to expire; default 50 ms
	TTLUpTo    time.Duration // default 1 s
	Pace       time.Duration // up to so long a worker rests after each operation; default: not at all

	// Done takes an object that is not used any more. It is safe for concurrent
	// use.
	Done func(*Object)
	// Lapsed is told of each call that had no answer; nil: nobody is. It is safe for concurrent use.
	Lapsed func(Lapse)
}

// A Lapse is a call that had no answer: its history has it as a write whose outcome is not known, or not at all.
type Lapse struct {
	Op      OpKind
	How     string // a get asks, as in Input
	Key     string
	Ended   time.Time
	Given   time.Duration // from its begin to its deadline
	Took    time.Duration
	Unknown bool // it may have taken effect
	Stopped bool // the workload was at its end, and waited for it no more
	Why     string
}

// String is a line about it.
func (l Lapse) String() string {
	what := "without effect"
	if l.Unknown {
		what = "of unknown outcome"
	}
	return fmt.Sprintf("%s %v %s of %s, given %v, ended after %v, %s: %s", l.Ended.Format("15:04:05.000"), l.Op, l.How, l.Key, l.Given.Round(time.Microsecond), l.Took.Round(time.Microsecond), what, l.Why)
}

// A Workload is workers, the objects that they use, and what went wrong.
type Workload struct {
	cfg    Config
	clock  *Clock
	nextID atomic.Int64 // of records and stamps
	left   atomic.Int64 // operations to be begun
	ended  atomic.Int64 // operations recorded

	mu      sync.Mutex
	objects int // made so far
	active  []*inUse
	resting []*inUse
	err     error
	stop    context.CancelFunc
}

// An inUse is an object with workers at it.
type inUse struct {
	*Object
	users  int // guarded by Workload.mu
	hints  [MaxKeys]atomic.Uint64
	timed  bool // some of its writes have a TTL
	number bool // its puts are of numbers
}

// New makes a workload.
func New(cfg Config) *Workload {
	def(&cfg.Workers, 8)
	def(&cfg.Objects, 12)
	def(&cfg.OpsPerObject, 800)
	def(&cfg.Unknowns, 5)
	def(&cfg.Resting, 32)
	def(&cfg.Timeout, 20*time.Second)
	def(&cfg.TTLFrom, 50*time.Millisecond)
	def(&cfg.TTLUpTo, time.Second)
	if cfg.Sizes == nil {
		cfg.Sizes = []int{9, 16, 24, 40, 100, 100, 300, 1000, 2000}
	}
	w := &Workload{cfg: cfg, clock: NewClock()}
	for range cfg.Objects {
		w.active = append(w.active, w.fresh())
	}
	return w
}

func def[T comparable](p *T, v T) {
	var zero T
	if *p == zero {
		*p = v
	}
}

// fresh makes an object. Its number decides how many keys it has and what is
// done to them.
func (w *Workload) fresh() *inUse {
	id := w.objects
	w.objects++
	keys := 1
	if w.cfg.Can.Batch && id%2 == 0 {
		keys = 2 + id/2%(MaxKeys-1)
	}
	return &inUse{
		Object: &Object{ID: id, Keys: keys},
		timed:  w.cfg.Can.TTL && id%4 == 3,
		number: w.cfg.Can.Increment && id%3 == 1,
	}
}

// Clock is the workload's clock.
func (w *Workload) Clock() *Clock { return w.clock }

// Ops is how many operations were recorded so far.
func (w *Workload) Ops() int { return int(w.ended.Load()) }

// Run lets the workers work until the operations are done or the context ends,
// and returns the first thing that must not happen.
func (w *Workload) Run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	w.mu.Lock()
	w.stop = stop
	w.mu.Unlock()
	w.left.Store(int64(w.cfg.Ops))
	var wg sync.WaitGroup
	for i := range w.cfg.Workers + w.cfg.Readers {
		wg.Go(func() {
			k := &worker{w: w, id: i, reads: i >= w.cfg.Workers, store: w.cfg.Stores[i%len(w.cfg.Stores)], rng: rand.New(rand.NewPCG(w.cfg.Seed, uint64(i)))}
			k.work(ctx)
		})
	}
	wg.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// Finish reads every object that is left once more, without writers, and hands it
// over.
// Run has returned; what disturbed it is over.
func (w *Workload) Finish(ctx context.Context) error {
	k := &worker{w: w, id: w.cfg.Workers + w.cfg.Readers, store: w.cfg.Stores[0], rng: rand.New(rand.NewPCG(w.cfg.Seed, 1<<32))}
	for _, o := range append(w.resting, w.active...) {
		k.audit(ctx, o)
		w.cfg.Done(o.Object)
	}
	w.resting, w.active = nil, nil
	return w.err
}

// fail records what must not happen, and ends the run.
func (w *Workload) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = err
	}
	if w.stop != nil {
		w.stop()
	}
}

// take picks an object: mostly one in use, now and then one that rests, which is
// to be read only.
func (w *Workload) take(rng *rand.Rand) (o *inUse, readOnly bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.resting) > 0 && rng.IntN(20) == 0 {
		o, readOnly = w.resting[rng.IntN(len(w.resting))], true
	} else {
		o = w.active[rng.IntN(len(w.active))]
	}
	o.users++
	return o, readOnly
}

// give returns an object. One that has had enough rests from now on; the one
// that has rested longest is returned, for the caller to read and to hand over.
func (w *Workload) give(o *inUse) *inUse {
	ops, unknown := o.Size()
	w.mu.Lock()
	defer w.mu.Unlock()
	o.users--
	if ops >= w.cfg.OpsPerObject || unknown >= w.cfg.Unknowns {
		for i, a := range w.active {
			if a == o {
				w.active[i] = w.fresh()
				w.resting = append(w.resting, o)
			}
		}
	}
	if len(w.resting) > w.cfg.Resting && w.resting[0].users == 0 {
		oldest := w.resting[0]
		w.resting = append(w.resting[:0:0], w.resting[1:]...)
		return oldest
	}
	return nil
}

// begin opens an operation, end closes it with its answer.
func (w *Workload) begin(ctx context.Context, client int, in Input) *Op {
	op := &Op{Client: client, In: in}
	if at, ok := ctx.Deadline(); ok {
		op.given = time.Until(at)
	}
	op.Call, op.Begin = w.clock.Now()
	return op
}

func (w *Workload) end(ctx context.Context, o *inUse, op *Op, out Output, err error) {
	if err != nil || out.Unknown {
		w.lapsed(ctx, o, op, out, err)
	}
	if err != nil {
		if !errors.Is(err, ErrNothing) {
			w.fail(fmt.Errorf("object %d, %v %c: %w (seed %d)", o.ID, op.In.Op, 'a'+op.In.Key, err, w.cfg.Seed))
		}
		return
	}
	op.Return, op.End = w.clock.Now()
	op.Out = out
	o.Add(op)
	w.ended.Add(1)
	if out.Version != 0 && op.In.Op != OpBatch && op.In.Op != OpDelete {
		o.hints[op.In.Key].Store(out.Version)
	}
}

// lapsed tells of an operation without an answer.
func (w *Workload) lapsed(ctx context.Context, o *inUse, op *Op, out Output, err error) {
	if w.cfg.Lapsed == nil {
		return
	}
	_, now := w.clock.Now()
	l := Lapse{
		Op: op.In.Op, How: op.In.How, Key: string(o.Key(w.cfg.Prefix, op.In.Key)), Ended: time.Now(), Given: op.given, Took: time.Duration(now - op.Begin),
		Unknown: out.Unknown, Stopped: errors.Is(ctx.Err(), context.Canceled), Why: out.Why,
	}
	if err != nil {
		l.Why = err.Error()
	}
	w.cfg.Lapsed(l)
}
