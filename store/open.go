package store

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/rdmakv/rdmakv/internal/teeth"
	"github.com/rdmakv/rdmakv/store/index"
	"github.com/rdmakv/rdmakv/store/layout"
	"github.com/rdmakv/rdmakv/store/reclaim"
	"github.com/rdmakv/rdmakv/store/region"
	"github.com/rdmakv/rdmakv/store/slab"
)

const levelError = slog.LevelError

// A Store is an open store. All methods are safe for concurrent use, except
// that Beat is called by one goroutine.
type Store struct {
	cfg         Config
	facts       facts // as found at Open; epoch: this opening's
	incarnation uint64
	seed        uint64      // of the key hash in the index
	foundEpoch  uint16      // before this opening
	refused     atomic.Bool // Refuse was called
	opened      time.Time

	lock   io.Closer
	stuck  bool // a goroutine of Pebble's never came back: the lock stays
	db     *pebble.DB
	fence  *fence
	disk   *disk
	ledger *ledger

	table   *region.Table
	reclaim *reclaim.Reclaimer
	slabs   *slab.Slabs
	shards  []*shard

	gate   *gate
	queue  *queue
	groups chan *group
	pool   groupPool
	// unpublished counts the groups that the publisher has or will get.
	unpublished atomic.Int32

	// firstVersion to lastVersion, exclusive, are the versions of this life.
	firstVersion, lastVersion layout.Version

	publishFrom     time.Time // no write is published before: the predecessor's leases
	predecessorOver bool      // publisher only

	filler filler
	noted  uint64 // keys of the newest note (presize.go); the keeper's
	scrub  scrubber
	fullMemory
	heldBytes atomic.Int64
	unbeaten  atomic.Bool // there were commits since the last heartbeat
	counts    counters

	clock *clock // the server's time
	dedup *dedup // results of requests

	watch *watch // nil: no events are kept

	workers   sync.WaitGroup
	stop      chan struct{}   // closed when Close has drained the writes
	stopCtx   context.Context // ends then, too
	stopNow   context.CancelFunc
	active    activity
	leave     func() // active.leave, bound once
	closeOnce sync.Once
	closeErr  error
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
	s := &Store{cfg: c, opened: time.Now(), stop: make(chan struct{})}
	s.stopCtx, s.stopNow = context.WithCancel(context.Background())
	s.fence = newFence(c.Logger, c.OnFatal)
	s.disk = &disk{fence: s.fence}
	s.active.idle = make(chan struct{})
	s.leave = s.active.leave
	defer func() {
		if err != nil {
			err = openFault(c.Dir, errors.Join(err, s.abandon()))
			tellSpace(c, err)
		}
	}()
	if c.Mode == Cache {
		err = s.openCache(ctx)
	} else {
		err = s.openDurable()
	}
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := s.openMemory(); err != nil {
		return nil, err
	}
	if err := s.openRequests(); err != nil {
		return nil, err
	}
	if err := s.openWatch(); err != nil {
		return nil, err
	}
	s.start()
	return s, nil
}

