package shard

import (
	"github.com/rdmakv/rdmakv/store/index"
	"github.com/rdmakv/rdmakv/store/layout"
)

// A Victim is an item that could go, as it was a moment ago.
type Victim struct {
	Place   layout.Place
	Class   uint8
	Shard   uint16
	Use     uint8 // by the sketch
	Version layout.Version
	Hash    layout.Hash
	Key     []byte // good until the next sample
}

// Colder is the policy: which of two items is worth less. A version is older
// if its key was written earlier.
func (v *Victim) Colder(o *Victim) bool {
	if v.Use != o.Use {
		return v.Use < o.Use
	}
	return v.Version < o.Version
}

// Yields is the policy of admission: whether an item goes for a key that comes
// back from the disk and was used so often. What was used as often stays: the
// newcomer would soon be in its place.
func (v *Victim) Yields(use uint8) bool { return use > v.Use }

// Evict evicts an item, if it still is what it was. Caller holds no lock.
func (sh *Shard) Evict(v *Victim) bool {
	sh.Mu.Lock()
	defer sh.Mu.Unlock()
	ref, ok := sh.Index.Find(v.Hash, func(slot layout.Slot) bool {
		return slot.Place() == v.Place && slot.Class() == v.Class
	})
	if !ok || !sh.mayEvict(v) {
		return false
	}
	version, state := layout.LoadState(sh.mem.Table.Bytes(v.Place, layout.ItemHeaderSize))
	if version != v.Version || state != layout.Live {
		return false
	}
	sh.evictAt(v, ref)
	return true
}

// mayEvict says whether nothing stands against evicting: a write in flight,
// which was judged on what is there now and is about to replace it anyway, or
// somebody who was given the place. Caller holds Mu.
func (sh *Shard) mayEvict(v *Victim) bool {
	return sh.overlay[v.Hash] == nil && sh.held[v.Place] == nil
}

// evictAt evicts the item of slot ref. Caller holds Mu.
func (sh *Shard) evictAt(v *Victim, ref index.Ref) {
	// The fill's snapshot may have an older value, and would find no item that
	// is in its way.
	sh.fill.touch(v.Key)
	sh.left(v.Place, v.Version)
	sh.demote(v.Hash, ref)
	sh.mem.Counts.Evicted.Add(1)
}
