package residents

import (
	"time"

	"github.com/rdmakv/rdmakv/store/index"
	"github.com/rdmakv/rdmakv/store/internal/shard"
	"github.com/rdmakv/rdmakv/store/layout"
)

// The scrubber is a goroutine that looks at every item in memory, slowly, again
// and again: memory goes bad, and a damaged item is answered by SEND until
// somebody repairs it. It also looks at once where a client says that an item
// does not verify. Nothing is changed on a client's word.

const (
	// ScrubStep is how many bytes of items are verified under a shard's lock
	// at a time: some 10 µs. Items in chunks count their head.
	ScrubStep = 32 << 10
	// SlotBytes is what a slot counts that was looked at. An index may be large
	// and hold few items, or none: looking at it is work, too.
	SlotBytes = 8
	// scrubTick is how often the scrubber does what its rate allows.
	scrubTick = 100 * time.Millisecond
	// ReportsQueued bounds the reports of clients that wait.
	ReportsQueued = 64
	// reportsPerSecond bounds those that are looked at.
	reportsPerSecond = 50
	// maxSuspects bounds the items that are looked at again a pass later.
	maxSuspects = 1024
)

// A Scrub is the background pass and what it knows. Its goroutine's alone, but for
// Report.
type Scrub struct {
	Env
	fill  *Fill         // nothing is looked at before it is done
	rate  int64         // bytes a second; not above 0: only what is reported
	lease time.Duration // after which nobody counts a READ, with all margins

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

// A damageReport is a client's word that the item of a key does not verify.
type damageReport struct {
	shard uint16
	key   []byte
}

// NewScrub returns a scrubber of rate bytes a second; see Scrub.
func NewScrub(env Env, fill *Fill, rate int64, lease time.Duration) *Scrub {
	return &Scrub{Env: env, fill: fill, rate: rate, lease: lease,
		reports: make(chan damageReport, ReportsQueued), suspects: make(map[layout.Slot]layout.Version)}
}

// Report takes a client's word. It never blocks: what comes beyond a bound is dropped.
// key is copied. Safe for concurrent use.
func (sc *Scrub) Report(shard uint16, key []byte) {
	sc.Memory.Counts.DamageReports.Add(1)
	select {
	case sc.reports <- damageReport{shard, append([]byte(nil), key...)}:
	default:
		sc.Memory.Counts.ReportsDropped.Add(1)
	}
}

// Run scrubs until the store ends.
func (sc *Scrub) Run() {
	tick := time.NewTicker(scrubTick)
	defer tick.Stop()
	sc.began = time.Now()
	allowed, credit := 0.0, 0
	for {
		select {
		case <-sc.Life.Stop:
			return
		case <-sc.Memory.Fence.Down:
			return
		case <-tick.C:
			credit = min(credit+reportsPerSecond/10, reportsPerSecond)
			if sc.Memory.Believing() {
				continue // what is not believed yet is no damage
			}
			if sc.rate > 0 && sc.fill.Done() {
				// No more than a second's worth is saved up.
				rate := float64(sc.rate)
				allowed = min(allowed+rate*scrubTick.Seconds(), rate)
				for allowed > 0 && !sc.Life.Over() {
					allowed -= float64(sc.some())
				}
			}
		}
		for ; credit > 0 && len(sc.reports) > 0; credit-- {
			sc.lookInto(<-sc.reports)
		}
	}
}

// some verifies about ScrubStep bytes, or looks at as many of the index,
// and returns how many it was in all; never less than one.
func (sc *Scrub) some() (bytes int) {
	sh := sc.Shards[sc.shard]
	var bad, stale []layout.Slot
	var large []shard.Item
	sh.Mu.Lock()
	next, looked, done := sh.Index.Walk(sc.at, ScrubStep/SlotBytes, func(r index.Ref) bool {
		slot := r.Slot()
		if slot.Class() > layout.NumClasses {
			return true // in Pebble only
		}
		mem := sc.Memory.Table.Bytes(slot.Place(), layout.ClassSize(slot.Class()))
		view, err := layout.ParseItem(mem, sc.Memory.Incarnation, slot.Place())
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
			sc.Memory.Slabs.Pin(slot.Place())
			large = append(large, shard.Item{ItemView: view, Slot: slot, Mem: mem})
			bytes += view.Size
		default:
			bytes += view.Size
		}
		sc.Memory.Counts.Scrubbed.Add(1)
		return bytes < ScrubStep
	})
	sh.Mu.Unlock()
	for i := range large {
		if it := &large[i]; !it.Verified(it.InPlace()) {
			bad = append(bad, it.Slot)
		}
		sc.Memory.Slabs.Unpin(large[i].Slot.Place())
	}
	for _, slot := range bad {
		sc.repair(sh, slot, false)
	}
	for _, slot := range stale {
		sc.repair(sh, slot, true)
	}
	sc.at = next
	sc.Memory.Counts.ScrubbedBytes.Add(uint64(bytes))
	if done {
		sc.shardDone(sh)
	}
	return max(bytes+looked*SlotBytes, 1)
}

// shardDone goes on to the next shard, or begins anew.
func (sc *Scrub) shardDone(sh *shard.Shard) {
	if len(sc.nameless) > 0 {
		sc.repairNameless(sh, sc.nameless)
		sc.nameless = nil
	}
	if sc.shard++; sc.shard < len(sc.Shards) {
		return
	}
	sc.shard = 0
	sc.Memory.Counts.ScrubPasses.Add(1)
	if now := time.Now(); now.Sub(sc.began) >= sc.lease {
		sc.before, sc.suspects, sc.began = sc.suspects, make(map[layout.Slot]layout.Version), now
	}
}

// lookInto looks at the items that could be a key's.
func (sc *Scrub) lookInto(r damageReport) {
	if !sc.fill.Done() {
		return
	}
	sh, h := sc.Shards[r.shard], layout.HashKey(sc.Memory.Seed, r.key)
	var bad []layout.Slot
	dead := false
	sh.Mu.Lock()
	sh.Index.Find(h, func(slot layout.Slot) bool {
		if slot.Class() > layout.NumClasses {
			return false
		}
		switch it, whole := sc.Memory.InspectItem(slot); {
		case !whole:
			bad = append(bad, slot)
		case it.State != layout.Live:
			dead = true // if it stays so, the background pass sees to it
		}
		return false
	})
	sh.Mu.Unlock()
	for _, slot := range bad {
		sc.repair(sh, slot, false)
	}
	switch {
	case len(bad) > 0:
	case dead:
		sc.Memory.Counts.ReportsDead.Add(1)
	default:
		sc.Memory.Counts.ReportsFalse.Add(1)
	}
}
