package residents

import (
	"time"

	"github.com/rdmakv/rdmakv/store/internal/disk"
	"github.com/rdmakv/rdmakv/store/internal/shard"
	"github.com/rdmakv/rdmakv/store/layout"
)

// What tests of package store need, and no program: they make the steps of what
// otherwise goes on by itself.

// LinkOneForTests is the fill's way with one key, whose record stands under pkey.
func (f *Fill) LinkOneForTests(sh *shard.Shard, pkey, key, record []byte) shard.FillFate {
	batch := &fillBatch{f: f, sh: sh}
	rec, err := disk.ParseRecord(record, pkey)
	if err != nil {
		batch.damaged(key, err)
	} else {
		batch.add(key, rec)
	}
	defer batch.places.release(f.Memory.Slabs)
	_, fate, _ := batch.link()
	return fate
}

// ScrubForTests is a scrubber whose goroutine does not run.
type ScrubForTests struct{ *Scrub }

// ForTests returns the scrubber for tests.
func (sc *Scrub) ForTests() ScrubForTests { return ScrubForTests{sc} }

// Some is one step of the pass; it returns how many bytes it was.
func (sc ScrubForTests) Some() int { return sc.some() }

// Age has the pass have begun long ago.
func (sc ScrubForTests) Age() { sc.began = time.Now().Add(-time.Hour) }

// LookInto looks into what was reported.
func (sc ScrubForTests) LookInto() {
	for len(sc.reports) > 0 {
		sc.lookInto(<-sc.reports)
	}
}

// Repair repairs the item of a slot.
func (sc ScrubForTests) Repair(sh *shard.Shard, slot layout.Slot) { sc.repair(sh, slot, false) }

// SweepForTests is a sweeper whose goroutine does not run.
type SweepForTests struct{ *Sweep }

// ForTests returns the sweeper for tests.
func (sw *Sweep) ForTests() SweepForTests { return SweepForTests{sw} }

// Some reads up to about n keys.
func (sw SweepForTests) Some(n int) error { return sw.some(n) }

// Begin begins a pass.
func (sw SweepForTests) Begin() bool { return sw.begin() }

// Step goes on with it, by at most so many keys.
func (sw SweepForTests) Step(most int) (read int, err error) { return sw.step(most) }

// Pass is where the pass is: on: there is one; and how many keys it has read.
func (sw SweepForTests) Pass() (on bool, read int) { return sw.on, sw.read }
