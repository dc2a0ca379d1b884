package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdmakv/rdmakv/internal/control"
	"github.com/rdmakv/rdmakv/internal/server/auth"
	"github.com/rdmakv/rdmakv/internal/server/base"
	"github.com/rdmakv/rdmakv/internal/server/member"
	"github.com/rdmakv/rdmakv/internal/server/memory"
	"github.com/rdmakv/rdmakv/internal/server/session"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/store"
)

// A Server is one node. New, then Start, then Shutdown. All methods are safe
// for concurrent use; Start is called once.
//
// A Server inside the node, which has root set to another, is one of its spaces
// (space.go).
type Server struct {
	cfg      Config
	root     *Server // the node; itself unless this is a space
	space    string  // its name; empty for the node itself
	spaces   *spaces // of the node and all its spaces
	log      *base.Log
	logins   *auth.Logins // of the node; its spaces have none
	makers   *Makers      // of the documents of the node
	met      *base.Counters
	bounds   *base.Bounds // of the node and all its spaces
	fill     fill
	member   *member.Member  // nil: the server is alone, or a space
	tables   member.Tables   // of the node
	owned    *base.Ownership // of the node and all its spaces; nil: the server is alone
	handlers *Handlers       // made with the parts (env.go)

	clock base.Clock

	devices  *devices
	selfDial *selfDial
	acceptor *acceptor // of the node
	regions  *memory.Regions
	turnover *memory.Turnover // of them
	beats
	store       *store.Store
	incarnation uint64
	shards      int
	pools
	staging *memory.Staging
	admin   *admin          // nil without an admin port
	control *control.Server // nil if it cannot be

	draining atomic.Bool
	serving  atomic.Bool
	run      context.Context    // ends accept, sessions, janitor, lanes
	stop     context.CancelFunc // ends it
	wg       sync.WaitGroup     // accept loops, set-ups and sessions, janitor

	laneHangs   atomic.Bool   // a handler does not return (pulse.go)
	laneSilence time.Duration // after how long that is so

	fence *base.Fence

	closing

	registry *session.Registry // of the node and all its spaces
	sessions *session.Group
}

// closing is the end of a node, or of a space.
type closing struct {
	ending      base.WaitsFor
	shutdown    sync.Once
	shutdownErr error
}

// New checks the configuration; every fault is in the error.
func New(cfg Config) (*Server, error) {
	cfg = cfg.withDefaults().withSpaces()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	srv := newServer(cfg)
	srv.logins = auth.NewLogins(srv.cfg.logins())
	srv.makers, srv.acceptor = newMakers(srv), newAcceptor(srv)
	return srv, nil
}

func newServer(cfg Config) *Server {
	srv := &Server{
		laneSilence: laneSilence, cfg: cfg, clock: base.NewClock(), fence: base.NewFence(),
	}
	srv.root, srv.spaces, srv.devices, srv.selfDial = srv, newSpaces(srv), newDevices(srv), newSelfDial(srv)
	srv.log = base.NewLog(cfg.Logger)
	srv.met, srv.bounds, srv.fill.srv = &base.Counters{}, &base.Bounds{}, srv
	srv.member = member.New(cfg.Cluster, member.Env{Node: clusterNode{srv}, Dir: srv.cfg.dir(), Secret: srv.cfg.Secret, Logger: srv.cfg.Logger, Log: srv.log})
	srv.owned = srv.member.Ownership()
	srv.openGroup(session.NewRegistry(cfg.registry(), srv.bounds))
	srv.run, srv.stop = context.WithCancel(context.Background())
	srv.beats = newBeats()
	return srv
}

// now is a monotonic clock in nanoseconds since New.
func (srv *Server) now() int64 { return srv.clock.Now() }

