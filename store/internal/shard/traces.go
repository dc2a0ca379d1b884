package shard

import (
	"maps"

	"github.com/rdmakv/rdmakv/store/index"
	"github.com/rdmakv/rdmakv/store/internal/dirty"
	"github.com/rdmakv/rdmakv/store/layout"
)

// maxTraces bounds those of a shard. A slot whose trace is not noted stays
// until a later delete notes it, the index is short of room, or the end.
const maxTraces = 8192

// A sweptShard is a shard's part in it. Guarded by the shard's lock.
type sweptShard struct {
	traces map[layout.Slot]struct{} // Pebble-only slots of which a key was deleted
	// doubted are the slots that this pass has met no key of; nil: there is no pass.
	doubted map[layout.Slot]struct{}
	// sweptAt is the set's clean mark before the keys were read that are met next.
	sweptAt layout.Version
}

// Trace notes that a key of that hash was deleted, if there is a Pebble-only slot
// that may have been its own. Caller holds Mu.
func (s *Items) Trace(h layout.Hash) {
	if !s.mem.Backed || len(s.traces) >= maxTraces {
		return
	}
	slot := layout.PebbleSlot(h)
	if _, ok := s.Index.Find(h, func(o layout.Slot) bool { return o == slot }); !ok {
		return
	}
	s.retrace(slot)
}

// retrace notes the trace of a slot. Caller holds Mu.
func (s *Items) retrace(slot layout.Slot) {
	if s.traces == nil {
		s.traces = make(map[layout.Slot]struct{})
	}
	s.traces[slot] = struct{}{}
}

// keep keeps the slot that a key of that hash may need for this pass. Caller
// holds Mu.
func (s *Items) keep(h layout.Hash) {
	if s.doubted != nil {
		delete(s.doubted, layout.PebbleSlot(h))
	}
}

// BeginPass begins a pass over the shard's keys, if there are traces, at least as many as
// least: over those of the base, and those of the view, which are newer. The pass says by
// MeetBase and Meet what it meets. What is in flight now keeps its slots, because its key may
// be in neither.
func (sh *Shard) BeginPass(least int) (keys dirty.View, on bool) {
	sh.Mu.Lock()
	defer sh.Mu.Unlock()
	if traces := len(sh.traces); traces == 0 || !sh.Index.Filled() || traces < least {
		return dirty.View{}, false
	}
	sh.doubted, sh.traces = sh.traces, nil
	for h := range sh.overlay {
		sh.keep(h)
	}
	sh.sweptAt = sh.Dirty.Clean()
	return sh.Dirty.View(), true
}

// Meet notes keys that the pass has met, and that are there.
func (s *Items) Meet(met []layout.Hash) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range met {
		s.keep(h)
	}
}

// A Met key is one that the pass has met in the base.
type Met struct {
	Hash layout.Hash
	Key  []byte
}

// MeetBase notes keys that a step has met in the base. One that is gone by the set counts as
// not met: the base has it until the next checkpoint, and if it kept its slot for that, nobody
// would come back for the slot, because its trace is used up. If something has left the set
// since the last call (or BeginPass), a key of it may be gone and nothing says so any more; then what the
// step has met keeps the traces of its slots for another pass.
func (sh *Shard) MeetBase(met []Met) {
	sh.Mu.Lock()
	defer sh.Mu.Unlock()
	unsure := sh.Dirty.Clean() != sh.sweptAt
	sh.sweptAt = sh.Dirty.Clean()
	for _, k := range met {
		if e, dirty := sh.Dirty.Find(k.Hash, k.Key); dirty && e.Gone {
			continue
		}
		slot := layout.PebbleSlot(k.Hash)
		if _, is := sh.doubted[slot]; is && unsure {
			sh.retrace(slot)
		}
		sh.keep(k.Hash)
	}
}

// Doubts says whether there are slots that the pass has met no key of.
func (s *Items) Doubts() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.doubted) > 0
}

// ClearDoubted clears slots that no key was met of, at most so many, under one hold of
// the lock: what is left may still be kept. more: there are others.
func (s *Items) ClearDoubted(most int) (more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	var refs [2]index.Ref // more than twins there are hardly ever
	for slot := range s.doubted {
		if n++; n > most {
			return true
		}
		delete(s.doubted, slot)
		h, _ := slot.PebbleHash()
		found := refs[:0]
		s.Index.Near(h, func(r index.Ref) bool {
			if r.Slot() == slot {
				found = append(found, r)
			}
			return true
		})
		for _, r := range found {
			s.Index.Clear(r)
			s.mem.Counts.SlotsSwept.Add(1)
		}
	}
	return false
}

// EndPass ends a pass. What it did not come to is for the next.
func (s *Items) EndPass() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.traces == nil {
		s.traces = s.doubted
	} else {
		maps.Copy(s.traces, s.doubted)
	}
	s.doubted = nil
}
