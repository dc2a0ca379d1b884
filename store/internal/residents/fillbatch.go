package residents

import (
	"log/slog"
	"slices"
	"time"

	"github.com/rdmakv/rdmakv/store/internal/disk"
	"github.com/rdmakv/rdmakv/store/internal/shard"
	"github.com/rdmakv/rdmakv/store/layout"
	"github.com/rdmakv/rdmakv/store/log"
	"github.com/rdmakv/rdmakv/store/slab"
)

const (
	// batchKeys bounds the keys that the fill links under one lock: a put of
	// the shard waits that long at most, some microseconds.
	batchKeys = 64
	// batchBytes bounds the memory that they take.
	batchBytes = 256 << 10
)

// A fillBatch is keys of one shard that a worker of the fill has written into
// memory, pending, and is about to judge and link together. It belongs to one
// worker, which takes it from shard to shard.
type fillBatch struct {
	f      *Fill
	sh     *shard.Shard
	keys   []fillKey
	text   []byte // the keys, one behind the other
	size   int    // bytes of their places
	places fillPlaces
	near   func(at log.Position) (log.Record, error) // of the log; nil: not asked for yet
}

// A fillKey is one of them.
type fillKey struct {
	hash    layout.Hash
	version layout.Version
	place   layout.Place
	mem     []byte // of the place; nil: there was no memory
	from    int    // of its text
	to      int
	value   int   // bytes
	class   uint8 // 0: there was no memory
	damaged bool  // its record does not verify
}

func (b *fillBatch) key(k *fillKey) []byte { return b.text[k.from:k.to] }

// full says that it is time to link.
func (b *fillBatch) full() bool { return len(b.keys) == batchKeys || b.size >= batchBytes }

// named is the beginning of what the batch notes of a key. The key is copied.
func (b *fillBatch) named(key []byte) fillKey {
	from := len(b.text)
	b.text = append(b.text, key...)
	return fillKey{hash: layout.HashKey(b.f.Memory.Seed, key), from: from, to: len(b.text)}
}

// damaged takes in a key whose record does not verify. It is counted as one without a slot:
// readers ask, and are told what is the matter.
func (b *fillBatch) damaged(key []byte, damage error) {
	b.f.Memory.Fence.Report(slog.LevelError, "fill: damaged record", "err", damage)
	k := b.named(key)
	k.damaged = true
	b.keys = append(b.keys, k)
}

// add takes in a key that the fill has read, with its record. The value is copied.
func (b *fillBatch) add(key []byte, rec disk.Record) {
	f, sh := b.f, b.sh
	k := b.named(key)
	k.value = len(rec.Value)
	k.version = rec.Version
	k.place, k.class = b.find(layout.ItemSize(len(key), len(rec.Value), rec.Expiry != 0), rec.Version)
	if k.class != 0 {
		k.mem = f.Memory.Table.Bytes(k.place, layout.ClassSize(k.class))
		f.Memory.WritePending(k.mem, k.place, layout.Item{Version: rec.Version, Shard: sh.ID, Key: key, Value: rec.Value, Expiry: rec.Expiry})
		b.size += len(k.mem)
	}
	b.keys = append(b.keys, k)
}

// find finds memory for a key that the fill brings in; class 0 if there is none
// left. The fill evicts nothing: it knows no better than what is there. Keys
// beyond the limit are in Pebble only, until they are asked for.
func (b *fillBatch) find(size int, v layout.Version) (place layout.Place, class uint8) {
	place, class, err := b.places.take(b.f.Memory.Slabs, size)
	switch {
	case err != nil:
		b.f.Memory.Counts.NoMemory.Add(1)
		return 0, 0
	case b.sh.TooSoon(place, v):
		// It was put, and evicted from here, since the snapshot.
		b.f.Memory.Slabs.Free(place, class)
		return 0, 0
	}
	return place, class
}

