package disk

import (
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
