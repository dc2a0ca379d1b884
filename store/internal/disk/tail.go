package disk

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/cockroachdb/pebble/v2"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/tables"
	"github.com/rdmakv/rdmakv/store/log"
)

// A store that did not stop cleanly has a part of its state in its log alone: the tail,
// which is what stands behind the position of the base. Whoever looks at such a store
// without opening it (Inspect, Check, Adopt) has to count it:
//
//	base   state at its position     read only
//	tail   the newest of each key    written over it, in memory (Adopt: into the base)
//	       behind the position
//	what is looked at: both, of one key the tail's
//
// The records of the log are read by packages above this one, so the tail comes through
// InspectOptions.Tail.

// A TailConfig says which log is to be read, and from where.
type TailConfig struct {
	Dir    log.Dir
	Store  [16]byte                       // the id of the store
	Values func() (*tables.Values, error) // opens the tables of values that the log leads to, to be read
	Mark   []byte                         // the ValuesMark of the base; nil: there is none
	Place  []byte                         // the record of the base's position, as it stands under its key; nil: there is none
	Reach  log.Position                   // up to where the log was durable for sure, by the ledger
}

// A Tail is the log of a stopped store, opened to be read and never changed.
type Tail interface {
	// Found returns the newest epoch that the log knows, and whether the last life ended
	// cleanly.
	Found() (epoch uint64, clean bool)
	// Write writes what the log says behind the base's position into to: ranges of the
	// log one after the other, each of them in rising keys of Pebble. A range counts over
	// the base and over the ranges before it.
	Write(ctx context.Context, to TailSink) error
	Close() error
}

// A TailSink takes a Tail. It keeps no slice when a call returns.
type TailSink interface {
	Set(key, value []byte) error
	Delete(key []byte) error
	DeleteRange(start, end []byte) error
	CutHere() // is nothing to it
	Cut()     // nor is that
	// Values walks the values that stand apart, with all that was written so far. The
	// caller asks for one before each range, and closes it behind.
	Values() (*ValueWalk, error)
}

// OpenTail opens the log of a stopped store to be read. It is called under the lock of
// the directory. What keeps it from reading the log is an error, for which Adopt fails,
// and which Inspect lists as a problem; of Damages each.
type OpenTail func(ctx context.Context, c TailConfig) (Tail, error)

// Damages are what is wrong with a log, one at least. It is read up to the first.
type Damages []error

func (d Damages) Error() string {
	if len(d) == 1 {
		return d[0].Error()
	}
	return fmt.Sprintf("%v; its log has %d more damages, kvserver check names them", d[0], len(d)-1)
}

// Unwrap has errors.Is and errors.As look at each.
func (d Damages) Unwrap() []error { return d }

// How the tail of a log (tail.go) comes over a base that nobody serves: over one that is
// only looked at by a batch that is never committed, and into a copy that becomes a store
// of its own (adopt.go) by batches that are.

// openTail opens the log of a stopped store, if it has one that counts; nil: it has none,
// because it is of an older format, or a backup, or was never begun. Errors: a
// *base.CorruptError if the log is missing, what open returns.
func openTail(ctx context.Context, c Config, id identity, db pebble.Reader, book ledgerText, open OpenTail) (Tail, error) {
	if id.format < logFormat || id.unlogged {
		return nil, nil
	}
	dir, err := OpenLogDir(c.Dir, c.FS)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &base.CorruptError{File: logDir, Detail: "the log of the store is missing"}
	}
	if err != nil {
		return nil, err
	}
	place, err := placeIn(db)
	if err != nil {
		return nil, err
	}
	mark, err := getMeta(db, metaValues)
	if err != nil {
		return nil, err
	}
	if open == nil {
		return nil, errors.New("store: nobody is given who reads its log")
	}
	values := func() (*tables.Values, error) {
		return tables.OpenValues(tables.ValuesConfig{FS: c.FS, Dir: c.FS.PathJoin(c.Dir, valuesDir), Prefix: BytesPrefix()})
	}
	return open(ctx, TailConfig{Dir: dir, Store: id.id, Values: values, Mark: mark, Place: place, Reach: book.reach})
}

