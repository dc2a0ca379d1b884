package store

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/store/internal/clock"
	"github.com/rdmakv/rdmakv/store/internal/dedup"
	"github.com/rdmakv/rdmakv/store/internal/disk"
	"github.com/rdmakv/rdmakv/store/internal/journal"
	"github.com/rdmakv/rdmakv/store/internal/residents"
	"github.com/rdmakv/rdmakv/store/layout"
	"github.com/rdmakv/rdmakv/store/region"
)

// Config is what Open needs. Zero means the default where one is named.
type Config struct {
	// Mode says whether keys are kept on disk. Default Durable.
	Mode Mode
	// Dir is the store's directory; created if missing. Required, but for a
	// cache, which writes nothing.
	Dir string
	// FS is the file system Dir lives on. Default: the machine's.
	FS vfs.FS
	// Shards is fixed when the store is created. Default 32; 1 to 4096.
	Shards int

	// Sync says when a write is acknowledged. Default Always.
	Sync SyncPolicy
	// SyncInterval is the time between two fsyncs under Interval. Default 100 ms.
	SyncInterval time.Duration

	// Memory provides the regions. Required. Its Free is called for every
	// region before Close writes the clean-stop mark, so Free must not
	// return before remote access to that region has ended.
	Memory region.Memory
	// Kept says that Memory is a region.Keeper whose regions outlive this process, and that the store begins with what the life before
	// has left there, if that was written under the same KeptAs. A cache alone has it, and none of whose shards is Withheld:
	// another node may have taken newer values of a shard's keys meanwhile.
	Kept   bool
	KeptAs uint64
	// MemoryLimit bounds the bytes of all regions. Default 1 GiB.
	MemoryLimit uint64
	// RegionSize, IndexRegionSize and ReclaimEntries shape the regions; see
	// region.Config, whose defaults they have: sizes follow from MemoryLimit.
	RegionSize      uint64
	IndexRegionSize uint64
	ReclaimEntries  int
	// Lease is how long a client may believe what it read after the beat it
	// saw. Default 2 s.
	Lease time.Duration
	// NoLease is for debugging: clients believe what they read without a lease.
	// So that they may, no memory is used again that they can read: what an
	// index outgrew is lost until the store is closed, and memory stays with the
	// size class that had it first. Lease is what everything else counts in.
	NoLease bool
	// BeatInterval is how often Beat is going to be called. Default 200 ms.
	BeatInterval time.Duration
	// HoldBytes bounds the memory of held answers. Default MemoryLimit/16,
	// at least twice the largest item if the limit allows it.
	HoldBytes int64

	// InflightBytes bounds the keys and values of writes that were submitted
	// and are not done. One write alone may exceed it. Default 64 MiB.
	InflightBytes int64
	// InflightWrites bounds their number. Default 65536.
	InflightWrites int
	// BatchBytes is where a Pebble batch is cut; one write alone may exceed
	// it. Default 4 MiB.
	BatchBytes int

	// LogBytes bounds the log: what a start after a crash reads, and what stands on the
	// disk beside the base. Default 256 MiB; at least MinLogBytes.
	LogBytes int64

	// SnapshotRate is how many bytes a second are written of a snapshot that a replica of the store gets from another one. Default 64 MiB; at least
	// MinSnapshotRate, because a snapshot that comes more slowly is given up.
	SnapshotRate int64

	// WatchBytes bounds the events kept for Watch, in bytes; at least
	// MinWatchBytes. 0: none, and Watch is not supported.
	WatchBytes int

	// Parts bounds the values in parts. Default: what package parts says.
	Parts PartsConfig

	// CacheBytes is Pebble's block cache. Default 64 MiB.
	CacheBytes int64
	// MaxOpenFiles is how many files Pebble keeps open. Default 4096.
	MaxOpenFiles int
	// MinFreeBytes is the floor of free disk space under which puts are
	// refused with ErrNoSpace; deletes go on down to half of it. Default
	// 64 MiB; negative: no floor.
	MinFreeBytes int64
	// ScrubRate is how many bytes of items and index are looked at per second.
	// Default ScrubRateFor(MemoryLimit); negative: none, but for those that clients
	// report.
	ScrubRate int64
	// WALFailoverDir is the second directory to which the log of a store of format 1 or 2
	// went while the first was slow or failing. Such a store needs it for its upgrade,
	// which removes the log there; later it means nothing. Default: none.
	WALFailoverDir string

	// PredecessorGone says that no memory of an earlier incarnation of this
	// store can still be read by anyone, so that writes need not wait until
	// its last lease is over.
	PredecessorGone bool

	// EpochAbove is an epoch of this store that others have seen, where the
	// directory is an older copy of it: if it is not beyond, versions begin
	// some epochs above it, so that none is given out twice. It accepts a Refusal
	// that names an epoch not above it, and ends it. Default: none.
	EpochAbove uint16

	// Logger takes the store's and Pebble's events. Default: none.
	Logger *slog.Logger
	// OnFatal is called at most once, when durability is gone (the log or the base could
	// not be written). Nothing more is acknowledged and beats have stopped by
	// then. It must end the process. It is called on a goroutine of Pebble
	// or the store and must not call Close. Default: panic.
	OnFatal func(error)
	// Progress is called while the memory is being filled from Pebble, at
	// most a few times a second and once when all is done. It must not block; it
	// may ask for Stats.
	Progress func(Progress)
	// OnView, if not nil, is called after each change of the region table
	// (View), on the goroutine that made it, also while Open is at work. It must
	// not block, and not call methods of the store that wait.
	OnView func()
	// Engine makes what runs the replicas of groups of shards that the store has, or may get (AddGroup). Default: none, and the store
	// has no replicas.
	Engine func(EngineEnv) (Engine, error)
	// TakePart, if not nil, is closed when the replicas may take part in their groups: when it is known that this directory
	// is the newest of its node.
	TakePart <-chan struct{}
	// Keeps, if not nil, is asked as a replica is about to take part in its group: false has it take no part, because the node is to give it up
	// (RemoveGroup, RecoverGroup). It must not block, and not call the store. Several goroutines call it.
	Keeps func(group consensus.GroupID, replica consensus.ReplicaID) bool
	// Withheld, if not nil, is asked once for each shard while the store is
	// opened: true has its index say "ask" for every miss, filled or not, until
	// Release. For a node that may not own the shard.
	Withheld func(shard uint16) bool
	// OnCommit is called after the Done calls of each commit of writes that
	// were published together: the moment to flush replies. It must not block.
	OnCommit func()
	// Simulated is what a simulation hands over in place of the machine. The zero value is the machine.
	Simulated Simulated

	// FillWorkers is how many shards are filled at a time. Default GOMAXPROCS.
	FillWorkers int

	holdFill chan struct{} // tests: the fill begins when it is closed
	noKeeper bool          // tests: nothing happens by the clock
	// checkpoints is how long a write stays newer than the base, if nothing else brings a
	// checkpoint; 0: as long as package ckpt says. Tests set it.
	checkpoints time.Duration
	clock       clock.Source // tests: instead of the machine's clocks
	// bytesFrom is the length from which a value goes into a table of values. Tests set it.
	bytesFrom int
	// groupEntry is the largest entry of a group, in bytes, alike at all stores. Tests, whose logs are small, set it.
	groupEntry int64
	// groupPatience is for how long a write waits at a replica that does not lead; 0: as long as package replica says. Tests of who else
	// answers it set it.
	groupPatience time.Duration
	// dedupEntries bounds the results kept for retries. Tests set it.
	dedupEntries int
}