// link judges the keys and links those that are still the newest. It returns how many it is
// done with, and the fate of the next, FillVoid or FillNoRoomYet, with its key, which is good
// until the next add; FillLinked if there is none.
func (b *fillBatch) link() (done int, fate shard.FillFate, rest []byte) {
	f, sh := b.f, b.sh
	var fates [batchKeys]shard.FillFate
	now := time.Now()
	bytes := 0
	done = len(b.keys)
	sh.Mu.Lock()
	for i := range b.keys {
		k := &b.keys[i]
		if k.damaged {
			sh.AddSlotless(k.hash)
			fates[i] = shard.FillCounted
			continue
		}
		fates[i] = sh.LinkFilled(now, k.hash, b.key(k), k.version, k.place, k.class, k.mem)
		if fates[i] == shard.FillVoid || fates[i] == shard.FillNoRoomYet {
			done = i
			break
		}
	}
	sh.Mu.Unlock()
	for i := range b.keys {
		k := &b.keys[i]
		if i < done {
			bytes += k.value
			if fates[i] == shard.FillDropped {
				f.dropped.Add(1)
			}
		}
		if k.class != 0 && (i >= done || fates[i] != shard.FillLinked) {
			layout.SetState(k.mem, k.version, layout.Dead)
			f.Memory.Slabs.Free(k.place, k.class)
		}
	}
	fate = shard.FillLinked
	if done < len(b.keys) {
		fate, rest = fates[done], b.key(&b.keys[done])
	}
	f.keys.Add(uint64(done))
	f.bytes.Add(uint64(bytes))
	b.reset()
	return done, fate, rest
}

// end links what the batch has. early: the chunk ends before it has been
// through, at next; with errNoRoomYet if that key is to wait.
func (b *fillBatch) end() (next []byte, early bool, err error) {
	if len(b.keys) == 0 {
		return nil, false, nil
	}
	_, fate, rest := b.link()
	switch fate {
	case shard.FillVoid:
		return disk.AppendKey(nil, b.sh.ID, disk.KindData, rest), true, nil
	case shard.FillNoRoomYet:
		return disk.AppendKey(nil, b.sh.ID, disk.KindData, rest), true, errNoRoomYet
	}
	return nil, false, nil
}

// drop forgets what the batch has.
func (b *fillBatch) drop() {
	for i := range b.keys {
		if k := &b.keys[i]; k.class != 0 {
			layout.SetState(k.mem, k.version, layout.Dead)
			b.f.Memory.Slabs.Free(k.place, k.class)
		}
	}
	b.reset()
}

func (b *fillBatch) reset() { b.keys, b.text, b.size = b.keys[:0], b.text[:0], 0 }

const (
	// sparePlaces bounds the places of a size class that a worker has ready.
	sparePlaces = 64
	// spareSize is the largest item whose places are taken ahead.
	spareSize = 1 << 10
)

// fillPlaces are places of small items that a worker took ahead, many under one
// lock of their class.
type fillPlaces struct {
	spare [layout.NumClasses + 1][]layout.Place
	taken [layout.NumClasses + 1]int // how many were taken last time
}

// take returns a place for an item of size bytes, and its class.
func (f *fillPlaces) take(slabs *slab.Slabs, size int) (layout.Place, uint8, error) {
	class, ok := slabs.Class(size)
	if !ok || size > spareSize {
		return slabs.AllocSilent(size)
	}
	have := f.spare[class]
	if len(have) == 0 {
		// A class that is met once takes one, one that is met often many.
		f.taken[class] = min(max(1, 2*f.taken[class]), sparePlaces)
		var err error
		if have, class, err = slabs.AllocMany(have, size, f.taken[class]); err != nil {
			return 0, 0, err
		}
		slices.Reverse(have) // the lowest goes first
	}
	last := len(have) - 1
	place := have[last]
	f.spare[class] = have[:last]
	return place, class, nil
}

// release gives back what was taken ahead.
func (f *fillPlaces) release(slabs *slab.Slabs) {
	for class, places := range f.spare {
		for _, p := range places {
			slabs.Free(p, uint8(class))
		}
		f.spare[class] = nil
	}
}
