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
	cfg     Config
	root    *Server // the node; itself unless this is a space
	space   string  // its name; empty for the node itself
	spaces  spaces  // of the node
	log     *limitedLog
	logins  logins // of the node; its spaces have none
	met     *metrics
	cluster *clustered // nil: the server is alone, or a space
	gate    gate
	grow    growth
	watches watches // long polls that wait (watch.go)

	began time.Time // now counts from here

	// Slices that are replaced, never changed, once the node serves (away.go).
	devMu   sync.RWMutex
	devices []*device // each opened once
	ports   []*port   // in the order of Config.Listeners

	lostDevice  chan struct{} // wakes devicesLoop; room for one
	reopenFirst time.Duration // away.go; a test has it shorter
	selfDial    selfDial
	regions     *regions
	store       *store.Store
	incarnation uint64
	shards      int
	pool        *pool // gets, and writes that ask the disk
	scans       *pool // what takes long by nature, so that gets do not queue behind it
	clusters    *pool // of the node alone, as is the next: no scan can fill them
	admins      *pool
	staging     *staging
	creditShare atomic.Int64    // receiveShare, as the janitor found it last
	admin       *admin          // nil without an admin port
	control     *control.Server // nil if it cannot be

	draining atomic.Bool
	serving  atomic.Bool
	run      context.Context    // ends accept, sessions, janitor, lanes
	stop     context.CancelFunc // ends it
	beat     context.Context
	stopBeat context.CancelFunc
	beatDone chan struct{}
	lastBeat atomic.Int64   // now
	wg       sync.WaitGroup // accept loops, set-ups and sessions, janitor
	lanes    sync.WaitGroup

	laneHangs   atomic.Bool   // a handler does not return (pulse.go)
	laneSilence time.Duration // after how long that is so

	fenced   chan struct{} // closed when durability is gone
	fenceErr error         // set before
	fence    sync.Once
	// stoodDown: it was not the store that fenced the node, and it can be closed,
	// unless storeDown is closed.
	stoodDown atomic.Bool
	storeDown chan struct{} // closed when the store calls back for nothing any more

	ending      waitsFor
	shutdown    sync.Once
	shutdownErr error

	// A space has its own sessions, and counts those that are open; the bounds
	// are the node's, and so are the other counts. The node's sessMu is taken
	// before a space's, never after it.
	lastID   atomic.Uint64 // the node's
	sessMu   sync.Mutex
	sessions map[uint64]*session // being set up and open
	setups   setups
	opensOf  map[string]int // of opens, by host
	opens    int            // of the node: in all its spaces
	sealed   bool           // enter lets no session in any more

	// The sessions with replies of the group that the store is publishing.
	groupMu   sync.Mutex
	group     []*session
	groupWake chan struct{} // wakes flushLoop; room for one
}

// New checks the configuration; every fault is in the error.
func New(cfg Config) (*Server, error) {
	cfg = cfg.withDefaults().withSpaces()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	srv := newServer(cfg)
	srv.logins.start(&srv.cfg)
	return srv, nil
}

func newServer(cfg Config) *Server {
	srv := &Server{
		laneSilence: laneSilence, cfg: cfg, began: time.Now(), sessions: make(map[uint64]*session), setups: newSetups(cfg.MaxUnauthenticated, cfg.MaxSetupsPerHost), opensOf: make(map[string]int),
		fenced: make(chan struct{}), storeDown: make(chan struct{}), beatDone: make(chan struct{}), groupWake: make(chan struct{}, 1),
		lostDevice: make(chan struct{}, 1), reopenFirst: reopenFirst, selfDial: newSelfDial(),
	}
	srv.root = srv
	srv.log = newLimitedLog(cfg.Logger)
	srv.met = newMetrics(srv)
	srv.cluster = newClustered(srv, cfg.Cluster)
	srv.grow.wake = make(chan struct{}, 1)
	srv.run, srv.stop = context.WithCancel(context.Background())
	srv.beat, srv.stopBeat = context.WithCancel(context.Background())
	return srv
}

