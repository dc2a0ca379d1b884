package server

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rdmakv/rdmakv/internal/machine"
	"github.com/rdmakv/rdmakv/internal/server/auth"
	"github.com/rdmakv/rdmakv/internal/server/memory"
	"github.com/rdmakv/rdmakv/internal/server/session"
	"github.com/rdmakv/rdmakv/internal/server/space"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/mem"
	"github.com/rdmakv/rdmakv/rdma/wait"
	"github.com/rdmakv/rdmakv/store"
	"github.com/rdmakv/rdmakv/store/layout"
)

// Config is everything a node needs. Zero means the default where one is
// named; New reports every fault at once.
type Config struct {
	// Listeners are where clients connect; the first is the one that the node
	// names first.
	Listeners []Listener
	// Fabric, Device and Listen are the short form of one listener, for a node
	// that has no Listeners.
	Fabric         rdma.Fabric
	Device, Listen string
	// Secret is shared with the clients; empty lets everybody in.
	Secret []byte
	// Tenants have secrets of their own. With tenants and no Secret everybody
	// must be one of them.
	Tenants []Tenant
	// Private: nobody comes in without a secret, also while there are neither
	// Secret nor Tenants, as when the last tenant was taken out of a file.
	Private bool
	// Name is this node's name in Welcome and in the log, at most 64 bytes.
	// Default "kvserver".
	Name string

	// Mode says whether keys are kept on disk. Default store.Durable.
	Mode store.Mode
	// DataDir is the directory of the durable store. Required, but for
	// store.Cache.
	DataDir string
	// FS is the file system of DataDir. Default: the machine's.
	FS vfs.FS
	// Shards of a new store. Default 32.
	Shards int
	// Sync says when a write is acknowledged. Default store.Always.
	Sync store.SyncPolicy
	// SyncInterval is the time between two syncs under store.Interval.
	SyncInterval time.Duration
	// MemoryLimit bounds all regions, bytes. Default 1 GiB.
	MemoryLimit uint64
	// RegionSize and IndexRegionSize are the units of registration, bytes.
	// Default: what the store chooses for MemoryLimit.
	RegionSize, IndexRegionSize uint64
	// MemoryKind is where registered memory comes from. Default memory.Mmap;
	// tests under the race detector take memory.Heap.
	MemoryKind mem.Kind
	// HugePages says whether the regions, which clients READ, are taken from
	// huge pages. Default HugeOff.
	HugePages HugePages
	// Wait says how the goroutines that handle requests wait for the next ones,
	// after one has come; clients that only READ let them sleep in any mode. Spin
	// is the longest time to poll before sleeping: 0 what suits the fabric, -1
	// never.
	Wait wait.Mode
	Spin time.Duration
	// Keeping has the regions of the node's own keys outlive this process; nil: they do not. A cache alone has it, and no node of a
	// cluster. The regions of spaces never do.
	Keeping *Keeping
	// KeptAs stands for what must be the same in the process before: its memory is given back if it is not.
	KeptAs uint64
	// NUMANode is the node that the regions are taken from as long as it has
	// memory; nil: any.
	NUMANode *int
	// Prefault takes the pages of a region from the machine before it is used.
	Prefault bool
	// Lease is how long a client may believe what it read after the beat that
	// it saw. Default 2 s.
	Lease time.Duration
	// LeaseOff is for debugging and demonstrations: clients believe this node's
	// memory without a lease, also when it is stopped, cut off or deposed; in
	// return the store uses no retired memory again. Lease is then the time for
	// held places and the like.
	LeaseOff bool
	// Beat is how often the beat is rewritten. Default 200 ms.
	Beat time.Duration
	// InflightBytes bounds keys and values of writes under way. Default: the
	// store's.
	InflightBytes int64
	// WatchBytes bounds the memory of the events that watches are answered
	// from. Default 16 MiB; negative: none, and watches are refused.
	WatchBytes int64
	// Parts bounds values in parts. Default: what the store says.
	Parts store.PartsConfig
	// ScrubRate is how many bytes of items are verified in memory per second.
	// Default: the store's; negative: none.
	ScrubRate int64
	// LeaderQuiet is for how long a group of replicas must have been as it is before its leader goes back to the node that the map prefers.
	// Default 1 minute.
	LeaderQuiet time.Duration
	// ReplicaAbsent is for how long the log keeps what a replica lacks whose node is away, while no more than half of the log is in use: who is
	// away for longer is sent all that its group has. Default 5 minutes.
	ReplicaAbsent time.Duration
	// MaxWatches bounds the watches that wait for events. Default 4096.
	MaxWatches int
	// MaxPoll bounds how long one waits before it is answered with nothing.
	// Default 10 s.
	MaxPoll time.Duration
	// CacheBytes is Pebble's block cache. Default: the store's.
	CacheBytes int64
	// MinFreeBytes is the floor of free disk space. Default: the store's.
	MinFreeBytes int64

	// LogBytes bounds the store's log: what a start after a crash reads, and what stands on
	// the disk beside the base. Default: the store's, 256 MiB; at least store.MinLogBytes.
	LogBytes int64
	// SnapshotRate is how many bytes a second of a snapshot of a replica are written to the disk. Default: the store's, 64 MiB.
	SnapshotRate int64
	// MaxOpenFiles is how many files Pebble keeps open. Default: the store's.
	MaxOpenFiles int
	// SpaceOpenFiles is MaxOpenFiles of each space. Default 256.
	SpaceOpenFiles int

	// Spaces are the parts of the node that tenants with one-sided access have
	// for themselves; see SpaceConfig.
	Spaces []SpaceConfig

	// RKeyMaxAge is after how long the rkeys of all regions are renewed. 0: only
	// when an operator asks.
	RKeyMaxAge time.Duration
	// RegionIdle is after how long a region of items in which nothing stands is
	// given back. 0: never.
	RegionIdle time.Duration

	// MapTenants lets tenants with one-sided access come by fabrics where they map
	// the memory (rdma.CapMapped), which nobody can take back from them. Without it
	// they are sent on to another fabric.
	MapTenants bool

	// Cluster makes this server a node of a cluster. nil: it is alone.
	Cluster *ClusterConfig

	// Credits is how many requests one session may have in flight. Default 64.
	Credits int
	// InitialCredits is what a session starts with; it is granted more as it
	// asks. Default 8, at most Credits.
	InitialCredits int
	// RequestSize is the largest message taken, bytes with header. Default
	// 16 KiB; at least 12 KiB, which the longest keys of a Scan need.
	RequestSize int
	// ReplySize is the largest message sent. Default 64 KiB; a client may take
	// less. At least 12 KiB, which a page of a Scan with the longest key needs.
	ReplySize int
	// MaxSessions bounds connected clients. Default 4096.
	MaxSessions int
	// MaxConnections bounds sessions and those that are being set up by what the
	// process may open; MaxSessions stays the bound that tenants' shares are measured
	// by. 0: MaxSessions.
	MaxConnections int
	// MaxUnauthenticated bounds connections that have not said Hello. When all
	// places are taken a newcomer gets that of the oldest of the fullest source.
	// Default 128.
	MaxUnauthenticated int
	// MaxSetupsPerHost bounds those of one source: an IPv4 address, an IPv6 /64.
	// Default: half of MaxUnauthenticated.
	MaxSetupsPerHost int
	// MaxSessionsPerHost bounds the sessions of one source. Default: MaxSessions,
	// which is no bound of its own.
	MaxSessionsPerHost int
	// SetupTimeout is how long a connection may take from its request to a
	// verified Hello. Default 5 s.
	SetupTimeout time.Duration
	// Keepalive is how long a client may be silent before it pings; Idle is
	// when the server gives it up. Defaults 5 s and 20 s.
	Keepalive, Idle time.Duration
	// SendTimeout is how long a client may leave a posted reply or READ
	// without completion before its session is ended, and the READs of a large
	// value may take that long and as long again per 16 MiB. Default 15 s.
	SendTimeout time.Duration

	// ReceiveBytes bounds the memory of all receive buffers. Default 256 MiB.
	ReceiveBytes int64
	// ReplyBytes bounds the memory of large reply buffers. Default 64 MiB.
	ReplyBytes int64
	// StagingBytes bounds the memory into which large values are READ.
	// Default 256 MiB; at least one largest value.
	StagingBytes int64
	// Workers bounds gets and deletes that wait for the disk; a quarter as many
	// scans may run beside them, and at least two, and a quarter of those for one
	// tenant. Default 8 x GOMAXPROCS.
	Workers int
	// Lanes is how many completion queues a device has. Default GOMAXPROCS.
	Lanes int
	// SharedReceives says whether sessions share receive queues.
	SharedReceives session.Shared
	// DrainTimeout ends Shutdown's wait for requests under way. Default 10 s.
	DrainTimeout time.Duration
	// Linger is how long Shutdown waits for clients to disconnect after they
	// were told. Default 300 ms.
	Linger time.Duration

	// EpochAbove is an epoch that other nodes have seen of a store whose disk was
	// rolled back: see store.Config. It says that the loss is accepted.
	EpochAbove uint16
	// AdminListen is the HOST:PORT of the admin port. Empty: none.
	AdminListen string
	// Debug adds Go profiles and the gate to the admin port.
	Debug bool
	// OnFill, if not nil, is told how far memory has been filled after a start,
	// instead of the log. It must not block.
	OnFill func(FillProgress)
	// Simulated is what a simulation hands to the node's own store in place of the machine; see store.Simulated.
	Simulated store.Simulated
	// Logger takes the node's events. Default: none.
	Logger *slog.Logger

	setupGrace time.Duration // of those that are being set up, from each other; zero: as registry has it
}

