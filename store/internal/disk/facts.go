package disk

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"log/slog"

	"github.com/rdmakv/rdmakv/store/layout"
)

// The facts about a store that change while it is open, and who changes them: each
// is a record of its own in the log (factlog.go), from here alone.

// Durable reports whether there is a disk at all: a cache has none.
func (d *Disk) Durable() bool { return d.db != nil }

// ID returns the store's id: 16 random bytes, made when it was created.
func (f *facts) ID() [16]byte { return f.id }

// Epoch returns that of the first versions of this opening.
func (f *facts) Epoch() uint16 { return f.epoch }

// Began returns when this opening began, in microseconds since 1970.
func (f *facts) Began() uint64 { return f.began }

// Clean reports whether the last incarnation ended cleanly.
func (f *facts) Clean() bool { return f.clean != nil }

// ClockBound returns the time, in microseconds since 1970, above which no earlier
// incarnation showed one; 0: nothing could expire.
func (f *facts) ClockBound() uint64 { return f.clock }

// Short reports whether results of requests were forgotten before their time.
func (f *facts) Short() bool { return f.short }

// Keys returns how many keys each shard had not long before the last incarnation
// ended, nil if that is not known. Not to be changed.
func (f *facts) Keys() []uint64 { return f.keys }

// BeginCache is the beginning of a life without a disk.
func (d *Disk) BeginCache(epoch uint16, began uint64) {
	rand.Read(d.facts.id[:]) // never fails
	d.facts.shards = uint32(d.c.Shards)
	d.facts.epoch, d.facts.began = epoch, began
}

// Heartbeat notes in the ledger up to where the log is durable, so that a log that has lost
// its end is found out at the next start. Off promises nothing of the end, and nothing is
// noted. Called by one goroutine.
func (d *Disk) Heartbeat() {
	if d.c.Sync == Off {
		return
	}
	if err := d.raiseReach(); err != nil {
		d.fence.Report(slog.LevelError, "ledger", "err", err)
	}
}

// RaiseEpoch makes a new epoch durable, so that versions can run on into it. It
// reports whether it did; if not, the store is fenced.
func (d *Disk) RaiseEpoch(epoch uint16) bool {
	err := d.log.SetEpoch(uint64(epoch))
	if err != nil {
		d.fence.Fail(fmt.Errorf("write of %s: %w", metaEpoch, err))
	}
	return err == nil
}

// metaClock: u64, no server time above it, in microseconds, was shown.
const metaClock = "clock"

// BoundClock makes a bound of the clock durable. It waits for the disk.
func (d *Disk) BoundClock(bound uint64) error {
	return d.note(metaClock, binary.LittleEndian.AppendUint64(nil, bound), true)
}

// metaShort: u8 1: records were removed before their time.
const metaShort = "short"

// NoteShort keeps a mark on the disk while records may be removed before their
// time: the next incarnation must not take what it does not know for new. may says
// whether they may; it is asked under the lock that orders such notes.
func (d *Disk) NoteShort(may func() bool) error {
	d.shortMu.Lock()
	defer d.shortMu.Unlock()
	short := may()
	if short == d.facts.short {
		return nil
	}
	value := denied()
	if short {
		value = []byte{1}
	}
	err := d.note(metaShort, value, true)
	if err == nil {
		d.facts.short = short
	}
	return err
}

const (
	// noteStep is the part of the keys that have to be new for another note, and
	// noteLeast how many at least: an index of fewer grows in no time.
	noteStep  = 16
	noteLeast = 1 << 14
)

// countedKeys settles what Keys returns: what a clean stop left is newer than the
// last note.
func (f *facts) countedKeys(shards int) {
	for _, n := range f.keys {
		f.noted += n
	}
	if f.clean != nil && len(f.clean.keys) == shards {
		f.keys = f.clean.keys
	}
	if len(f.keys) != shards {
		f.keys = nil // of a store of an earlier version
	}
}

// NoteKeys writes down how many keys each shard has, if that is news. Nobody waits
// for the note to be durable: it goes with the next write that is. Called by one
// goroutine.
func (d *Disk) NoteKeys(keys []uint64) {
	total := uint64(0)
	for _, n := range keys {
		total += n
	}
	if news := max(total, d.facts.noted) - min(total, d.facts.noted); news < noteLeast || news < d.facts.noted/noteStep {
		return
	}
	if d.note(metaKeys, keysFact(keys), false) == nil {
		d.facts.noted = total
	}
}

// encodeKeys returns the value of metaKeys.
func encodeKeys(keys []uint64) []byte {
	value := make([]byte, 0, 8*len(keys))
	for _, n := range keys {
		value = binary.LittleEndian.AppendUint64(value, n)
	}
	return value
}

// maxFact is how many bytes a fact of the log has at most.
const maxFact = 256

// keysFact returns the value of metaKeys as a fact of the log: that of each shard if there
// is room, else one number for all. Hashes spread keys over many shards evenly, and the
// counts size indexes alone.
func keysFact(keys []uint64) []byte {
	if 8*len(keys) <= maxFact {
		return encodeKeys(keys)
	}
	total := uint64(0)
	for _, n := range keys {
		total += n
	}
	return binary.LittleEndian.AppendUint64(nil, total)
}

// parseKeys reads metaKeys of a store of so many shards, in either form.
func parseKeys(b []byte, shards int) ([]uint64, error) {
	if len(b) != 8 && len(b) != 8*shards {
		return nil, fmt.Errorf("%d bytes, expected 8 or %d", len(b), 8*shards)
	}
	keys := make([]uint64, 0, shards)
	if len(b) == 8*shards {
		for ; len(b) > 0; b = b[8:] {
			keys = append(keys, binary.LittleEndian.Uint64(b))
		}
		return keys, nil
	}
	total := binary.LittleEndian.Uint64(b)
	for left := uint64(shards); left > 0; left-- {
		keys = append(keys, total/left)
		total -= total / left
	}
	return keys, nil
}

// metaWatch is written with the clean-stop mark, which says whether it counts:
// u64 incarnation, u64 version of the newest write, u64 epoch of that life. The
// epoch must be the one before this life's: in a restored copy it is not.
const metaWatch = "watch"

// Watched returns the incarnation and the newest version of a life that ended
// cleanly right before this one, and kept events; zero if it did not.
func (d *Disk) Watched() (incarnation uint64, newest layout.Version, err error) {
	if !d.Durable() || !d.Clean() {
		return 0, 0, nil
	}
	b := d.facts.watch
	if len(b) == 24 && binary.LittleEndian.Uint64(b[16:])+1 == uint64(d.facts.epoch) {
		return binary.LittleEndian.Uint64(b), layout.Version(binary.LittleEndian.Uint64(b[8:])), nil
	}
	return 0, 0, nil
}

// An End is what a life that ends cleanly leaves to the next one.
type End struct {
	Version layout.Version // above all that were given out
	Keys    []uint64       // of each shard
	Clock   uint64         // no later time was shown, microseconds since 1970; 0: nothing can expire
	// Unused says that the directory was refused and this opening gave out no version:
	// the epoch is put back.
	Unused bool
	// Watched says that events were kept, up to Newest of this Incarnation.
	Watched     bool
	Incarnation uint64
	Newest      layout.Version
}

// watch returns the value of metaWatch.
func (e *End) watch(epoch uint16) []byte {
	v := binary.LittleEndian.AppendUint64(nil, e.Incarnation)
	v = binary.LittleEndian.AppendUint64(v, uint64(e.Newest))
	return binary.LittleEndian.AppendUint64(v, uint64(epoch))
}