// openDurable opens or creates what is on the disk and begins a new epoch.
func (s *Store) openDurable() error {
	c := s.cfg
	lock, id, created, err := enterDir(c, true)
	if err != nil {
		return err
	}
	s.lock = lock
	locked := time.Now()
	found, err := s.openLedger(created)
	if err != nil {
		return err
	}
	if err := probeWrites(c.FS, c.Dir); err != nil {
		return err
	}
	s.fence.opening.Store(true)
	o := pebbleOptions(c, s.fence)
	o.FS = &stopFS{FS: &ledgerFS{FS: c.FS, ledger: s.ledger}, fence: s.fence, failover: c.WALFailoverDir != ""}
	s.db, s.stuck, err = openPebble(c.FS.PathJoin(c.Dir, dataDir), o, s.fence)
	if pebble.IsCorruptionError(err) {
		fault := pebbleCorrupt(err)
		if fault.File == "" && strings.Contains(fault.Detail, "WAL") {
			fault.File = logFiles(c)
		}
		return fault
	}
	if err != nil {
		return err
	}
	if created {
		if err := s.fenceable(func() error { return s.create(id) }); err != nil {
			return err
		}
	}
	if s.facts, err = readFacts(s.db); err != nil {
		return err
	}
	if err := s.facts.check(c); err != nil {
		return err
	}
	if err := s.facts.refusal(c); err != nil {
		return err
	}
	if err := found.compareBeat(s.facts.beats); err != nil {
		return err
	}
	if err := checkBlobs(s.db, c); err != nil {
		return err
	}
	if s.facts.id != id.id {
		return &CorruptError{File: dataDir, Detail: fmt.Sprintf("it belongs to store %s, %s says %s",
			idString(s.facts.id), identityFile, idString(id.id))}
	}
	if !created && s.facts.clean == nil && !c.PredecessorGone {
		// Its last beat was before we got the lock.
		s.publishFrom = locked.Add(c.predecessorWait())
	} else {
		s.predecessorOver = true
	}
	if s.facts.format < formatVersion {
		if err := upgradeIdentity(c, id); err != nil {
			return err
		}
	}
	s.clock = newClock(c.clock, s.facts.clock)
	if err := s.fenceable(s.beginEpoch); err != nil {
		return err
	}
	s.fence.opening.Store(false)
	return nil
}

// create writes the first keys of a new store.
func (s *Store) create(id identity) error {
	b := s.db.NewBatch()
	defer b.Close()
	u32 := func(vs ...uint32) (out []byte) {
		for _, v := range vs {
			out = binary.LittleEndian.AppendUint32(out, v)
		}
		return out
	}
	err := errors.Join(
		setMeta(b, metaFormat, u32(id.format, id.reader)),
		setMeta(b, metaID, id.id[:]),
		setMeta(b, metaShards, u32(id.shards)),
		setMeta(b, metaHash, []byte(shardHash)),
		setMeta(b, metaEpoch, []byte{1, 0}),
	)
	if err == nil {
		err = b.Commit(pebble.Sync)
	}
	// The first log of a new Pebble store is written in an old format, in
	// which a flipped byte silently ends the replay: 90 % of fsynced writes
	// were lost that way. A flush turns to a second log, in the new format,
	// in which the same flip is found.
	if err == nil {
		err = s.db.Flush()
	}
	if err == nil {
		err = finishCreation(s.cfg)
	}
	return err
}

// beginEpoch raises the epoch durably, so that no version of an earlier
// opening is given out again, whatever a crash took, and removes the
// clean-stop mark: from here on there may be memory that somebody reads.
func (s *Store) beginEpoch() error {
	if s.facts.epoch == math.MaxUint16 {
		return &OpenError{Dir: s.cfg.Dir, Err: ErrEpochs}
	}
	s.foundEpoch = s.facts.epoch
	if above := s.cfg.EpochAbove; s.facts.epoch <= above && above != 0 {
		if int(above)+epochsPerRestore > 1<<16-2 {
			return &OpenError{Dir: s.cfg.Dir, Err: ErrEpochs}
		}
		s.facts.epoch = above + epochsPerRestore
	}
	if !teeth.Off(teeth.D4EpochRaised) {
		s.facts.epoch++
	}
	s.facts.began = max(s.clock.now(), s.facts.began+1)
	b := s.db.NewBatch()
	defer b.Close()
	err := errors.Join(
		setMeta(b, metaEpoch, binary.LittleEndian.AppendUint16(nil, s.facts.epoch)),
		setMeta(b, metaBegan, binary.LittleEndian.AppendUint64(nil, s.facts.began)))
	if err != nil {
		return err
	}
	if teeth.Off(teeth.F14MarkSpent) {
		return b.Commit(pebble.Sync)
	}
	if err := b.Delete(metaKey(metaClean), nil); err != nil {
		return err
	}
	if s.facts.refused != nil {
		if err := b.Delete(metaKey(metaRefused), nil); err != nil {
			return err
		}
	}
	if s.facts.source != nil {
		if err := b.Delete(metaKey(metaRestored), nil); err != nil {
			return err
		}
	}
	if s.facts.format < formatVersion {
		format := binary.LittleEndian.AppendUint32(nil, formatVersion)
		if err := setMeta(b, metaFormat, binary.LittleEndian.AppendUint32(format, formatVersion)); err != nil {
			return err
		}
	}
	return b.Commit(pebble.Sync)
}

