package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"

	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/internal/server/auth"
	"github.com/rdmakv/rdmakv/internal/server/base"
	"github.com/rdmakv/rdmakv/internal/server/change"
	"github.com/rdmakv/rdmakv/internal/server/groups"
	"github.com/rdmakv/rdmakv/internal/server/handle"
	"github.com/rdmakv/rdmakv/internal/server/member"
	"github.com/rdmakv/rdmakv/internal/server/memory"
	"github.com/rdmakv/rdmakv/internal/server/session"
	"github.com/rdmakv/rdmakv/internal/server/space"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/store"
)

// A Server is one node. New, then Start, then Shutdown. All methods are safe
// for concurrent use; Start is called once.
//
// It has what stands before the keys: devices, listeners, logins, the part in a
// cluster, the admin port. The keys are in its spaces (space.go): the main one, which
// every node has, and one for each tenant with one-sided access. The node lives as long
// as its main space: it serves, drains and is fenced with it.
type Server struct {
	cfg    Config
	log    *base.Log // that of the main space
	main   *space.Space
	spaces *spaces // the main one, and those of tenants

	// What the node and all its spaces share.
	logins   *auth.Logins
	registry *session.Registry
	bounds   *base.Bounds
	owned    *base.Ownership // nil: the server is alone
	line     *memory.StageLine

	makers *handle.Makers // of the documents of the node
	nodePools

	member *member.Member  // nil: the server is alone
	groups *groups.Groups  // nil with it
	change *change.Changer // likewise
	tables member.Tables

	devices  *devices
	selfDial *selfDial
	acceptor *acceptor
	admin    *admin // nil without an admin port

	run  context.Context    // ends accept, the part in the cluster, the care of devices
	stop context.CancelFunc // ends it
	wg   sync.WaitGroup     // of them, and of set-ups

	ending      base.WaitsFor // what the end waits for, beside that of the main space
	shutdown    sync.Once
	shutdownErr error
}

// New checks the configuration; every fault is in the error.
func New(cfg Config) (*Server, error) {
	cfg = cfg.withDefaults().withSpaces()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	srv := &Server{cfg: cfg, log: base.NewLog(cfg.Logger), bounds: &base.Bounds{}}
	srv.run, srv.stop = context.WithCancel(context.Background())
	srv.logins = auth.NewLogins(cfg.logins())
	srv.registry = session.NewRegistry(cfg.registry(), srv.bounds)
	srv.line = memory.NewStageLine(cfg.StagingBytes, srv.stagingShare, func(tenant *base.Account) { tenant.Hit(srv.bounds, base.BoundLoginStaging) })
	srv.member = member.New(cfg.Cluster, member.Env{Node: clusterNode{srv}, Dir: cfg.dir(), Secret: cfg.Secret, Logger: cfg.Logger, Log: srv.log})
	srv.owned = srv.member.Ownership()
	main := cfg.space()
	if cfg.Cluster != nil {
		srv.groups = groups.New(groups.Env{
			Node: cfg.Cluster.NodeID, Secret: cfg.Secret, Log: srv.log, Logger: cfg.Logger,
			Store: func() *store.Store { return srv.main.Store }, Routes: srv.routes, Quiet: cfg.LeaderQuiet, Absent: cfg.ReplicaAbsent,
			Openings: srv.member.Openings, Admit: srv.member.Admit, SetBack: srv.member.SetBack,
			Answer: func(ctx context.Context, node string, question []byte) ([]byte, error) {
				return srv.change.Answer(ctx, node, question)
			},
			Learn:      func(ctx context.Context, node string) error { return srv.change.Learn(ctx, node) },
			EndReaders: func(ctx context.Context) error { return srv.main.EndReaders(ctx) },
			Changed:    func() { clusterNode{srv}.ReleaseOwned() },
		})
		dir := cfg.dir()
		srv.change = change.New(change.Env{
			Node: cfg.Cluster.NodeID, FS: dir.FS, Dir: dir.Path, Log: srv.log, Logger: cfg.Logger,
			Engine: srv.groups.Engine, MetaReplica: func(id consensus.ReplicaID) { store.MetaReplica(srv.main.Store, id) }, MayTakePart: srv.groups.MayTakePart(), Ask: srv.groups.Ask,
			DropMeta: func(id consensus.ReplicaID) error { return store.DropMeta(srv.main.Store, id) },
			Kept:     clusterNode{srv}.kept, Follow: srv.member.Follow, MayJoin: clusterNode{srv}.mayJoin, Levels: clusterNode{srv}.levels(),
		})
		srv.groups.Store(&main.Store)
	}
	srv.main = space.New(main, srv.spaceEnv("", srv.log, &cfg, srv.mainHandlers))
	srv.spaces, srv.devices, srv.selfDial = newSpaces(srv), newDevices(srv), newSelfDial(srv)
	srv.makers, srv.acceptor = newMakers(srv), newAcceptor(srv)
	return srv, nil
}

