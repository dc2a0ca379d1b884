// Package journal joins the log of a store, which makes writes durable, with its base, which
// keeps them.
//
//	           Append                Sync            Publish
//	commit --> frame of the log --> durable -------> items, sets of dirty keys --> answers
//	               |
//	               | checkpoints (package ckpt)
//	               v
//	             base
//
// A commit of the pipeline is a frame, and a write is a record of it (commit.go). What a start
// finds in the log behind the base's position is dirty again before anybody is served
// (replay.go). The facts of a store are records, too (facts.go). A reader of many keys takes
// its moment here, because two locks make one: that of publishing a frame, and that of
// leaving the sets (Moment).
package journal

import (
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/checkpoint"
	"github.com/rdmakv/rdmakv/store/internal/dedup"
	"github.com/rdmakv/rdmakv/store/internal/dirty"
	"github.com/rdmakv/rdmakv/store/internal/disk"
	"github.com/rdmakv/rdmakv/store/internal/newest"
	"github.com/rdmakv/rdmakv/store/internal/shard"
	"github.com/rdmakv/rdmakv/store/internal/tables"
	"github.com/rdmakv/rdmakv/store/log"
)

// Stream is the stream of the log in which a store's records stand.
const Stream = 1

// Config is how a journal is opened.
type Config struct {
	Dir   log.Dir
	Store [16]byte // the store's id
	New   bool     // the store has no log yet: it is made
	// Place is where the base stands; zero: it has no position, and the log is new, or
	// reaches back to its own beginning.
	Place checkpoint.Place
	Reach log.Position // up to where the log was durable, as the ledger says

	Sync     log.Sync
	Interval time.Duration // of Sync, with log.Interval
	Sizes    Sizes

	// Values are the tables of values; nil: all values go through the log. BytesFrom is for
	// tests: the length from which a value goes there; 0: BytesFrom of this package.
	Values    *tables.Values
	BytesFrom int

	Patience time.Duration // of Note, for room in the log; 10 s

	Shards  int
	Seed    uint64       // of the hash of keys
	Results *dedup.Table // takes the results of requests that the log has
	Fence   *base.Fence
	Logger  *slog.Logger
}

// Sizes are the bounds of a log, in bytes; zero: those of package log.
type Sizes struct {
	Segment, Frame, Log int64
}

// A Journal is the open log of a store. Safe for concurrent use, but for what Open, Start and
// Close say.
type Journal struct {
	c     Config
	log   *log.Log
	found log.Found
	most  int // bytes of a record, at most: what is larger has its value in pieces

	// Sets are the dirty keys of each shard that the replay has found, for the shards that
	// are made next. They are nobody's from then on.
	Sets   []dirty.Set
	Newest uint64 // version of the newest write in the log; 0: there is none
	// Led are the values in tables to which the replay has found records, in the order of the log.
	Led []base.Bytes

	publishing sync.Mutex // held while the writes of a frame are published
	keeper     Keeper
}

// A Keeper brings what the log has into the base, and knows where the base stands; a
// *ckpt.Keeper is one.
type Keeper interface {
	// Hold keeps in the log what the base does not have, until release is called.
	Hold() (release func(), err error)
}

// Open opens the log, or makes it if there is none and the base has no position, and reads
// all of it. Errors: those of log.Open and log.Replay, a *checkpoint.RecordError.
func Open(c Config) (*Journal, error) {
	l, err := log.Open(log.Config{
		Dir: c.Dir, Store: c.Store, Create: c.New,
		Sync: c.Sync, Interval: c.Interval,
		SegmentSize: c.Sizes.Segment, MaxFrame: c.Sizes.Frame, MaxBytes: c.Sizes.Log,
		Reach: c.Reach, From: c.Place.Frame, Logger: c.Logger,
	})
	if err != nil {
		return nil, err
	}
	j := &Journal{c: c, log: l, found: l.Found(), Sets: make([]dirty.Set, c.Shards)}
	j.most = c.Sizes.recordMost()
	if err := j.replay(); err != nil {
		return nil, errors.Join(err, l.Close(false))
	}
	return j, nil
}

// Bounds of what goes into a frame, as parts of it. Writes are cut into commits at half of a
// frame. A write that is larger is alone in its commit, and may have three quarters of one: a
// batch of the largest size fits, with the heads of its parts. Beyond that, values stand
// apart, in pieces.
func (s Sizes) CommitMost() int64 { return s.frame() / 2 }

// recordMost is how large a record may be.
func (s Sizes) recordMost() int { return int(s.frame() / 4 * 3) }

// frame is how large a frame may be.
func (s Sizes) frame() int64 {
	switch {
	case s.Frame != 0:
		return s.Frame
	case s.Segment != 0:
		return min(8<<20, s.Segment/4)
	}
	return 8 << 20
}

// Log returns the log itself, for the checkpoints.
func (j *Journal) Log() *log.Log { return j.log }

// Place is where the base stood when the log was opened.
func (j *Journal) Place() checkpoint.Place { return j.c.Place }

// Follow says who knows where the base stands. It is called before anything is read or
// published.
func (j *Journal) Follow(k Keeper) { j.keeper = k }

