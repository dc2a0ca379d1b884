package shard

import (
	"sync/atomic"

	"github.com/rdmakv/rdmakv/internal/prefetch"
	"github.com/rdmakv/rdmakv/store/index"
	"github.com/rdmakv/rdmakv/store/layout"
)

// Items of an earlier life of the node. The life before has left its memory; its slots were taken over as they are (index.Adopt), and the
// items that they lead to are believed one by one, when somebody asks for them, and all of them by a pass in the background:
//
//	left      the item verifies for the incarnation that wrote it. No reader of this one accepts it.
//	believed  it was verified whole, and found to be live, of this shard, and older than every write of this life; then its
//	          checksum was written anew, for this incarnation (layout.Reseal)
//	dropped   it was not: its checksum is destroyed at once, so that no later life judges otherwise; its slot is cleared, by the pass at the
//	          latest, and its key is lost, as one that was evicted
//
// An older value of a key never comes back: whoever replaced or removed it destroyed its checksum before that write was acknowledged (ruin), so there is
// nothing to be believed, wherever damaged slots or states lead.

// Left is what is known of items of earlier lives.
type Left struct {
	// Incarnations are those whose items may be believed, the latest first: more than one if lives have ended before they had believed all.
	Incarnations []uint64
	// Below is the first version of this life. An item that has it or a later one was written by nobody.
	Below layout.Version

	Believed, Dropped atomic.Uint64 // items
}

// Leave says what is left of earlier lives; nil: nothing is, any more. Before the first shard serves, and when all were gone through.
func (m *Memory) Leave(l *Left) { m.left.Store(l) }

// Left is what is left, or nil.
func (m *Memory) Left() *Left { return m.left.Load() }

// Believing says whether there are items that are not believed yet.
func (m *Memory) Believing() bool { return m.left.Load() != nil }

// believe looks at an item of an earlier life, to which a slot leads, and has it verify from now on, or never again: its key may be written in
// this life, and what the next one finds there would be older. Caller holds the lock of the slot's shard, and no other slot leads
// there, so nobody else does the same.
func (m *Memory) believe(l *Left, slot layout.Slot, mem []byte) (layout.ItemView, bool) {
	if mem == nil {
		return layout.ItemView{}, false // the slot was damaged in this life: it leads into no region
	}
	v, ok := m.judgeLeft(l, slot, mem)
	if !ok {
		layout.DestroyChecksum(mem)
		return layout.ItemView{}, false
	}
	l.Believed.Add(1)
	return v, true
}

// judgeLeft is believe without what becomes of an item that is not believed.
func (m *Memory) judgeLeft(l *Left, slot layout.Slot, mem []byte) (layout.ItemView, bool) {
	for _, inc := range l.Incarnations {
		it, err := layout.ParseItem(mem, inc, slot.Place())
		if err != nil {
			continue
		}
		// Values in parts come and go with a registry that the life before had on its heap.
		if it.State != layout.Live || it.Version >= l.Below || it.IsHead() || layout.IsPartKey(it.Key()) ||
			layout.HashKey(m.Seed, it.Key()).Fingerprint() != slot.Fingerprint() {
			return layout.ItemView{}, false
		}
		return layout.Reseal(mem, inc, m.Incarnation, slot.Place())
	}
	return layout.ItemView{}, false
}

// These bound what is looked at under one hold of the lock, to some 100 µs: slots, and the bytes of the places to which they lead, of which
// the last place may be more.
const (
	believeStep  = 512
	believeBytes = 256 << 10
)

// A Believer goes through a shard's items of earlier lives. It is its goroutine's alone.
type Believer struct {
	refs []index.Ref
}

// All believes or drops each item of the shard, a step at a time, until stop says so.
func (b *Believer) All(sh *Shard, stop func() bool) (done bool) {
	at := index.Cursor{}
	for !done {
		if stop() {
			return false
		}
		at, done = b.some(sh, at)
	}
	return true
}

// some looks at some slots. Their items are fetched ahead, because each is somewhere else.
func (b *Believer) some(sh *Shard, at index.Cursor) (next index.Cursor, done bool) {
	sh.Mu.Lock()
	defer sh.Mu.Unlock()
	b.refs = b.refs[:0]
	size := 0
	next, _, done = sh.Index.Walk(at, believeStep, func(r index.Ref) bool {
		if class := r.Slot().Class(); class <= layout.NumClasses {
			b.refs = append(b.refs, r)
			size += layout.ClassSize(class)
		}
		return size < believeBytes
	})
	const ahead = 16
	for i, r := range b.refs {
		if i == 0 {
			for _, first := range b.refs[:min(ahead, len(b.refs))] {
				fetch(sh, first)
			}
		}
		if i+ahead < len(b.refs) {
			fetch(sh, b.refs[i+ahead])
		}
		believeAt(sh, r)
	}
	return next, done
}

// fetch has an item fetched: its header and its key, if that is short.
func fetch(sh *Shard, r index.Ref) {
	mem := r.Line(sh.mem.Table)
	if mem == nil {
		return // the slot was damaged in this life: it leads into no region
	}
	prefetch.Line(&mem[0])
	if slot := r.Slot(); layout.ClassSize(slot.Class()) > prefetch.LineSize {
		mem = sh.mem.Table.Bytes(slot.Place(), 2*prefetch.LineSize)
		if mem != nil {
			prefetch.Line(&mem[prefetch.LineSize])
		}
	}
}

// believeAt believes the item of a slot, or drops it. One that verifies for this incarnation was believed, or written, in this life: it is
// left alone, whatever its state. Caller holds Mu.
func believeAt(sh *Shard, r index.Ref) {
	slot := r.Slot()
	mem := sh.mem.Table.Bytes(slot.Place(), layout.ClassSize(slot.Class()))
	it, err := layout.ParseItem(mem, sh.mem.Incarnation, slot.Place())
	if err != nil {
		l := sh.mem.left.Load()
		if l == nil {
			return
		}
		if mem == nil { // the slot was damaged in this life: it leads into no region, where there is nothing to kill or to free
			sh.Index.Clear(r)
			sh.slots--
			l.Dropped.Add(1)
			return
		}
		var ok bool
		if it, ok = sh.mem.believe(l, slot, mem); !ok {
			drop(sh, l, r)
			return
		}
	}
	// A slot may lead to another key's item, whoever has believed that.
	if l := sh.mem.left.Load(); l != nil && it.Version < l.Below && (it.Shard != sh.ID || !index.Fits(r, layout.HashKey(sh.mem.Seed, it.Key()))) {
		drop(sh, l, r)
	}
}

// drop takes an item that is not believed out of memory. Caller holds Mu.
func drop(sh *Shard, l *Left, r index.Ref) {
	slot := r.Slot()
	if sh.held[slot.Place()] != nil {
		return // it was believed since
	}
	sh.Kill(slot)
	sh.Index.Clear(r)
	sh.ruin(slot.Place())
	sh.mem.Slabs.Free(slot.Place(), slot.Class())
	sh.slots--
	l.Dropped.Add(1)
}

// Adopted returns a shard over an index that an earlier life has left. It is otherwise as New makes it.
func Adopted(id uint16, m *Memory, none layout.Version, of *index.Adopted) (*Shard, error) {
	sh := newShard(id, m, none, false)
	var err error
	if sh.Index, err = of.Complete(); err != nil {
		return nil, err
	}
	sh.slots = uint64(sh.Index.Keys())
	return sh, nil
}

// HashOf is the hash of the key that a slot leads to, for an index that is being put together.
func (m *Memory) HashOf(slot layout.Slot) (layout.Hash, bool) { return m.hashOf(slot) }
