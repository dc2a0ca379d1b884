package store

import (
	"slices"
	"time"

	"github.com/rdmakv/rdmakv/internal/teeth"
	"github.com/rdmakv/rdmakv/store/index"
	"github.com/rdmakv/rdmakv/store/layout"
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
	s      *Store
	sh     *shard
	keys   []fillKey
	text   []byte // the keys, one behind the other
	size   int    // bytes of their places
	places fillPlaces
}

// A fillKey is one of them.
type fillKey struct {
	hash    layout.Hash
	version layout.Version
	place   layout.Place
	mem     []byte // of the place; nil: there was no memory
	from    int    // of its text
	to      int
	value   int   // bytes of its record
	class   uint8 // 0: there was no memory
	damaged bool  // its record does not verify
}

func (b *fillBatch) key(k *fillKey) []byte { return b.text[k.from:k.to] }

// full says that it is time to link.
func (b *fillBatch) full() bool { return len(b.keys) == batchKeys || b.size >= batchBytes }

// add takes in a key that the fill has read: pkey is where it stood, value its
// record; both are only read. A record that does not verify is counted: readers
// ask, and are told what is the matter.
func (b *fillBatch) add(pkey, key, value []byte) {
	s, sh := b.s, b.sh
	k := fillKey{hash: layout.HashKey(s.seed, key), from: len(b.text), value: len(value)}
	b.text = append(b.text, key...)
	k.to = len(b.text)
	rec, err := parseRecord(value, pkey)
	if err != nil {
		s.counts.corrupt.Add(1)
		s.fence.report(levelError, "fill: damaged record", "err",
			&CorruptError{Shard: sh.id, Key: append([]byte(nil), key...), Detail: err.Error()})
		k.damaged = true
		b.keys = append(b.keys, k)
		return
	}
	k.version = rec.version
	k.place, k.class = b.find(layout.ItemSize(len(key), len(rec.value), rec.expiry != 0), rec.version)
	if k.class != 0 {
		k.mem = s.table.Bytes(k.place, layout.ClassSize(k.class))
		s.writePending(k.mem, k.place, layout.Item{Version: rec.version, Shard: sh.id, Key: key, Value: rec.value, Expiry: rec.expiry})
		b.size += len(k.mem)
	}
	b.keys = append(b.keys, k)
}

// find finds memory for a key that the fill brings in; class 0 if there is none
// left. The fill evicts nothing: it knows no better than what is there. Keys
// beyond the limit are in Pebble only, until they are asked for.
func (b *fillBatch) find(size int, v layout.Version) (place layout.Place, class uint8) {
	place, class, err := b.places.take(b.s, size)
	switch {
	case err != nil:
		b.s.counts.noMemory.Add(1)
		return 0, 0
	case b.s.tooSoon(b.sh, place, v):
		// It was put, and evicted from here, since the snapshot.
		b.s.slabs.Free(place, class)
		return 0, 0
	}
	return place, class
}

// link judges the keys and links those that are still the newest. It returns
// the fate of the first that is not done with, fillVoid or fillNoRoomYet, with its
// key, which is good until the next add; fillLinked if there is none.
func (b *fillBatch) link() (fate fillFate, rest []byte) {
	s, sh := b.s, b.sh
	if teeth.Enabled {
		for i := range b.keys {
			if k := &b.keys[i]; !k.damaged {
				teeth.At("fill.judge", uint64(sh.id), uint64(k.version))
			}
		}
	}
	var fates [batchKeys]fillFate
	now := time.Now()
	done, bytes := len(b.keys), 0
	sh.mu.Lock()
	for i := range b.keys {
		k := &b.keys[i]
		if k.damaged {
			s.addSlotless(sh, k.hash)
			fates[i] = fillCounted
			continue
		}
		fates[i] = s.fillLink(sh, now, k.hash, b.key(k), k.version, k.place, k.class, k.mem)
		if fates[i] == fillVoid || fates[i] == fillNoRoomYet {
			done = i
			break
		}
	}
	sh.mu.Unlock()
	for i := range b.keys {
		k := &b.keys[i]
		if i < done {
			bytes += k.value
			if fates[i] == fillDropped {
				s.filler.dropped.Add(1)
			}
		}
		if k.class != 0 && (i >= done || fates[i] != fillLinked) {
			layout.SetState(k.mem, k.version, layout.Dead)
			s.slabs.Free(k.place, k.class)
		}
	}
	fate = fillLinked
	if done < len(b.keys) {
		fate, rest = fates[done], b.key(&b.keys[done])
	}
	s.filler.keys.Add(uint64(done))
	s.filler.bytes.Add(uint64(bytes))
	b.reset()
	return fate, rest
}

