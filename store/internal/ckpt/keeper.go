package ckpt

import (
	"context"
	"sync"
	"time"

	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/checkpoint"
	"github.com/rdmakv/rdmakv/store/internal/disk"
	"github.com/rdmakv/rdmakv/store/internal/shard"
	"github.com/rdmakv/rdmakv/store/internal/tables"
	"github.com/rdmakv/rdmakv/store/log"
)

// A Base is what checkpoints go into; disk.Disk is one.
type Base interface {
	// Tables begins an ingest of so many bytes a second; 0: no bound.
	Tables(ctx context.Context, rate int64) (*tables.Tables, error)
	// Values walks the values that stand apart, as the base is now.
	Values() (*disk.ValueWalk, error)
}

// Bytes are the tables of values; *tables.Values are.
type Bytes interface {
	checkpoint.Bytes
	First() uint64
	Taken(list []tables.Sealed)
	Gone(list []base.Bytes)
	Forget(before, place uint64) (kept bool)
	Waiting() int64
}

// Config is what a Keeper works on.
type Config struct {
	Log    *log.Log
	Stream uint64
	Shards []*shard.Shard
	Base   Base
	// Facts names the facts of the stream; see checkpoint.Config.
	Facts map[uint16]string
	// Bytes are the tables of values, Mark is what the base says of them at the start, and Led are
	// the values to which records of the log lead then. Orphans says that the base may have
	// others behind the mark.
	Bytes   Bytes
	Mark    disk.ValuesMark
	Led     []base.Bytes
	Orphans bool
	Epoch   func() uint64    // of the store
	Place   checkpoint.Place // where the base stands at the start

	LogBytes    int64         // the log's bound; 512 MiB
	Segment     int64         // bytes of a segment of the log; 64 MiB
	DirtyBytes  int64         // of keys that are newer than the base, without the first in each shard; 64 MiB
	DirtyWrites int           // 500,000
	Every       time.Duration // how long a write stays newer than the base; 10 s

	Life *base.Life

	// Now and Sleep are the clock; nil: that of the machine. Sleep ends early, without an
	// error, when wake has something, and with ctx's error when that ends.
	Now   func() time.Time
	Sleep func(ctx context.Context, wake <-chan struct{}, d time.Duration) error
}

const (
	defaultLogBytes    = 512 << 20
	defaultSegment     = 64 << 20
	defaultDirtyBytes  = 64 << 20
	defaultDirtyWrites = 500_000
	defaultEvery       = 10 * time.Second
)