// spaceEnv is what the node gives to each space.
func (srv *Server) spaceEnv(name string, log *base.Log, cfg *Config, handlers func(*space.Space, *Config) space.Handlers) space.Env {
	login := name
	if login == "" {
		login = auth.MainSpace
	}
	return space.Env{
		Name: name, Log: log, Bounds: srv.bounds, Owned: srv.owned, Registry: srv.registry, Line: srv.line,
		Shared:       func() bool { return srv.logins.Shared(login) },
		MakeHandlers: func(sp *space.Space) space.Handlers { return handlers(sp, cfg) },
	}
}

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
	srv.nodePools.open() // before the admin port, whose metrics look at them
	// First of all else, so that health can be asked while the log is replayed.
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
	if err := srv.openMain(ctx); err != nil {
		return err
	}
	if err := waitReaders(ctx, &srv.cfg, srv.log); err != nil {
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
		srv.groups.TakePart()
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	srv.main.Serve()
	srv.serve()
	return nil
}

// openMain opens the main space, and what reads the node's directory beside its store.
func (srv *Server) openMain(ctx context.Context) error {
	if err := srv.main.Open(ctx, srv.devices.spare()); err != nil {
		return err
	}
	closeDir(srv.log, &srv.cfg) // nobody else has it
	warnOfDir(srv.log, &srv.cfg)
	if srv.member != nil {
		if err := srv.member.OpenBook(ctx, srv.main.Shards); err != nil {
			return err
		}
		srv.main.ReleaseOwned()
	}
	return nil
}

