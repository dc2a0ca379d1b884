package store

import (
	"bytes"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable/block"

	"github.com/rdmakv/rdmakv/internal/teeth"
	"github.com/rdmakv/rdmakv/store/index"
	"github.com/rdmakv/rdmakv/store/layout"
)

// The sweeper is a goroutine that clears Pebble-only slots of keys that are
// gone. A delete cannot do it: the slot may stand for several keys, and nothing
// in memory says which. Left alone, each key that was deleted or expired while it
// was out of memory would be asked for by SEND ever after.
//
// A delete that leaves such a slot leaves a trace, too. The sweeper takes the
// traces of a shard, and reads the keys of that shard from Pebble, a few at a
// time; a traced slot that could be the slot of a key that it meets is kept. One
// that is left at the end stands for no key, and is cleared. That needs no lease:
// at the moment at which it is cleared, none of its keys exists, so whoever finds
// it empty says what was true then.
//
// Keys come and go while it reads. A write of a key that the slot could stand for
// which was in flight when the pass began, or was ordered since, keeps the slot
// for this pass: a put because its key may have been behind the reader, a delete
// because Pebble shows it before it is published.
//
// The reading is bounded by the second, and a pass is begun only where there are
// enough traces for it.

const (
	// sweepRate is how many keys are read from Pebble a second, deleted ones that it
	// still has included: a few per cent of a core.
	sweepRate = 25_000
	sweepTick = 100 * time.Millisecond
	// sweepStep is how many keys are read between two looks at the shard.
	sweepStep = 256
	// sweepWorth is how many keys may be read for one slot.
	sweepWorth = 4096
	// maxTraces bounds those of a shard. A slot whose trace is not noted stays
	// until a later delete notes it, the index is short of room, or the end.
	maxTraces = 8192
)

// A sweptShard is a shard's part in it. Guarded by the shard's lock.
type sweptShard struct {
	traces map[layout.Slot]struct{} // Pebble-only slots of which a key was deleted
	// doubted are the slots that this pass has met no key of; nil: there is no pass.
	doubted map[layout.Slot]struct{}
}

// A sweeper is the state of the background pass: its goroutine's alone.
type sweeper struct {
	shard int
	on    bool   // there is a pass over shard
	from  []byte // where in Pebble it goes on
	read  int    // keys that it has read
	cost  []int  // by shard: what the last pass read
}

// trace notes that a key of that hash was deleted, if there is a Pebble-only slot
// that may have been its own. Caller holds mu.
func (s *Store) trace(sh *shard, h layout.Hash) {
	if s.db == nil || len(sh.traces) >= maxTraces {
		return
	}
	slot := layout.PebbleSlot(h)
	if _, ok := sh.ix.Find(h, func(o layout.Slot) bool { return o == slot }); !ok {
		return
	}
	if sh.traces == nil {
		sh.traces = make(map[layout.Slot]struct{})
	}
	sh.traces[slot] = struct{}{}
}

// keep keeps the slot that a key of that hash may need for this pass. Caller
// holds mu.
func (sh *shard) keep(h layout.Hash) {
	if sh.doubted != nil {
		delete(sh.doubted, layout.PebbleSlot(h))
	}
}

// runSweeper works until the store ends.
func (s *Store) runSweeper() {
	defer s.workers.Done()
	tick := time.NewTicker(sweepTick)
	defer tick.Stop()
	var sw sweeper
	var pause time.Time // not before, after an error
	for {
		select {
		case <-s.stop:
			return
		case <-s.fence.down:
			return
		case now := <-tick.C:
			if !s.Filled() || now.Before(pause) {
				continue
			}
		}
		if err := s.sweepSome(&sw, sweepRate*int(sweepTick)/int(time.Second)); err != nil && !s.stopping() {
			s.fence.report(levelError, "the keys of a shard cannot be read: slots of deleted keys stay", "shard", sw.shard, "err", err)
			pause = time.Now().Add(time.Minute)
		}
	}
}

// sweepSome reads up to about n keys.
func (s *Store) sweepSome(sw *sweeper, n int) error {
	if sw.cost == nil {
		sw.cost = make([]int, len(s.shards))
	}
	for n > 0 && !s.stopping() {
		if !sw.on && !s.beginSweep(sw) {
			return nil
		}
		read, err := s.sweepStep(sw)
		if err != nil {
			s.endSweep(sw)
			return err
		}
		n -= max(read, 1)
	}
	return nil
}

// beginSweep begins a pass over the next shard that is worth it.
func (s *Store) beginSweep(sw *sweeper) bool {
	for range s.shards {
		sw.shard = (sw.shard + 1) % len(s.shards)
		sh := s.shards[sw.shard]
		sh.mu.Lock()
		if traces := len(sh.traces); traces == 0 || !sh.ix.Filled() || traces*sweepWorth < sw.cost[sw.shard] {
			sh.mu.Unlock()
			continue
		}
		sh.doubted, sh.traces = sh.traces, nil
		for h := range sh.overlay {
			if !teeth.Off(teeth.F7SweepFlight) {
				sh.keep(h)
			}
		}
		sh.mu.Unlock()
		lower, _ := kindBounds(sh.id, kindData)
		sw.on, sw.from, sw.read = true, append(sw.from[:0], lower...), 0
		return true
	}
	return false
}

