package store

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

// fullMemory is the store's part in a full memory.
type fullMemory struct {
	sketch   *sketch
	evictor  evictor
	samplers sync.Pool // *sampler
}

// coldShard is a shard's part in it. Guarded by the shard's lock.
type coldShard struct {
	gone     gone
	dropping map[layout.Slot]struct{} // Pebble-only slots that go a lease from their count
}

// openFull prepares for the moment when memory is full.
func (s *Store) openFull() {
	s.sketch = newSketch(s.cfg.MemoryLimit / sketchShare)
	s.evictor.wake = make(chan struct{}, 1)
	s.samplers.New = func() any { return new(sampler) }
	s.slabs.OnShort(s.evictor.want)
}

type evictor struct {
	wake   chan struct{}     // capacity 1
	wanted [4]atomic.Uint64  // bit by class: short of free places
	must   [256]atomic.Bool  // by class: somebody waits for an answer of that size
	looked [256]atomic.Int64 // by class: when memory of others was last looked for, UnixNano
}

// want says that a class is short of memory. It may be called under any lock.
func (e *evictor) want(class uint8) {
	if bit := uint64(1) << (class % 64); e.wanted[class/64].Or(bit)&bit != 0 {
		return // it is known
	}
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// need says that an answer of that class is to be held for a reader and finds
// no memory: whatever is coldest goes for it.
func (e *evictor) need(class uint8) {
	e.must[class].Store(true)
	e.want(class)
}

// take returns one class that is short, and forgets it.
func (e *evictor) take() (class uint8, ok bool) {
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

// runEvictor works until the store ends.
func (s *Store) runEvictor() {
	defer s.workers.Done()
	var buf sampler
	var under []*clearance
	tick := time.NewTicker(clearEvery)
	defer tick.Stop()
	var ticks <-chan time.Time // only while something is under way
	for {
		select {
		case <-s.stop:
			return
		case <-s.fence.down:
			return
		case <-ticks:
		case <-s.evictor.wake:
		}
		for class, ok := s.evictor.take(); ok && !s.stopping(); class, ok = s.evictor.take() {
			for n := s.slabs.Needs(class); n > 0 && s.evictOne(class, &buf); n-- {
			}
			if c := s.clearFor(class, under, &buf); c != nil {
				under = append(under, c)
			}
		}
		under = s.goOn(under)
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
func (s *Store) clearFor(class uint8, under []*clearance, buf *sampler) *clearance {
	now := time.Now()
	last := &s.evictor.looked[class]
	must := s.evictor.must[class].Load()
	if now.Sub(time.Unix(0, last.Load())) < clearEvery || s.cfg.NoLease || !must && !s.mayCache(class) {
		return nil
	}
	last.Store(now.UnixNano())
	s.evictor.must[class].Store(false)
	moving := 0
	for _, c := range under {
		if c.class == class && uint64(layout.ClassSize(class)) > slab.MaxPaged {
			return nil // one large item after the other
		}
		moving += c.Bytes()
	}
	if limit := int(s.cfg.itemsLimit() / 16); moving > limit && len(under) > 0 && !must {
		return nil
	}
	own, few := s.worth(class, buf)
	var best *slab.Clearing
	bestUse := 0.0
	for range clearLooks {
		w, ok := s.slabs.Look(class, rand.Uint64())
		if !ok || w.All(class) {
			continue
		}
		use := s.useOf(w, buf)
		if best == nil || use < bestUse {
			best, bestUse = w, use
		}
	}
	if best == nil || !(must || bestUse < own || few && bestUse <= own) || !best.Begin() {
		return nil
	}
	s.counts.cleared.Add(1)
	patience := clearPatience * (s.cfg.predecessorWait() + time.Second)
	return &clearance{Clearing: best, class: class, until: now.Add(patience)}
}

// worth is how much the items of a class are used, on average. A class that
// has hardly any is worth as much as one use: that of the put that found none.
func (s *Store) worth(class uint8, buf *sampler) (use float64, few bool) {
	live := s.slabs.Live(class)
	few = live < victimSample || uint64(live*layout.ClassSize(class)) < s.cfg.itemsLimit()/128
	buf.places = s.slabs.Sample(class, victimSample, rand.Uint64, buf.places[:0])
	n, sum := 0, 0
	for _, p := range buf.places {
		if v, ok := s.peek(p, class, &buf.keys[0]); ok {
			n, sum = n+1, sum+int(v.use)
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
func (s *Store) useOf(w *slab.Clearing, buf *sampler) float64 {
	var sum, bytes float64
	for _, it := range w.Items(clearSample, nil) {
		if v, ok := s.peek(it.Place, it.Class, &buf.keys[0]); ok {
			size := float64(layout.ClassSize(it.Class) * it.Of)
			sum, bytes = sum+float64(v.use)*size, bytes+size
		}
	}
	if bytes == 0 {
		return 0
	}
	return sum / bytes
}

// goOn evicts what is left in the runs that are being emptied, and returns
// those that are not done.
func (s *Store) goOn(under []*clearance) []*clearance {
	kept := under[:0]
	var key []byte
	for _, c := range under {
		if c.Complete() {
			s.evictor.want(c.class) // more may be worth it
			continue
		}
		if !c.Done() {
			if time.Now().After(c.until) {
				c.Cancel()
				continue
			}
			for _, it := range c.Items(0, nil) {
				if v, ok := s.peek(it.Place, it.Class, &key); ok {
					s.evict(&v)
				}
			}
		}
		kept = append(kept, c)
	}
	clear(under[len(kept):])
	return kept
}
