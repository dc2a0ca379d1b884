package server

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdmakv/rdmakv/internal/control"
	"github.com/rdmakv/rdmakv/internal/server/base"
	"github.com/rdmakv/rdmakv/internal/server/handle"
	"github.com/rdmakv/rdmakv/internal/server/memory"
	"github.com/rdmakv/rdmakv/internal/server/session"
	"github.com/rdmakv/rdmakv/internal/server/telemetry"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/store"
)

// A space is the part of a node that one tenant with one-sided access has for
// itself, or the main one, which has the keys of everybody else. Rights over keys mean nothing to a NIC: whoever may READ a slab reads
// all of it, and within a protection domain an rkey that one tenant learnt opens
// the memory to every other. So such a tenant has its own slabs and index *and*
// its own protection domain; the NIC compares the domain of queue pair and
// region, and another tenant's true rkey is refused like an invented one.
//
// Everything that serves a request (store with its directory, lock, identity and
// recovery, regions, beat, incarnation and lease, completion queues, lanes, buffers,
// staging, pools) is the space's own. The node keeps what stands before that: ports,
// limits of connections, admin port, the opened devices. A session belongs to its
// space from the moment its login is known, before a queue pair is made for it.
//
// # When a space fails
//
// A space whose durability is gone fences itself: no beat, no session, no lease;
// its tenants are refused, the node and the other spaces go on. Their files are
// apart, and a node that ended with it would take from all tenants what one of
// them has lost. It takes a restart of the node to try again: the failed store
// keeps its lock. Fatal of the node itself ends all spaces with it.

// A Space is one keyspace of a node. Its life: newSpace, a rail on each device, open,
// serve, then drain, leave, halt and close, one after the other (Shutdown); abandon if
// it never served.
type Space struct {
	cfg Config
	spaceEnv

	met      *base.Counters
	fill     fill
	handlers *handle.Handlers // made by open
	clock    base.Clock
	fence    *base.Fence

	rails    rails // one on each device of the node
	regions  *memory.Regions
	turnover *memory.Turnover // of them
	staging  *memory.Staging
	beats
	store       *store.Store
	incarnation uint64
	shards      int
	pools
	control *control.Server // nil if it cannot be

	sessions *session.Group
	life
	lanePulse
	closing
}

// A spaceEnv is what a node gives to a space.
type spaceEnv struct {
	name     string // "" is the main space
	log      *base.Log
	registry *session.Registry
	bounds   *base.Bounds
	owned    *base.Ownership   // nil: the server is alone
	line     *memory.StageLine // in which staging memory waits for its turn
	// shared says whether more than one login may use the space.
	shared func() bool
	// makeHandlers makes what answers the requests of the space, whose parts are open.
	makeHandlers func(*Space) *handle.Handlers
	// told adds what the node tells together with the numbers of the space; nil: nothing.
	told func(*telemetry.Space)
}

// A life is how long a space serves, and for whose end its own waits.
type life struct {
	serving  atomic.Bool
	draining atomic.Bool
	run      context.Context    // ends sessions, janitor, lanes
	stop     context.CancelFunc // ends it
	wg       sync.WaitGroup     // sessions and their set-ups, janitor, loops
}

// closing is the end of a node, or of a space.
type closing struct {
	ending      base.WaitsFor
	shutdown    sync.Once
	shutdownErr error
}

// newSpace makes a space that has no rails yet.
func newSpace(cfg Config, env spaceEnv) *Space {
	sp := &Space{
		cfg: cfg, spaceEnv: env, met: &base.Counters{}, clock: base.NewClock(), fence: base.NewFence(),
		beats: newBeats(), lanePulse: lanePulse{laneSilence: laneSilence},
	}
	sp.fill.sp = sp
	sp.run, sp.stop = context.WithCancel(context.Background())
	sp.sessions = session.NewGroup(cfg.sessions(), session.Env{
		Registry: env.registry, Counters: sp.met, Bounds: env.bounds, Log: env.log,
		Clock: sp.clock, Fence: sp.fence, Draining: &sp.draining, Fatal: sp.fatal, Shared: env.shared,
	})
	return sp
}

// now is a monotonic clock in nanoseconds since newSpace.
func (sp *Space) now() int64 { return sp.clock.Now() }