// sweepStep goes on with a pass.
func (s *Store) sweepStep(sw *sweeper) (read int, err error) {
	sh := s.shards[sw.shard]
	met := make([]layout.Hash, 0, sweepStep)
	done, err := s.keysFrom(sh, &sw.from, func(key []byte, deleted bool) bool {
		if read++; !deleted {
			met = append(met, layout.HashKey(s.seed, key))
		}
		return read < sweepStep
	})
	if err != nil {
		return 0, err
	}
	sw.read += read - len(met)
	s.swept(sw, met, done)
	return read, nil
}

// swept notes the keys that a step has met; done: they were the last.
func (s *Store) swept(sw *sweeper, met []layout.Hash, done bool) {
	sh := s.shards[sw.shard]
	sw.read += len(met)
	s.counts.sweptKeys.Add(uint64(len(met)))
	sh.mu.Lock()
	if !teeth.Off(teeth.F7SweepReads) {
		for _, h := range met {
			sh.keep(h)
		}
	}
	sh.mu.Unlock()
	for done && s.clearDoubted(sh) {
	}
	sh.mu.Lock()
	over := len(sh.doubted) == 0
	sh.mu.Unlock()
	if over {
		sw.cost[sw.shard] = max(sw.read, sw.cost[sw.shard]/2)
		s.endSweep(sw)
	}
}

// clearDoubted clears slots that no key was met of, a few under one hold of the
// lock: what is left may still be kept. more: there are others.
func (s *Store) clearDoubted(sh *shard) (more bool) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	n := 0
	var refs [2]index.Ref // more than twins there are hardly ever
	for slot := range sh.doubted {
		if n++; n > sweepStep {
			return true
		}
		delete(sh.doubted, slot)
		h, _ := slot.PebbleHash()
		found := refs[:0]
		sh.ix.Near(h, func(r index.Ref) bool {
			if r.Slot() == slot {
				found = append(found, r)
			}
			return true
		})
		for _, r := range found {
			sh.ix.Clear(r)
			s.counts.slotsSwept.Add(1)
		}
	}
	return false
}

// endSweep ends a pass. What it did not come to is for the next.
func (s *Store) endSweep(sw *sweeper) {
	sh := s.shards[sw.shard]
	sh.mu.Lock()
	if sh.traces == nil {
		sh.traces = sh.doubted
	} else {
		maps.Copy(sh.traces, sh.doubted)
	}
	sh.doubted = nil
	sh.mu.Unlock()
	sw.on = false
}

// keysFrom calls f for the keys of a shard in Pebble that are not before *from, a
// key of Pebble's, until it returns false, and moves *from behind the last. done:
// there are no more. Keys that were deleted are met, too, while Pebble still has the
// deletes: an iterator would step over any number of them before it returned. No
// files are kept from going between two calls.
//
// ScanInternal ends without an error where a block cannot be read, as it does at the
// last key. So an iterator has to find nothing behind the last key that was met: else
// keys behind the damage would count as gone, and their slots would be cleared.
func (s *Store) keysFrom(sh *shard, from *[]byte, f func(key []byte, deleted bool) bool) (done bool, err error) {
	_, upper := kindBounds(sh.id, kindData)
	begun := slices.Clone(*from)
	enough := errors.New("enough")
	visit := func(at *pebble.InternalKey, _ pebble.LazyValue, _ pebble.IteratorLevel) error {
		*from = append((*from)[:0], at.UserKey...)
		*from = append(*from, 0)
		deleted := at.Kind() == pebble.InternalKeyKindDelete || at.Kind() == pebble.InternalKeyKindDeleteSized
		if _, _, key, _ := parseKey(at.UserKey); !f(key, deleted) {
			return enough
		}
		return nil
	}
	err = s.db.ScanInternal(s.stopCtx, block.CategoryUnknown, begun, upper, visit, nil, nil, nil, nil)
	switch {
	case err == enough:
		return false, nil
	case err != nil:
		return false, err
	case s.stopCtx.Err() != nil:
		return false, s.stopCtx.Err()
	case teeth.Off(teeth.F7SweepEnds):
		return true, nil
	}
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: *from, UpperBound: upper})
	if err != nil {
		return false, err
	}
	more := it.First()
	if err := it.Close(); err != nil {
		return false, err
	}
	if more && bytes.Equal(begun, *from) {
		return false, errSweepEnded
	}
	return !more, nil
}

// errSweepEnded: a scan met no key where an iterator finds one, and says no cause.
var errSweepEnded = errors.New("store: a block cannot be read")