// now is a monotonic clock in nanoseconds since New.
func (srv *Server) now() int64 { return int64(time.Since(srv.began)) }

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
	if err := srv.checkDir(); err != nil {
		return err
	}
	srv.warnOfMemory()
	if err := srv.openDevices(ctx); err != nil {
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
	if err := srv.listen(ctx); err != nil {
		return err
	}
	srv.stateLimits(srv.cfg.Spaces)
	// One that cannot be opened is no reason to leave the others alone; it has
	// been logged. A fault of the list was found by New.
	_ = srv.setSpaces(ctx, srv.cfg.Spaces)
	if srv.cluster != nil {
		if err := srv.cluster.startGossip(ctx); err != nil {
			return err
		}
		if err := srv.cluster.settle(ctx); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	srv.runParts()
	if srv.cluster != nil {
		srv.wg.Add(1)
		go srv.cluster.run(srv.run)
	}
	for _, d := range srv.devices {
		srv.checkConnects(d)
	}
	srv.wg.Add(1 + len(srv.ports))
	go srv.devicesLoop(srv.run)
	for _, p := range srv.ports {
		go srv.acceptLoop(srv.run, p)
	}
	if srv.cfg.LeaseOff {
		srv.log.Warn(limitNone, "the lease is OFF, which is for debugging alone: clients believe this node's memory for as long as the device answers, "+
			"also when this process is stopped or another one has taken its place; memory that the store retires is lost until the next start")
	}
	srv.warn()
	for _, p := range srv.ports {
		d := p.dev
		srv.log.Info("serving", "addr", p.ln.Addr().String(), "fabric", d.attr.Fabric, "device", d.dev.Name(),
			"why", p.Why, "reason", d.attr.Reason, "shared_receives", d.shared, "lanes", len(d.lanes), "public", srv.logins.find(wire.Tenant{}).Secret.Empty())
	}
	return nil
}

// openParts opens what the node, or a space of it, has for itself over its
// devices: regions, store, staging, pools.
func (srv *Server) openParts(ctx context.Context) error {
	var pds []rdma.PD
	gone := true
	for _, d := range srv.devices {
		pds = append(pds, d.pd)
		gone = gone && (d.attr.Caps.Has(rdma.CapDiesWithProcess) || d.attr.Caps.Has(rdma.CapMapped) && srv.hasReaderLock())
	}
	srv.regions = newRegions(srv, pds...)
	if srv.root == srv {
		srv.regions.maySpare(srv.spareDevices())
	}
	// The devices are open before the store takes its lock and closed after it
	// gives it back. Where all of them die with the process, no memory of an
	// earlier incarnation can be read once the lock is ours; where clients had it
	// mapped, waitReaders waits for them before anybody is served. A space that was
	// closed while the node goes on has ended all READs of its memory itself.
	if err := srv.openStore(ctx, gone); err != nil {
		return err
	}
	srv.openStaging()
	srv.creditShare.Store(srv.receiveShare())
	srv.openPools()
	return nil
}

// runParts begins to serve with them; sessions may come, and who wants a backup.
func (srv *Server) runParts() {
	srv.startControl()
	srv.store.Beat(time.Now())
	srv.lastBeat.Store(srv.now())
	go srv.beatLoop(srv.beat)
	for _, d := range srv.devices {
		d.runLanes()
	}
	srv.wg.Add(5)
	go srv.reclaimLoop(srv.run)
	go srv.regionsLoop(srv.run)
	go srv.growthLoop(srv.run)
	go srv.flushLoop(srv.run)
	go srv.janitorLoop(srv.run)
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
		OnGroup:  srv.flushGroup,
		OnView:   srv.regions.changed,
		Withheld: srv.withheld(),
		Progress: srv.met.fillProgress,
	})
	if err != nil {
		return err
	}
	srv.store = st
	srv.incarnation = st.Incarnation()
	srv.shards = int(st.View().Shards)
	id := st.ID()
	srv.log.out.Store(cfg.Logger.With("store", fmt.Sprintf("%x", id[:4]), "incarnation", fmt.Sprintf("%016x", srv.incarnation)))
	if srv.cluster != nil {
		if err := srv.cluster.openBook(ctx); err != nil {
			return err
		}
	}
	srv.closeDir() // nobody else has it
	srv.releaseOwned()
	return nil
}

