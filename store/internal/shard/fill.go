package shard

import (
	"time"

	"github.com/rdmakv/rdmakv/store/index"
	"github.com/rdmakv/rdmakv/store/internal/dirty"
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
	over    bool // too many, or some left the set: the chunk's rest is void
	hurry   bool // the chunk's first key has waited for room long enough
	tired   bool // the chunk's first key was void often enough
	log     bool // the chunk is read from the log
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
// not have, for LinkFilled. hurry: the chunk's first key waits for no more room. tired: it
// is not void once more; if it would be, it is counted as a key without a slot instead.
func (s *Items) BeginChunk(hurry, tired bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fill = fillState{touched: make(map[string]struct{}), hurry: hurry, tired: tired}
}

// The fill reads the log for keys that are newer than the base, and the base behind that.
// Each step of the first part is a look at the set, then reading, then LinkFilled:
//
//	BeginLogged      shard's lock: which keys have this version still; the log is held
//	  read           no lock
//	LinkFilled       shard's lock: it is linked if the set has this version still
//	EndChunk         the log is let go

// A Logged key is one of the set's that is not gone.
type Logged struct {
	Hash  layout.Hash
	Key   []byte
	Entry dirty.Entry
}

// BeginLogged begins a chunk of the fill that is read from the log. It returns those of the
// keys whose entries are the newest still, in their place, and what ends the hold of the
// log, which is taken under the same hold of the shard's lock: if it were taken later, a
// checkpoint could have freed what the entries lead to. release is nil if no key is left. hurry
// is as in BeginChunk.
//
// Nothing that happens meanwhile makes such a chunk void, because LinkFilled compares each
// key with the set. So each key is read once, and again only where the index has to wait for
// room.
func BeginLogged(sh *Shard, keys []Logged, hurry bool, hold func() (release func(), err error)) (left []Logged, release func(), err error) {
	sh.Mu.Lock()
	defer sh.Mu.Unlock()
	left = keys[:0]
	for _, k := range keys {
		if e, dirty := sh.Dirty.Find(k.Hash, k.Key); dirty && e == k.Entry {
			left = append(left, k)
		}
	}
	if len(left) == 0 {
		return left, nil, nil
	}
	if release, err = hold(); err == nil {
		sh.fill = fillState{log: true, hurry: hurry}
	}
	return left, release, err
}

// EndChunk ends what BeginChunk or BeginLogged began.
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
	FillVoid                      // too many keys were touched, or some left the set: read it again
	FillNoRoomYet                 // there will be room a lease from now: likewise
)

// LinkFilled links a key that the fill has read, unless a newer write of it is there or
// under way (fill-loses-to-newer-writes).
//
// A key of the set has its newest version there. What has another version is old, and is
// dropped: the write that the set has was linked when it was published, or the fill has come
// to it in the log, which it reads first. What was read in the log and has left the set is
// dropped, too: the base has it by now, and the fill reads the base later. In the other
// order a key could be missed: in the set still when the base is read, and out of it when the
// log is.
//
// A shard that is about to be emptied, or awaits something newer, takes nothing in: it is filled again.
//
// Caller holds Mu.
func (sh *Shard) LinkFilled(now time.Time, h layout.Hash, key []byte, v layout.Version, place layout.Place, class uint8, mem []byte) FillFate {
	sh.damaged = false
	ref, found := sh.Find(h, key)
	if !found && sh.damaged {
		// It may be the key's, and newer than what was read. The scrubber
		// sees to it; until then who misses asks.
		sh.AddSlotless(h)
		return FillCounted
	}
	e, dirty := sh.Dirty.Find(h, key)
	switch {
	case dirty && e.Version != v, !dirty && sh.fill.log, sh.giving, sh.awaits:
		return FillDropped
	case dirty: // it is the newest, however old the snapshot is
	case sh.fill.over && sh.fill.tired:
		sh.fill.tired = false
		sh.AddSlotless(h)
		return FillCounted
	case sh.fill.over:
		return FillVoid
	}
	sh.fill.tired = false
	_, touched := sh.fill.touched[string(key)]
	// A write in flight will link the key, and may depend on the life of what
	// the snapshot has (hide).
	if found || touched || len(sh.overlay) > 0 && sh.Inflight(h, key) != nil {
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

// SetFull says that every key that the shard has with a content has a slot or is counted. shown: the headers
// say so, or never will, because the shard is withheld. ok: the shard has that content still, and is not about to be emptied of it, nor awaits a newer one;
// otherwise nothing is done.
func (s *Items) SetFull(content uint64) (shown, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.giving || s.awaits || content != s.content.Load() {
		return false, false
	}
	s.full = true
	if !s.withheld {
		s.Index.SetFilled()
	}
	return s.withheld || s.Index.Stats().Shown, true
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
