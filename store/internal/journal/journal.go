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
// leaving the sets (moment.go).
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
func (j *Journal) Close(clean bool) error { return j.log.Close(clean) }

// Fault turns an error of the log into one of the store's: what is damaged is a
// *base.CorruptError with the file, and an error of the disk stays what it is.
func Fault(err error) error {
	var damage *log.DamageError
	var record *checkpoint.RecordError
	switch {
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