// open opens regions, store, staging and pools over the rails. spare says of each rail
// whether the space may do without it, until regions.Settle; nil: of none.
func (sp *Space) open(ctx context.Context, spare []bool) error {
	var (
		pds   []rdma.PD
		sinks []memory.Sink
		gone  = true
	)
	for _, r := range sp.rails.list {
		pds = append(pds, r.PD)
		sinks = append(sinks, memory.Sink{PD: r.PD, Attr: r.Attr})
		gone = gone && (r.Attr.Caps.Has(rdma.CapDiesWithProcess) || r.Attr.Caps.Has(rdma.CapMapped) && sp.cfg.hasReaderLock())
	}
	sp.regions = memory.NewRegions(memory.RegionsConfig{Kind: sp.cfg.MemoryKind, Huge: sp.cfg.HugePages, NUMANode: sp.cfg.NUMANode, Prefault: sp.cfg.Prefault}, sp.log, pds...)
	if spare != nil {
		sp.regions.MaySpare(spare)
	}
	// The devices are open before the store takes its lock and closed after it
	// gives it back. Where all of them die with the process, no memory of an
	// earlier incarnation can be read once the lock is ours; where clients had it
	// mapped, waitReaders waits for them before anybody is served. A space that was
	// closed while the node goes on has ended all READs of its memory itself.
	if err := sp.openStore(ctx, gone); err != nil {
		return err
	}
	sp.turnover = memory.NewTurnover(memory.TurnoverConfig{
		Beat: sp.cfg.Beat, RegionIdle: sp.cfg.RegionIdle, MaxAge: sp.cfg.RKeyMaxAge,
		TableTime: 2 * sp.cfg.Idle, SendTimeout: sp.cfg.SendTimeout,
	}, sp.regions, sp.store, sp.log)
	sp.staging = memory.NewStaging(sinks, sp.cfg.StagingBytes, sp.cfg.MemoryKind, sp.line)
	sp.sessions.UpdateShare()
	sp.openPools()
	sp.handlers = sp.makeHandlers(sp)
	sp.sessions.Handler = sp.handlers
	return nil
}

// openStore opens the store over memory of the open devices.
func (sp *Space) openStore(ctx context.Context, predecessorGone bool) error {
	cfg := &sp.cfg
	st, err := store.Open(ctx, store.Config{
		Mode: cfg.Mode, Dir: cfg.DataDir, FS: cfg.FS, Shards: cfg.Shards,
		Sync: cfg.Sync, SyncInterval: cfg.SyncInterval,
		Memory: sp.regions, MemoryLimit: cfg.MemoryLimit,
		RegionSize: cfg.RegionSize, IndexRegionSize: cfg.IndexRegionSize,
		Lease: cfg.Lease, NoLease: cfg.LeaseOff, BeatInterval: cfg.Beat,
		WatchBytes:    int(max(0, cfg.WatchBytes)),
		ScrubRate:     cfg.ScrubRate,
		InflightBytes: cfg.InflightBytes, CacheBytes: cfg.CacheBytes, MinFreeBytes: cfg.MinFreeBytes,
		MemTableBytes: cfg.MemTableBytes, MaxOpenFiles: cfg.MaxOpenFiles,
		PredecessorGone: predecessorGone, EpochAbove: cfg.EpochAbove,
		Logger:   cfg.Logger,
		OnFatal:  sp.storeFailed,
		OnCommit: sp.sessions.Published,
		OnView:   sp.regions.Changed,
		Withheld: sp.withheld(),
		Progress: sp.fill.progress,
	})
	if err != nil {
		return err
	}
	sp.store = st
	sp.incarnation = st.Incarnation()
	sp.shards = int(st.View().Shards)
	id := st.ID()
	sp.log.Replace(cfg.Logger.With("store", fmt.Sprintf("%x", id[:4]), "incarnation", fmt.Sprintf("%016x", sp.incarnation)))
	closeDir(sp.log, cfg) // nobody else has it
	sp.releaseOwned()
	return nil
}

// serve begins to serve over what is open; sessions may come, and who wants a backup.
func (sp *Space) serve() {
	sp.startControl()
	sp.store.Beat(time.Now())
	sp.lastBeat.Store(sp.now())
	go sp.beatLoop(sp.beat)
	for _, r := range sp.rails.list {
		r.RunLanes()
	}
	sp.wg.Add(1)
	sp.wg.Go(func() { sp.turnover.Run(sp.run, sp.fence.Done()) })
	go sp.reclaimLoop(sp.run)
	sp.wg.Go(func() { sp.handlers.Run(sp.run) })
	sp.wg.Go(func() { sp.sessions.Run(sp.run) })
	sp.serving.Store(true)
}

// enter counts the set-up of a session in, with its life; false if the space is ending.
// The caller calls sp.wg.Done when the session has ended.
func (sp *Space) enter() bool {
	return sp.sessions.Enter(&sp.wg, func() bool { return !sp.draining.Load() && sp.serving.Load() })
}

