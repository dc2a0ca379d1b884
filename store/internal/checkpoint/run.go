package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/disk"
	groupentry "github.com/rdmakv/rdmakv/store/internal/entry"
	"github.com/rdmakv/rdmakv/store/internal/tables"
	"github.com/rdmakv/rdmakv/store/log"
)

// Config is one checkpoint.
type Config struct {
	Log    *log.Log
	Stream uint64
	From   Place // of the base
	// To is before which record the checkpoint ends at the latest; 0: at what has passed.
	// Beyond that it never goes: nobody may be shown what is not published.
	To    log.Position
	Epoch uint64 // of the store
	// Facts says under which name of kind meta each fact of the stream stands in the
	// base; one whose name is empty is the log's alone.
	Facts map[uint16]string
	Bound Bound
	// ReadRate bounds the bytes of the log that are read in a second, because a reader at
	// full rate makes every sync of the log wait for it; 200 MB/s. Negative: no bound.
	ReadRate int64
	// Begin begins the ingest. It is called when the range has been read.
	Begin func(ctx context.Context) (Ingest, error)
	// Values tells which values stand apart in the base; nil: nobody knows. Nothing else
	// may change the base before Run returns.
	Values Values
	// Bytes are the tables of values; nil: no record leads to any. Mark is what the base says
	// of them.
	Bytes Bytes
	Mark  disk.ValuesMark
	// DeadBytes is how many bytes of dead values may stay in the base in tables that have live
	// ones as well; 0: none.
	DeadBytes int64
	// Older is the number of the first table that was begun in this life, and Led are the values in
	// older ones to which records of the log lead, in any order. Orphans says that nobody has yet
	// deleted from the base what else older tables have behind the mark.
	Older   uint64
	Orphans bool
	Led     []base.Bytes
	// Groups are the replicated groups whose entries are taken in, too.
	Groups []Group

	// Now and Sleep are the clock of the pace; nil: that of the machine.
	Now   func() time.Time
	Sleep func(ctx context.Context, d time.Duration) error
}

// An Ingest is a Sink on its way into the base; a *tables.Tables is one. After Commit the base has all of it after
// any crash; before, and after Abort, nothing.
type Ingest interface {
	Sink
	// Take adds a table of values, as it is.
	Take(path string) error
	Commit(ctx context.Context) (tables.Stats, error)
	Abort() error
}

// Done is what a checkpoint has done.
type Done struct {
	Place Place // of the base now
	// Range is what is left of what went in: the caller asks it for the second to which it
	// lowers each shard's mark of the expirer (Range.Dues), and nothing else, because its
	// memory has been given back. nil: there was nothing.
	Range *Range
	// More says that the bound was reached before To. Without More the base has all that
	// was published before To when Run began, also if Place.At is before To: then a write
	// was not published of which pieces are in the log.
	More bool
	// States are where the base stands now in Config.Groups.
	States []groupentry.State
	Counts Counts
	Tables tables.Stats
	Mark   disk.ValuesMark // of the base now
	Taken  []tables.Sealed // tables of values that the base has got
	Gone   []base.Bytes    // values in tables that were deleted from it
	// Read, Written and Ingested are how long each took.
	Read, Written, Ingested time.Duration
}

// Run takes what the log says from the base's position on into the base, up to Config.To
// or to where the range is full. The base is at Done.Place when Run returns without an
// error, durably; with one, it is where it was, or, if the error is Commit's, at one of
// both: its position says at which. The caller then raises the clean marks, and tells
// the log (Release) that it needs nothing before Place.Frame.
func Run(ctx context.Context, c Config) (Done, error) {
	c = c.withDefaults()
	// What passes later is not looked at: the sync below need not make it durable.
	passed := c.Log.Stats().Passed
	to := passed
	if c.To != 0 {
		to = min(to, c.To)
	}
	if to <= c.From.At && !slices.ContainsFunc(c.Groups, func(g Group) bool { return g.behind() }) {
		return c.nothing(), nil
	}
	// The base may not stand ahead of what the log has durably, in no policy.
	if err := c.Log.Sync(); err != nil {
		return Done{}, fmt.Errorf("checkpoint: sync the log first: %w", err)
	}
	release, err := c.Log.Hold(c.From.Frame)
	if err != nil {
		return Done{}, fmt.Errorf("checkpoint: %w", err)
	}
	defer release()

	began := c.Now()
	got, err := c.read(ctx, to, passed)
	if err != nil {
		return Done{}, err
	}
	done := Done{Place: got.place, States: got.states, Range: got.r, More: got.more, Read: c.Now().Sub(began)}
	if got.place.At == c.From.At && !c.further(done.States) {
		return c.nothing(), nil // pieces alone, whose write has not passed
	}
	if c.Bytes != nil {
		// All that the range leads to was written before its records, so it is sealed now.
		done.Taken = c.Bytes.Seal()
		got.r.from(&c, done.Taken)
	}
	began = c.Now()
	ingest, err := c.Begin(ctx)
	if err != nil {
		return Done{}, err
	}
	if done.Counts, err = got.r.Write(ingest, c.Values); err != nil {
		return Done{}, errors.Join(err, ingest.Abort())
	}
	for _, t := range done.Taken {
		if err := ingest.Take(t.Path); err != nil {
			return Done{}, errors.Join(err, ingest.Abort())
		}
	}
	done.Mark, done.Gone = got.r.mark, got.r.gone
	done.Written = c.Now().Sub(began)
	began = c.Now()
	if done.Tables, err = ingest.Commit(ctx); err != nil {
		return Done{}, err
	}
	done.Ingested = c.Now().Sub(began)
	got.r.giveBack()
	return done, nil
}

// nothing is Done of a checkpoint that finds the base where the log is.
func (c *Config) nothing() Done {
	d := Done{Place: c.From}
	for i := range c.Groups {
		d.States = append(d.States, c.Groups[i].From)
	}
	return d
}

// further says whether a range goes further in a group than the base.
func (c *Config) further(states []groupentry.State) bool {
	for i := range states {
		if states[i].Applied > c.Groups[i].From.Applied {
			return true
		}
	}
	return false
}

// withDefaults fills in what is zero.
func (c Config) withDefaults() Config {
	if c.ReadRate == 0 {
		c.ReadRate = defaultReadRate
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Sleep == nil {
		c.Sleep = sleep
	}
	return c
}
