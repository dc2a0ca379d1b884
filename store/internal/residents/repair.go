package residents

import (
	"bytes"
	"log/slog"
	"slices"
	"time"

	"github.com/rdmakv/rdmakv/store/internal/shard"
	"github.com/rdmakv/rdmakv/store/layout"
)

// repair of a damaged item: its key's newest value is read, in the log or in the base, written to
// another place, and takes the slot over by the steps of a put. The read stands
// under a probe, as that of a promotion does: if a write of the key was ordered
// since, what was read is old and nothing is done (repair-loses-to-newer-writes).
//
// Whose item it is, its bytes cannot be believed about. A key that they show is
// a guess, good if its hash leads to this very slot and the disk has the key; else
// every key of the shard is asked, which is the work of seconds, once
// in a pass.

// maxNameless bounds the damaged items that are looked for at a time.
const maxNameless = 256

// repair repairs the damaged item of a slot. Caller holds no lock; the item may
// have changed since it was seen. stale: it has not been live for a whole pass,
// so that its state is damage too, unless a write of its key is still in flight.
func (sc *Scrub) repair(sh *shard.Shard, slot layout.Slot, stale bool) {
	sh.Mu.Lock()
	_, found := sh.RefOf(slot)
	if found {
		it, whole := sc.Memory.InspectItem(slot)
		found = !whole || it.State != layout.Live && stale && sh.Inflight(layout.HashKey(sc.Memory.Seed, it.Key()), it.Key()) == nil
	}
	if !found {
		sh.Mu.Unlock()
		return
	}
	key := sc.Memory.GuessKey(slot)
	if !sc.Disk.Durable() {
		// Nobody else has it: it is evicted like any other.
		sh.Orphan(slot)
		sh.Mu.Unlock()
		return
	}
	sh.Mu.Unlock()
	sc.Memory.Counts.Damaged.Add(1)
	sc.Memory.Fence.Report(slog.LevelError, "item in memory is damaged: repairing it from disk", "shard", sh.ID, "place", slot.Place())
	if key != nil && sc.repairAs(sh, slot, key) {
		return
	}
	// A report of another shard's waits for the pass to come there.
	if sh == sc.Shards[sc.shard] && len(sc.nameless) < maxNameless {
		sc.nameless = append(sc.nameless, slot)
	}
}

// repairAs repairs an item as that of key, or finds that it is not. done: there
// is no more to do.
func (sc *Scrub) repairAs(sh *shard.Shard, slot layout.Slot, key []byte) (done bool) {
	h := layout.HashKey(sc.Memory.Seed, key)
	at := func(o layout.Slot) bool { return o == slot }
	sh.Mu.Lock()
	if _, ok := sh.Index.Find(h, at); !ok {
		sh.Mu.Unlock()
		return false // a key that does not lead here
	}
	if !sh.MayProbe(h, key) {
		sh.Mu.Unlock()
		sc.Memory.Counts.RepairsLost.Add(1)
		return true // the next pass sees what became of it
	}
	if ref, ok := sh.Find(h, key); ok && ref.Slot() != slot {
		// It was put again, to a slot of its own: this one leads nowhere.
		sh.Orphan(slot)
		sh.Mu.Unlock()
		return true
	}
	p := sh.AddProbe(h, key)
	sh.Mu.Unlock()
	defer sh.EndPromotion(p)

	rec, closer, err := sc.Newest.Read(sh, key)
	if err != nil {
		return false
	}
	defer closer.Close()
	place, class := sc.placeFor(sh, layout.ItemSize(len(key), len(rec.Value), rec.Expiry != 0), rec.Version)
	var mem []byte // nil: no room for a second copy, the key goes to Pebble only
	if class != 0 {
		mem = sc.Memory.Table.Bytes(place, layout.ClassSize(class))
		sc.Memory.WritePending(mem, place, layout.Item{Version: rec.Version, Shard: sh.ID, Key: key, Value: rec.Value, Expiry: rec.Expiry})
	}
	sh.Mu.Lock()
	defer sh.Mu.Unlock()
	if sh.LinkRepaired(p, slot, rec.Version, place, class, mem) {
		sc.Memory.Counts.Repaired.Add(1)
		return true
	}
	if class != 0 {
		layout.SetState(mem, rec.Version, layout.Dead)
		sc.Memory.Slabs.Free(place, class)
	}
	sc.Memory.Counts.RepairsLost.Add(1)
	return true
}

