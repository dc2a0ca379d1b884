//go:build !race

package places

import (
	"container/list"
	"flag"
	"math"
	"math/rand/v2"
	"sort"
	"testing"

	"github.com/rdmakv/rdmakv/store/layout"
)

// Hit rates of the location cache on traces that are made from a seed, beside a
// list in the order of last use (LRU), which is what such a cache is judged by, and
// beside what it replaced: sets of eight with a clock. There is one goroutine, so
// nothing for the race detector to see.

var hitrateSize = flag.Int("hitrate-keys", 20_000, "keys in the traces of hit rates")

// A remembering is a cache of numbered keys.
type remembering interface {
	get(key uint64) bool // whether it was there; afterwards it may be
}

type rememberedPlaces struct {
	c   *Cache
	log *Retired
}

func (r *rememberedPlaces) get(key uint64) bool {
	h := testHash(key)
	if loc, _ := r.c.Find(h, r.log); loc.Place == layout.Place(key+1) {
		return true
	}
	r.c.Put(h, layout.Loc{Place: layout.Place(key + 1), Size: 104}, r.log)
	return false
}

type lastUsed struct {
	size  int
	order *list.List
	at    map[uint64]*list.Element
}

func (r *lastUsed) get(key uint64) bool {
	if e := r.at[key]; e != nil {
		r.order.MoveToFront(e)
		return true
	}
	if r.order.Len() == r.size {
		e := r.order.Back()
		delete(r.at, e.Value.(uint64))
		r.order.Remove(e)
	}
	r.at[key] = r.order.PushFront(key)
	return false
}

// clocked are sets of eight whose entries took 50 bytes each.
type clocked struct{ sets []clockedSet }

type clockedSet struct {
	keys       [8]uint64 // plus one
	mark, hand uint8
}

func (r *clocked) get(key uint64) bool {
	s := &r.sets[testHash(key).Lo%uint64(len(r.sets))]
	for i, k := range s.keys {
		if k == key+1 {
			s.mark |= 1 << i
			return true
		}
	}
	for s.keys[s.hand] != 0 && s.mark>>s.hand&1 != 0 {
		s.mark &^= 1 << s.hand
		s.hand = (s.hand + 1) % 8
	}
	s.keys[s.hand], s.mark = key+1, s.mark|1<<s.hand
	s.hand = (s.hand + 1) % 8
	return false
}

// A trace is a list of keys; of those that are counted the hits are.
type trace struct {
	keys    []uint64
	counted []bool // nil: all
}

func (t trace) rate(r remembering) float64 {
	hits, n := 0, 0
	for i, key := range t.keys {
		hit := r.get(key)
		if i < len(t.keys)/5 || t.counted != nil && !t.counted[i] {
			continue // it has to warm up
		}
		n++
		if hit {
			hits++
		}
	}
	return float64(hits) / float64(n)
}

func zipfTrace(n, keys int, exponent float64, seed uint64) []uint64 {
	rng := rand.New(rand.NewPCG(seed, 9))
	cum, sum := make([]float64, keys), 0.0
	for i := range cum {
		sum += math.Pow(float64(i+1), -exponent)
		cum[i] = sum
	}
	trace := make([]uint64, n)
	for i := range trace {
		trace[i] = uint64(sort.SearchFloat64s(cum, rng.Float64()*sum))
	}
	return trace
}

func TestLocCacheHitRate(t *testing.T) {
	keys := *hitrateSize
	gets := 12 * keys
	zipf := zipfTrace(gets, keys, 0.99, 1)
	// Half as many keys as there are, each asked for once, now and then.
	var scans trace
	next := uint64(1 << 32)
	for i, key := range zipf {
		scans.keys, scans.counted = append(scans.keys, key), append(scans.counted, true)
		if i%keys == keys-1 {
			for range keys / 2 {
				scans.keys, scans.counted = append(scans.keys, next), append(scans.counted, false)
				next++
			}
		}
	}
	// Each get beside one of a key that is asked for once.
	var beside trace
	for i, key := range zipf {
		beside.keys, beside.counted = append(beside.keys, key, uint64(1<<33+i)), append(beside.counted, true, false)
	}
	// Half way through other keys are in demand.
	moved := append([]uint64(nil), zipf...)
	for i := gets / 2; i < gets; i++ {
		moved[i] += 1 << 20
	}
	for _, tc := range []struct {
		name  string
		trace trace
		lead  float64 // over LRU of as many entries, at least
	}{
		{"zipf 0.99", trace{keys: zipf}, 0.01},
		{"zipf 0.7", trace{keys: zipfTrace(gets, keys, 0.7, 2)}, 0.02},
		{"scans", scans, 0.05},
		{"one-off gets", beside, 0.05},
		{"demand moves", trace{keys: moved}, -0.02},
	} {
		for _, part := range []int{64, 16, 4} {
			size := keys / part
			mine := tc.trace.rate(&rememberedPlaces{NewCache(size, 0, nil), NewRetired(0)})
			lru := tc.trace.rate(&lastUsed{size, list.New(), map[uint64]*list.Element{}})
			sets := max(size*64/locWays/400, 1) // of the same bytes
			clock := tc.trace.rate(&clocked{make([]clockedSet, sets)})
			t.Logf("%-13s 1/%-2d of the keys: %.3f, LRU %.3f, as many bytes of what it replaced %.3f", tc.name, part, mine, lru, clock)
			if mine < lru+tc.lead {
				t.Errorf("%s, 1/%d: %.3f, LRU has %.3f", tc.name, part, mine, lru)
			}
			if mine < clock {
				t.Errorf("%s, 1/%d: %.3f, in the same memory it was %.3f", tc.name, part, mine, clock)
			}
		}
	}
}

// A cache grows with what is asked for, to its bound and no further, and loses
// nothing that is in use on the way.
func TestLocCacheGrows(t *testing.T) {
	const most = 40_000
	r := &rememberedPlaces{NewCache(most, 0, nil), NewRetired(0)}
	if r.c.Size() >= 4*firstSets*64 {
		t.Fatalf("a new cache takes %d bytes", r.c.Size())
	}
	bound := (most + locWays - 1) / locWays * 64
	rng := rand.New(rand.NewPCG(1, 1))
	for _, keys := range []int{1000, 10_000, 30_000} {
		for range 10 * keys {
			r.get(rng.Uint64N(uint64(keys)))
		}
		hits := 0
		for range keys {
			if r.get(rng.Uint64N(uint64(keys))) {
				hits++
			}
		}
		t.Logf("%d keys: %d bytes, %d places, %d of %d hits", keys, r.c.Size(), r.c.Len(), hits, keys)
		if hits < keys*9/10 {
			t.Errorf("of %d keys in use %d are remembered", keys, hits)
		}
		if r.c.Size() > bound*5/4+64 {
			t.Errorf("%d bytes, the bound is %d and a quarter while it grows", r.c.Size(), bound)
		}
	}
	for key := range uint64(1_000_000) {
		r.get(key)
	}
	if r.c.Size() != bound || r.c.Len() > bound/64*locWays {
		t.Errorf("%d bytes with %d places; the bound is %d", r.c.Size(), r.c.Len(), bound)
	}
}
