//go:build !race

package residents

import (
	"container/list"
	"fmt"
	"math"
	"math/rand/v2"
	"sort"
	"testing"

	"github.com/rdmakv/rdmakv/store/internal/shard"
	"github.com/rdmakv/rdmakv/store/internal/sketch"
	"github.com/rdmakv/rdmakv/store/layout"
)

// Hit rates of the policy, next to others, on traces that are made from a seed.
// The policy is the store's own: its sketch, its choice of a victim among eight
// (victim.colder), its rule of admission (victim.yields). Only the memory is a
// slice here, so that millions of gets take a second. There is one goroutine, so
// nothing for the race detector to see.

// A policyCache is a cache of keys by number under one policy.
type policyCache interface {
	get(key uint64) bool // whether it was there; afterwards it may be
}

// sampledCache evicts the coldest of a sample.
type sampledCache struct {
	size   int
	sample int
	admit  bool
	blind  bool // 1 of 16 uses is reported, as by clients for one-sided gets
	rng    *rand.Rand
	sketch *sketch.Sketch
	at     map[uint64]int
	items  []shard.Victim
	clock  layout.Version
}

func newSampled(size, sample int, admit, blind bool) *sampledCache {
	return &sampledCache{size: size, sample: sample, admit: admit, blind: blind, rng: rand.New(rand.NewPCG(1, 2)),
		sketch: sketch.New(uint64(size) * 128 / sketch.Share), at: map[uint64]int{}}
}

func (c *sampledCache) hash(key uint64) layout.Hash {
	x := (key + 1) * 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	return layout.Hash{Hi: x ^ x>>27}
}

func (c *sampledCache) get(key uint64) bool {
	h := c.hash(key)
	_, hit := c.at[key]
	switch {
	case !hit || !c.blind:
		c.sketch.Add(h.Hi)
	case c.rng.IntN(16) == 0:
		for range maxTouchCount {
			c.sketch.Add(h.Hi)
		}
	}
	if hit {
		return true
	}
	c.clock++
	v := shard.Victim{Hash: h, Version: c.clock, Place: layout.Place(key)}
	if len(c.items) < c.size {
		c.at[key] = len(c.items)
		c.items = append(c.items, v)
		return false
	}
	best := -1
	for range c.sample {
		i := c.rng.IntN(len(c.items))
		it := &c.items[i]
		it.Use = c.sketch.Estimate(it.Hash.Hi)
		if best < 0 || it.Colder(&c.items[best]) {
			best = i
		}
	}
	if c.admit && !c.items[best].Yields(c.sketch.Estimate(h.Hi)) {
		return false
	}
	delete(c.at, uint64(c.items[best].Place))
	c.items[best], c.at[key] = v, best
	return false
}

// lruCache evicts what was used longest ago.
type lruCache struct {
	size  int
	order *list.List
	at    map[uint64]*list.Element
}

func (c *lruCache) get(key uint64) bool {
	if e := c.at[key]; e != nil {
		c.order.MoveToFront(e)
		return true
	}
	if c.order.Len() == c.size {
		e := c.order.Back()
		delete(c.at, e.Value.(uint64))
		c.order.Remove(e)
	}
	c.at[key] = c.order.PushFront(key)
	return false
}

// randomCache evicts anything.
type randomCache struct {
	size int
	rng  *rand.Rand
	at   map[uint64]int
	keys []uint64
}

func (c *randomCache) get(key uint64) bool {
	if _, ok := c.at[key]; ok {
		return true
	}
	i := len(c.keys)
	if i < c.size {
		c.keys = append(c.keys, key)
	} else {
		i = c.rng.IntN(c.size)
		delete(c.at, c.keys[i])
		c.keys[i] = key
	}
	c.at[key] = i
	return false
}

// zipf draws from n keys with the exponent s, which may be below 1.
type zipf struct {
	rng *rand.Rand
	cum []float64
}

func newZipf(rng *rand.Rand, s float64, n int) *zipf {
	z := &zipf{rng: rng, cum: make([]float64, n)}
	sum := 0.0
	for i := range n {
		sum += math.Pow(float64(i+1), -s)
		z.cum[i] = sum
	}
	return z
}

func (z *zipf) next() uint64 {
	return uint64(sort.SearchFloat64s(z.cum, z.rng.Float64()*z.cum[len(z.cum)-1]))
}

// TestHitRates: sampled LFU with admission against LRU and random, with an
// eighth of the keys in memory.
func TestHitRates(t *testing.T) {
	const size, keys = 10_000, 80_000
	const gets, ahead = 600_000, 2 // ahead: in percent of all gets
	traces := []struct {
		name string
		key  func(rng *rand.Rand, z *zipf, i int) uint64
	}{
		{"zipf 0.99", func(_ *rand.Rand, z *zipf, _ int) uint64 { return z.next() }},
		{"zipf 0.99, a third scans", func(rng *rand.Rand, z *zipf, i int) uint64 {
			if i/3000%3 == 2 { // a run of keys, each once
				return uint64(keys + i)
			}
			return z.next()
		}},
		{"zipf 0.99, other keys from half on", func(_ *rand.Rand, z *zipf, i int) uint64 {
			return z.next() + uint64(i/(gets/2))*keys
		}},
	}
	policies := []struct {
		name string
		make func() policyCache
	}{
		{"sampled LFU, admission", func() policyCache { return newSampled(size, victimSample, true, false) }},
		{"the same, 1 of 16 hits told", func() policyCache { return newSampled(size, victimSample, true, true) }},
		{"sampled LFU, all admitted", func() policyCache { return newSampled(size, victimSample, false, false) }},
		{"LRU", func() policyCache { return &lruCache{size: size, order: list.New(), at: map[uint64]*list.Element{}} }},
		{"random", func() policyCache {
			return &randomCache{size: size, rng: rand.New(rand.NewPCG(1, 3)), at: map[uint64]int{}}
		}},
	}
	rate := map[[2]string]float64{}
	for _, trace := range traces {
		for _, p := range policies {
			rng := rand.New(rand.NewPCG(7, 7))
			z := newZipf(rng, 0.99, keys)
			c := p.make()
			hits, popular := 0, 0
			for i := range gets {
				k := trace.key(rng, z, i)
				if c.get(k) && i >= gets/4 {
					hits++
				}
				if i >= gets/4 {
					popular++
				}
			}
			rate[[2]string{trace.name, p.name}] = 100 * float64(hits) / float64(popular)
		}
	}
	line := fmt.Sprintf("%-36s", "hits of all gets, in percent")
	for _, p := range policies {
		line += fmt.Sprintf(" | %s", p.name)
	}
	t.Log(line)
	for _, trace := range traces {
		line := fmt.Sprintf("%-36s", trace.name)
		for _, p := range policies {
			line += fmt.Sprintf(" | %*.1f", len(p.name), rate[[2]string{trace.name, p.name}])
		}
		t.Log(line)
	}
	ours := func(trace int) float64 { return rate[[2]string{traces[trace].name, policies[0].name}] }
	other := func(trace, policy int) float64 { return rate[[2]string{traces[trace].name, policies[policy].name}] }
	for i, trace := range traces {
		if ours(i) < other(i, 4)+ahead || other(i, 1) < other(i, 4) {
			t.Errorf("%s: %.1f %% hits (%.1f told of 1 in 16), random eviction has %.1f", trace.name, ours(i), other(i, 1), other(i, 4))
		}
		if i < 2 && ours(i) < other(i, 3)+ahead {
			t.Errorf("%s: %.1f %% hits, LRU has %.1f", trace.name, ours(i), other(i, 3))
		}
	}
}
