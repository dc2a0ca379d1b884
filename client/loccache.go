package client

import (
	"sync"

	"github.com/rdmakv/rdmakv/store/layout"
)

// A locCache remembers where items were, so that a get needs one READ. What it
// says is a hint: the item itself carries its key, and a place that holds
// another one costs a second READ, never a wrong answer. The one thing an item
// cannot vouch for is the page it lies in; therefore each place is kept with
// the reclaim version at which it was known to be good (reclaim.go).
//
// It is a table of sets of eight entries; a key's hash names the set, and a
// full set evicts by the clock algorithm: each hit marks its entry, the hand
// passes marked ones once. There is no list to maintain on a hit and no
// pointer for the garbage collector to follow. Bounded by construction.
//
// Safe for concurrent use: each set has its lock.
type locCache struct {
	sets []locSet
	mask uint64
}

const locWays = 8

type locSet struct {
	mu      sync.Mutex
	marked  uint8 // bit i: entry i was used since the hand passed
	hand    uint8 // next entry to consider for eviction
	entries [locWays]locEntry
}

type locEntry struct {
	hash  layout.Hash
	loc   layout.Loc // Size 0: free
	since uint64     // reclaim version at which loc was good
}

// newLocCache makes a cache for about that many entries, rounded up to a power
// of two; nil, which remembers nothing, if there are to be none.
func newLocCache(entries int) *locCache {
	if entries <= 0 {
		return nil
	}
	n := 1
	for n*locWays < entries {
		n *= 2
	}
	return &locCache{sets: make([]locSet, n), mask: uint64(n - 1)}
}

// set picks the set by bits that the index does not use for its groups alone.
func (c *locCache) set(h layout.Hash) *locSet { return &c.sets[(h.Lo^h.Hi>>17)&c.mask] }

// find returns the remembered place of a key. A place in a page that log knows
// to be retired is dropped; dropped then is true.
func (c *locCache) find(h layout.Hash, log *retiredLog) (loc layout.Loc, dropped bool) {
	if c == nil {
		return layout.Loc{}, false
	}
	s := c.set(h)
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.entries {
		e := &s.entries[i]
		if e.hash != h || e.loc.Size == 0 {
			continue
		}
		if e.since < log.version {
			if log.retired(e.loc.Place, e.loc.Size, e.since) {
				*e = locEntry{}
				return layout.Loc{}, true
			}
			e.since = log.version // compared with all of it
		}
		s.marked |= 1 << i
		return e.loc, false
	}
	return layout.Loc{}, false
}

// put remembers a place that a get has just found live under a grant with the
// reclaim version since.
func (c *locCache) put(h layout.Hash, loc layout.Loc, since uint64) {
	if c == nil || loc.Size == 0 {
		return
	}
	s := c.set(h)
	s.mu.Lock()
	defer s.mu.Unlock()
	at := -1
	for i := range s.entries {
		if s.entries[i].hash == h && s.entries[i].loc.Size != 0 {
			at = i
			break
		}
		if at < 0 && s.entries[i].loc.Size == 0 {
			at = i
		}
	}
	for at < 0 { // at most two turns: the first takes every mark away
		if bit := uint8(1) << s.hand; s.marked&bit != 0 {
			s.marked &^= bit
		} else {
			at = int(s.hand)
		}
		s.hand = (s.hand + 1) % locWays
	}
	s.entries[at] = locEntry{hash: h, loc: loc, since: since}
	s.marked |= 1 << at
}

// len is how many places are remembered.
func (c *locCache) len() (n int) {
	if c == nil {
		return 0
	}
	for i := range c.sets {
		s := &c.sets[i]
		s.mu.Lock()
		for j := range s.entries {
			if s.entries[j].loc.Size != 0 {
				n++
			}
		}
		s.mu.Unlock()
	}
	return n
}

// drop forgets a key.
func (c *locCache) drop(h layout.Hash) {
	if c == nil {
		return
	}
	s := c.set(h)
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.entries {
		if s.entries[i].hash == h {
			s.entries[i] = locEntry{}
		}
	}
}
