package load

import (
	"errors"
	"sync"
	"sync/atomic"
)

// A frontier hands out the numbers of keys to be inserted, and knows up to which
// number all are there: reads choose among those. Inserts by many callers end in
// any order; those that are beyond a gap are noted in a ring of bits.
type frontier struct {
	limit atomic.Uint64 // keys 0 to limit-1 are there

	mu   sync.Mutex
	next uint64                      // the next number to be handed out
	done [frontierWindow / 64]uint64 // bit i: key limit+… with i its number modulo the window is there
}

// frontierWindow is by how much inserts may be ahead of the first gap.
const frontierWindow = 1 << 17

// errInsertsAhead: an insert that keeps failing holds all others up.
var errInsertsAhead = errors.New("inserts are 131,072 keys ahead of one that keeps failing")

func newFrontier(records uint64) *frontier {
	f := &frontier{next: records}
	f.limit.Store(records)
	return f
}

// take returns the number of a new key. A caller that fails to insert it must try
// again before it takes another one.
func (f *frontier) take() (uint64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.next-f.limit.Load() >= frontierWindow {
		return 0, errInsertsAhead
	}
	if f.next > maxKeyNumber {
		return 0, errors.New("all key numbers are used up")
	}
	f.next++
	return f.next - 1, nil
}

// inserted notes that a key is there.
func (f *frontier) inserted(i uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.done[i%frontierWindow/64] |= 1 << (i % 64)
	limit := f.limit.Load()
	for limit < f.next {
		word, bit := &f.done[limit%frontierWindow/64], uint64(1)<<(limit%64)
		if *word&bit == 0 {
			break
		}
		*word &^= bit
		limit++
	}
	f.limit.Store(limit)
}