// withDefaults fills in what is zero.
func (c Config) withDefaults() Config {
	if c.LogBytes <= 0 {
		c.LogBytes = defaultLogBytes
	}
	if c.Segment <= 0 {
		c.Segment = defaultSegment
	}
	if c.DirtyBytes <= 0 {
		c.DirtyBytes = defaultDirtyBytes
	}
	if c.DirtyWrites <= 0 {
		c.DirtyWrites = defaultDirtyWrites
	}
	if c.Every <= 0 {
		c.Every = defaultEvery
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Sleep == nil {
		c.Sleep = sleep
	}
	return c
}

// A Keeper keeps the base close behind the log. Run is one goroutine's; the rest is safe for
// concurrent use.
type Keeper struct {
	c Config

	// Leaving is held by each step in which keys leave their sets, and so by whoever wants
	// all sets and the base at one moment. It is taken before a shard's lock.
	Leaving sync.Mutex

	wake chan struct{} // capacity 1: there is something to look at

	rounds chan struct{} // capacity 1: one round at a time, those of Run and of Last

	// Of tables of values, for the one round at a time.
	mark    disk.ValuesMark // of the base
	older   uint64          // the first table of this life
	orphans bool            // what older ones have behind the log is not yet deleted

	mu       sync.Mutex // taken behind a shard's lock, before the log's
	holds    map[log.Position]int
	kept     bool // files of values stay because of holds, or may
	freed    bool // a hold has ended since: Run calls forget
	place    checkpoint.Place
	wanted   bool // somebody found no room in the log
	requests []*request
	groups   []*followed
	turn     int // of groups, the first of the newest round
	stats    Stats
	trouble  error // why the newest round failed

	growth meter // of the log
	intake int64 // bytes of the log that checkpoints take in, in a second

	since time.Time // when the oldest dirty write was seen first; zero: there is none. Run's alone
	seen  log.Position
}

// A request is somebody who waits for the base to be at a position, and at these entries of groups.
type request struct {
	at      log.Position
	entries map[consensus.GroupID]uint64
	done    chan struct{}
}

// met says whether the base is there. Caller holds mu.
func (k *Keeper) met(r *request) bool {
	for _, g := range k.groups {
		if g.state.Applied < r.entries[g.ID()] {
			return false
		}
	}
	return r.at <= k.place.At
}

// New returns a keeper of a base. Nothing goes on before Run.
func New(c Config) *Keeper {
	c = c.withDefaults()
	k := &Keeper{
		c: c, wake: make(chan struct{}, 1), rounds: make(chan struct{}, 1), place: c.Place, stats: Stats{Place: c.Place},
		mark: c.Mark, orphans: c.Orphans, holds: map[log.Position]int{},
	}
	if c.Bytes != nil {
		k.older = c.Bytes.First()
	}
	return k
}

// Place returns how far the base has come, as far as all shards have been told. It may be
// asked under a shard's lock, and waits for nothing but Hold.
func (k *Keeper) Place() checkpoint.Place {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.place
}

// Hold keeps everything in the log that the base does not have, as Place says. It is called
// under a shard's lock, and does not fail while a write of that shard is newer than the
// base and the log is open:
//
// A round stores its place when all shards are through, under mu, and tells the log behind
// that. So while mu is held here the log was told this place, or an earlier one, and frees
// nothing behind it. The record of a write that is in the shard's set stands behind the place:
// a round that has it in its range takes it out of the set, under the shard's lock, before it
// stores its place. If the place were read first and the log asked without mu, a round could
// end in between, and the segment could be gone.
func (k *Keeper) Hold() (release func(), err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	at := k.held()
	free, err := k.c.Log.Hold(at)
	for again := k.held(); err != nil && again > at; again = k.held() {
		at = again // an entry that was not committed was replaced meanwhile
		free, err = k.c.Log.Hold(at)
	}
	if err != nil {
		return nil, err
	}
	// What is held are the values, too, to which records lead: forget looks at holds.
	k.holds[at]++
	return sync.OnceFunc(func() {
		k.mu.Lock()
		if k.holds[at]--; k.holds[at] == 0 {
			delete(k.holds, at)
		}
		kept := k.kept
		k.freed = k.freed || kept
		k.mu.Unlock()
		free()
		if kept {
			k.poke() // a store at rest makes no round that would remove them
		}
	}), nil
}

// forget removes the files of values to which no record leads any more that somebody may read,
// and tells those who wait for room. It is called behind a round, and by Run when a hold has
// ended because of which files were kept.
func (k *Keeper) forget() {
	if k.c.Bytes == nil {
		return
	}
	k.mu.Lock()
	place := k.place.Frame
	k.kept, k.freed = true, false // a hold that ends from here on is noted
	before := place               // no entry of a group leads to a table
	for at := range k.holds {
		before = min(before, at)
	}
	k.mu.Unlock()
	kept := k.c.Bytes.Forget(uint64(before), uint64(place))
	k.mu.Lock()
	k.kept = kept
	k.mu.Unlock()
	// The log does not know of this room, and wakes those who wait when some is given back.
	if k.c.Log.Reserve(1, log.Facts) == nil {
		k.c.Log.Unreserve(1)
	}
}

// waiting is how many bytes of values the base does not have. They count as bytes of the log.
func (k *Keeper) waiting() int64 {
	if k.c.Bytes == nil {
		return 0
	}
	return k.c.Bytes.Waiting()
}

// Want says that somebody has found no room in the log. It waits for nothing.
func (k *Keeper) Want() {
	k.mu.Lock()
	was := k.wanted
	k.wanted = true
	k.mu.Unlock()
	if !was {
		k.poke() // else Run knows
	}
}

// poke has Run look again.
func (k *Keeper) poke() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// Left is how much is left of the log's bound, and Rate how many bytes of the log checkpoints
// take in, in a second: what puts are slowed down by.
func (k *Keeper) Left() int64 { return k.c.LogBytes - k.c.Log.Stats().Bytes - k.waiting() }

// Rate is explained at Left.
func (k *Keeper) Rate() int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return max(leastRate, k.intake)
}

// Now returns when everything is in the base that is published at the call, or with ctx's
// error, or that of the fence.
func (k *Keeper) Now(ctx context.Context) error {
	// What is published may not have passed yet: its frame does so next.
	r := &request{at: k.c.Log.Stats().End, entries: map[consensus.GroupID]uint64{}, done: make(chan struct{})}
	for _, g := range k.groupList() {
		r.entries[g.ID()], _ = g.Published()
	}
	return k.wait(ctx, r)
}

// Reach returns when the base has an entry of a group, which is published, or with an error as Now.
func (k *Keeper) Reach(ctx context.Context, id consensus.GroupID, index uint64) error {
	return k.wait(ctx, &request{entries: map[consensus.GroupID]uint64{id: index}, done: make(chan struct{})})
}

// wait has rounds go on until the base meets a request.
func (k *Keeper) wait(ctx context.Context, r *request) error {
	k.mu.Lock()
	if k.met(r) {
		k.mu.Unlock()
		return nil
	}
	k.requests = append(k.requests, r)
	k.mu.Unlock()
	k.poke()
	var err error
	select {
	case <-r.done:
		return nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-k.c.Life.Stop:
		err = base.ErrClosed
	case <-k.c.Life.Fence.Down:
		err = k.c.Life.Fence.Failed()
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, other := range k.requests {
		if other == r {
			k.requests = append(k.requests[:i:i], k.requests[i+1:]...)
			return err
		}
	}
	return nil // it was done meanwhile
}

// reached is the end of a round: the base is at a place, and all shards know it.
func (k *Keeper) reached(p checkpoint.Place) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.place = p
	k.meet()
}

// meet tells those whose request the base meets by now. Caller holds mu.
func (k *Keeper) meet() {
	kept := k.requests[:0]
	for _, r := range k.requests {
		if k.met(r) {
			close(r.done)
		} else {
			kept = append(kept, r)
		}
	}
	clear(k.requests[len(kept):])
	k.requests = kept
}

// sleep waits for a time, for wake, or until ctx ends.
func sleep(ctx context.Context, wake <-chan struct{}, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-wake:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}