// serve lets clients in.
func (srv *Server) serve() {
	if srv.member != nil {
		srv.main.Regions.OnChange(srv.member.RegionsChanged)
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
		r := srv.main.Rails.Of(p.dev.Device)
		srv.log.Info("serving", "addr", p.ln.Addr().String(), "fabric", r.Attr.Fabric, "device", r.Dev.Name(),
			"why", p.Why, "reason", r.Attr.Reason, "shared_receives", r.Shared, "lanes", r.Lanes(), "public", srv.logins.Find(wire.Tenant{}).Secret.Empty())
	}
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
func (srv *Server) Ready() bool { return srv.main.Ready() }

// Filled reports whether all keys are in memory again after a start: misses
// are then answered one-sidedly too.
func (srv *Server) Filled() bool { return srv.main.Filled() }

// Shutdown ends the node cleanly: no new sessions, requests under way are
// finished, clients are told, the store is closed with its clean-stop mark.
// When ctx ends (or Config.DrainTimeout passes) what is still under way is cut
// off. It may be called twice; the second call waits for the first. Where a lane
// hangs the end is given up: then, and after every error, the process must end.
//
// Errors: what closing the store or the device said; Err if durability is gone,
// or a handler does not return.
func (srv *Server) Shutdown(ctx context.Context) error {
	srv.shutdown.Do(func() { srv.shutdownErr = srv.main.EndWithin(ctx, srv.end) })
	return srv.shutdownErr
}

// awaitsOthers is what Ending says while replicas at other nodes catch up.
const awaitsOthers = "other nodes, whose replicas have not caught up"

// end ends a node that serves, in the order in which it was made, reversed. The spaces
// of tenants end meanwhile; the devices are closed last.
func (srv *Server) end(ctx context.Context) error {
	main := srv.main
	if !main.Serving.Load() {
		return nil // Start failed and has cleared up, or was never called
	}
	srv.log.Info("shutting down")
	srv.ending.Set(awaitsOthers)
	groups.AwaitOthers(ctx, srv.groups) // first: the node serves meanwhile
	main.Draining.Store(true)
	srv.wg.Go(srv.member.Leave)
	srv.ending.Set("other replicas, to take over")
	srv.groups.HandOver(ctx)
	srv.ending.Set("")
	// Not before: a node that has just come back, and is to take over, may have to open its way to this one first.
	srv.devices.closePorts()
	spacesEnded := make(chan error, 1)
	go func() { spacesEnded <- srv.spaces.shutdown(ctx) }()
	defer srv.ending.Set("")
	main.Drain(ctx)
	srv.stop()
	srv.change.Stop()
	srv.ending.Set("replicas") // first: writes of a group without a majority are not answered before
	srv.groups.Stop()
	ended := store.EndGroups(main.Store)
	main.Leave()
	srv.ending.Set("connections and gossip")
	srv.wg.Wait()
	srv.member.Stop()
	srv.ending.Set("spaces")
	err := <-spacesEnded
	srv.ending.Set("")
	main.Halt()
	srv.nodePools.close()
	srv.admin.close()
	err = errors.Join(err, ended, main.Close())
	if !main.Fence.StoreWell() {
		return err
	}
	srv.ending.Set("ways to other nodes")
	err = errors.Join(err, srv.groups.Close())
	srv.member.Close()
	srv.ending.Set("devices")
	if !srv.spaces.fenced() { // the PD of one that has failed stays, and its device
		err = errors.Join(err, srv.devices.close())
	}
	srv.log.Info("stopped")
	return err
}

// abandon closes what a failed Start has made.
func (srv *Server) abandon() {
	srv.stop()
	srv.admin.close()
	srv.devices.closePorts()
	srv.member.Stop()
	if err := srv.spaces.shutdown(context.Background()); err != nil {
		srv.log.Error(base.LogAlways, "closing a space", "err", err)
	}
	srv.nodePools.close()
	srv.change.Stop()
	srv.groups.Stop()
	srv.main.Abandon()
	_ = srv.groups.Close()
	srv.member.Close()
	_ = srv.devices.close()
}

// A space is fenced once it cannot promise what it is to promise, because its store has
// failed, a lane or a device did for good, or another process is this node: it answers
// nobody any more. A node is fenced with its main space, and has to end.

// Err is nil while the node works. Afterwards it says why durability is gone,
// or why the fabric is; the process must then end.
func (srv *Server) Err() error { return srv.main.Err() }

// Fatal is closed when Err becomes non-nil.
func (srv *Server) Fatal() <-chan struct{} { return srv.main.Fence.Done() }

// standDown fences a node whose stores are well: all its spaces end.
func (srv *Server) standDown(err error) {
	srv.groups.Cut()
	for _, sp := range srv.spaces.every() {
		if sp.Err() == nil {
			sp.StandDown(err)
		}
	}
}

// sick says what makes this process one to be started again, or nil: its
// durability is gone, or a lane of the node or of a space hangs.
func (srv *Server) sick() error {
	if err := srv.Err(); err != nil {
		return err
	}
	for _, sp := range srv.spaces.every() {
		if sp.LaneHangs.Load() {
			if sp.Name != "" {
				return fmt.Errorf("space %q: %w", sp.Name, space.ErrLaneHangs)
			}
			return space.ErrLaneHangs
		}
	}
	return nil
}

// Ending says what Shutdown waits for, in the node and in each space; empty before
// Shutdown and after it. Safe for concurrent use, and it waits for nothing itself.
func (srv *Server) Ending() string {
	var list []string
	for _, w := range [...]*base.WaitsFor{&srv.ending, &srv.main.Ending} {
		if what := w.Get(); what != "" {
			list = append(list, what)
		}
	}
	list = append(list, srv.spaces.ending()...)
	return strings.Join(list, "; ")
}