// placeFor returns a free place where an item of that version did not stand a
// lease ago or less (tooSoon); class 0 if there is none at hand.
func (sc *Scrub) placeFor(sh *shard.Shard, size int, v layout.Version) (place layout.Place, class uint8) {
	const tries = 4
	for range tries {
		p, c, err := sc.Memory.Slabs.AllocWithin(size, time.Millisecond)
		if err != nil {
			return 0, 0
		}
		if !sh.TooSoon(p, v) {
			return p, c
		}
		defer sc.Memory.Slabs.Free(p, c) // not before another was found
	}
	return 0, 0
}

// repairNameless finds the keys of damaged items among those of the shard: of the set, and
// of the base. In this order, because keys leave the set for the base. An item that could be
// that of several is given up: each of them is counted as one without slot, and the slot goes a
// lease later.
func (sc *Scrub) repairNameless(sh *shard.Shard, slots []layout.Slot) {
	c := candidates{slots: slots, keys: make(map[layout.Slot][][]byte), prints: make(map[uint16]bool)}
	for _, slot := range slots {
		c.prints[slot.Fingerprint()] = true
	}
	for it := viewOf(sh).Keys(nil, nil); it.Next() && !sc.Life.Over(); {
		if !it.Entry().Gone {
			c.look(sh, sc.Memory.Seed, it.Key(), false)
		}
	}
	if err := sc.Disk.EachKey(sh.ID, func(key []byte) bool {
		c.look(sh, sc.Memory.Seed, key, true)
		return !sc.Life.Over()
	}); err != nil {
		sc.Memory.Fence.Report(slog.LevelError, "repair: the keys of a shard cannot be read", "shard", sh.ID, "err", err)
		return
	}
	if sc.Life.Over() {
		return
	}
	for _, slot := range slots {
		keys := c.keys[slot]
		if len(keys) == 1 && sc.repairAs(sh, slot, keys[0]) {
			continue
		}
		sh.Mu.Lock()
		if _, found := sh.RefOf(slot); found && !sc.Memory.Verifies(slot) {
			for _, key := range keys {
				sh.AddSlotless(layout.HashKey(sc.Memory.Seed, key))
			}
			sh.Orphan(slot)
		}
		sh.Mu.Unlock()
	}
}

// Candidates are the keys that damaged items may be of.
type candidates struct {
	slots  []layout.Slot
	prints map[uint16]bool // their fingerprints
	keys   map[layout.Slot][][]byte
}

// look looks whether a key may be that of one of the slots. inBase: it is one of the base,
// which has keys that are gone by the set; such a key has no item.
func (c *candidates) look(sh *shard.Shard, seed uint64, key []byte, inBase bool) {
	h := layout.HashKey(seed, key)
	if !c.prints[h.Fingerprint()] {
		return
	}
	sh.Mu.Lock()
	defer sh.Mu.Unlock()
	if e, dirty := sh.Dirty.Find(h, key); inBase && dirty && e.Gone {
		return
	}
	// One whose item verifies and is not live is found where it is.
	if ref, ok := sh.Find(h, key); ok && !slices.Contains(c.slots, ref.Slot()) {
		return
	}
	sh.Index.Find(h, func(o layout.Slot) bool {
		known := func(k []byte) bool { return bytes.Equal(k, key) } // both may have it
		if slices.Contains(c.slots, o) && !slices.ContainsFunc(c.keys[o], known) {
			c.keys[o] = append(c.keys[o], bytes.Clone(key))
		}
		return false
	})
}