// HugePages says whether memory is taken from huge pages: see package memory.
type HugePages = memory.HugePages

// The choices of HugePages.
const (
	HugeOff  = memory.HugeOff
	HugeTry  = memory.HugeTry
	HugeOn   = memory.HugeOn
	HugeAuto = memory.HugeAuto
)

// Shared says whether sessions take receives from a shared receive queue: see package
// session.
type Shared = session.Shared

// The choices of Shared.
const (
	SharedAuto = session.SharedAuto
	SharedOn   = session.SharedOn
	SharedOff  = session.SharedOff
)

// Limits of the sizes above. A Scan with the longest prefix and position must
// fit into a request, the longest key and a position as long into a reply.
const (
	minRequestSize = 12 << 10
	maxMessageSize = 1 << 20
	minStaging     = layout.MaxValueLen
)

// withDefaults returns the configuration with every default filled in.
func (c Config) withDefaults() Config {
	if len(c.Listeners) == 0 && c.Fabric != nil {
		c.Listeners = []Listener{{Fabric: c.Fabric, Device: c.Device, Addr: c.Listen}}
	}
	c.Listeners = append([]Listener(nil), c.Listeners...) // not the caller's
	for i := range c.Listeners {
		c.Listeners[i] = c.Listeners[i].withDefaults()
	}
	def(&c.Name, "kvserver")
	def(&c.Lease, 2*time.Second)
	def(&c.Beat, 200*time.Millisecond)
	def(&c.Credits, 64)
	def(&c.InitialCredits, min(8, c.Credits))
	def(&c.RequestSize, 16<<10)
	def(&c.ReplySize, 64<<10)
	def(&c.MaxSessions, 4096)
	def(&c.SpaceOpenFiles, 256)
	def(&c.MaxConnections, c.MaxSessions)
	def(&c.WatchBytes, 16<<20)
	def(&c.MaxWatches, 4096)
	def(&c.MaxPoll, 10*time.Second)
	def(&c.MaxUnauthenticated, 128)
	def(&c.MaxSetupsPerHost, (c.MaxUnauthenticated+1)/2)
	def(&c.MaxSessionsPerHost, c.MaxSessions)
	def(&c.SetupTimeout, 5*time.Second)
	def(&c.Keepalive, 5*time.Second)
	def(&c.Idle, 20*time.Second)
	def(&c.SendTimeout, 15*time.Second)
	def(&c.ReceiveBytes, 256<<20)
	def(&c.ReplyBytes, 64<<20)
	def(&c.StagingBytes, 256<<20)
	def(&c.Workers, 8*runtime.GOMAXPROCS(0))
	def(&c.Lanes, runtime.GOMAXPROCS(0))
	c.Spaces = append([]SpaceConfig(nil), c.Spaces...) // not the caller's
	for i := range c.Spaces {
		c.Spaces[i] = c.Spaces[i].withDefaults(&c)
	}
	def(&c.DrainTimeout, 10*time.Second)
	def(&c.Linger, 300*time.Millisecond)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func def[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// validate reports every fault at once. It is called after withDefaults.
func (c Config) validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("server: "+format, args...))
		}
	}
	between := func(name string, v, low, high int) {
		check(v >= low && v <= high, "%s = %d: must be %d to %d", name, v, low, high)
	}
	check(len(c.Listeners) > 0, "no fabric given")
	check(len(c.Listeners) <= maxListeners, "%d listeners: at most %d", len(c.Listeners), maxListeners)
	for i := range c.Listeners {
		for l := &c.Listeners[i]; l != nil; l = l.Else {
			check(l.Fabric != nil, "listener %d: no fabric given", i)
			check(l.Else == nil || l.Optional, "listener %d: it has a substitute and is not optional", i)
		}
	}
	check(c.DataDir != "" || c.Mode == store.Cache && c.Cluster == nil, "no data directory given")
	if c.Cluster != nil {
		errs = append(errs, c.Cluster.Check()...)
	}
	check(c.Mode <= store.Cache, "unknown %v", c.Mode)
	check(len(c.Name) <= wire.MaxName, "name %q: at most %d bytes", c.Name, wire.MaxName)
	between("credits", c.Credits, 1, session.MaxCredits)
	between("initial credits", c.InitialCredits, 1, c.Credits)
	between("request size", c.RequestSize, minRequestSize, maxMessageSize)
	between("reply size", c.ReplySize, session.MinReplySize, maxMessageSize)
	between("max sessions", c.MaxSessions, 1, 1<<20)
	check(c.MaxConnections > 0, "max connections = %d: must be positive", c.MaxConnections)
	between("max unauthenticated", c.MaxUnauthenticated, 1, 1<<16)
	between("max set-ups per host", c.MaxSetupsPerHost, 1, c.MaxUnauthenticated)
	between("max sessions per host", c.MaxSessionsPerHost, 1, c.MaxSessions)
	if err := auth.Check(c.Tenants, c.Secret, c.MaxSessions); err != nil {
		errs = append(errs, err)
	}
	between("max watches", c.MaxWatches, 1, 1<<20)
	check(c.WatchBytes < 0 || c.WatchBytes >= store.MinWatchBytes && c.WatchBytes <= store.MaxWatchBytes,
		"watch bytes = %d: must be negative, or %d to %d", c.WatchBytes, store.MinWatchBytes, store.MaxWatchBytes)
	check(c.LogBytes == 0 || c.LogBytes >= store.MinLogBytes && c.LogBytes <= store.MaxLogBytes,
		"log bytes = %d: must be %d to %d", c.LogBytes, int64(store.MinLogBytes), int64(store.MaxLogBytes))
	between("workers", c.Workers, 1, 1<<12)
	check(c.RKeyMaxAge == 0 || c.RKeyMaxAge >= time.Second, "rkey max age = %v: must be 0, or a second at least", c.RKeyMaxAge)
	check(c.RegionIdle >= 0, "region idle = %v: must not be negative", c.RegionIdle)
	check(c.Beat > 0 && c.Beat < c.Lease, "beat = %v: must be positive and shorter than the lease, %v", c.Beat, c.Lease)
	for _, d := range []struct {
		name string
		v    time.Duration
	}{{"setup timeout", c.SetupTimeout}, {"keepalive", c.Keepalive}, {"send timeout", c.SendTimeout}, {"max poll", c.MaxPoll}, {"drain timeout", c.DrainTimeout}, {"linger", c.Linger}} {
		check(d.v > 0, "%s = %v: must be positive", d.name, d.v)
	}
	check(c.HugePages <= HugeAuto, "unknown %v", c.HugePages)
	if c.NUMANode != nil {
		err := machine.CheckNode(*c.NUMANode)
		check(err == nil, "NUMA node: %w", err)
	}
	check(c.Idle > 2*c.Keepalive, "idle = %v: must be more than two keepalives, %v", c.Idle, 2*c.Keepalive)
	between("lanes", c.Lanes, 1, 1<<10)
	errs = append(errs, c.checkSpaces(c.Spaces)...)
	check(c.StagingBytes >= minStaging, "staging bytes = %d: must hold one value of %d", c.StagingBytes, layout.MaxValueLen)
	check(c.ReplyBytes >= int64(2*c.ReplySize), "reply bytes = %d: must hold two replies of %d", c.ReplyBytes, c.ReplySize)
	check(c.ReceiveBytes >= int64(4*c.RequestSize), "receive bytes = %d: must hold four requests of %d", c.ReceiveBytes, c.RequestSize)
	return errors.Join(errs...)
}

