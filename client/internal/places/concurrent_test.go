package places

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/rdmakv/rdmakv/store/layout"
)

// Finds that take no lock, beside puts, drops, growth and retirements: what is found
// is what was put for a key with that tag, in a page that is good by the finder's own
// log. Places say since when they are good.
func TestLocCacheConcurrent(t *testing.T) {
	const pages, keys = 64, 4096
	c := NewCache(3000, 0, nil)
	var newest atomic.Pointer[Retired]
	newest.Store(NewRetired(0))
	// A page is used again after its retirement: places carry the version.
	place := func(key, version uint64) layout.Loc {
		return layout.Loc{Place: layout.Place(version<<20 | key%pages<<9 | key/pages), Size: 8}
	}
	var wg sync.WaitGroup
	var stop atomic.Bool
	var found, dropped atomic.Uint64
	for g := range uint64(4) {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(g, 1))
			for !stop.Load() {
				log := newest.Load()
				key := rng.Uint64N(keys)
				h := testHash(key)
				switch rng.IntN(8) {
				case 0:
					c.Drop(h)
				case 1, 2, 3:
					c.Put(h, place(key, log.Version), log)
				default:
					loc, n := c.Find(h, log)
					dropped.Add(uint64(n))
					if loc.Size == 0 {
						continue
					}
					found.Add(1)
					// Retired since it was put, as far as this log goes?
					since := uint64(loc.Place) >> 20
					for _, e := range log.entries {
						if e.Version > since && uint64(e.Place)>>9 == uint64(loc.Place)>>9 {
							t.Errorf("place %x is in a page retired as version %d", uint64(loc.Place), e.Version)
							stop.Store(true)
							return
						}
					}
				}
			}
		})
	}
	for v := uint64(1); (v <= 400 || v < 20_000 && dropped.Load() == 0) && !stop.Load(); v++ {
		log := newest.Load()
		// The page as it was at some version before.
		p := layout.Place((v-1-rand.Uint64N(min(v, 4)))<<20 | rand.Uint64N(pages)<<9)
		newest.Store(log.Extend([]layout.Retired{{Version: v, Place: p, Pages: 1}}))
		for range 50 {
			c.Find(testHash(rand.Uint64N(keys)), newest.Load())
		}
	}
	stop.Store(true)
	wg.Wait()
	t.Logf("%d found, %d dropped", found.Load(), dropped.Load())
	if found.Load() == 0 || dropped.Load() == 0 {
		t.Error("too little has happened")
	}
}

// A set counts retirements up to a bound; behind it a cache begins anew.
func TestLocCacheCountsNoFurther(t *testing.T) {
	c := NewCache(1000, 5, nil)
	log := NewRetired(5)
	c.Put(testHash(1), testLoc(1), log)
	log = log.Forget(5 + sinceMax + 1)
	if loc, _ := c.Find(testHash(1), log); loc.Size != 0 {
		t.Fatalf("%+v after more retirements than a set can count", loc)
	}
	for range 2 { // the first makes the new table
		c.Put(testHash(1), testLoc(1), log)
	}
	if loc, _ := c.Find(testHash(1), log); loc != testLoc(1) {
		t.Fatalf("%+v, it does not begin anew", loc)
	}
	// A get that knows less than the table changes nothing.
	c.Put(testHash(2), testLoc(2), NewRetired(5))
	if loc, _ := c.Find(testHash(2), log); loc.Size != 0 {
		t.Fatalf("%+v of a get with an old log", loc)
	}
}
