package shard

import (
	"github.com/rdmakv/rdmakv/store/internal/dedup"
	"github.com/rdmakv/rdmakv/store/internal/dirty"
	"github.com/rdmakv/rdmakv/store/internal/flight"
	"github.com/rdmakv/rdmakv/store/layout"
)

// Publish makes one durable write of the shard visible. Its result goes into results
// under the shard's lock: a retry finds the write in flight or the result.
func (sh *Shard) Publish(f *flight.Flight, results *dedup.Table) {
	if len(f.Effects) > 1 {
		sh.publishBatch(f, results)
		return
	}
	var e *flight.Effect // nil: of no key
	if len(f.Effects) == 1 {
		e = f.Effects[0]
	}
	var mem []byte
	if e != nil && e.Class != 0 {
		// The first step of the order below, before the lock: the place is
		// this write's alone, and copying a large value takes milliseconds.
		mem = sh.mem.Table.Bytes(e.Place, layout.ClassSize(e.Class))
		sh.mem.WritePending(mem, e.Place, e.Item())
	}
	sh.Mu.Lock()
	sh.durable = f.Version
	switch {
	case e == nil || e.Noop:
	case e.Removes():
		sh.unlink(e)
	case e.Class != 0:
		sh.link(e, mem)
	default:
		ref, found := sh.Find(e.Hash, e.Key)
		sh.linkSlotless(e, ref, found)
	}
	sh.settle(f, results)
}

// settle is the end of publishing: what was ordered is published now. It
// unlocks the shard.
func (sh *Shard) settle(f *flight.Flight, results *dedup.Table) {
	part := f.Part // the effects that stand in the record are counted
	for _, e := range f.Effects {
		if !e.Noop {
			// Whatever becomes of the item from here on, the set has the key: so whoever
			// takes an item out of memory (Evict, demote, DropNear) need not look whether the
			// base has it. A cache has no set: its writes stand in no log.
			if f.At != 0 {
				sh.Dirty.Note(e.Hash, e.Key, dirty.Entry{Version: e.Version, Gone: e.Removes(), At: f.At, Part: part})
			}
			sh.overlayRemove(e)
		}
		if !e.Noop || e.Due != 0 {
			part++
		}
	}
	if f.Op != nil {
		results.Published(&f.Op.ID, f.Result, f.Again) // a retry gets the version of the first
	}
	sh.raisePublished(f.Version)
	sh.Mu.Unlock()
}

// WritePending writes an item into free memory.
func (m *Memory) WritePending(mem []byte, p layout.Place, it layout.Item) {
	layout.WriteItem(mem, m.Incarnation, p, it, layout.Pending)
}

// Void takes back all writes of the shard that are ordered and not published: a replicated group
// has another leader, and none of them will ever take effect. When it returns, the ordered state
// is the published one. The writes are the caller's again, with the memory that was reserved for them.
//
// A probe that was told of such a write has learned what is not so, and whoever asks it gets
// why. Who waits for one of them goes on: what is published is all there is. each is told the
// hashes of their keys. The caller sees to it that nothing is ordered meanwhile, and holds Mu.
func (o *Order) Void(why error, each func(layout.Hash)) {
	for h := range o.overlay {
		each(h)
	}
	clear(o.overlay)
	for _, p := range o.probes {
		if p.told {
			p.state, p.err = flight.KeyState{}, why
		}
	}
	o.ordered, o.durable = o.published, o.published
	for i := range o.waiting {
		close(o.waiting[i].ready)
	}
	clear(o.waiting)
	o.waiting = o.waiting[:0]
}
