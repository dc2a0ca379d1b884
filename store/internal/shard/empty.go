package shard

import (
	"github.com/rdmakv/rdmakv/store/index"
	"github.com/rdmakv/rdmakv/store/internal/dirty"
	"github.com/rdmakv/rdmakv/store/internal/flight"
	"github.com/rdmakv/rdmakv/store/layout"
)

// How a shard's keys give way to others: the state of another replica takes the place of what is here.
//
//	Unfill    every miss is asked from here on
//	  a lease nobody believes a miss any more that he has read before
//	Empty     the base has the other state; memory has nothing
//	the fill  brings in what the base has now
//
// What is under way meanwhile, and was read from the base before, must not come into memory: a chunk of the fill is
// void, and a probe has been told of a write.

// Unfill has every miss of the shard ask. wait: a reader may have believed one that he has read before; that is over a lease from now.
func (s *Items) Unfill() (wait bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.full = false
	return index.Unfill(s.Index)
}

// Empty takes everything out of memory, and forgets what is newer than the base: the base has another state, whose
// newest version is newest. Unfill was called a lease before. The caller sees to it that nothing is in flight, and that no
// write is ordered until it returns. Whoever waits for a write goes on.
func Empty(sh *Shard, newest layout.Version, why error) {
	sh.Mu.Lock()
	defer sh.Mu.Unlock()
	sh.content.Add(1)
	sh.fill.over, sh.fill.tired = true, false
	for _, p := range sh.probes {
		p.told, p.state, p.err = true, flight.KeyState{}, why
	}
	sh.Items.empty()
	sh.Dirty.Leave(max(newest, sh.published), nil)
	sh.ordered, sh.durable = newest, newest
	for i := range sh.waiting {
		sh.waiting[i].version = 0
	}
	sh.raisePublished(newest)
}

// empty kills all items and frees their places. Their keys may come back with the same versions, but not to the same
// places within a lease (gone.go).
func (s *Items) empty() {
	s.Index.All(func(ref index.Ref) bool {
		slot := ref.Slot()
		if slot.Class() != layout.ClassPebble {
			v, _ := layout.LoadState(s.mem.Table.Bytes(slot.Place(), layout.ItemHeaderSize))
			s.left(slot.Place(), v)
			s.Kill(slot)
		}
		s.Index.Clear(ref)
		if slot.Class() != layout.ClassPebble {
			s.mem.Slabs.Free(slot.Place(), slot.Class())
		}
		return true
	})
	s.slots = 0
	index.Uncount(s.Index)
	s.traces, s.doubted = nil, nil
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