// Close ends the log. clean: all that was published is in the base or in the log, and the
// next start need not wait for anybody's leases. It is called once, when nobody writes or
// reads any more.
func (j *Journal) Close(clean bool) error {
	if j.c.Values != nil {
		j.c.Values.Close()
	}
	return j.log.Close(clean)
}

// Fault turns an error of the log into one of the store's: what is damaged is a
// *base.CorruptError with the file, and an error of the disk stays what it is.
func Fault(err error) error {
	var damage *log.DamageError
	var record *checkpoint.RecordError
	switch {
	case errors.Is(err, base.ErrCorrupt):
		return err
	case errors.As(err, &damage):
		return &base.CorruptError{File: dirName + "/" + damage.File, Detail: damage.Error(), Err: nil}
	case errors.As(err, &record):
		return &base.CorruptError{File: dirName, Detail: record.Error()}
	case errors.Is(err, log.ErrNoLog):
		return &base.CorruptError{File: dirName, Detail: "the log is missing, and the base was made from one"}
	case errors.Is(err, log.ErrForeign):
		return &base.CorruptError{File: dirName, Detail: err.Error()}
	}
	return err
}

// dirName is the log's directory in that of the store, as errors name it.
const dirName = "log"

// The gate sets room in the log aside for a write before it is ordered (package admit). What
// log.Cost says of a record is right if the record travels alone: with what is left of its
// last block, 4 KiB for a put of 10 bytes. But writes that are in flight together share
// frames: all that are queued go into the next commit, as far as it takes them, so what they
// leave of blocks is that of a few frames, however many they are. If each were counted with a
// block of its own, a segment of 32 MiB would have room for some 5,000 writes in flight.
//
// A write that has more than was counted is no harm: its frame waits for a free file, not for
// a checkpoint.

// recordHead bounds what the log adds to the body of a record, with its share of a frame's
// head.
const recordHead = 96

// Cost is what the record of a write takes of the log, in company.
func (j *Journal) Cost(body int) int64 { return int64(body) + recordHead }

// Reserve sets room aside, or fails with log.ErrFull. Return gives it back: Append does.
// Values that the base does not have count like the log: puts wait for it.
func (j *Journal) Reserve(n int64, use log.Use) error {
	if use == log.Puts && j.c.Values != nil && j.c.Sizes.Log > 0 && j.c.Values.Waiting() >= j.c.Sizes.Log {
		return log.ErrFull
	}
	return j.log.Reserve(n, use)
}

// Unreserve gives room back for a write that was not ordered.
func (j *Journal) Unreserve(n int64) { j.log.Unreserve(n) }

// Room returns how many bytes can be set aside now, and a channel that is closed when that
// may have become more.
func (j *Journal) Room(use log.Use) (int64, <-chan struct{}) { return j.log.Room(use) }

// Bytes is what the segments in force have, of the log's bound.
func (j *Journal) Bytes() int64 { return j.log.Stats().Bytes }

// Stats are the numbers of the log.
func (j *Journal) Stats() log.Stats { return j.log.Stats() }

// Hold keeps in the log what the base does not have, until release is called. While a write
// of a shard is dirty, and its lock is held, Hold does not fail.
func (j *Journal) Hold() (release func(), err error) { return j.keeper.Hold() }

// ReadAt reads the record at a position that is held.
func (j *Journal) ReadAt(at log.Position) (log.Record, error) { return j.log.ReadAt(at) }

// Near returns a ReadAt for one goroutine that goes forward; see log.Window.
func (j *Journal) Near() func(at log.Position) (log.Record, error) {
	return log.NewWindow(j.log).ReadAt
}

// Change changes the base and sets in one moment: no Moment has a part of it. Lock order: as in Moment.
func (j *Journal) Change(leaving *sync.Mutex, f func() error) error {
	j.publishing.Lock()
	defer j.publishing.Unlock()
	leaving.Lock()
	defer leaving.Unlock()
	return f()
}

// Moment takes all that is published now: first what the base has, then what is newer. Two
// locks make them one moment. No frame is published in between, so all that is published is
// in the snapshot or in a view; without it, a batch could be half there. Nothing leaves a set
// in between (leaving is held by whoever takes it out); without it, a key that the snapshot
// does not have yet could be missing from its view, because the base had it meanwhile. If
// the base gets a range in between, its keys are in the views still, and the views count.
//
// Lock order: publishing, then leaving, then those of the shards.
func (j *Journal) Moment(d *disk.Disk, shards []*shard.Shard, leaving *sync.Mutex) (newest.Moment, error) {
	j.publishing.Lock()
	defer j.publishing.Unlock()
	leaving.Lock()
	defer leaving.Unlock()
	// Before the views are taken: what they have is behind the base's place.
	release, err := j.Hold()
	if err != nil {
		return newest.Moment{}, err
	}
	m := newest.Moment{Base: d.Snapshot(), Views: make([]dirty.View, len(shards)), Release: release}
	for i, sh := range shards {
		sh.Mu.Lock()
		m.Views[i] = sh.Dirty.View()
		sh.Mu.Unlock()
	}
	return m, nil
}