// openMemory makes regions, slabs and indexes, all empty.
func (s *Store) openMemory() error {
	var random [16]byte
	rand.Read(random[:]) // never fails
	s.incarnation = max(1, binary.LittleEndian.Uint64(random[:]))
	s.seed = binary.LittleEndian.Uint64(random[8:])
	var err error
	s.table, err = region.NewTable(region.Config{
		Memory: s.cfg.Memory, Incarnation: s.incarnation, Seed: s.seed, Shards: s.cfg.Shards,
		RegionSize: s.cfg.RegionSize, IndexRegionSize: s.cfg.IndexRegionSize,
		Limit: s.cfg.MemoryLimit, ItemsLimit: s.cfg.itemsLimit(), IndexLimit: s.cfg.indexLimit(),
		ReclaimEntries: s.cfg.ReclaimEntries, OnView: s.cfg.OnView,
	})
	if err != nil {
		return fmt.Errorf("store: memory: %w", err)
	}
	s.reclaim = reclaim.New(s.table, s.cfg.Lease)
	if s.cfg.NoLease {
		s.reclaim = reclaim.NewKeeping(s.table, s.cfg.Lease)
	}
	s.slabs = slab.New(s.table, s.reclaim)
	s.openFull()
	if s.firstVersion == 0 {
		s.firstVersion = layout.MakeVersion(s.facts.epoch, 1)
		s.lastVersion = s.firstVersion - 1 + 1<<40
	}
	none := s.firstVersion - 1
	for i := range s.cfg.Shards {
		sh := &shard{
			id: uint16(i), ordered: none, durable: none, published: none,
			overlay:  make(map[layout.Hash]*Write),
			held:     make(map[layout.Place]*pinned),
			nextDue:  neverDue,
			withheld: s.cfg.Withheld != nil && s.cfg.Withheld(uint16(i)),
		}
		sh.eq = func(slot layout.Slot) bool { return sh.holds(s, slot) }
		if sh.ix, err = index.New(s.table, s.reclaim, sh.id, s.hashOf); err != nil {
			return fmt.Errorf("store: memory: %w", err)
		}
		s.shards = append(s.shards, sh)
	}
	s.presize()
	s.table.Index().Serve()
	return nil
}

// start begins to serve.
func (s *Store) start() {
	s.queue = newQueue(s.firstVersion, s.lastVersion)
	s.gate = newGate(s.cfg.InflightBytes, s.cfg.InflightWrites)
	s.groups = make(chan *group, groupsInFlight)
	s.filler.started = s.opened
	s.scrub.reports = make(chan damageReport, reportsQueued)
	s.scrub.suspects = make(map[layout.Slot]layout.Version)
	s.workers.Add(3)
	go s.runEvictor()
	go s.runCommitter()
	go s.runPublisher()
	if !s.cfg.noKeeper {
		s.workers.Add(3)
		go s.runClock()
		go s.runForget()
		go s.runScrub()
	}
	if s.db == nil {
		s.startCache()
		return
	}
	s.disk.look(s.cfg)
	if !s.cfg.noKeeper {
		s.workers.Add(3)
		go s.runSweeper()
		go s.runKeeper()
		go s.runExpirer()
	}
	for range min(s.cfg.FillWorkers, len(s.shards)) {
		s.workers.Add(1)
		go s.runFill()
	}
}

// abandon releases what a failed Open had taken.
func (s *Store) abandon() error {
	s.stopNow()
	var err error
	if s.db != nil {
		err = s.fenceable(s.closePebble)
	}
	if s.table != nil {
		err = errors.Join(err, s.table.Close())
	}
	return errors.Join(err, s.unlock())
}
