package shard

import (
	"time"

	"github.com/rdmakv/rdmakv/store/layout"
)

// maxPromotions bounds those that read at a time in one shard: every write
// that is ordered compares its key with theirs.
const maxPromotions = 32

// MayProbe says whether a read of a key from the disk may be brought into memory: no
// write of it is in flight, and not too many others are under way. Caller holds Mu.
func (o *Order) MayProbe(h layout.Hash, key []byte) bool {
	return o.Inflight(h, key) == nil && len(o.probes) < maxPromotions
}

// AddProbe begins a probe for a read of a key from the disk; see mayProbe. Caller holds Mu.
func (o *Order) AddProbe(h layout.Hash, key []byte) *Probe {
	p := &Probe{Hash: h, Key: key}
	o.probes = append(o.probes, p)
	return p
}

// BeginPromotion prepares to bring key back with what is going to be read from
// the disk; nil: it is not going to be. Caller holds Mu, and calls promote or
// endPromotion with what it gets.
func (sh *Shard) BeginPromotion(h layout.Hash, key []byte) *Probe {
	if !sh.mem.Backed || sh.mem.NoLease || !sh.MayProbe(h, key) {
		return nil
	}
	return sh.AddProbe(h, key)
}

// EndPromotion gives up. p may be nil. Caller does not hold Mu.
func (sh *Shard) EndPromotion(p *Probe) {
	if p != nil {
		sh.Mu.Lock()
		sh.DropProbe(p)
		sh.Mu.Unlock()
	}
}

// TooSoon says that an item of that version stood at the place less than a
// lease ago, or may have. It has to be asked before the item is written there,
// by who was given the place.
func (s *Items) TooSoon(p layout.Place, v layout.Version) bool {
	if !s.gone.any.Load() {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gone.has(p, v)
}

// LinkPromoted judges a promotion and links it. Caller holds Mu.
func (sh *Shard) LinkPromoted(p *Probe, v layout.Version, place layout.Place, class uint8, mem []byte) bool {
	if p.told || sh.giving || sh.awaits {
		sh.mem.Counts.PromotionsLost.Add(1)
		return false
	}
	if _, found := sh.Find(p.Hash, p.Key); found {
		return false // somebody was faster
	}
	ref, room := sh.Index.Room(time.Now(), p.Hash)
	if !room {
		sh.DropNear(p.Hash)
		return false
	}
	sh.makeLive(ref, layout.MakeSlot(p.Hash.Fingerprint(), class, place), v, mem, 0, layout.Live)
	sh.slots++
	sh.mem.Counts.Promoted.Add(1)
	return true
}
