package store

import (
	"time"

	"github.com/rdmakv/rdmakv/internal/teeth"
	"github.com/rdmakv/rdmakv/store/index"
	"github.com/rdmakv/rdmakv/store/layout"
)

// The scrubber is a goroutine that looks at every item in memory, slowly, again
// and again: memory goes bad, and a damaged item is answered by SEND until
// somebody repairs it. It also looks at once where a client says that an item
// does not verify. Nothing is changed on a client's word.

const (
	// scrubStep is how many bytes of items are verified under a shard's lock
	// at a time: some 10 µs. Items in chunks count their head.
	scrubStep = 32 << 10
	// slotBytes is what a slot counts that was looked at. An index may be large
	// and hold few items, or none: looking at it is work, too.
	slotBytes = 8
	// scrubTick is how often the scrubber does what its rate allows.
	scrubTick = 100 * time.Millisecond
	// reportsQueued bounds the reports of clients that wait.
	reportsQueued = 64
	// reportsPerSecond bounds those that are looked at.
	reportsPerSecond = 50
	// maxSuspects bounds the items that are looked at again a pass later.
	maxSuspects = 1024
)

// A scrubber is the state of the background pass. Its goroutine's alone, but
// for reports.
type scrubber struct {
	reports chan damageReport
	shard   int
	at      index.Cursor
	// suspects are items that were not live though their slots are in force,
	// as they are for a moment around many a write. One that is so for a whole
	// pass, at least a lease, is damaged: its state bits have no checksum.
	suspects, before map[layout.Slot]layout.Version
	began            time.Time     // this pass
	nameless         []layout.Slot // damaged items of this shard whose keys are not known
}

// A damageReport is a client's word.
type damageReport struct {
	shard uint16
	key   []byte
}

// Damaged takes a client's report: the item of key, at place and of version,
// did not verify, and did not change. The server looks for itself, soon, and
// repairs what it finds. It never blocks; reports beyond a bound are dropped,
// for the next pass of the scrubber finds the same. key is copied.
func (s *Store) Damaged(shard uint16, key []byte, place layout.Place, version layout.Version) {
	if s.checkKey(shard, key) != nil {
		return
	}
	s.counts.damageReports.Add(1)
	select {
	case s.scrub.reports <- damageReport{shard, append([]byte(nil), key...)}:
	default:
		s.counts.reportsDropped.Add(1)
	}
}

// runScrub scrubs until the store ends.
func (s *Store) runScrub() {
	defer s.workers.Done()
	tick := time.NewTicker(scrubTick)
	defer tick.Stop()
	sc := &s.scrub
	sc.began = time.Now()
	allowed, credit := 0.0, 0
	for {
		select {
		case <-s.stop:
			return
		case <-s.fence.down:
			return
		case <-tick.C:
			credit = min(credit+reportsPerSecond/10, reportsPerSecond)
			if s.cfg.ScrubRate > 0 && s.Filled() {
				// No more than a second's worth is saved up.
				rate := float64(s.cfg.ScrubRate)
				allowed = min(allowed+rate*scrubTick.Seconds(), rate)
				for allowed > 0 && !s.stopping() {
					allowed -= float64(s.scrubSome())
				}
			}
		}
		for ; credit > 0 && len(sc.reports) > 0; credit-- {
			s.lookInto(<-sc.reports)
		}
	}
}

