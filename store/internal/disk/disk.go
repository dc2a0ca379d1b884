// Package disk is all that a store has on the disk beside its log: a locked directory, the
// base (a Pebble without a log), the facts about the store, and the ledger of the base's
// files. No other package reaches Pebble, but package tables, which changes a base.
//
// There are two ways into it. A checkpoint changes the base by one ingest of tables
// (base.go); it is there whole after a crash, or not at all. And the store notes facts about
// itself (facts.go): the bound of the clock, what is to be told of results, how the life
// ended. They go into the log, and with a checkpoint into the base (factlog.go).
//
// There are three ways out. Read returns the record of one key, Records and what is built
// on it walk over many (records.go), both with values that stand apart (values.go), and the
// facts are read when the disk is opened (meta.go; which replicas the store has, replicas.go). Of a stopped store Inspect and Adopt count
// what the log says behind the base, too (tail.go). Nothing of it knows what was published:
// what may be told is the store's business.
//
// New, Open, Join, Begin, MarkClean and Close are the life of a Disk (factlog.go). The log is
// opened and closed by the caller in between.
//
// A store of format 1 or 2 is a Pebble with a log. Open upgrades it (convert.go), Inspect and
// Adopt take it as it is, and nothing else knows of it.
//
// Every error of an opening is
// a *base.OpenError, which says what is wrong with the directory and what to do. Damage is
// a *base.CorruptError: Pebble's checksums find it in blocks, those of records on the
// whole way from the caller (format.go), the ledger in what Pebble takes for the end of a
// file (ledger.go), and the list of blob files in files that are gone (blobs.go). A disk on
// which Pebble cannot write fences the store (events.go, stopfs.go).
package disk

import (
	"io"
	"sync"

	"github.com/cockroachdb/pebble/v2"

	"github.com/rdmakv/rdmakv/store/internal/base"
)

// A Disk is all that the store has on the disk: the locked directory, Pebble, the
// facts about the store, and the ledger of Pebble's files. The disk of a cache has
// none of them.
type Disk struct {
	Base

	c      Config
	fence  *base.Fence
	counts *base.Counters // Corrupt alone
	events *events
	space  *space

	lock    io.Closer
	stuck   bool       // a goroutine of Pebble's never came back: the lock stays
	db      *pebble.DB // nil: of a cache
	options *pebble.Options
	ledger  *ledger
	log     FactLog // nil before Join

	facts                 // as found at Open; epoch: this opening's
	shortMu    sync.Mutex // of facts.short, taken before the log's
	foundEpoch uint16     // before this opening
	identity   identity   // as STORE has it
}

// New returns a disk that nothing is open on.
func New(c Config, f *base.Fence, counts *base.Counters) *Disk {
	events := &events{fence: f}
	d := &Disk{c: c.WithDefaults(), fence: f, counts: counts, events: events, space: &space{events: events}}
	d.Base.d = d
	return d
}

// fenceable runs what uses Pebble while the store is being opened or closed:
// when the disk fails it does not return, and Open and Close must all the same.
func (d *Disk) fenceable(f func() error) error {
	err := d.fence.Failed()
	if err == nil {
		done := make(chan error, 1)
		go func() { done <- f() }()
		select {
		case err := <-done:
			return err
		case <-d.fence.Down:
			err = d.fence.Failed()
		}
	}
	// Somebody is still at work in there, with Pebble's locks, and keeps ours.
	d.stuck = true
	return err
}

// unlock lets the directory go, unless somebody is still at work in it.
func (d *Disk) unlock() error {
	if d.lock == nil || d.stuck {
		return nil
	}
	return d.lock.Close()
}

// closePebble closes the database. After a panic of Pebble's (see guard) some
// iterator is left open in it, over which Close panics.
func closePebble(db *pebble.DB) (err error) {
	defer guard(&err)
	return db.Close()
}
