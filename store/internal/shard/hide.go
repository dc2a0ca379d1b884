package shard

import (
	"bytes"

	"github.com/rdmakv/rdmakv/store/internal/flight"
	"github.com/rdmakv/rdmakv/store/layout"
)

// Hide makes sure that nobody sees a key expire on whose life a write in
// flight depends: what was judged alive is as good as overwritten from here on.
// One-sided readers meet a dead item and ask, and who asks waits for the write
// in flight. Else one could say "expired" after the old expiry and before the
// write is published, and another see the touched value later.
//
// false: a key expired before it could be hidden. Everything is as before, and
// the write is to be judged again. Caller holds Mu.
func (sh *Shard) Hide(f *flight.Flight) bool {
	if f.Noop {
		return true
	}
	var undo []func()
	var first uint64 // the earliest expiry among those hidden
	for _, e := range f.Effects {
		if !e.DependsOnExpiry() || !e.Existed {
			continue
		}
		if first == 0 || e.State.Expiry < first {
			first = e.State.Expiry
		}
		// What is in flight will be published without ever being live. All of
		// it, and what it replaces: an increment goes on with the life of what
		// it found.
		for old := e.State.From; old != nil; old = old.Older {
			if was := old.Hidden; !was && bytes.Equal(old.Key, e.Key) {
				old.Hidden = true
				undo = append(undo, func() { old.Hidden = false })
			}
		}
		it, ok := sh.Resident(e.Hash, e.Key)
		if !ok || it.Expiry == 0 {
			continue // readers ask, or it never expires
		}
		sh.Kill(it.Slot)
		undo = append(undo, func() { sh.revive(it.Slot) })
	}
	if first == 0 || sh.mem.Clock.Now() < first {
		return true
	}
	for _, undone := range undo {
		undone()
	}
	return false
}

// revive takes back a kill under the same lock. Caller holds Mu.
func (s *Items) revive(slot layout.Slot) {
	mem := s.mem.Table.Bytes(slot.Place(), layout.ItemHeaderSize)
	v, _ := layout.LoadState(mem)
	if h := s.held[slot.Place()]; h != nil {
		h.killed = false
	}
	layout.SetState(mem, v, layout.Live)
}
