// Package places is what a session remembers of where items are: a Cache of places by
// the hash of their keys, and the pages that must not be believed any more (Retired).
// Both are hints and bounds on hints: whether an item that was READ is the one that
// was asked for, its own bytes tell.
package places

import (
	"math"
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/rdmakv/rdmakv/internal/prefetch"
	"github.com/rdmakv/rdmakv/store/layout"
)

// A Cache remembers where items were, so that a get needs one READ. What it
// says is a hint: the item itself carries its key, and a place that holds
// another one costs a second READ, never a wrong answer. Therefore an entry is one
// word and knows its key by 16 bits of its hash only:
//
//	│ tag 16 │ size class 8 │ place 40 │      like a slot of the index
//
// Seven of them and a word about them are a set, which is one line of the
// processor's cache; a key's hash names its set. There is no pointer for the
// garbage collector to follow, and find takes no lock and writes nothing, but that
// an entry's use is counted, up to three.
//
// The one thing an item cannot vouch for is the page it lies in; therefore each set
// knows the reclaim version at which all of its places were good (Retired).
// A caller that comes with a newer log first drops what that knows to be retired.
//
// A full set gives up an entry that was not used since it came or since all were
// last aged. So what is asked for once replaces only what was asked for once, and a
// scan leaves the rest alone; what comes back soon after it was given up has one
// use ahead (docs/decisions/2026-11-21-location-cache.md has hit rates).
//
// The table begins small and grows fourfold when it gives up many entries, up to
// its bound. Places are found in the former one until the new one is warm. So the
// memory is at most 64 bytes for each seven entries, and once a quarter more.
//
// Safe for concurrent use.
type Cache struct {
	most   int          // sets
	settle func([]byte) // told of the memory of a new table that is large; or nil
	table  atomic.Pointer[table]

	growing sync.Mutex
}

// A table is all sets of one size.
type table struct {
	base uint64 // reclaim version from which the sets count
	sets []set
	old  atomic.Pointer[table] // where to look for what is not here
	// news counts the entries that were new to the table, givenUp those that they
	// have replaced.
	news, givenUp atomic.Int64
	locks         [64]paddedMutex // of the sets, by index: for changes of entries
}

type paddedMutex struct {
	sync.Mutex
	_ [56]byte
}

const (
	locWays = 7
	// firstSets is the least size of a new cache: 32 KiB, 3,584 places.
	firstSets = 512

	locTagPos   = 48
	locClassPos = 40
	locPlaceMax = 1<<locClassPos - 1
)

// A set is a line of the processor's cache. State, from the top:
//
//	│ since 29, counted from base │ ghosts 2 × 8 │ hand 3 │ … │ uses 7 × 2 │
//
// A ghost is eight bits of the tag of an entry that was given up. Entries change
// under the set's lock; uses, also by finds, by compare-and-swap of the state.
type set struct {
	state   atomic.Uint64
	entries [locWays]atomic.Uint64 // 0: free
}

// setBytes is the size of a set.
const setBytes = 64

const (
	sinceBits = 29
	sincePos  = 64 - sinceBits
	sinceMax  = 1<<sinceBits - 1
	ghostPos  = sincePos - 16
	handPos   = ghostPos - 3
	mostUses  = 3
)

// NewCache makes a cache that grows up to about that many entries; nil, which
// remembers nothing, if there are to be none. base is the reclaim version now. settle, if it is not nil, is
// called for each table of at least settleBytes with its memory, in a goroutine of its own, so that it can have it put into
// huge pages: a find reads one line of the table at random, and each would cost a walk through the page tables.
func NewCache(entries int, base uint64, settle func([]byte)) *Cache {
	if entries <= 0 {
		return nil
	}
	c := &Cache{most: (entries + locWays - 1) / locWays, settle: settle}
	first := c.most
	for first/4 >= firstSets {
		first /= 4
	}
	c.table.Store(c.newTable(first, base))
	return c
}

// settleBytes is how large a table is that settle is told of: it has some huge pages.
const (
	settleBytes = 4 << 20
	settleStep  = 2 << 20 // a huge page
)

func (c *Cache) newTable(sets int, base uint64) *table {
	t := &table{base: base, sets: make([]set, sets)}
	if c.settle != nil && sets*setBytes >= settleBytes {
		go func() {
			for i := 0; i < sets; i += settleStep / setBytes {
				t.sets[i].state.Add(0) // where nothing was ever written there is no huge page
			}
			c.settle(bytesOf(t.sets))
		}()
	}
	return t
}

