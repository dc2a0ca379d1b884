package shard

import (
	"github.com/rdmakv/rdmakv/store/index"
	"github.com/rdmakv/rdmakv/store/internal/clock"
	"github.com/rdmakv/rdmakv/store/internal/dirty"
	"github.com/rdmakv/rdmakv/store/internal/flight"
	"github.com/rdmakv/rdmakv/store/layout"
)

// How a shard's keys give way to others: the state of another replica takes the place of what is here.
//
//	Unfill    every miss is asked from here on, and no fill of what is here may say otherwise
//	  a lease nobody believes a miss any more that he has read before
//	Clear     memory has nothing; the log and the base answer
//	Empty     the base has the other state, nothing is newer
//	the fill  brings in what the base has now
//
//	  Await       what the base has is older than what memory has shown: nothing comes into memory yet, and every miss is asked
//	  Reached     it is not any more
//
// A shard whose replica the store gives up goes the same way, and stays empty:
//
//	Withhold    Unfill, and nobody says otherwise before Release
//	  a lease
//	Clear, End
//
// What is under way meanwhile, and was read from the base before, must not come into memory: a chunk of the fill is
// void, and a probe has been told of a write.

// Unfill has every miss of the shard ask. wait: a reader may have believed one that he has read before; that is over a lease from now.
func (s *Items) Unfill() (wait bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unfill()
}

func (s *Items) unfill() (wait bool) {
	s.full, s.giving = false, true
	return index.Unfill(s.Index)
}

// Withhold is Unfill of a shard that is no more this node's to vouch for; Release ends that.
func (s *Items) Withhold() (wait bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.withheld = true
	return s.unfill()
}

// Await keeps everything that is not written now out of memory, and has every miss ask, until Reached. The shard has nothing in memory.
func (s *Items) Await() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.full, s.awaits = false, true
	index.Unfill(s.Index)
}

// Reached ends what Await began. The shard is to be filled again: a fill that is under way has passed over keys, so what it comes to is that of another
// content. If it counted, the shard would say of those keys that they are not there.
func (s *Items) Reached() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.content.Add(1)
	s.awaits = false
}

// clearSlots is how many slots are looked at under one hold of the lock.
const clearSlots = 4096

// Clear takes everything out of memory, as an evictor would that evicts all: who misses a key asks, and finds it in the set or in the base.
// Nothing comes into memory until the shard was emptied. Unfill was called a lease before.
func (s *Items) Clear() {
	for at, done := (index.Cursor{}), false; !done; {
		s.mu.Lock()
		at, _, done = s.Index.Walk(at, clearSlots, s.clear)
		s.mu.Unlock()
	}
}

// Empty forgets what is newer than the base, and what memory has: the base has another state, whose
// newest version is newest. Clear was called before, so that this is short. The caller sees to it that nothing is in flight, and that no
// write is ordered until it returns. Whoever waits for a write goes on.
func Empty(sh *Shard, newest layout.Version, why error) {
	sh.Mu.Lock()
	defer sh.Mu.Unlock()
	empty(sh, why)
	sh.Dirty.Leave(max(newest, sh.published), nil)
	sh.ordered, sh.durable = newest, newest
	sh.raisePublished(newest)
}

// End forgets all that the shard has, because it has no replica any more: the base has nothing of it, and neither has memory, since Clear was called before. It
// is as New has made it, withheld, with none as the version before the first that it may be given. Whoever waits for a write goes on, and who reads the
// base to decide on a write gets why. The replica orders nothing any more, and no checkpoint runs.
func End(sh *Shard, none layout.Version, why error) {
	sh.Mu.Lock()
	defer sh.Mu.Unlock()
	sh.Void(why, func(layout.Hash) {})
	empty(sh, why)
	sh.Dirty = dirty.Set{}
	sh.Dirty.Leave(none, nil)
	sh.ordered, sh.durable, sh.published = none, none, none
	sh.nextDue, sh.relisted = clock.NeverDue, clock.NeverDue
	sh.Agreed.Store(false)
	sh.awaits = false
}

// empty forgets what memory has. Caller holds Mu.
func empty(sh *Shard, why error) {
	sh.content.Add(1)
	sh.giving = false
	sh.fill.over, sh.fill.tired = true, false
	for _, p := range sh.probes {
		p.told, p.state, p.err = true, flight.KeyState{}, why
	}
	if sh.Index.Keys() > 0 {
		sh.Index.All(sh.clear) // what was repaired meanwhile
	}
	index.Uncount(sh.Index)
	sh.traces, sh.doubted = nil, nil
}

// clear takes the key of a slot out of memory: it kills the item, and frees its place. The key may come back with the same version, but not
// to the same place within a lease (gone.go). Caller holds mu.
func (s *Items) clear(ref index.Ref) bool {
	slot := ref.Slot()
	if slot.Class() != layout.ClassPebble {
		v, _ := layout.LoadState(s.mem.Table.Bytes(slot.Place(), layout.ItemHeaderSize))
		s.left(slot.Place(), v)
		s.Kill(slot)
		s.slots--
	}
	s.Index.Clear(ref)
	if slot.Class() != layout.ClassPebble {
		s.ruin(slot.Place())
	}
	if slot.Class() != layout.ClassPebble {
		s.mem.Slabs.Free(slot.Place(), slot.Class())
	}
	return true
}

// Content tells one content of the shard from another: it is raised when the shard is emptied.
func (s *Items) Content() uint64 { return s.content.Load() }

// Begin says that the shard has replicas, and numbers from behind newest on. It has no key that is newer than the base, nothing is in flight
// in it, and no checkpoint runs.
func Begin(sh *Shard, newest layout.Version) {
	sh.Mu.Lock()
	defer sh.Mu.Unlock()
	sh.Agreed.Store(true)
	sh.Dirty = dirty.Set{}
	sh.Dirty.Leave(newest, nil)
	sh.ordered, sh.durable, sh.published = newest, newest, newest
}
