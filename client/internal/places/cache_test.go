package places

import (
	"encoding/binary"
	"testing"

	"pgregory.net/rapid"

	"github.com/rdmakv/rdmakv/store/layout"
)

func testHash(i uint64) layout.Hash {
	return layout.HashKey(7, binary.LittleEndian.AppendUint64(nil, i))
}

func testLoc(i uint64) layout.Loc {
	return layout.Loc{Place: layout.Place(i * 1024), Size: 64}
}

func TestLocCache(t *testing.T) {
	log := NewRetired(3)
	c := NewCache(1024, log.Version, nil)
	for i := range uint64(500) {
		c.Put(testHash(i), testLoc(i), log)
	}
	found := 0
	for i := range uint64(500) {
		loc, dropped := c.Find(testHash(i), log)
		if dropped > 0 {
			t.Fatal("dropped without a reason")
		}
		if loc.Size != 0 {
			if loc != testLoc(i) {
				t.Fatalf("key %d is at %+v", i, loc)
			}
			found++
		}
	}
	if found < 480 { // sets of eight, half full
		t.Errorf("%d of 500 remembered by a cache for 1024", found)
	}
	c.Put(testHash(1), testLoc(99), log)
	if loc, _ := c.Find(testHash(1), log); loc != testLoc(99) {
		t.Errorf("the newer place was not taken: %+v", loc)
	}
	c.Drop(testHash(1))
	if loc, _ := c.Find(testHash(1), log); loc.Size != 0 {
		t.Errorf("still there: %+v", loc)
	}
	c.Put(testHash(2), layout.Loc{}, log) // no place: nothing to remember
	var none *Cache = NewCache(-1, 0, nil)
	none.Put(testHash(1), testLoc(1), log)
	none.Drop(testHash(1))
	if loc, dropped := none.Find(testHash(1), log); loc.Size != 0 || dropped > 0 {
		t.Error("a cache of no entries remembers")
	}
}

// What is used stays, what is not goes: a set that is full of keys in use gives
// one up only to a clock that has gone round.
func TestLocCacheKeepsWhatIsUsed(t *testing.T) {
	log := NewRetired(0)
	c := NewCache(locWays, 0, nil) // one set
	for i := range uint64(locWays) {
		c.Put(testHash(i), testLoc(i), log)
	}
	for i := uint64(locWays); i < 200; i++ {
		c.Find(testHash(3), log)
		c.Put(testHash(i), testLoc(i), log)
		if loc, _ := c.Find(testHash(3), log); loc.Size == 0 {
			t.Fatalf("a key in constant use was evicted by the %dth", i)
		}
	}
}

// Against a map: a find gives what was put last, or nothing; and nothing that
// lies in a page retired since it was put.
func TestLocCacheModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := NewCache(rapid.SampledFrom([]int{7, 64, 512}).Draw(t, "entries"), 0, nil)
		log := NewRetired(0)
		type entry struct {
			loc   layout.Loc
			since uint64
		}
		model := map[uint64]entry{}
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			key := rapid.Uint64Range(0, 40).Draw(t, "key")
			switch rapid.IntRange(0, 4).Draw(t, "what") {
			case 0, 1:
				loc := layout.Loc{Place: layout.Place(rapid.Uint64Range(0, 20).Draw(t, "page") * 512), Size: 64}
				c.Put(testHash(key), loc, log)
				model[key] = entry{loc, log.Version}
			case 2:
				c.Drop(testHash(key))
				delete(model, key)
			case 3:
				log = log.Extend([]layout.Retired{{
					Version: log.Version + 1, Place: layout.Place(rapid.Uint64Range(0, 20).Draw(t, "page") * 512), Pages: 1,
				}})
			case 4:
				loc, _ := c.Find(testHash(key), log)
				if loc.Size == 0 {
					break
				}
				m, ok := model[key]
				if !ok || m.loc != loc {
					t.Fatalf("found %+v, put %+v", loc, m)
				}
				if log.Has(loc.Place, loc.Size, m.since) {
					t.Fatalf("found %+v, retired since version %d", loc, m.since)
				}
			}
		}
	})
}

func TestLocCacheAllocates(t *testing.T) {
	log := NewRetired(0)
	c := NewCache(1024, 0, nil)
	h := testHash(1)
	if n := testing.AllocsPerRun(100, func() {
		c.Put(h, testLoc(1), log)
		c.Find(h, log)
		c.Drop(h)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