// Ready reports whether the space serves: it is open, its end has not begun and
// durability holds. It may still be filling its memory; see filled.
func (sp *Space) Ready() bool {
	return sp.serving.Load() && !sp.draining.Load() && sp.Err() == nil
}

// filled reports whether all keys are in memory again after a start.
func (sp *Space) filled() bool { return sp.serving.Load() && sp.store.Filled() }

// Shutdown ends a space of a node that goes on, or whose end waits for it, as
// Server.Shutdown ends the node.
func (sp *Space) Shutdown(ctx context.Context) error {
	sp.shutdown.Do(func() { sp.shutdownErr = sp.endWithin(ctx, sp.end) })
	return sp.shutdownErr
}

func (sp *Space) end(ctx context.Context) error {
	if !sp.serving.Load() {
		return nil
	}
	sp.log.Info("shutting down")
	sp.drain(ctx)
	sp.leave()
	sp.halt()
	err := sp.close()
	if sp.fence.StoreWell() {
		sp.log.Info("stopped")
	}
	return err
}

// drain lets no more sessions in and ends those that there are, once their requests are
// answered or ctx ends.
func (sp *Space) drain(ctx context.Context) {
	sp.draining.Store(true)
	sp.sessions.Gate.Unblock() // what waits there is answered: the server is closing
	sp.handlers.Refuse()
	sp.ending.Set("requests under way")
	sp.sessions.Drain(ctx)
	sp.sessions.Farewell()
	linger, cancel := context.WithTimeout(ctx, sp.cfg.Linger)
	defer cancel()
	sp.sessions.Gone(linger)
	sp.sessions.Drain(ctx)
	sp.sessions.End(base.CauseShutdown, nil)
	sp.sessions.Seal()
}

// leave waits until all sessions and their requests are gone.
func (sp *Space) leave() {
	sp.stop()
	sp.ending.Set("sessions and their requests")
	sp.wg.Wait()
	sp.ending.Set("")
}

// halt stops what serves sessions, of which none is left: beat, lanes, workers.
func (sp *Space) halt() {
	sp.stopBeat()
	<-sp.beatDone
	sp.ending.Set("lanes")
	sp.sessions.WaitLanes()
	sp.ending.Set("workers")
	sp.closePools()
	sp.ending.Set("")
}

// close closes store and rails. Nothing uses them any more. A store that has failed is
// left as it is, with its rails.
func (sp *Space) close() error {
	if err := sp.Err(); !sp.fence.StoreWell() {
		// The store may still hold buffers of ours. The process is ending.
		return err
	}
	sp.stopControl()
	sp.ending.Set("the store")
	defer sp.ending.Set("")
	// Frees the regions, hence ends remote access, before the clean-stop mark.
	err := sp.store.Close()
	sp.ending.Set("devices")
	sp.staging.Close()
	return errors.Join(err, sp.rails.close())
}

// abandon closes what there is of a space that never served.
func (sp *Space) abandon() {
	sp.stop()
	sp.stopBeat()
	sp.closePools()
	sp.stopControl()
	if sp.store != nil {
		sp.store.Close()
	}
	if sp.staging != nil {
		sp.staging.Close()
	}
	_ = sp.rails.close()
}

// FillProgress tells how far memory has been filled after a start.
type FillProgress = store.Progress

// A fill is how far the memory of a space has been filled after a start. The store
// tells it.
type fill struct {
	sp     *Space
	last   atomic.Pointer[store.Progress] // nil: nothing was told yet
	logged atomic.Int64                   // when progress was last logged
}

// progress notes how far the fill has come; the store calls it.
func (f *fill) progress(p store.Progress) {
	f.last.Store(&p)
	if tell := f.sp.cfg.OnFill; tell != nil {
		tell(p)
	}
	if p.Done {
		what := []any{"keys", p.Keys, "bytes", p.Bytes, "took", p.Elapsed.Round(time.Millisecond)}
		if p.Err != nil {
			f.sp.log.Warn(base.LogAlways, "memory is not filled", append(what, "err", p.Err)...)
		} else {
			f.sp.log.Info("memory filled", what...)
		}
		return
	}
	// A line every few seconds is enough; the numbers are in /metrics.
	if now := f.sp.now(); f.sp.cfg.OnFill == nil && now-f.logged.Load() > int64(2*time.Second) {
		f.logged.Store(now)
		f.sp.log.Info("filling memory", "keys", p.Keys, "expected", p.Expected, "shards_filled", p.ShardsFilled, "shards", p.Shards,
			"keys_per_second", int64(float64(p.Keys)/max(p.Elapsed.Seconds(), 1e-3)))
	}
}
