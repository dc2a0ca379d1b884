package store

import (
	"sync"
	"time"

	"github.com/rdmakv/rdmakv/store/internal/flight"
	"github.com/rdmakv/rdmakv/store/layout"
)

// A Room is registered memory for the value of a put that is to come: the very place in which
// its item will stand. No slot leads there and the item that stood there is dead, so the value may
// be written to it piece by piece, for as long as that takes, while readers look; and the put
// copies nothing (docs/correctness.md, section 2).
//
// A Room belongs to its caller until Release, and so do its bytes, with one exception: once a
// Write with it has taken effect they are the item's. It is for one goroutine at a time.
type Room struct {
	s     *Store
	leave func()
	given flight.Given
	key   int // length
	value []byte
	once  sync.Once
}

// NewRoom reserves memory of a store for a put of these lengths, with a time to live or without one. nil: the
// value is to be handed over in memory of the caller's. That is so where there is a log,
// whose records want bytes that stay; where none is free; for a small value, and one that those
// who watch are shown; and when the store closes. It may wait for a region to be registered, and it
// evicts others as a put does.
//
// Close waits until the Room is released.
func NewRoom(s *Store, keyLen, valLen int, ttl time.Duration) *Room {
	if !layout.MayPlace || s.journal != nil || keyLen < 1 || keyLen > layout.MaxKeyLen ||
		valLen < 0 || valLen > layout.MaxValueLen || s.Events.shows(valLen) {
		return nil
	}
	off, end, ok := layout.ValueRange(keyLen, valLen, ttl > 0)
	if !ok {
		return nil
	}
	leave, err := s.door.Enter()
	if err != nil {
		return nil
	}
	size := layout.ItemSize(keyLen, valLen, ttl > 0)
	place, class, err := s.evictor.Reserve(size, true)
	if err != nil || class == 0 {
		leave()
		return nil
	}
	return &Room{
		s: s, leave: leave, given: flight.Given{Place: place, Class: class, Size: size}, key: keyLen,
		value: s.mem.Table.Bytes(place, layout.ClassSize(class))[off:end:end],
	}
}

// fits says whether an operation puts what stands there.
func (r *Room) fits(op *Op) bool {
	return op.Kind == OpPut && len(op.Key) == r.key && len(op.Value) == len(r.value) && &op.Value[0] == &r.value[0]
}

// Bytes is the memory of the value, as long as the value. A Write with the Room has it as its Value.
func (r *Room) Bytes() []byte { return r.value }

// Release gives the memory back, unless a Write has made it an item. Nothing writes to it any
// more, and the Write with it is over: Done was called, or Submit returned an error. Idempotent.
func (r *Room) Release() {
	r.once.Do(func() {
		if !r.given.Taken {
			r.s.mem.Slabs.Free(r.given.Place, r.given.Class)
		}
		r.leave()
	})
}