// tailFacts are the facts of a log whose records are in the base, or over it, already:
// what the base does not have of them are the epoch and the word of a clean stop.
type tailFacts struct {
	FactLog // nothing else of it is asked for
	tail    Tail
}

func (f tailFacts) Found() (epoch uint64, clean bool) { return f.tail.Found() }

func (f tailFacts) Fact(string) (value []byte, ok bool) { return nil, false }

// factsBehind reads the facts of a base with the tail of its log; tail may be nil.
func factsBehind(db pebble.Reader, tail Tail) (facts, error) {
	if tail == nil {
		return factsOf(db, nil)
	}
	return factsOf(db, tailFacts{tail: tail})
}

// maxOverlay bounds the bytes of a tail that is held in memory. A log has less behind its
// base, unless its bound was set to more.
const maxOverlay = 2 << 30

// An overlay is a base with a tail over it. Reading the batch is reading both.
type overlay struct {
	batch *pebble.Batch
	most  int
}

// room says whether a change fits.
func (o *overlay) room(n int) error {
	if o.batch.Len()+n+64 > o.most {
		return fmt.Errorf("store: its log has more than %d bytes behind the last checkpoint: start and stop the server on it once", o.most)
	}
	return nil
}

func (o *overlay) Set(key, value []byte) error {
	if err := o.room(len(key) + len(value)); err != nil {
		return err
	}
	return o.batch.Set(key, value, nil)
}

func (o *overlay) Delete(key []byte) error {
	if err := o.room(len(key)); err != nil {
		return err
	}
	return o.batch.Delete(key, nil)
}

func (o *overlay) DeleteRange(start, end []byte) error {
	if err := o.room(len(start) + len(end)); err != nil {
		return err
	}
	return o.batch.DeleteRange(start, end, nil)
}

// CutHere and Cut are nothing to an overlay, which has no tables.
func (o *overlay) CutHere() {}
func (o *overlay) Cut()     {}

func (o *overlay) Values() (*ValueWalk, error) { return NewValueWalk(o.batch) }

// An intake is a tail on its way into a base that nobody serves. The changes are durable
// when the base is flushed; before, a crash may leave any part of them.
type intake struct {
	db    *pebble.DB
	batch *pebble.Batch
}

// intakeBatch is how many bytes are committed together.
const intakeBatch = 1 << 20

// commit takes into the base what was collected.
func (in *intake) commit(least int) error {
	if in.batch == nil || in.batch.Len() < least {
		return nil
	}
	err := errors.Join(in.batch.Commit(pebble.NoSync), in.batch.Close())
	in.batch = nil
	return err
}

// changes returns the batch that takes the next change.
func (in *intake) changes() *pebble.Batch {
	if in.batch == nil {
		in.batch = in.db.NewBatch()
	}
	return in.batch
}

func (in *intake) Set(key, value []byte) error {
	if err := in.changes().Set(key, value, nil); err != nil {
		return err
	}
	return in.commit(intakeBatch)
}

func (in *intake) Delete(key []byte) error {
	if err := in.changes().Delete(key, nil); err != nil {
		return err
	}
	return in.commit(intakeBatch)
}

func (in *intake) DeleteRange(start, end []byte) error {
	if err := in.changes().DeleteRange(start, end, nil); err != nil {
		return err
	}
	return in.commit(intakeBatch)
}

// CutHere and Cut are nothing to an intake, which has no tables.
func (in *intake) CutHere() {}
func (in *intake) Cut()     {}

func (in *intake) Values() (*ValueWalk, error) {
	if err := in.commit(0); err != nil {
		return nil, err
	}
	return NewValueWalk(in.db)
}
