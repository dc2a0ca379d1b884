package disk

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// How a store of format 3 begins and ends:
//
//	Open       the base
//	           the caller opens the log and replays it
//	Join       the facts of both; is the store to be served?
//	Begin      the life of the log, with the next epoch; STORE is final
//	...        facts go into the log
//	MarkClean  what the next life is to know
//	           the last checkpoint; the clean stop of the log
//	Close      the base; the ledger of all files

// Join joins the base with its log, which was opened and replayed: the facts of the log
// count before those of the base. It says whether the store may be served.
func (b *Base) Join(l FactLog) error {
	d := b.d
	f, err := factsOf(d.db, l)
	if err != nil {
		return err
	}
	if d.c.Sync == Off {
		// What takes the mark back may be lost with versions that were given out since,
		// and were seen: then they would be given out again.
		f.epoch = f.unspared
	}
	// The base has no mark: it is changed while nobody knows how the life will end.
	clean := d.identity.clean
	if !b.NewLog() {
		_, clean = l.Found()
	}
	if f.clean = nil; clean {
		f.clean = &cleanMark{}
	}
	d.log, d.facts = l, f
	if err := f.check(d.c); err != nil {
		return err
	}
	if err := f.refusal(d.c); err != nil {
		return err
	}
	d.facts.countedKeys(d.c.Shards)
	return nil
}

// begin begins the life of the log. A start that is cut short before STORE is final is
// begun anew, without the log: no version was given out.
func (b *Base) begin(now uint64) error {
	d := b.d
	if err := d.nextEpoch(now); err != nil {
		return err
	}
	if err := d.log.Start(uint64(d.facts.epoch)); err != nil {
		return err
	}
	if id := d.identity; id.unlogged {
		id.unlogged, id.clean = false, false
		if err := writeIdentity(d.c, id); err != nil {
			return err
		}
		d.identity = id
	}
	// They are in the log before any write is, so they are there if one is; and the last
	// is waited for.
	var err error
	if d.facts.spare != 0 {
		err = b.note(metaSpare, denied(), false)
	}
	if d.facts.refused != nil && err == nil {
		err = b.note(metaRefused, denied(), false)
	}
	if err != nil {
		return err
	}
	return b.note(metaBegan, binary.LittleEndian.AppendUint64(nil, d.facts.began), true)
}

// note appends the value of a fact to the log. If that fails the store is fenced.
func (b *Base) note(name string, value []byte, wait bool) error {
	err := b.d.log.Note(name, value, wait)
	if err != nil {
		b.d.fence.Fail(fmt.Errorf("write of %s: %w", name, err))
		return b.d.fence.Failed()
	}
	return nil
}

// raiseReach notes in the ledger up to where the log is durable.
func (b *Base) raiseReach() error {
	if b.d.log == nil {
		return nil
	}
	return b.d.ledger.raiseReach(b.d.log.Durable())
}

// MarkClean notes what a life leaves that ends cleanly. It comes before the last checkpoint,
// and Close, with the same end, behind it and behind the clean stop of the log, which makes
// durable what is noted here.
func (b *Base) MarkClean(end *End) error {
	if !b.d.c.Own {
		return nil // Close does it
	}
	return b.d.fenceable(func() error { return b.noteEnd(end) })
}

// noteEnd is MarkClean where the facts go into the log.
func (b *Base) noteEnd(end *End) error {
	d := b.d
	var err error
	if len(end.Keys) == d.c.Shards {
		err = b.note(metaKeys, encodeKeys(end.Keys), false)
	}
	if end.Clock != 0 {
		err = errors.Join(err, b.note(metaClock, binary.LittleEndian.AppendUint64(nil, end.Clock), false))
	}
	switch {
	case end.Unused && d.facts.epoch == d.foundEpoch+1:
		// The watchers' mark counts for the epoch that follows, which this one was.
		err = errors.Join(err,
			b.note(metaSpare, binary.LittleEndian.AppendUint16(nil, d.facts.epoch), false),
			b.note(metaWatch, denied(), false))
	case end.Watched:
		err = errors.Join(err, b.note(metaWatch, end.watch(d.facts.epoch), false))
	}
	return err
}
