package residents

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdmakv/rdmakv/store/layout"
	"github.com/rdmakv/rdmakv/store/slab"
)

// The evictor is a goroutine that keeps a few places free ahead of writers, in
// each class that is written to while memory is full, and moves memory between
// classes.

// An Evictor decides what stays in a full memory: what has to go for a put, and
// whether a key that was read from the disk comes in. Safe for concurrent use, but for
// Run, which is its goroutine.
type Evictor struct {
	Env
	limit    uint64        // of the memory of items, bytes
	lease    time.Duration // after which nobody counts a READ, with all margins
	samplers sync.Pool     // *sampler

	wake   chan struct{}     // capacity 1
	wanted [4]atomic.Uint64  // bit by class: short of free places
	must   [256]atomic.Bool  // by class: somebody waits for an answer of that size
	looked [256]atomic.Int64 // by class: when memory of others was last looked for, UnixNano
}

// NewEvictor returns an evictor of the items in memory, which take limit bytes at
// most. lease is how long what was evicted may be read, with all margins.
func NewEvictor(env Env, limit uint64, lease time.Duration) *Evictor {
	e := &Evictor{Env: env, limit: limit, lease: lease, wake: make(chan struct{}, 1)}
	e.samplers.New = func() any { return new(sampler) }
	env.Memory.Slabs.OnShort(e.Want)
	return e
}

// Want says that a class is short of memory. It may be called under any lock.
func (e *Evictor) Want(class uint8) {
	if bit := uint64(1) << (class % 64); e.wanted[class/64].Or(bit)&bit != 0 {
		return // it is known
	}
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// Need says that an answer of that class is to be held for a reader and finds
// no memory: whatever is coldest goes for it.
func (e *Evictor) Need(class uint8) {
	e.must[class].Store(true)
	e.Want(class)
}

// take returns one class that is short, and forgets it.
func (e *Evictor) take() (class uint8, ok bool) {
	for i := range e.wanted {
		for bits := e.wanted[i].Load(); bits != 0; bits = e.wanted[i].Load() {
			for b := range 64 {
				if bit := uint64(1) << b; bits&bit != 0 {
					e.wanted[i].And(^bit)
					return uint8(i*64 + b), true
				}
			}
		}
	}
	return 0, false
}

const (
	// clearEvery is the least time between two looks at other classes' memory.
	clearEvery = 20 * time.Millisecond
	// clearLooks is how many runs of memory are compared for the coldest.
	clearLooks = 8
	// clearSample is how many items of a page are looked at.
	clearSample = 4
)

// Run works until the store ends.
func (e *Evictor) Run() {
	var buf sampler
	var under []*clearance
	tick := time.NewTicker(clearEvery)
	defer tick.Stop()
	var ticks <-chan time.Time // only while something is under way
	for {
		select {
		case <-e.Life.Stop:
			return
		case <-e.Memory.Fence.Down:
			return
		case <-ticks:
		case <-e.wake:
		}
		for class, ok := e.take(); ok && !e.Life.Over(); class, ok = e.take() {
			for n := e.Memory.Slabs.Needs(class); n > 0 && e.evictOne(class, &buf); n-- {
			}
			if c := e.clearFor(class, under, &buf); c != nil {
				under = append(under, c)
			}
		}
		under = e.goOn(under)
		if ticks = nil; len(under) > 0 {
			ticks = tick.C
		}
	}
}

// A clearance is a run of memory that is being emptied for a class.
type clearance struct {
	*slab.Clearing
	class uint8
	until time.Time
}

// clearPatience is for how many leases a run is emptied: an item in it may be
// held, or a write of its key in flight.
const clearPatience = 4

// clearFor looks for memory of other classes that is worth less than what the
// class evicts, and begins to empty it. Memory changes hands a lease after its
// last item has gone, so only a part of it is on its way at a time.
//
// What is compared is how often items are used, whatever their size: a large
// item that is read takes the place of many small ones that are not.
func (e *Evictor) clearFor(class uint8, under []*clearance, buf *sampler) *clearance {
	now := time.Now()
	last := &e.looked[class]
	must := e.must[class].Load()
	if now.Sub(time.Unix(0, last.Load())) < clearEvery || e.Memory.NoLease || !must && !e.mayCache(class) {
		return nil
	}
	last.Store(now.UnixNano())
	e.must[class].Store(false)
	moving := 0
	for _, c := range under {
		if c.class == class && uint64(layout.ClassSize(class)) > slab.MaxPaged {
			return nil // one large item after the other
		}
		moving += c.Bytes()
	}
	if limit := int(e.limit / 16); moving > limit && len(under) > 0 && !must {
		return nil
	}
	own, few := e.worth(class, buf)
	var best *slab.Clearing
	bestUse := 0.0
	for range clearLooks {
		w, ok := e.Memory.Slabs.Look(class, rand.Uint64())
		if !ok || w.All(class) {
			continue
		}
		use := e.useOf(w, buf)
		if best == nil || use < bestUse {
			best, bestUse = w, use
		}
	}
	if best == nil || !(must || bestUse < own || few && bestUse <= own) || !best.Begin() {
		return nil
	}
	e.Memory.Counts.Cleared.Add(1)
	patience := clearPatience * (e.lease + time.Second)
	return &clearance{Clearing: best, class: class, until: now.Add(patience)}
}

// worth is how much the items of a class are used, on average. A class that
// has hardly any is worth as much as one use: that of the put that found none.
func (e *Evictor) worth(class uint8, buf *sampler) (use float64, few bool) {
	live := e.Memory.Slabs.Live(class)
	few = live < victimSample || uint64(live*layout.ClassSize(class)) < e.limit/128
	buf.places = e.Memory.Slabs.Sample(class, victimSample, rand.Uint64, buf.places[:0])
	n, sum := 0, 0
	for _, p := range buf.places {
		if v, ok := e.peek(p, class, &buf.keys[0]); ok {
			n, sum = n+1, sum+int(v.Use)
		}
	}
	if n > 0 {
		use = float64(sum) / float64(n)
	}
	if few {
		use = max(1, use)
	}
	return use, few
}

// useOf is how much the items in a run are used, on average, weighted by the
// memory that they take.
func (e *Evictor) useOf(w *slab.Clearing, buf *sampler) float64 {
	var sum, bytes float64
	for _, it := range w.Items(clearSample, nil) {
		if v, ok := e.peek(it.Place, it.Class, &buf.keys[0]); ok {
			size := float64(layout.ClassSize(it.Class) * it.Of)
			sum, bytes = sum+float64(v.Use)*size, bytes+size
		}
	}
	if bytes == 0 {
		return 0
	}
	return sum / bytes
}

// goOn evicts what is left in the runs that are being emptied, and returns
// those that are not done.
func (e *Evictor) goOn(under []*clearance) []*clearance {
	kept := under[:0]
	var key []byte
	for _, c := range under {
		if c.Complete() {
			e.Want(c.class) // more may be worth it
			continue
		}
		if !c.Done() {
			if time.Now().After(c.until) {
				c.Cancel()
				continue
			}
			for _, it := range c.Items(0, nil) {
				if v, ok := e.peek(it.Place, it.Class, &key); ok {
					e.Shards[v.Shard].Evict(&v)
				}
			}
		}
		kept = append(kept, c)
	}
	clear(under[len(kept):])
	return kept
}