// Simulated is what a simulation of whole nodes hands over in place of the machine, which hardware never is given.
type Simulated struct {
	// Clock reads the wall clock, and a clock that rises with real time and nothing else, in place of the machine's. Any goroutine may call it.
	Clock func() (wall time.Time, mono time.Duration)
	// GroupEntry is the largest entry of a group, in bytes, alike at all stores: with a smaller one the log may be smaller than MinGroupLogBytes.
	GroupEntry int64
}

// Progress tells how far the fill after a start has come.
type Progress = residents.Progress

const (
	defaultShards   = 32
	maxShards       = 1 << 12 // bits of a bucket header
	minMemoryLimit  = 4 << 20
	defaultMemory   = 1 << 30
	defaultInflight = 64 << 20
	// MinGroupLogBytes is the least of Config.LogBytes for a store with replicas: a frame of each replica's log has to take the
	// largest entry of the group.
	MinGroupLogBytes = 64 << 20
	// groupEntry is the largest entry, and groupFrame what a frame has besides.
	groupEntry = MinGroupLogBytes/logSegments/4 - groupFrame
	groupFrame = 4 << 10
	// MinSnapshotRate is the least of Config.SnapshotRate, in bytes a second.
	MinSnapshotRate = 1 << 20

	// DefaultLogBytes, MinLogBytes and MaxLogBytes are the default, the least and the most of
	// Config.LogBytes.
	DefaultLogBytes = 256 << 20
	MinLogBytes     = logSegments * (1 << 20)
	MaxLogBytes     = 64 << 30
	// logSegments is how many segments a log has within its bound. It is given back in
	// whole ones, so with fewer of them more would stand there for nothing.
	logSegments = 8
)