// Keeping is what a node has of the process that keeps its memory.
type Keeping = memory.Keeping

// FillProgress tells how far memory has been filled after a start.
type FillProgress = space.FillProgress

// space is what the configuration says of a space: of the main one, or of that for which
// it was made small (forSpace).
func (c *Config) space() space.Config {
	return space.Config{
		Store: store.Config{
			Mode: c.Mode, Dir: c.DataDir, FS: c.FS, Shards: c.Shards,
			Sync: c.Sync, SyncInterval: c.SyncInterval,
			MemoryLimit: c.MemoryLimit, RegionSize: c.RegionSize, IndexRegionSize: c.IndexRegionSize,
			Lease: c.Lease, NoLease: c.LeaseOff, BeatInterval: c.Beat,
			WatchBytes:    int(max(0, c.WatchBytes)),
			ScrubRate:     c.ScrubRate,
			Parts:         c.Parts,
			InflightBytes: c.InflightBytes, CacheBytes: c.CacheBytes, MinFreeBytes: c.MinFreeBytes,
			LogBytes: c.LogBytes, SnapshotRate: c.SnapshotRate, MaxOpenFiles: c.MaxOpenFiles,
			EpochAbove: c.EpochAbove, Logger: c.Logger, Simulated: c.Simulated, KeptAs: c.KeptAs,
		},
		Memory: memory.RegionsConfig{Kind: c.MemoryKind, Huge: c.HugePages, NUMANode: c.NUMANode, Prefault: c.Prefault},
		Turnover: memory.TurnoverConfig{
			Beat: c.Beat, RegionIdle: c.RegionIdle, MaxAge: c.RKeyMaxAge,
			TableTime: 2 * c.Idle, SendTimeout: c.SendTimeout,
		},
		Sessions:     c.sessions(),
		StagingBytes: c.StagingBytes, Workers: c.Workers, ReaderLock: c.hasReaderLock(),
		Linger: c.Linger, DrainTimeout: c.DrainTimeout, OnFill: c.OnFill, Keeping: c.Keeping,
	}
}

// sessions is what sessions need to know of the configuration.
func (c *Config) sessions() session.Config {
	return session.Config{
		Name:  c.Name,
		Lease: c.Lease, Beat: c.Beat, Keepalive: c.Keepalive,
		Idle: c.Idle, SendTimeout: c.SendTimeout, SetupTimeout: c.SetupTimeout,
		Credits: c.Credits, InitialCredits: c.InitialCredits, RequestSize: c.RequestSize, ReplySize: c.ReplySize,
		ReceiveBytes: c.ReceiveBytes, ReplyBytes: c.ReplyBytes, MaxSessions: c.MaxSessions, Lanes: c.Lanes,
		MemoryKind: c.MemoryKind, SharedReceives: c.SharedReceives, Wait: c.Wait, Spin: c.Spin,
	}
}

// registry is what bounds the connections of the node.
func (c *Config) registry() session.RegistryLimits {
	return session.RegistryLimits{
		Sessions: min(c.MaxSessions, c.MaxConnections), PerHost: c.MaxSessionsPerHost,
		Setups: c.MaxUnauthenticated, SetupsPerHost: c.MaxSetupsPerHost, Grace: c.setupGrace,
	}
}