// end links what the batch has. early: the chunk ends before it has been
// through, at next; with errNoRoomYet if that key is to wait.
func (b *fillBatch) end() (next []byte, early bool, err error) {
	if len(b.keys) == 0 {
		return nil, false, nil
	}
	fate, rest := b.link()
	switch fate {
	case fillVoid:
		return appendKey(nil, b.sh.id, kindData, rest), true, nil
	case fillNoRoomYet:
		return appendKey(nil, b.sh.id, kindData, rest), true, errNoRoomYet
	}
	return nil, false, nil
}

// drop forgets what the batch has.
func (b *fillBatch) drop() {
	for i := range b.keys {
		if k := &b.keys[i]; k.class != 0 {
			layout.SetState(k.mem, k.version, layout.Dead)
			b.s.slabs.Free(k.place, k.class)
		}
	}
	b.reset()
}

func (b *fillBatch) reset() { b.keys, b.text, b.size = b.keys[:0], b.text[:0], 0 }

// fillLink judges a key by rule F6 and links it. Caller holds mu.
func (s *Store) fillLink(sh *shard, now time.Time, h layout.Hash, key []byte, v layout.Version, place layout.Place, class uint8, mem []byte) fillFate {
	sh.damaged = false
	ref, found := sh.find(h, key)
	if !found && sh.damaged {
		// It may be the key's, and newer than what was read. The scrubber
		// sees to it; until then who misses asks.
		s.addSlotless(sh, h)
		return fillCounted
	}
	if !teeth.Off(teeth.F6FillVersion) { // else: what the snapshot says goes in
		if sh.fill.over {
			return fillVoid
		}
		_, touched := sh.fill.touched[string(key)]
		// A write in flight will link the key, and may depend on the life of
		// what the snapshot has (hide).
		if v > sh.published || found || touched ||
			len(sh.overlay) > 0 && sh.inflight(h, key) != nil && !teeth.Off(teeth.F12FillFlight) {
			return fillDropped
		}
	}
	if !found {
		if class == 0 && sh.pebbled {
			return fillCounted // there is a slot that says as much
		}
		var room bool
		if ref, room = sh.ix.Room(now, h); !room {
			if sh.ix.Refusal() == index.Waiting && !sh.fill.hurry {
				return fillNoRoomYet
			}
			sh.fill.hurry = false
			s.addSlotless(sh, h)
			return fillCounted
		}
		if class == 0 {
			sh.ix.Set(ref, layout.PebbleSlot(h))
			return fillCounted
		}
		sh.slots++
	}
	s.makeLive(sh, ref, layout.MakeSlot(h.Fingerprint(), class, place), v, mem, 0, layout.Live)
	return fillLinked
}

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
func (f *fillPlaces) take(s *Store, size int) (layout.Place, uint8, error) {
	class, ok := s.slabs.Class(size)
	if !ok || size > spareSize {
		return s.slabs.AllocSilent(size)
	}
	have := f.spare[class]
	if len(have) == 0 {
		// A class that is met once takes one, one that is met often many.
		f.taken[class] = min(max(1, 2*f.taken[class]), sparePlaces)
		var err error
		if have, class, err = s.slabs.AllocMany(have, size, f.taken[class]); err != nil {
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
func (f *fillPlaces) release(s *Store) {
	for class, places := range f.spare {
		for _, p := range places {
			s.slabs.Free(p, uint8(class))
		}
		f.spare[class] = nil
	}
}
