package shard

import (
	"time"

	"github.com/rdmakv/rdmakv/store/index"
	"github.com/rdmakv/rdmakv/store/layout"
)

// maxTouched bounds the keys remembered per chunk of the fill; beyond it the rest of
// the chunk is read again from a new snapshot.
const maxTouched = 4096

// fillState is a shard's part in the fill. Guarded by the shard's lock.
type fillState struct {
	// touched are the keys that were deleted or put without a slot since the
	// snapshot of the chunk under way; nil between chunks.
	touched map[string]struct{}
	over    bool // too many: the chunk's rest is void
	hurry   bool // the chunk's first key has waited for room long enough
}

// touch notes a key. Caller holds the shard's lock.
func (f *fillState) touch(key []byte) {
	switch {
	case f.touched == nil || f.over:
	case len(f.touched) == maxTouched:
		f.over = true
	default:
		f.touched[string(key)] = struct{}{}
	}
}

// BeginChunk notes from now on which keys a snapshot that is taken after this call may
// not have, for LinkFilled. hurry: the chunk's first key waits for no more room.
func (s *Items) BeginChunk(hurry bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fill = fillState{touched: make(map[string]struct{}), hurry: hurry}
}

// EndChunk ends what beginChunk began.
func (s *Items) EndChunk() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fill = fillState{}
}

// A FillFate is what became of a key that the fill read.
type FillFate uint8

const (
	FillLinked    FillFate = iota // it has a slot now
	FillCounted                   // no memory, or damaged: its slot says Pebble only, or it is counted
	FillDropped                   // a newer write knows better
	FillVoid                      // too many keys were touched: read it again
	FillNoRoomYet                 // there will be room a lease from now: likewise
)

// LinkFilled links a key that the fill has read, unless a newer write of it is there or
// under way (fill-loses-to-newer-writes). Caller holds Mu.
func (sh *Shard) LinkFilled(now time.Time, h layout.Hash, key []byte, v layout.Version, place layout.Place, class uint8, mem []byte) FillFate {
	sh.damaged = false
	ref, found := sh.Find(h, key)
	if !found && sh.damaged {
		// It may be the key's, and newer than what was read. The scrubber
		// sees to it; until then who misses asks.
		sh.AddSlotless(h)
		return FillCounted
	}
	if sh.fill.over {
		return FillVoid
	}
	_, touched := sh.fill.touched[string(key)]
	// A write in flight will link the key, and may depend on the life of what
	// the snapshot has (hide).
	if v > sh.published || found || touched || len(sh.overlay) > 0 && sh.Inflight(h, key) != nil {
		return FillDropped
	}
	if !found {
		if class == 0 && sh.pebbled {
			return FillCounted // there is a slot that says as much
		}
		var room bool
		if ref, room = sh.Index.Room(now, h); !room {
			if sh.Index.Refusal() == index.Waiting && !sh.fill.hurry {
				return FillNoRoomYet
			}
			sh.fill.hurry = false
			sh.AddSlotless(h)
			return FillCounted
		}
		if class == 0 {
			sh.Index.Set(ref, layout.PebbleSlot(h))
			return FillCounted
		}
		sh.slots++
	}
	sh.makeLive(ref, layout.MakeSlot(h.Fingerprint(), class, place), v, mem, 0, layout.Live)
	return FillLinked
}

// SetFull says that every key of the shard has a slot or is counted. shown: the headers
// say so, or never will, because the shard is withheld.
func (s *Items) SetFull() (shown bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.full = true
	if !s.withheld {
		s.Index.SetFilled()
	}
	return s.withheld || s.Index.Stats().Shown
}

// Release ends the withholding of the shard.
func (s *Items) Release() {
	s.mu.Lock()
	show := s.withheld && s.full
	s.withheld = false
	if show {
		s.Index.SetFilled()
	}
	shown := s.Index.Stats().Shown
	s.mu.Unlock()
	if show && !shown {
		s.ShowLater(func() {})
	}
}

// Withheld says whether the shard is withheld.
func (s *Items) Withheld() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.withheld
}

// ShowLater has the headers of the shard tell their counts, behind the index's own
// wait, in the same queue, and calls then behind that. The caller does not hold Mu.
func (s *Items) ShowLater(then func()) {
	s.mem.Reclaim.After(func() {
		s.mu.Lock()
		s.Index.Slotless(layout.Hash{}) // any look makes the index show them
		s.mu.Unlock()
		then()
	})
}
