package store

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdmakv/rdmakv/store/internal/admit"
	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/clock"
	"github.com/rdmakv/rdmakv/store/internal/dedup"
	"github.com/rdmakv/rdmakv/store/internal/disk"
	"github.com/rdmakv/rdmakv/store/internal/newest"
	"github.com/rdmakv/rdmakv/store/internal/parts"
	"github.com/rdmakv/rdmakv/store/internal/pipeline"
	"github.com/rdmakv/rdmakv/store/internal/reads"
	"github.com/rdmakv/rdmakv/store/internal/residents"
	"github.com/rdmakv/rdmakv/store/internal/shard"
	"github.com/rdmakv/rdmakv/store/internal/sketch"
	"github.com/rdmakv/rdmakv/store/internal/upkeep"
	"github.com/rdmakv/rdmakv/store/layout"
	"github.com/rdmakv/rdmakv/store/reclaim"
	"github.com/rdmakv/rdmakv/store/region"
	"github.com/rdmakv/rdmakv/store/slab"
)

// A Store is an open store. All methods are safe for concurrent use, except
// that Beat is called by one goroutine.
type Store struct {
	cfg Config
	birth
	parts *Parts

	*Regions
	*Events
	*Reads
	door *base.Door

	fence *base.Fence
	disk  *disk.Disk
	logSide

	mem    *shard.Memory
	shards []*shard.Shard
	ask    shard.Ask

	gate   *admit.Gate
	groups *groupSide // behind the gate, the order of writes
	pipe   *pipeline.Pipeline

	before predecessor // the pipeline's, and Close's behind it

	filler  *residents.Fill
	scrub   *residents.Scrub
	evictor *residents.Evictor
	counts  *base.Counters

	clock *clock.Clock // the server's time
	dedup *dedup.Table // results of requests

	life   *base.Life   // of what runs in the background
	closed func() error // close, once
}

// A birth is how the store was opened.
type birth struct {
	opened  time.Time
	refused atomic.Bool // Refuse was called
	kept    keeping     // of a cache whose memory outlives the process
}

// Open opens the store in c.Dir, or creates it there if the directory is
// missing or empty, and serves at once: memory fills up in the background.
//
// Errors are an *OpenError with the directory, the reason and what to do; its
// Err is ErrForeignDir, ErrNotDir, ErrLocked, ErrNoAccess, ErrReadOnlyDisk,
// ErrNoSpace, ErrFormatVersion, ErrShardCount, ErrEpochs, ErrRefused, a *CorruptError
// (ErrCorrupt), or what the file system said. A Config that cannot be is
// reported with all its faults.
func Open(ctx context.Context, c Config) (_ *Store, err error) {
	c = c.withDefaults()
	if err := c.validate(); err != nil {
		return nil, err
	}
	s := &Store{cfg: c, birth: birth{opened: time.Now()}, counts: new(base.Counters), groups: newGroupSide(c.Shards)}
	var random [16]byte
	rand.Read(random[:]) // never fails
	s.mem = &shard.Memory{
		Incarnation: max(1, binary.LittleEndian.Uint64(random[:])), Seed: binary.LittleEndian.Uint64(random[8:]),
	}
	s.closed = sync.OnceValue(s.close)
	s.fence = base.NewFence(c.Logger, c.OnFatal)
	s.disk = disk.New(c.disk(), s.fence, s.counts)
	s.life, s.door = base.NewLife(s.fence), base.NewDoor(s.fence)
	s.before.fence, s.dedup = s.fence, dedup.New(c.dedupEntries)
	s.newest = &newest.Reader{Base: s.disk, Seed: s.mem.Seed, Counts: s.counts}
	s.ask = s.newest.Ask()
	defer func() {
		if err != nil {
			err = s.disk.OpenFault(errors.Join(err, s.abandon()))
		}
	}()
	var own span
	if c.Mode == Cache {
		own, err = s.openCache(ctx)
	} else {
		own, err = s.openDurable()
	}
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := s.openMemory(own.first - 1); err != nil {
		return nil, err
	}
	if err := s.openRequests(); err != nil {
		return nil, err
	}
	if err := s.openWatch(); err != nil {
		return nil, err
	}
	s.start(own)
	return s, nil
}

// A span is the versions that one life of a store gives out: from first on, below limit.
type span struct{ first, limit layout.Version }

