package store

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/rdmakv/rdmakv/store/internal/admit"
	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/dedup"
	"github.com/rdmakv/rdmakv/store/internal/flight"
	"github.com/rdmakv/rdmakv/store/internal/journal"
	"github.com/rdmakv/rdmakv/store/internal/pipeline"
	"github.com/rdmakv/rdmakv/store/internal/shard"
)

// What the pipeline does with commits, over the log: it appends them as one frame
// each, waits for the fsync as far as the policy asks for it, publishes them in
// memory, and answers. A cache has no log: nothing is appended, and nothing waited for.

// writesWithoutSync bounds the writes of a commit where no sync is waited for: the
// first of many writers are answered while what the others have sent is still
// being committed, so that both ends are at work. With 50 writers in another
// process that gives a tenth more puts than one commit of all.
const writesWithoutSync = 24

// openStages makes the stages of a write: what comes behind the gate.
func (s *Store) openStages(own span) {
	limits := pipeline.Limits{Bytes: int64(s.cfg.BatchBytes)}
	if s.journal != nil {
		limits.Bytes = min(limits.Bytes, s.cfg.logSizes().CommitMost())
		limits.Overhead = journal.Overhead
	}
	if s.journal != nil && s.cfg.Sync == Always {
		limits.Workers = 2
	} else {
		limits.Writes = writesWithoutSync
	}
	d := &direct{
		journal: s.journal, shards: s.shards, results: s.dedup, gate: s.gate, events: s.Events, counts: s.counts,
		before: &s.before, told: s.cfg.OnCommit,
	}
	s.pipe = pipeline.New(pipeline.Env{
		Append: d.appendCommit, Sync: d.syncCommit, Publish: d.publishCommit, Done: d.commitDone,
	}, limits, s.fence, own.first, own.limit)
	s.groups.start(s, d)
}

// A direct is a pipeline's env.
type direct struct {
	journal *journal.Journal // nil: of a cache
	shards  []*shard.Shard
	results *dedup.Table
	gate    *admit.Gate
	events  *Events
	counts  *base.Counters
	before  *predecessor
	told    func() // Config.OnCommit
}

// appendCommit hands a commit to the log, and does not wait for it.
func (d *direct) appendCommit(c *pipeline.Commit) error {
	if d.journal == nil {
		return nil
	}
	if err := d.journal.Append(c); err != nil {
		return err
	}
	if c.Log != nil {
		d.counts.Batches.Add(1)
	}
	return nil
}

// syncCommit waits until a commit is durable, as far as the sync policy goes, and
// the leases of the last incarnation are over.
func (d *direct) syncCommit(c *pipeline.Commit) error {
	if d.journal != nil {
		if err := d.journal.Sync(c); err != nil {
			return err
		}
	}
	return d.before.wait()
}

// publishCommit makes a durable commit visible.
func (d *direct) publishCommit(c *pipeline.Commit) {
	if d.journal != nil {
		d.journal.Publish(c, d.shards, d.results)
		return
	}
	shard.PublishAll(d.shards, c.Flights, d.results)
}

// commitDone answers the writers of a published commit.
func (d *direct) commitDone(c *pipeline.Commit) {
	d.gate.Leave(c.Bytes, len(c.Flights))
	d.answer(c.Flights)
}

// published answers the writers of an entry of a replicated group. Writes that were ordered elsewhere have none here: bytes
// is what the others were admitted with.
func (d *direct) published(writes []*flight.Flight, bytes int64) {
	own := 0
	for _, f := range writes {
		if f.Op != nil {
			own++
		}
	}
	if own > 0 {
		d.gate.Leave(bytes, own)
	}
	d.answer(writes)
}

// void answers the writers of what was not done, or not for certain, which their results say.
func (d *direct) void(writes []*flight.Flight, bytes int64) {
	d.gate.Leave(bytes, len(writes))
	d.tell(writes)
}

// answer counts writes that are published, and answers their writers.
func (d *direct) answer(writes []*flight.Flight) {
	d.tally(writes)
	d.events.note(writes)
	d.tell(writes)
}

// tell calls those who wait for writes.
func (d *direct) tell(writes []*flight.Flight) {
	for _, f := range writes {
		if f.Done != nil {
			f.Done(f) // f is the caller's again
		}
	}
	d.told()
}

// tally counts what published writes came to, before the writers are answered.
func (d *direct) tally(writes []*flight.Flight) {
	c := d.counts
	c.Published.Add(uint64(len(writes)))
	for _, f := range writes {
		switch {
		case f.Op == nil:
			continue // it was counted where it was asked for
		case f.Again:
			c.Retries.Add(1)
			continue
		case errors.Is(f.Result.Err, ErrCondition):
			c.Conditions.Add(1)
		case f.Op.Kind == OpBatch && f.Result.Err == nil:
			c.BatchWrites.Add(1)
		}
		if f.Due != 0 && !f.Noop {
			c.Expired.Add(1)
		}
	}
}

// A predecessor is the incarnation before this one, of which clients may still believe
// what they have read.
type predecessor struct {
	fence *base.Fence
	until time.Time   // its leases are over; no write is published before
	over  atomic.Bool // that is so
}

// wait blocks until no client can believe the memory of the last
// incarnation any more: what is published before could be followed by a read
// of the old memory. It fails with what fenced the store. It may be called by
// many goroutines: the pipeline's, and Close behind them.
func (p *predecessor) wait() error { return p.waitUntil(context.Background()) }

// waitUntil is wait that ends with ctx, too.
func (p *predecessor) waitUntil(ctx context.Context) error {
	if p.over.Load() {
		return p.fence.Failed()
	}
	left := time.NewTimer(time.Until(p.until))
	defer left.Stop()
	select {
	case <-left.C:
		p.over.Store(true)
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-p.fence.Down:
		return p.fence.Failed()
	}
}