// logSizes are the sizes of the log. A segment has a MiB or a multiple of it.
func (c Config) logSizes() journal.Sizes {
	segment := min(c.LogBytes/logSegments, 64<<20) &^ (1<<20 - 1)
	return journal.Sizes{Segment: segment, Frame: min(segment/4, 8<<20), Log: c.LogBytes}
}

// disk is what of the configuration concerns the disk.
func (c Config) disk() disk.Config {
	return disk.Config{
		Dir: c.Dir, FS: c.FS, Shards: c.Shards, Sync: c.Sync, EpochAbove: c.EpochAbove,
		CacheBytes: c.CacheBytes, MaxOpenFiles: c.MaxOpenFiles,
		MinFreeBytes: c.MinFreeBytes, WALFailoverDir: c.WALFailoverDir, Logger: c.Logger,
	}
}

// withDefaults returns the configuration with every default filled in.
func (c Config) withDefaults() Config {
	d := c.disk().WithDefaults()
	c.FS, c.Logger, c.MinFreeBytes = d.FS, d.Logger, d.MinFreeBytes
	c.CacheBytes, c.MaxOpenFiles = d.CacheBytes, d.MaxOpenFiles
	c.Shards = cmp.Or(c.Shards, defaultShards)
	c.SyncInterval = cmp.Or(c.SyncInterval, 100*time.Millisecond)
	c.MemoryLimit = cmp.Or(c.MemoryLimit, defaultMemory)
	c.Lease = cmp.Or(c.Lease, 2*time.Second)
	c.BeatInterval = cmp.Or(c.BeatInterval, 200*time.Millisecond)
	// The first index region must leave room for items.
	_, index := region.SizesFor(c.MemoryLimit)
	c.IndexRegionSize = min(cmp.Or(c.IndexRegionSize, index),
		max(c.MemoryLimit/(2*indexShare), layout.RegionGranule)/layout.RegionGranule*layout.RegionGranule)
	c.HoldBytes = cmp.Or(c.HoldBytes, max(int64(c.MemoryLimit/16), min(2*int64(layout.MaxItemSize), int64(c.MemoryLimit/4))))
	c.InflightBytes = cmp.Or(c.InflightBytes, defaultInflight)
	c.InflightWrites = cmp.Or(c.InflightWrites, 1<<16)
	c.BatchBytes = cmp.Or(c.BatchBytes, 4<<20)
	c.LogBytes = cmp.Or(c.LogBytes, DefaultLogBytes)
	c.SnapshotRate = cmp.Or(c.SnapshotRate, 64<<20)
	c.groupEntry = cmp.Or(c.groupEntry, c.Simulated.GroupEntry, groupEntry)
	if c.clock == nil {
		c.clock = c.Simulated.Clock
	}
	c.dedupEntries = cmp.Or(c.dedupEntries, dedup.Limit)
	c.ScrubRate = cmp.Or(c.ScrubRate, ScrubRateFor(c.MemoryLimit))
	c.FillWorkers = cmp.Or(c.FillWorkers, runtime.GOMAXPROCS(0))
	if c.OnFatal == nil {
		c.OnFatal = func(err error) { panic(err) }
	}
	if c.OnCommit == nil {
		c.OnCommit = func() {}
	}
	if c.Progress == nil {
		c.Progress = func(Progress) {}
	}
	return c
}

