package ckpt

import (
	"time"

	"github.com/rdmakv/rdmakv/store/internal/checkpoint"
	"github.com/rdmakv/rdmakv/store/log"
)

// Stats are numbers for people and for metrics. Those that count begin with the start.
type Stats struct {
	Checkpoints uint64
	Failed      uint64
	Trouble     string // why the newest one failed; empty: it did not
	BytesIn     uint64 // of the log
	BytesOut    uint64 // of tables
	Records     uint64 // of the log

	// Of the newest checkpoint: when it was in the base, how long it took, and of that how
	// long it read the log, wrote tables, waited (for its pace, and for the base's
	// compactions), and told the base.
	Last                                  time.Time
	Took, Read, Written, Waited, Ingested time.Duration

	Place       checkpoint.Place // of the base
	Behind      int64            // bytes of the log, at most, that the base does not have
	Values      int64            // bytes in tables of values, that the base has not taken
	DirtyWrites int              // that the base does not have
	DirtyBytes  int64            // memory that their keys take
}

// Stats returns numbers of this moment.
func (k *Keeper) Stats() Stats {
	l := k.c.Log.Stats()
	k.mu.Lock()
	s := k.stats
	s.Place = k.place
	held := k.held()
	if k.trouble != nil {
		s.Trouble = k.trouble.Error()
	}
	k.mu.Unlock()
	s.Values = k.waiting()
	s.Behind = behind(&l, held, k.c.Segment)
	s.DirtyWrites, s.DirtyBytes = k.dirty()
	return s
}

// dirty counts what the base does not have, over all shards.
func (k *Keeper) dirty() (writes int, bytes int64) {
	for _, sh := range k.c.Shards {
		n, b := sh.DirtyCounts()
		writes, bytes = writes+n, bytes+b
	}
	return writes, bytes
}

// failed counts a round that has come to nothing.
func (k *Keeper) failed(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.stats.Failed++
	k.trouble = err
}

// Trouble is why the newest round failed; nil: it did not.
func (k *Keeper) Trouble() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.trouble
}

// ended counts a round.
func (k *Keeper) ended(done *checkpoint.Done, from checkpoint.Place, began time.Time, values int64) {
	l := log.Stats{Passed: done.Place.At, Bytes: k.c.LogBytes}
	in := behind(&l, from.At, k.c.Segment) + values
	now := k.c.Now()
	k.mu.Lock()
	defer k.mu.Unlock()
	s := &k.stats
	k.trouble = nil
	s.Checkpoints++
	s.BytesIn += uint64(in)
	s.BytesOut += uint64(done.Tables.Bytes)
	s.Records += uint64(done.Counts.Records)
	s.Last, s.Took, s.Read = now, now.Sub(began), done.Read
	s.Waited = done.Tables.Waited + done.Tables.Written
	s.Written, s.Ingested = done.Written, done.Ingested
	if in >= leastRange/4 && s.Took > 0 {
		// A short one says more of its syncs than of its rate.
		k.intake = int64(float64(in) / s.Took.Seconds())
	}
}