// Addrs returns the addresses that clients connect to, one for each listener
// that was not left out. Empty before Start.
func (srv *Server) Addrs() (addrs []net.Addr) {
	for _, p := range srv.portList() {
		if p.ln != nil {
			addrs = append(addrs, p.ln.Addr())
		}
	}
	return addrs
}

// Devices names the devices in use, each as FABRIC/DEVICE, in the order of
// Addrs. Empty before Start.
func (srv *Server) Devices() (names []string) {
	for _, p := range srv.portList() {
		if name := p.dev.name(); !slices.Contains(names, name) {
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

// Filled reports whether all keys are in memory again after a start: misses
// are then answered one-sidedly too.
func (srv *Server) Filled() bool { return srv.serving.Load() && srv.store.Filled() }

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
	srv.closePorts()
	srv.wg.Go(srv.cluster.leave)
	spacesEnded := make(chan error, 1)
	go func() { spacesEnded <- srv.shutdownSpaces(ctx) }()
	srv.gate.unblock() // what waits there is answered: the server is closing
	srv.watches.close()
	srv.refuseScans()
	srv.ending.set("requests under way")
	defer srv.ending.set("")
	srv.drain(ctx)
	for _, s := range srv.sessionList() {
		s.farewell()
	}
	linger, cancel := context.WithTimeout(ctx, srv.cfg.Linger)
	defer cancel()
	srv.waitSessions(linger)
	srv.drain(ctx)
	for _, s := range srv.sessionList() {
		s.end(causeShutdown, nil)
	}
	srv.sessMu.Lock()
	srv.sealed = true
	srv.sessMu.Unlock()
	srv.stop()
	srv.ending.set("sessions and their requests")
	srv.wg.Wait()
	srv.ending.set("gossip")
	srv.cluster.stopGossip()
	srv.ending.set("spaces")
	err := <-spacesEnded
	return errors.Join(err, srv.closeAll())
}

// drain waits until no session has a request under way.
func (srv *Server) drain(ctx context.Context) {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		busy := false
		for _, s := range srv.sessionList() {
			s.mu.Lock()
			busy = busy || s.inflight.Load() > 1 || len(s.out) > 0
			s.mu.Unlock()
		}
		if !busy {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		case <-srv.fenced:
			return
		}
	}
}

// waitSessions waits until every session has left by itself.
func (srv *Server) waitSessions(ctx context.Context) {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for len(srv.sessionList()) > 0 {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		case <-srv.fenced:
			return
		}
	}
}

// closeAll closes what is left, in the order in which it was made, reversed.
// No session is left and nobody accepts.
func (srv *Server) closeAll() error {
	var errs []error
	srv.stopBeat()
	<-srv.beatDone
	srv.ending.set("lanes")
	srv.lanes.Wait()
	srv.ending.set("workers")
	srv.closePools()
	if srv.admin != nil {
		srv.admin.close()
	}
	if err := srv.Err(); !srv.storeWell() {
		// The store may still hold buffers of ours. The process is ending.
		return err
	}
	srv.stopControl()
	srv.ending.set("the store")
	// Frees the regions, hence ends remote access, before the clean-stop mark.
	errs = append(errs, srv.store.Close())
	srv.cluster.close()
	srv.ending.set("devices")
	srv.staging.close()
	held := srv.spaceFenced() // the PD of one that has failed stays, and its device
	for _, d := range srv.devices {
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
	srv.closePorts()
	srv.cluster.stopGossip()
	if err := srv.shutdownSpaces(context.Background()); err != nil {
		srv.log.Error(limitNone, "closing a space", "err", err)
	}
	srv.closePools()
	srv.stopControl()
	if srv.store != nil {
		srv.store.Close()
	}
	srv.cluster.close()
	if srv.staging != nil {
		srv.staging.close()
	}
	for _, d := range srv.devices {
		d.close()
	}
}