// validate reports every fault at once.
func (c Config) validate() error {
	var errs []error
	bad := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("store: "+format, args...))
		}
	}
	bad(c.Dir != "" || c.Mode == Cache, "no directory given")
	bad(c.Mode <= Cache, "unknown mode %v", c.Mode)
	bad(c.Memory != nil, "no memory given")
	if c.Kept {
		_, ok := c.Memory.(region.Keeper)
		bad(ok && c.Mode == Cache && c.Withheld == nil && !c.NoLease, "memory can be kept for the next life by a cache alone, which is no node of a cluster and has leases")
	}
	bad(c.Shards >= 1 && c.Shards <= maxShards, "shards = %d: must be 1 to %d", c.Shards, maxShards)
	bad(c.Sync <= Off, "unknown sync policy %v", c.Sync)
	bad(c.SyncInterval > 0, "sync interval = %v: must be positive", c.SyncInterval)
	bad(c.MemoryLimit >= minMemoryLimit, "memory limit = %d bytes: must be at least %d", c.MemoryLimit, minMemoryLimit)
	bad(c.Lease > 0, "lease = %v: must be positive", c.Lease)
	bad(c.BeatInterval > 0 && c.BeatInterval < c.Lease, "beat interval = %v: must be positive and shorter than the lease, %v", c.BeatInterval, c.Lease)
	bad(c.InflightBytes > 0 && c.InflightWrites > 0, "in-flight bounds must be positive")
	bad(c.HoldBytes > 0, "hold bytes = %d: must be positive", c.HoldBytes)
	bad(c.BatchBytes > 0 && c.BatchBytes <= 64<<20, "batch bytes = %d: must be 1 to 64 MiB", c.BatchBytes)
	bad(c.SnapshotRate >= MinSnapshotRate, "snapshot rate = %d bytes a second: at least %d", c.SnapshotRate, MinSnapshotRate)
	bad(c.LogBytes >= MinLogBytes && c.LogBytes <= MaxLogBytes, "log bytes = %d: must be %d to %d", c.LogBytes, MinLogBytes, int64(MaxLogBytes))
	bad(c.MaxOpenFiles >= 64, "max open files = %d: must be at least 64", c.MaxOpenFiles)
	bad(c.WatchBytes == 0 || c.WatchBytes >= MinWatchBytes && c.WatchBytes <= MaxWatchBytes, "watch bytes = %d: must be 0, or %d to %d", c.WatchBytes, MinWatchBytes, MaxWatchBytes)
	bad(c.FillWorkers > 0, "fill workers = %d: must be positive", c.FillWorkers)
	return errors.Join(errs...)
}

// indexShare of the limit is kept for the index: items do not take it, however
// many there are. With values of 1 KiB eight times as many keys as fit in memory
// have slots then. Where items are small the index may take twice that, as long
// as it is there.
const indexShare = 8

// itemsLimit bounds the memory of items.
func (c Config) itemsLimit() uint64 {
	return c.MemoryLimit - max(c.MemoryLimit/indexShare/layout.RegionGranule, 1)*layout.RegionGranule
}

// indexLimit bounds the memory of indexes. Every shard needs some.
func (c Config) indexLimit() uint64 {
	return max(2*c.MemoryLimit/indexShare, uint64(c.Shards)*(32<<10)+4<<20)
}

// ScrubRateFor returns the rate at which a store looks at its own memory unless it is told
// another, bytes per second: a pass over all memory in an hour, and at least 8 MiB and at
// most 64 MiB, which no reader notices.
func ScrubRateFor(limit uint64) int64 {
	return int64(min(max(limit/3600, 8<<20), 64<<20))
}

// predecessorWait is how long an earlier incarnation's memory may still be
// believed after its last beat: a lease, by a clock that runs 1 % slow, and
// one beat for good measure.
func (c Config) predecessorWait() time.Duration {
	return leaseWithMargin(c.Lease, c.BeatInterval)
}

// leaseWithMargin returns how long after an event at the server nobody counts
// a READ that was posted before it: the lease, the bound on clock rates, and
// a beat.
func leaseWithMargin(lease, beat time.Duration) time.Duration {
	return lease + lease/100 + beat
}
