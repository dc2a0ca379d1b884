package upkeep

import (
	"math/rand/v2"

	"github.com/rdmakv/rdmakv/store/internal/clock"
	"github.com/rdmakv/rdmakv/store/internal/flight"
	"github.com/rdmakv/rdmakv/store/layout"
)

const (
	// expirySample is how many items of a class are looked at, at a time, for
	// one that has expired.
	expirySample = 64
	// expiryAgain is the number of expired ones among them from which the class is
	// looked at again at once. So a class has at most about an eighth of its items
	// expired when it is left alone, because with more another look would find
	// expiryAgain; and one without expired items costs one look.
	expiryAgain = 8
)

// A CacheExpirer removes expired keys of a cache. They are absent anyway; it is about
// their memory. There is no list of them, which would take memory from items: items are
// drawn at random. The buffers are its goroutine's alone, and keep their memory from one
// look to the next.
type CacheExpirer struct {
	Env
	drawn []layout.Place
	key   []byte
}

// Run removes expired keys until the store ends.
func (x *CacheExpirer) Run() {
	x.Life.Every(expireEvery, func() {
		for class := 1; class <= layout.NumClasses; class++ {
			for x.removeSome(uint8(class)) >= expiryAgain && !x.Life.Over() {
			}
		}
	})
}

// removeSome draws items of a class, and removes those that have expired through the
// order. It returns how many these were; 0 if they could not be removed, so that a full
// gate ends the looking until the next tick.
func (x *CacheExpirer) removeSome(class uint8) int {
	x.drawn = x.Memory.Slabs.Sample(class, expirySample, rand.Uint64, x.drawn[:0])
	var found []*flight.Flight
	now := x.Memory.Clock.Now()
	for _, p := range x.drawn {
		// Nothing keeps the item as it is, so its expiry is a guess. The delete is judged
		// when it is ordered, and has no effect on a key that was written since.
		it, ok := x.Memory.PeekItem(p, class, &x.key)
		if ok && it.Expiry != 0 && it.Expiry <= now {
			found = append(found, dueWrite(it.Shard, it.Key, clock.Second(it.Expiry)))
		}
	}
	if len(found) == 0 || x.run(found) != nil {
		return 0
	}
	return len(found)
}
