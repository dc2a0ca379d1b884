package shard

import (
	"github.com/rdmakv/rdmakv/internal/prefetch"
	"github.com/rdmakv/rdmakv/store/internal/dedup"
	"github.com/rdmakv/rdmakv/store/internal/dirty"
	"github.com/rdmakv/rdmakv/store/internal/flight"
	"github.com/rdmakv/rdmakv/store/layout"
)

const (
	// aheadFew is how few writes are published without asking for memory ahead: there is
	// nothing to do meanwhile.
	aheadFew = 3
	// aheadMost bounds the writes for which memory is asked for at a time, about ten lines
	// each, so that the first level of the cache has all of it when it is needed.
	aheadMost = 24
)

// PublishAll publishes the writes of a commit, each as Publish does and in their order. What
// the writes will read of the index, of the items that they replace and of the set of dirty keys
// is asked for ahead, for many writes at a time: keys are far from each other, so nearly all
// of it is in no cache, and one write after the other would wait for each piece.
func PublishAll(shards []*Shard, flights []*flight.Flight, results *dedup.Table) {
	for len(flights) > 0 {
		n := min(len(flights), aheadMost)
		if n > aheadFew {
			for step := range dirty.AheadSteps {
				for _, f := range flights[:n] {
					ahead(shards[f.Shard], f, step)
				}
			}
		}
		for _, f := range flights[:n] {
			shards[f.Shard].Publish(f, results)
		}
		flights = flights[n:]
	}
}

// ahead asks for what publishing a write reads, one step after the other. It changes nothing.
// Batches are left alone, because each of them has all its keys under one hold of the lock.
func ahead(sh *Shard, f *flight.Flight, step int) {
	if len(f.Effects) != 1 || f.Effects[0].Noop {
		return
	}
	e := f.Effects[0]
	sh.Mu.Lock()
	defer sh.Mu.Unlock()
	switch step {
	case 0:
		sh.Index.Ahead(e.Hash, nil)
	case 1:
		sh.Index.Ahead(e.Hash, sh.likely)
	}
	if f.At != 0 {
		sh.Dirty.Ahead(e.Hash, step)
	}
}

// aheadItem has the beginning of an item fetched: its header, and its key, if that is short.
func (m *Memory) aheadItem(slot layout.Slot) {
	if slot.Class() > layout.NumClasses {
		return
	}
	mem := m.Table.Bytes(slot.Place(), layout.ClassSize(slot.Class()))
	for off := 0; off < min(len(mem), 2*prefetch.LineSize); off += prefetch.LineSize {
		prefetch.Line(&mem[off])
	}
}
