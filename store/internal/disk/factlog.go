package disk

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/cockroachdb/pebble/v2"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/log"
)

// A FactLog is what a store's facts need of its log. The newest value of a fact stands
// in the log; a checkpoint brings it into the base, under the same name of kind meta.
type FactLog interface {
	// Found is what the log had at its opening: the newest epoch, 0 if the log is new,
	// and whether the life before this one has ended by a clean stop.
	Found() (epoch uint64, clean bool)
	// Fact returns the newest value that the log had at its opening. ok: it had one.
	Fact(name string) (value []byte, ok bool)
	// Note appends a value. wait: it is durable on return, except under sync policy Off.
	Note(name string, value []byte, wait bool) error
	// Start begins the life of this opening. The epoch is durable on return.
	Start(epoch uint64) error
	// SetEpoch makes a later epoch of this life durable.
	SetEpoch(epoch uint64) error
	// Durable is up to where the log is durable; it may be asked after the log was closed.
	Durable() log.Position
}

// FactNames returns the names of kind meta under which the facts of a store's log stand
// in the base, by the number of the fact. A fact is never taken back: in place of that it
// gets the value denied.
func FactNames() map[uint16]string {
	return map[uint16]string{
		1: metaClock, 2: metaShort, 3: metaKeys, 4: metaWatch, 5: metaRefused, 6: metaBegan, 7: metaSpare,
	}
}

// denied is the value of a fact that holds no more: one byte 0. No fact that holds has it.
func denied() []byte { return []byte{0} }

// isDenied says whether a fact is there and holds no more.
func isDenied(value []byte) bool { return len(value) == 1 && value[0] == 0 }

// metaSpare is the epoch of an opening that was refused and gave out no version: u16. The
// next opening may have the same epoch. The epoch in the log cannot go back, so a fact
// says it.
const metaSpare = "spare"

// metaPosition is where a checkpoint notes how far the base is; package checkpoint draws
// its value. Disk reads the epoch alone in it.
const (
	metaPosition  = "position"
	positionEpoch = 24 // offset, u64
	positionLen   = positionEpoch + 8
)

// Place returns the record that says how far the base is, for package checkpoint; nil: no
// checkpoint has come into it yet.
func (b *Base) Place() ([]byte, error) { return placeIn(b.d.db) }

func placeIn(db pebble.Reader) (raw []byte, err error) {
	defer guard(&err)
	b, closer, err := db.Get(metaKey(metaPosition))
	switch {
	case errors.Is(err, pebble.ErrNotFound):
		return nil, nil
	case err != nil:
		return nil, err
	}
	defer closer.Close()
	return append([]byte{}, b...), nil
}

// Named returns the value of the record of kind meta under a key; nil: there is none.
func (b *Base) Named(key []byte) ([]byte, error) { return namedIn(b.d.db, key) }

func namedIn(db pebble.Reader, key []byte) (value []byte, err error) {
	defer guard(&err)
	raw, closer, err := db.Get(key)
	switch {
	case errors.Is(err, pebble.ErrNotFound):
		return nil, nil
	case err != nil:
		return nil, err
	}
	defer closer.Close()
	rec, err := ParseRecord(raw, key)
	if err != nil {
		return nil, &base.CorruptError{Shard: StoreShard, Key: bytes.Clone(key), Err: err}
	}
	return append([]byte{}, rec.Value...), nil
}

// placeEpoch returns the epoch that stands in the position of the base; 0: there is no
// position.
func placeEpoch(db pebble.Reader) (uint16, error) {
	b, err := getMeta(db, metaPosition)
	if err != nil || b == nil {
		return 0, err
	}
	if len(b) != positionLen {
		return 0, &base.CorruptError{Shard: StoreShard, Key: []byte(metaPosition), Detail: fmt.Sprintf("%d bytes, expected %d", len(b), positionLen)}
	}
	return epoch16(binary.LittleEndian.Uint64(b[positionEpoch:]), metaPosition)
}

// epoch16 returns an epoch that was read as a larger number.
func epoch16(epoch uint64, where string) (uint16, error) {
	if epoch > math.MaxUint16 {
		return 0, &base.CorruptError{Shard: StoreShard, Key: []byte(where), Detail: fmt.Sprintf("epoch %d, and there are %d", epoch, math.MaxUint16)}
	}
	return uint16(epoch), nil
}

// factsOf reads the facts of a base over which a log stands: what the log says of a name
// counts, and the base where the log says nothing. l may be nil.
func factsOf(db pebble.Reader, l FactLog) (facts, error) {
	f, err := readFactsFrom(func(name string) ([]byte, error) {
		if l != nil {
			if value, ok := l.Fact(name); ok {
				return value, nil
			}
		}
		return getMeta(db, name)
	})
	place, fault := placeEpoch(db)
	err = errors.Join(err, fault)
	f.epoch = max(f.epoch, place)
	if l != nil {
		found, _ := l.Found()
		epoch, fault := epoch16(found, metaEpoch)
		err = errors.Join(err, fault)
		f.epoch = max(f.epoch, epoch)
	}
	f.settleEpoch()
	return f, err
}

// settleEpoch is to be called when the epoch is known: it takes back one that nobody used,
// and forgets what speaks for another epoch.
func (f *facts) settleEpoch() {
	f.unspared = f.epoch
	if f.spare != 0 && f.spare == f.epoch {
		f.epoch--
	}
	// A server that knows nothing of the mark leaves it, and raises the epoch.
	if f.restored != f.epoch {
		f.source = nil
	}
}

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
	return b.d.fenceable(func() error { return b.noteEnd(end) })
}

// noteEnd is MarkClean where the facts go into the log.
func (b *Base) noteEnd(end *End) error {
	d := b.d
	var err error
	if len(end.Keys) == d.c.Shards {
		err = b.note(metaKeys, keysFact(end.Keys), false)
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