// Start opens the devices and the store and serves. It returns when clients can
// connect; until every shard is filled they are served all the same, with more
// answers by SEND. After an error everything is closed again and the Server is
// of no more use. ctx bounds the start, not the life of the server.
//
// Errors: what the fabric says of device and address, store.OpenError, and
// those of the admin address.
func (srv *Server) Start(ctx context.Context) (err error) {
	defer func() {
		if err != nil {
			srv.abandon()
		}
	}()
	// First, so that health can be asked while the log is replayed.
	if err := srv.startAdmin(ctx); err != nil {
		return err
	}
	if err := srv.member.CheckDir(srv.cfg.dir()); err != nil {
		return err
	}
	warnOfMemory(srv.log, srv.cfg.MemoryLimit)
	if err := srv.devices.openAll(ctx); err != nil {
		return err
	}
	if err := srv.openParts(ctx); err != nil {
		return err
	}
	if err := srv.waitReaders(ctx); err != nil {
		return err
	}
	if err := srv.loadRevoked(); err != nil {
		return err
	}
	if err := srv.devices.listen(ctx); err != nil {
		return err
	}
	srv.spaces.stateLimits(srv.cfg.Spaces)
	// One that cannot be opened is no reason to leave the others alone; it has
	// been logged. A fault of the list was found by New.
	_ = srv.spaces.set(ctx, srv.cfg.Spaces)
	if srv.member != nil {
		if err := srv.member.Start(ctx); err != nil {
			return err
		}
		if err := srv.member.Settle(ctx); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	srv.runParts()
	if srv.member != nil {
		srv.regions.OnChange(srv.member.RegionsChanged)
		srv.wg.Go(func() { srv.member.Run(srv.run) })
	}
	for _, d := range srv.devices.list {
		srv.selfDial.watch(d)
	}
	srv.wg.Go(func() { srv.devices.run(srv.run) })
	for _, p := range srv.devices.ports {
		srv.wg.Go(func() { srv.acceptor.run(srv.run, p) })
	}
	if srv.cfg.LeaseOff {
		srv.log.Warn(base.LogAlways, "the lease is OFF, which is for debugging alone: clients believe this node's memory for as long as the device answers, "+
			"also when this process is stopped or another one has taken its place; memory that the store retires is lost until the next start")
	}
	warn(srv)
	for _, p := range srv.devices.ports {
		d := p.dev
		srv.log.Info("serving", "addr", p.ln.Addr().String(), "fabric", d.Attr.Fabric, "device", d.Dev.Name(),
			"why", p.Why, "reason", d.Attr.Reason, "shared_receives", d.Shared, "lanes", d.Lanes(), "public", srv.logins.Find(wire.Tenant{}).Secret.Empty())
	}
	return nil
}

// openParts opens what the node, or a space of it, has for itself over its
// devices: regions, store, staging, pools.
func (srv *Server) openParts(ctx context.Context) error {
	var pds []rdma.PD
	gone := true
	for _, d := range srv.devices.list {
		pds = append(pds, d.PD)
		gone = gone && (d.Attr.Caps.Has(rdma.CapDiesWithProcess) || d.Attr.Caps.Has(rdma.CapMapped) && srv.hasReaderLock())
	}
	srv.regions = memory.NewRegions(memory.RegionsConfig{Kind: srv.cfg.MemoryKind, Huge: srv.cfg.HugePages, NUMANode: srv.cfg.NUMANode, Prefault: srv.cfg.Prefault}, srv.log, pds...)
	if srv.root == srv {
		srv.regions.MaySpare(srv.devices.spare())
	}
	// The devices are open before the store takes its lock and closed after it
	// gives it back. Where all of them die with the process, no memory of an
	// earlier incarnation can be read once the lock is ours; where clients had it
	// mapped, waitReaders waits for them before anybody is served. A space that was
	// closed while the node goes on has ended all READs of its memory itself.
	if err := srv.openStore(ctx, gone); err != nil {
		return err
	}
	srv.turnover = memory.NewTurnover(memory.TurnoverConfig{
		Beat: srv.cfg.Beat, RegionIdle: srv.cfg.RegionIdle, MaxAge: srv.cfg.RKeyMaxAge,
		TableTime: 2 * srv.cfg.Idle, SendTimeout: srv.cfg.SendTimeout,
	}, srv.regions, srv.store, srv.log)
	srv.openStaging()
	srv.sessions.UpdateShare()
	srv.openPools()
	srv.handlers = newHandlers(handleEnv(srv))
	srv.sessions.Handler = srv.handlers
	return nil
}

// runParts begins to serve with them; sessions may come, and who wants a backup.
func (srv *Server) runParts() {
	srv.startControl()
	srv.store.Beat(time.Now())
	srv.lastBeat.Store(srv.now())
	go srv.beatLoop(srv.beat)
	for _, d := range srv.devices.list {
		d.RunLanes()
	}
	srv.wg.Add(1)
	srv.wg.Go(func() { srv.turnover.Run(srv.run, srv.fence.Done()) })
	go srv.reclaimLoop(srv.run)
	srv.wg.Go(func() { srv.handlers.Run(srv.run) })
	srv.wg.Go(func() { srv.sessions.Run(srv.run) })
	srv.serving.Store(true)
}

// openStore opens the store over memory of the open devices.
func (srv *Server) openStore(ctx context.Context, predecessorGone bool) error {
	cfg := &srv.cfg
	st, err := store.Open(ctx, store.Config{
		Mode: cfg.Mode, Dir: cfg.DataDir, FS: cfg.FS, Shards: cfg.Shards,
		Sync: cfg.Sync, SyncInterval: cfg.SyncInterval,
		Memory: srv.regions, MemoryLimit: cfg.MemoryLimit,
		RegionSize: cfg.RegionSize, IndexRegionSize: cfg.IndexRegionSize,
		Lease: cfg.Lease, NoLease: cfg.LeaseOff, BeatInterval: cfg.Beat,
		WatchBytes:    int(max(0, cfg.WatchBytes)),
		ScrubRate:     cfg.ScrubRate,
		InflightBytes: cfg.InflightBytes, CacheBytes: cfg.CacheBytes, MinFreeBytes: cfg.MinFreeBytes,
		MemTableBytes: cfg.MemTableBytes, MaxOpenFiles: cfg.MaxOpenFiles,
		PredecessorGone: predecessorGone, EpochAbove: cfg.EpochAbove,
		Logger:   cfg.Logger,
		OnFatal:  srv.storeFailed,
		OnCommit: srv.sessions.Published,
		OnView:   srv.regions.Changed,
		Withheld: srv.withheld(),
		Progress: srv.fill.progress,
	})
	if err != nil {
		return err
	}
	srv.store = st
	srv.incarnation = st.Incarnation()
	srv.shards = int(st.View().Shards)
	id := st.ID()
	srv.log.Replace(cfg.Logger.With("store", fmt.Sprintf("%x", id[:4]), "incarnation", fmt.Sprintf("%016x", srv.incarnation)))
	if srv.member != nil {
		if err := srv.member.OpenBook(ctx, srv.shards); err != nil {
			return err
		}
	}
	closeDir(srv.log, &srv.cfg, srv.root == srv) // nobody else has it
	srv.releaseOwned()
	return nil
}

// Addrs returns the addresses that clients connect to, one for each listener
// that was not left out. Empty before Start.
func (srv *Server) Addrs() (addrs []net.Addr) {
	for _, p := range srv.devices.listening() {
		if p.ln != nil {
			addrs = append(addrs, p.ln.Addr())
		}
	}
	return addrs
}

// Devices names the devices in use, each as FABRIC/DEVICE, in the order of
// Addrs. Empty before Start.
func (srv *Server) Devices() (names []string) {
	for _, p := range srv.devices.listening() {
		if name := p.dev.Name(); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// Ready reports whether the node serves: Start is done, Shutdown has not begun
// and durability holds. It may still be filling its memory; see Filled.
func (srv *Server) Ready() bool {
	return srv.serving.Load() && !srv.draining.Load() && srv.Err() == nil
}

// Shutdown ends the node cleanly: no new sessions, requests under way are
// finished, clients are told, the store is closed with its clean-stop mark.
// When ctx ends (or Config.DrainTimeout passes) what is still under way is cut
// off. It may be called twice; the second call waits for the first. Where a lane
// hangs the end is given up: then, and after every error, the process must end.
//
// Errors: what closing the store or the device said; Err if durability is gone,
// or a handler does not return.
func (srv *Server) Shutdown(ctx context.Context) error {
	srv.shutdown.Do(func() { srv.shutdownErr = srv.endWithin(ctx, srv.doShutdown) })
	return srv.shutdownErr
}

func (srv *Server) doShutdown(ctx context.Context) error {
	if !srv.serving.Load() {
		return nil // Start failed and has cleared up, or was never called
	}
	srv.draining.Store(true)
	srv.log.Info("shutting down")
	srv.devices.closePorts()
	srv.wg.Go(srv.member.Leave)
	spacesEnded := make(chan error, 1)
	go func() { spacesEnded <- srv.spaces.shutdown(ctx, srv) }()
	srv.sessions.Gate.Unblock() // what waits there is answered: the server is closing
	srv.handlers.Refuse()
	srv.ending.Set("requests under way")
	defer srv.ending.Set("")
	srv.sessions.Drain(ctx)
	srv.sessions.Farewell()
	linger, cancel := context.WithTimeout(ctx, srv.cfg.Linger)
	defer cancel()
	srv.sessions.Gone(linger)
	srv.sessions.Drain(ctx)
	srv.sessions.End(base.CauseShutdown, nil)
	srv.sessions.Seal()
	srv.stop()
	srv.ending.Set("sessions and their requests")
	srv.wg.Wait()
	srv.ending.Set("gossip")
	srv.member.Stop()
	srv.ending.Set("spaces")
	err := <-spacesEnded
	return errors.Join(err, srv.closeAll())
}

// closeAll closes what is left, in the order in which it was made, reversed.
// No session is left and nobody accepts.
func (srv *Server) closeAll() error {
	var errs []error
	srv.stopBeat()
	<-srv.beatDone
	srv.ending.Set("lanes")
	srv.sessions.WaitLanes()
	srv.ending.Set("workers")
	srv.closePools()
	if srv.admin != nil {
		srv.admin.close()
	}
	if err := srv.Err(); !srv.fence.StoreWell() {
		// The store may still hold buffers of ours. The process is ending.
		return err
	}
	srv.stopControl()
	srv.ending.Set("the store")
	// Frees the regions, hence ends remote access, before the clean-stop mark.
	errs = append(errs, srv.store.Close())
	srv.member.Close()
	srv.ending.Set("devices")
	srv.staging.Close()
	held := srv.spaces.fenced(srv) // the PD of one that has failed stays, and its device
	for _, d := range srv.devices.list {
		d.shares = d.shares || held
		errs = append(errs, d.close())
	}
	srv.log.Info("stopped")
	return errors.Join(errs...)
}

// abandon closes what a failed Start has made.
func (srv *Server) abandon() {
	srv.stop()
	srv.stopBeat()
	if srv.admin != nil {
		srv.admin.close()
	}
	srv.devices.closePorts()
	srv.member.Stop()
	if err := srv.spaces.shutdown(context.Background(), srv); err != nil {
		srv.log.Error(base.LogAlways, "closing a space", "err", err)
	}
	srv.closePools()
	srv.stopControl()
	if srv.store != nil {
		srv.store.Close()
	}
	srv.member.Close()
	if srv.staging != nil {
		srv.staging.Close()
	}
	for _, d := range srv.devices.list {
		d.close()
	}
}
