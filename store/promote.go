package store

import (
	"time"

	"github.com/rdmakv/rdmakv/internal/teeth"
	"github.com/rdmakv/rdmakv/store/layout"
)

// Promotion brings a key back into memory that a get had to read from Pebble.
// It is a step in the order of its shard like a put, but it brings what was
// read a while ago. So the read stands under a probe: it begins when no write of
// the key is in flight, and is told of every write that is ordered from then on.
// If there was one, what was read is old, and nothing is brought back (rule F6).
// Nobody else knows better: versions that the index could keep are not enough,
// since a key that was written and evicted in between looks the same.

// maxPromotions bounds those that read at a time in one shard: every write
// that is ordered compares its key with theirs.
const maxPromotions = 32

// beginPromotion prepares to bring key back with what is going to be read from
// Pebble; nil: it is not going to be. Caller holds mu, and calls promote or
// endPromotion with what it gets.
func (s *Store) beginPromotion(sh *shard, h layout.Hash, key []byte) *probe {
	if s.db == nil || s.cfg.NoLease || sh.inflight(h, key) != nil || len(sh.probes) >= maxPromotions {
		return nil
	}
	p := &probe{hash: h, key: key}
	sh.probes = append(sh.probes, p)
	return p
}

// endPromotion gives up. p may be nil. Caller does not hold mu.
func (s *Store) endPromotion(sh *shard, p *probe) {
	if p != nil {
		sh.mu.Lock()
		sh.dropProbe(p)
		sh.mu.Unlock()
	}
}

// promote brings in what was read under the probe p, which may be nil, if it
// is worth more than what has to go for it. Caller does not hold mu.
func (s *Store) promote(sh *shard, p *probe, rec record) (done bool) {
	if p == nil {
		return false
	}
	place, class, ok := s.admit(layout.ItemSize(len(p.key), len(rec.value), rec.expiry != 0), p.hash)
	if !ok {
		s.endPromotion(sh, p)
		return false
	}
	if s.tooSoon(sh, place, rec.version) {
		// Freed places are given out first, so this one may well be its own.
		other, _, err := s.slabs.AllocWithin(layout.ClassSize(class), 0)
		if err == nil {
			place, other = other, place
			s.slabs.Free(other, class)
		}
	}
	mem := s.table.Bytes(place, layout.ClassSize(class))
	if !s.tooSoon(sh, place, rec.version) {
		s.writePending(mem, place, layout.Item{Version: rec.version, Shard: sh.id, Key: p.key, Value: rec.value, Expiry: rec.expiry})
		if teeth.Enabled {
			teeth.At("promote", uint64(rec.version), uint64(place))
		}
		sh.mu.Lock()
		done = s.linkPromoted(sh, p, rec.version, place, class, mem)
		if !done {
			layout.SetState(mem, rec.version, layout.Dead)
		}
		sh.mu.Unlock()
	}
	s.endPromotion(sh, p)
	if !done {
		s.slabs.Free(place, class)
	}
	return done
}

// tooSoon says that an item of that version stood at the place less than a
// lease ago, or may have. It has to be asked before the item is written there,
// by who was given the place.
func (s *Store) tooSoon(sh *shard, p layout.Place, v layout.Version) bool {
	if !sh.gone.any.Load() {
		return false
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return sh.gone.has(p, v)
}

// linkPromoted judges a promotion and links it. Caller holds mu.
func (s *Store) linkPromoted(sh *shard, p *probe, v layout.Version, place layout.Place, class uint8, mem []byte) bool {
	if p.told && !teeth.Off(teeth.F6Promotion) {
		s.counts.promotionsLost.Add(1)
		return false
	}
	if _, found := sh.find(p.hash, p.key); found {
		return false // somebody was faster
	}
	ref, room := sh.ix.Room(time.Now(), p.hash)
	if !room {
		s.dropNear(sh, p.hash)
		return false
	}
	s.makeLive(sh, ref, layout.MakeSlot(p.hash.Fingerprint(), class, place), v, mem, 0, layout.Live)
	sh.slots++
	s.counts.promoted.Add(1)
	return true
}

// admit finds memory for a key that comes back. While memory is full, the key
// must have been used more than the coldest of a few items of its class: a scan
// of keys that are read once and never again does not sweep out the others
// (TinyLFU).
func (s *Store) admit(size int, h layout.Hash) (place layout.Place, class uint8, ok bool) {
	class, ok = s.slabs.Class(size)
	if !ok {
		return 0, 0, false
	}
	if !s.slabs.Full() {
		if place, class, err := s.slabs.AllocWithin(size, 0); err == nil {
			return place, class, true
		}
	}
	if !s.mayCache(class) {
		return 0, 0, false
	}
	buf := s.samplers.Get().(*sampler)
	defer s.samplers.Put(buf)
	v, ok := s.coldest(class, victimSample, buf)
	if !ok {
		// There is none of its class. Perhaps memory of others is worth less.
		s.evictor.want(class)
		place, class, err := s.slabs.AllocWithin(size, 0)
		return place, class, err == nil
	}
	if !v.yields(s.sketch.estimate(h.Hi)) {
		s.counts.refused.Add(1)
		return 0, 0, false
	}
	s.evictor.want(class)
	if place, class, err := s.slabs.AllocWithin(size, 0); err == nil {
		return place, class, true
	}
	if !s.evict(&v) {
		return 0, 0, false
	}
	place, class, err := s.slabs.AllocWithin(size, 0)
	return place, class, err == nil
}
