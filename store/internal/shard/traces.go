package shard

import (
	"maps"

	"github.com/rdmakv/rdmakv/store/index"
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

// BeginPass begins a pass over the shard's keys in Pebble, which says by meet what it
// meets, if there are traces, at least as many as least. What is in flight now keeps
// its slots: Pebble shows a delete before it is published.
func (sh *Shard) BeginPass(least int) bool {
	sh.Mu.Lock()
	defer sh.Mu.Unlock()
	if traces := len(sh.traces); traces == 0 || !sh.Index.Filled() || traces < least {
		return false
	}
	sh.doubted, sh.traces = sh.traces, nil
	for h := range sh.overlay {
		sh.keep(h)
	}
	return true
}

// Meet notes keys that the pass has met.
func (s *Items) Meet(met []layout.Hash) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range met {
		s.keep(h)
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
