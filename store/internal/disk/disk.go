package disk

import (
	"io"

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

	facts               // as found at Open; epoch: this opening's
	foundEpoch uint16   // before this opening
	identity   identity // as STORE has it
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
