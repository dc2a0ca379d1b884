package residents

import (
	"github.com/rdmakv/rdmakv/store/internal/disk"
	"github.com/rdmakv/rdmakv/store/internal/shard"
	"github.com/rdmakv/rdmakv/store/layout"
)

// Promotion brings a key back into memory that a get had to read from the disk.
// It is a step in the order of its shard like a put, but it brings what was
// read a while ago. So the read stands under a probe: it begins when no write of
// the key is in flight, and is told of every write that is ordered from then on.
// If there was one, what was read is old, and nothing is brought back (promotion-loses-to-newer-writes).
// Nobody else knows better: versions that the index could keep are not enough,
// since a key that was written and evicted in between looks the same.

// Promote brings in what was read under the probe p, which may be nil, if it
// is worth more than what has to go for it. Caller does not hold mu.
func (e *Evictor) Promote(sh *shard.Shard, p *shard.Probe, rec disk.Record) (done bool) {
	if p == nil {
		return false
	}
	place, class, ok := e.admit(layout.ItemSize(len(p.Key), len(rec.Value), rec.Expiry != 0), p.Hash)
	if !ok {
		sh.EndPromotion(p)
		return false
	}
	if sh.TooSoon(place, rec.Version) {
		// Freed places are given out first, so this one may well be its own.
		other, _, err := e.Memory.Slabs.AllocWithin(layout.ClassSize(class), 0)
		if err == nil {
			place, other = other, place
			e.Memory.Slabs.Free(other, class)
		}
	}
	mem := e.Memory.Table.Bytes(place, layout.ClassSize(class))
	if !sh.TooSoon(place, rec.Version) {
		e.Memory.WritePending(mem, place, layout.Item{Version: rec.Version, Shard: sh.ID, Key: p.Key, Value: rec.Value, Expiry: rec.Expiry})
		sh.Mu.Lock()
		done = sh.LinkPromoted(p, rec.Version, place, class, mem)
		if !done {
			layout.SetState(mem, rec.Version, layout.Dead)
		}
		sh.Mu.Unlock()
	}
	sh.EndPromotion(p)
	if !done {
		e.Memory.Slabs.Free(place, class)
	}
	return done
}

// admit finds memory for a key that comes back. While memory is full, the key
// must have been used more than the coldest of a few items of its class: a scan
// of keys that are read once and never again does not sweep out the others
// (TinyLFU).
func (e *Evictor) admit(size int, h layout.Hash) (place layout.Place, class uint8, ok bool) {
	class, ok = e.Memory.Slabs.Class(size)
	if !ok {
		return 0, 0, false
	}
	if !e.Memory.Slabs.Full() {
		if place, class, err := e.Memory.Slabs.AllocWithin(size, 0); err == nil {
			return place, class, true
		}
	}
	if !e.mayCache(class) {
		return 0, 0, false
	}
	buf := e.samplers.Get().(*sampler)
	defer e.samplers.Put(buf)
	v, ok := e.coldest(class, victimSample, buf)
	if !ok {
		// There is none of its class. Perhaps memory of others is worth less.
		e.Want(class)
		place, class, err := e.Memory.Slabs.AllocWithin(size, 0)
		return place, class, err == nil
	}
	if !v.Yields(e.Memory.Sketch.Estimate(h.Hi)) {
		e.Memory.Counts.Refused.Add(1)
		return 0, 0, false
	}
	e.Want(class)
	if place, class, err := e.Memory.Slabs.AllocWithin(size, 0); err == nil {
		return place, class, true
	}
	if !e.Shards[v.Shard].Evict(&v) {
		return 0, 0, false
	}
	place, class, err := e.Memory.Slabs.AllocWithin(size, 0)
	return place, class, err == nil
}