// scrubSome verifies about scrubStep bytes, or looks at as many of the index,
// and returns how many it was in all; never less than one.
func (s *Store) scrubSome() (bytes int) {
	sc := &s.scrub
	sh := s.shards[sc.shard]
	var bad, stale []layout.Slot
	var large []item
	sh.mu.Lock()
	next, looked, done := sh.ix.Walk(sc.at, scrubStep/slotBytes, func(r index.Ref) bool {
		slot := r.Slot()
		if slot.Class() > layout.NumClasses {
			return true // in Pebble only
		}
		mem := s.table.Bytes(slot.Place(), layout.ClassSize(slot.Class()))
		view, err := layout.ParseItem(mem, s.incarnation, slot.Place())
		switch {
		case err != nil:
			bad = append(bad, slot)
			bytes += len(mem)
		case view.State != layout.Live:
			if len(sc.suspects) < maxSuspects {
				sc.suspects[slot] = view.Version
			}
			if v, ok := sc.before[slot]; ok && v == view.Version {
				stale = append(stale, slot)
			}
			bytes += view.Need()
		case view.Chunks > 0:
			s.slabs.Pin(slot.Place())
			large = append(large, item{ItemView: view, slot: slot, mem: mem})
			bytes += view.Size
		default:
			bytes += view.Size
		}
		s.counts.scrubbed.Add(1)
		return bytes < scrubStep
	})
	sh.mu.Unlock()
	for i := range large {
		if it := &large[i]; !it.verified(it.value()) {
			bad = append(bad, it.slot)
		}
		s.slabs.Unpin(large[i].slot.Place())
	}
	for _, slot := range bad {
		s.repair(sh, slot, false)
	}
	for _, slot := range stale {
		s.repair(sh, slot, true)
	}
	sc.at = next
	s.counts.scrubbedBytes.Add(uint64(bytes))
	if done {
		s.scrubbedShard(sh)
	}
	return max(bytes+looked*slotBytes, 1)
}

// scrubbedShard goes on to the next shard, or begins anew.
func (s *Store) scrubbedShard(sh *shard) {
	sc := &s.scrub
	if len(sc.nameless) > 0 {
		s.repairNameless(sh, sc.nameless)
		sc.nameless = nil
	}
	if sc.shard++; sc.shard < len(s.shards) {
		return
	}
	sc.shard = 0
	s.counts.scrubPasses.Add(1)
	if now := time.Now(); now.Sub(sc.began) >= leaseWithMargin(s.cfg.Lease, s.cfg.BeatInterval) {
		sc.before, sc.suspects, sc.began = sc.suspects, make(map[layout.Slot]layout.Version), now
	}
}

// verifies says whether the item of a slot in force is whole, and live. Caller
// holds mu.
func (s *Store) verifies(slot layout.Slot) bool {
	it, whole := s.inspectItem(slot)
	return whole && it.State == layout.Live
}

// inspectItem reads the item of a slot in force; whole: all its checksums hold.
// Unlike itemAt it reports nothing. One that is whole and not live is no damage
// in itself: a write in flight may have hidden it. Caller holds mu.
func (s *Store) inspectItem(slot layout.Slot) (it item, whole bool) {
	mem := s.table.Bytes(slot.Place(), layout.ClassSize(slot.Class()))
	view, err := layout.ParseItem(mem, s.incarnation, slot.Place())
	if err != nil {
		return item{}, false
	}
	it = item{ItemView: view, slot: slot, mem: mem}
	return it, it.verified(it.value())
}

// lookInto looks at the items that could be a key's.
func (s *Store) lookInto(r damageReport) {
	if !s.Filled() {
		return
	}
	sh, h := s.shards[r.shard], layout.HashKey(s.seed, r.key)
	var bad []layout.Slot
	dead := false
	sh.mu.Lock()
	sh.ix.Find(h, func(slot layout.Slot) bool {
		if slot.Class() > layout.NumClasses {
			return false
		}
		switch it, whole := s.inspectItem(slot); {
		case !whole, teeth.Off(teeth.D5ScrubTrusts):
			bad = append(bad, slot)
		case it.State != layout.Live:
			dead = true // if it stays so, the background pass sees to it
		}
		return false
	})
	sh.mu.Unlock()
	for _, slot := range bad {
		s.repair(sh, slot, false)
	}
	switch {
	case len(bad) > 0:
	case dead:
		s.counts.reportsDead.Add(1)
	default:
		s.counts.reportsFalse.Add(1)
	}
}