// epochSpan is the versions of a life that began with an epoch. No other life has any
// of them, because each begins with an epoch of its own.
func epochSpan(epoch uint16) span {
	first := layout.MakeVersion(epoch, 1)
	return span{first, first - 1 + 1<<40}
}

// openDurable opens or creates what is on the disk and begins a new epoch.
func (s *Store) openDurable() (span, error) {
	fresh, locked, err := s.disk.Open()
	if err != nil {
		return span{}, err
	}
	if err := upkeep.LoadResults(s.disk, s.cfg.Shards, s.dedup); err != nil {
		return span{}, err
	}
	if err := s.logSide.open(s); err != nil {
		return span{}, err
	}
	if !fresh && !s.disk.Clean() && !s.cfg.PredecessorGone {
		// Its last beat was before we got the lock.
		s.before.until = locked.Add(s.cfg.predecessorWait())
	} else {
		s.before.over.Store(true)
	}
	s.clock = clock.New(s.cfg.clock, s.disk.ClockBound())
	if err := s.disk.Begin(s.clock.Now); err != nil {
		return span{}, err
	}
	return epochSpan(s.disk.Epoch()), s.groups.open(s)
}

// openMemory makes regions, slabs and indexes, all empty. none is the version before
// the first of this life.
func (s *Store) openMemory(none layout.Version) error {
	m := s.mem
	m.Shards, m.Backed, m.NoLease = s.cfg.Shards, s.disk.Durable(), s.cfg.NoLease
	m.Clock, m.Fence, m.Counts, m.Sketch = s.clock, s.fence, s.counts, sketch.New(s.cfg.MemoryLimit/sketch.Share)
	if !adoptLeft(s, none) {
		if err := layMemory(s, nil); err != nil {
			return err
		}
		for i := range s.cfg.Shards {
			sh, err := shard.New(uint16(i), m, none, s.cfg.Withheld != nil && s.cfg.Withheld(uint16(i)))
			if err != nil {
				return fmt.Errorf("store: memory: %w", err)
			}
			s.shards = append(s.shards, sh)
		}
	}
	for i, sh := range s.shards {
		if s.journal != nil {
			sh.Dirty = s.journal.Sets[i]
		}
	}
	s.Regions = &Regions{mem: m, door: s.door}
	if s.journal != nil {
		s.logSide.follow(s)
	}
	env := s.residents()
	s.filler = residents.NewFill(env, residents.FillConfig{
		Workers: s.cfg.FillWorkers, Lease: s.cfg.Lease, Beat: s.cfg.BeatInterval,
		Logger: s.cfg.Logger, Progress: s.cfg.Progress, Hold: s.cfg.holdFill,
	}, s.opened)
	s.scrub = residents.NewScrub(env, s.filler, s.cfg.ScrubRate, s.cfg.predecessorWait())
	s.evictor = residents.NewEvictor(env, s.cfg.itemsLimit(), s.cfg.predecessorWait())
	readEnv := reads.Env{
		Door: s.door, Memory: m, Shards: s.shards, Disk: s.disk, Evictor: s.evictor, Ask: s.ask,
		Newest: s.newest, HoldBytes: s.cfg.HoldBytes,
		Expire: func(ctx context.Context, shard uint16, key []byte, second uint64) error {
			env := s.upkeep()
			err := env.RemoveExpired(ctx, shard, key, second)
			if m := s.groups.of[shard].Load(); m != nil && errors.Is(err, ErrOutcomeUnknown) {
				return m.NotLeader() // what became of the removal is nothing that who reads has asked
			}
			return err
		},
	}
	readEnv.Left = s.groups.leftOf
	if s.journal != nil {
		readEnv.Moment = func() (newest.Moment, error) { return s.journal.Moment(s.disk, s.shards, &s.ckpt.Leaving) }
	}
	s.Reads = reads.New(readEnv)
	s.parts = parts.New(s.cfg.Parts, !s.disk.Durable())
	s.filler.Presize(s.cfg.MemoryLimit)
	s.mem.Table.Index().Serve()
	s.groups.follow(s)
	return nil
}

// layMemory makes the regions, and what gives their memory out. left are those of the life before that the table begins with.
func layMemory(s *Store, left []region.LeftRegion) (err error) {
	m, c := s.mem, tableConfig(s)
	c.Left = left
	if m.Table, err = region.NewTable(c); err != nil {
		return fmt.Errorf("store: memory: %w", err)
	}
	m.Reclaim = reclaim.New(m.Table, s.cfg.Lease)
	if m.NoLease {
		m.Reclaim = reclaim.NewKeeping(m.Table, s.cfg.Lease)
	}
	m.Slabs = slab.New(m.Table, m.Reclaim)
	return nil
}