// at is the set of a key and the lock of that set.
func (t *table) at(h layout.Hash) (*set, *paddedMutex) {
	i, _ := bits.Mul64(h.Lo^h.Hi>>16*0x9e3779b97f4a7c15, uint64(len(t.sets)))
	return &t.sets[i], &t.locks[i%uint64(len(t.locks))]
}

func locTag(h layout.Hash) uint64 { return h.Hi << locTagPos }

// Find returns the remembered place of a key, and how large the places there are;
// Version stays 0. Places of the key's set that log knows to be retired are dropped
// before; dropped counts them.
func (c *Cache) Find(h layout.Hash, log *Retired) (loc layout.Loc, dropped int) {
	if c == nil {
		return layout.Loc{}, 0
	}
	t := c.table.Load()
	loc, dropped = t.find(h, log)
	if old := t.old.Load(); old != nil && loc.Size == 0 {
		var more int
		if loc, more = old.find(h, log); loc.Size != 0 {
			t.put(h, loc, log)
		}
		dropped += more
	}
	return loc, dropped
}

// Ahead has the processor fetch what Find will look at for a key.
func (c *Cache) Ahead(h layout.Hash) {
	if c != nil {
		s, _ := c.table.Load().at(h)
		prefetch.Line(s)
	}
}

// Put remembers a place that a get has just found live under a grant with that log.
func (c *Cache) Put(h layout.Hash, loc layout.Loc, log *Retired) {
	if c == nil || loc.Size == 0 {
		return
	}
	t := c.table.Load()
	if !t.put(h, loc, log) { // it cannot count that far
		c.growing.Lock()
		if c.table.Load() == t {
			c.table.Store(c.newTable(len(t.sets), log.Version))
		}
		c.growing.Unlock()
		return
	}
	if t.givenUp.Load() >= int64(len(t.sets)) {
		c.grow(t, log)
	}
	if old := t.old.Load(); old != nil && t.news.Load() >= int64(locWays*len(old.sets)) {
		t.old.Store(nil) // what is used has come over
	}
}

// grow replaces a table that gives up many entries.
func (c *Cache) grow(t *table, log *Retired) {
	if !c.growing.TryLock() {
		return
	}
	defer c.growing.Unlock()
	if c.table.Load() != t {
		return
	}
	if len(t.sets) == c.most {
		t.givenUp.Store(math.MinInt64) // for good
		return
	}
	t.old.Store(nil)
	sets := 4 * len(t.sets)
	if sets+sets/8 > c.most {
		sets = c.most
	}
	next := c.newTable(sets, log.Version)
	next.old.Store(t)
	c.table.Store(next)
}

// Drop forgets a key.
func (c *Cache) Drop(h layout.Hash) {
	if c == nil {
		return
	}
	for t := c.table.Load(); t != nil; t = t.old.Load() {
		s, mu := t.at(h)
		mu.Lock()
		if i := s.index(h); i >= 0 {
			s.entries[i].Store(0)
		}
		mu.Unlock()
	}
}

// Len is how many places are remembered, size how many bytes that takes.
func (c *Cache) Len() (n int) {
	if c == nil {
		return 0
	}
	t := c.table.Load()
	for i := range t.sets {
		for j := range t.sets[i].entries {
			if t.sets[i].entries[j].Load() != 0 {
				n++
			}
		}
	}
	return n
}

// Size is the memory that the cache takes, in bytes.
func (c *Cache) Size() (n int) {
	if c == nil {
		return 0
	}
	for t := c.table.Load(); t != nil; t = t.old.Load() {
		n += len(t.sets) * setBytes
	}
	return n
}

// index is which entry of the set has the key's tag, -1 if none has.
func (s *set) index(h layout.Hash) int {
	tag := locTag(h)
	for i := range s.entries {
		if e := s.entries[i].Load(); (e^tag)>>locTagPos == 0 && e != 0 {
			return i
		}
	}
	return -1
}

