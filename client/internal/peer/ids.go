package peer

import (
	"sync"

	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/internal/turnstile"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// Exactly once. A write whose reply was lost is sent again, over as many
// connections and starts of the server as it takes, and takes effect once: the
// server keeps, together with what a write changed, that it has done it, under
//
//	client id │ slot │ seq
//	random,     place    rises with every write of the slot
//	one per     of one
//	Client      write
//
// and answers a copy with the result of the first one.
//
// In a cluster with replicas a write may have to be sent to another node than its first copy,
// and is known there by the same name. So there the client id is that of the whole client, and
// slots are those of a group of replicas (Directory.Names); elsewhere each peer has its own.
//
// A slot is one write's from before its first copy is sent until its call
// returns. So a server that sees a higher seq knows that no call waits for the
// lower one any more, and one record for each slot is all that it has to keep.
// That matters for a call which ended without having learned its outcome: a
// copy of it may still be on its way when its slot goes to the next write. If
// that one arrives first the copy is refused; if not it takes effect, once, and
// the caller was told that the outcome is unknown.
//
// There are as many slots as writes can be under way. The one that was given
// back last is taken first, so that a client that writes little leaves little
// at the server.
//
// Safe for concurrent use. No lock is taken while mu is held.
type IDs struct {
	turns *turnstile.Turnstile // free slots
	first uint16

	mu   sync.Mutex
	free []uint16 // a stack
	seqs []uint64 // by slot, from first on: the last one used
}

// NewIDs makes names with so many slots, from first on, for which at most maxWaiting calls wait.
func NewIDs(first, slots, maxWaiting int) *IDs {
	ids := &IDs{turns: turnstile.New(slots, maxWaiting, base.ErrOverloaded), first: uint16(first), seqs: make([]uint64, slots)}
	for i := range slots {
		ids.free = append(ids.free, uint16(first+slots-1-i))
	}
	return ids
}

// Take waits for a slot and begins its next seq.
func (ids *IDs) Take(p *base.Limit) (wire.RequestID, error) {
	if err := p.Enter(ids.turns, 1); err != nil {
		return wire.RequestID{}, err
	}
	return ids.taken(), nil
}

// TryTake is Take for calls that must not wait; false if no slot is free.
func (ids *IDs) TryTake() (wire.RequestID, bool) {
	if !ids.turns.TryEnter(1) {
		return wire.RequestID{}, false
	}
	return ids.taken(), true
}

func (ids *IDs) taken() wire.RequestID {
	ids.mu.Lock()
	defer ids.mu.Unlock()
	slot := ids.free[len(ids.free)-1]
	ids.free = ids.free[:len(ids.free)-1]
	ids.seqs[slot-ids.first]++
	return wire.RequestID{Slot: slot, Seq: ids.seqs[slot-ids.first]}
}

// Next is another seq of a slot that is taken.
func (ids *IDs) Next(slot uint16) uint64 {
	ids.mu.Lock()
	defer ids.mu.Unlock()
	ids.seqs[slot-ids.first]++
	return ids.seqs[slot-ids.first]
}

// Put gives a slot back: no copy of its request will be sent any more.
func (ids *IDs) Put(id wire.RequestID) {
	ids.mu.Lock()
	ids.free = append(ids.free, id.Slot)
	ids.mu.Unlock()
	ids.turns.Leave(1)
}