// tableConfig is what the regions are made of.
func tableConfig(s *Store) region.Config {
	return region.Config{
		Memory: s.cfg.Memory, Incarnation: s.mem.Incarnation, Seed: s.mem.Seed, Shards: s.cfg.Shards,
		RegionSize: s.cfg.RegionSize, IndexRegionSize: s.cfg.IndexRegionSize,
		Limit: s.cfg.MemoryLimit, ItemsLimit: s.cfg.itemsLimit(), IndexLimit: s.cfg.indexLimit(),
		ReclaimEntries: s.cfg.ReclaimEntries, Cells: s.groups.cells(), OnView: s.cfg.OnView,
	}
}

// openRequests brings back what the last incarnation has to hand on: results of
// requests, and keys that expire.
func (s *Store) openRequests() error {
	if s.kept.record != nil && s.clock.Bounded() {
		return s.clock.Renew() // it goes on where the life before has ended
	}
	if !s.disk.Durable() {
		return nil
	}
	s.clock.Keep(s.disk.BoundClock)
	if s.disk.ClockBound() != 0 {
		if err := s.clock.Renew(); err != nil {
			return err
		}
		for _, sh := range s.shards {
			sh.DueAt(0)
		}
	}
	if s.disk.Short() {
		s.dedup.WasShort()
	}
	return nil
}

// residents is what those work on who look after the items in memory.
func (s *Store) residents() residents.Env {
	return residents.Env{Memory: s.mem, Shards: s.shards, Disk: s.disk, Life: s.life, Newest: s.newest}
}

// start begins to serve, with the versions of own.
func (s *Store) start(own span) {
	s.gate = admit.NewGate(s.cfg.InflightBytes, s.cfg.InflightWrites)
	if s.journal != nil {
		s.logSide.start(s)
	}
	s.openStages(own)
	s.life.Go(s.evictor.Run)
	s.pipe.Start(s.life)
	if s.disk.Durable() {
		s.disk.LookSpace()
	}
	if !s.cfg.noKeeper {
		s.startUpkeep()
	}
	if s.disk.Durable() {
		s.filler.Start()
		return
	}
	for _, sh := range s.shards {
		s.filler.Full(sh) // every shard of a cache has all its keys: none, or those that were left
	}
	if s.mem.Believing() {
		s.life.Go(func() { believeAll(s) })
	}
}

// startUpkeep starts what goes by the clock.
func (s *Store) startUpkeep() {
	env := s.upkeep()
	s.life.Go(func() {
		// A store whose bound cannot be written is fenced.
		s.life.Every(clock.Every, func() { _ = s.clock.Tick() })
	})
	s.life.Go(upkeep.NewForgetter(env, s.dedup, s.cfg.Logger).Run)
	s.life.Go(s.scrub.Run)
	if s.kept.record != nil {
		s.life.Go(func() { keepVersions(s) })
	}
	s.life.Go((&collector{Store: s, most: checkMost}).run)
	if !s.disk.Durable() {
		s.life.Go((&upkeep.CacheExpirer{Env: env}).Run)
		return
	}
	s.life.Go(residents.NewSweep(s.residents(), s.filler).Run)
	s.life.Go((&upkeep.Expirer{Env: env}).Run)
	s.life.Go(s.keeper().Run)
}

// upkeep is what those work on who do what is due by the clock.
func (s *Store) upkeep() upkeep.Env {
	return upkeep.Env{
		Life: s.life, Memory: s.mem, Shards: s.shards, Disk: s.disk, Gate: s.gate, Order: s.groups.order, Orders: s.groups.orders,
	}
}

func (s *Store) keeper() *upkeep.Keeper {
	interval := time.Duration(0)
	if s.cfg.Sync == Interval {
		interval = s.cfg.SyncInterval
	}
	return upkeep.NewKeeper(s.life, s.disk, s.pipe, interval, s.filler.Keys)
}

// abandon releases what a failed Open had taken.
func (s *Store) abandon() error {
	s.life.End()
	err := s.groups.close()
	if s.mem.Table != nil {
		err = errors.Join(err, s.mem.Table.Close())
	}
	if s.journal != nil {
		err = errors.Join(err, s.journal.Close(false))
	}
	return errors.Join(err, s.disk.Close(nil))
}