func (t *table) find(h layout.Hash, log *Retired) (loc layout.Loc, dropped int) {
	s, mu := t.at(h)
	state := s.state.Load() // before the entries: what is good now stays good in them
	if t.base+state>>sincePos < log.Version {
		mu.Lock()
		_, dropped = t.advance(s, log)
		mu.Unlock()
		if state = s.state.Load(); t.base+state>>sincePos < log.Version {
			return layout.Loc{}, dropped // beyond what it can count
		}
	}
	tag := locTag(h)
	for i := range s.entries {
		e := s.entries[i].Load()
		if (e^tag)>>locTagPos != 0 || e == 0 {
			continue
		}
		if uses := state >> (2 * i) & mostUses; uses < mostUses {
			s.state.CompareAndSwap(state, state+1<<(2*i)) // another get may have changed it: then this use is not counted
		}
		return locOf(e), dropped
	}
	return layout.Loc{}, dropped
}

func locOf(e uint64) layout.Loc {
	return layout.Loc{Place: layout.Place(e & locPlaceMax), Size: uint32(layout.ClassSize(uint8(e >> locClassPos)))}
}

// advance drops the places that log knows to be retired, under the set's lock. It
// is false if the set knows of newer retirements than log, or cannot count so far.
func (t *table) advance(s *set, log *Retired) (ok bool, dropped int) {
	since := t.base + s.state.Load()>>sincePos
	switch {
	case since > log.Version || log.Version-t.base > sinceMax:
		return false, 0
	case since == log.Version:
		return true, 0
	}
	for i := range s.entries {
		if e := s.entries[i].Load(); e != 0 {
			if loc := locOf(e); log.Has(loc.Place, loc.Size, since) {
				s.entries[i].Store(0)
				dropped++
			}
		}
	}
	s.change(func(state uint64) uint64 { return state&(1<<sincePos-1) | (log.Version-t.base)<<sincePos })
	return true, dropped
}

func (s *set) change(f func(uint64) uint64) {
	for {
		if old := s.state.Load(); s.state.CompareAndSwap(old, f(old)) {
			return
		}
	}
}

// put is false if the table cannot count as far as log goes.
func (t *table) put(h layout.Hash, loc layout.Loc, log *Retired) bool {
	class, ok := layout.ClassFor(int(loc.Size))
	if !ok || loc.Place > locPlaceMax {
		return true
	}
	s, mu := t.at(h)
	mu.Lock()
	defer mu.Unlock()
	if ok, _ := t.advance(s, log); !ok {
		// Newer retirements than the get knew of, perhaps of this very place: it is
		// not worth a comparison.
		return log.Version < t.base || log.Version-t.base <= sinceMax
	}
	e := locTag(h) | uint64(class)<<locClassPos | uint64(loc.Place)
	if i := s.index(h); i >= 0 {
		s.entries[i].Store(e)
		return true
	}
	uses := uint64(0)
	s.change(func(state uint64) uint64 {
		state, uses = takeGhost(state, h)
		return state
	})
	i := s.free()
	if i < 0 {
		i = s.giveUp()
		t.givenUp.Add(1)
	}
	t.news.Add(1)
	s.entries[i].Store(e)
	s.change(func(state uint64) uint64 { return state&^(mostUses<<(2*i)) | uses<<(2*i) })
	return true
}

// free is an entry that is free, -1 if none is.
func (s *set) free() int {
	for i := range s.entries {
		if s.entries[i].Load() == 0 {
			return i
		}
	}
	return -1
}

// giveUp chooses the entry to replace: the next one, from the hand on, without a
// use; if all have been used they are aged first. Its ghost takes the older one's
// place.
func (s *set) giveUp() (at int) {
	s.change(func(state uint64) uint64 {
		const ones = 1 << (2 * locWays) / 3 // 01 for each entry
		hand := int(state >> handPos & 7)
		for {
			for j := range locWays {
				i := (hand + j) % locWays
				if state>>(2*i)&mostUses == 0 {
					at = i
					ghost := s.entries[i].Load() >> locTagPos & 0xff
					ghosts := state>>ghostPos<<8&0xff00 | ghost
					state &^= 0xffff<<ghostPos | 7<<handPos
					return state | ghosts<<ghostPos | uint64((i+1)%locWays)<<handPos
				}
			}
			state -= ones
		}
	})
	return at
}

// takeGhost says with how many uses a key begins: one, if it was given up lately.
func takeGhost(state uint64, h layout.Hash) (without, uses uint64) {
	ghost := h.Hi & 0xff
	if ghost == 0 {
		return state, 0 // none is 0, too
	}
	for i := range 2 {
		if pos := ghostPos + 8*i; state>>pos&0xff == ghost {
			return state &^ (0xff << pos), 1
		}
	}
	return state, 0
}
