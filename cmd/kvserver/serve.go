package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/pprof"
	"strings"
	"time"

	"github.com/rdmakv/rdmakv/internal/config"
	"github.com/rdmakv/rdmakv/internal/machine"
	"github.com/rdmakv/rdmakv/internal/memory"
	"github.com/rdmakv/rdmakv/internal/server"
	"github.com/rdmakv/rdmakv/internal/version"
)

const (
	// shutdownLimit is how long an end may take in all, whatever hangs: less than
	// what systemd and Kubernetes are told to wait (deploy/). Requests under way and
	// the last sync are well inside it.
	shutdownLimit = 30 * time.Second
	// lastWords is what is left of it to say what hangs, and to exit.
	lastWords = 2 * time.Second
	// maxDump bounds the list of goroutines, bytes.
	maxDump = 256 << 10
)

// errForced ends the program at a second signal.
var errForced = errors.New("ended at once by a second signal: the next start recovers from the log")

// serve runs the node until a signal ends it, or until durability is gone.
func (a *app) serve(ctx context.Context) error {
	// Before there is work, memory or a device.
	if err := machine.Pin(a.cfg.Cores); err != nil {
		return fmt.Errorf("cores: %w", err)
	}
	fill := newBar(a.stderr)
	if fill != nil {
		a.stderr = fill
	}
	cfg, err := a.serverConfig(ctx)
	if err != nil {
		return err
	}
	if fill != nil {
		cfg.OnFill = fill.filled
	}
	srv, err := server.New(cfg)
	if err != nil {
		return err
	}
	log := cfg.Logger
	log.Info("starting", "version", version.Of("kvserver").String(), "config", orNone(a.cfg.File))
	// What is in force, so that a log tells under which settings it was written.
	log.LogAttrs(ctx, slog.LevelInfo, "settings", a.cfg.Attrs(config.ForServer)...)

	var reloads <-chan os.Signal
	if a.reloads != nil {
		reloads = a.reloads()
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	started := make(chan error, 1)
	go func() { started <- srv.Start(ctx) }()
	select {
	case err = <-started:
	case sig := <-a.signals:
		// The start takes the log's replay as long as it takes; it is safe to
		// be interrupted there, as by a crash.
		log.Info("ended during the start", "signal", sig.String())
		cancel(fmt.Errorf("%v during the start", sig))
		select {
		case err = <-started:
		case <-a.signals:
			return errForced
		case <-time.After(shutdownLimit - lastWords):
			return a.hangs(log, "the start")
		}
		if err == nil {
			return a.shutdown(srv, log)
		}
		return nil
	}
	if err != nil {
		return portsTaken(err, a.cfg.Config)
	}
	if _, err := fmt.Fprintln(a.stdout, readyLine(srv)); err != nil {
		log.Warn("the ready line cannot be written to standard output", "err", err)
	}
	if sig := a.attend(ctx, srv.Fatal(), reloads, func(ctx context.Context) { a.reload(ctx, srv, log) }); sig != nil {
		log.Info("ending", "signal", sig.String())
		return a.shutdown(srv, log)
	}
	_ = a.shutdown(srv, log)
	return fmt.Errorf("this node cannot go on: %w", srv.Err())
}

// attend waits for what ends the node: a signal, or nil if it has failed.
// Meanwhile it reloads when that is asked for. Opening spaces may take minutes,
// in which the node must be as easy to end as ever; so a reload has a goroutine of
// its own, one at a time, and its context ends with attend.
func (a *app) attend(ctx context.Context, failed <-chan struct{}, reloads <-chan os.Signal, reload func(context.Context)) os.Signal {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var over chan struct{} // closed when the reload under way is; nil: none is
	for {
		ask := reloads
		if over != nil {
			ask = nil // the signal stays in its channel
		}
		select {
		case sig := <-a.signals:
			return sig
		case <-failed:
			return nil
		case <-ask:
			done := make(chan struct{})
			over = done
			go func() {
				defer close(done)
				reload(ctx)
			}()
		case <-over:
			over = nil
		}
	}
}

// An ender is what is ended: a *server.Server.
type ender interface {
	Shutdown(context.Context) error
	Ending() string
}

// shutdown ends the node cleanly, unless another signal forbids that, or something
// hangs for longer than an end may take. A store that is left as it is recovers
// from its log, as after a crash.
func (a *app) shutdown(srv ender, log *slog.Logger) error {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownLimit-lastWords)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- srv.Shutdown(ctx) }()
	select {
	case err := <-done:
		return err
	case <-a.signals:
		return errForced
	case <-ctx.Done():
		return a.hangs(log, srv.Ending())
	}
}

// hangs tells what an end waited for in vain, with every goroutine, for whoever
// is to find out why. The stacks name functions, no values.
func (a *app) hangs(log *slog.Logger, what string) error {
	var dump bytes.Buffer
	_ = pprof.Lookup("goroutine").WriteTo(&dump, 1)
	text := dump.Bytes()
	log.Error("the end takes too long: this process ends without it", "waiting_for", orNone(what), "limit", shutdownLimit)
	_, _ = a.stderr.Write(text[:min(len(text), maxDump)])
	return fmt.Errorf("not ended cleanly within %v (waiting for: %s): the process ends as it is, and the next start recovers from the log", shutdownLimit, orNone(what))
}

// readyLine is the first line on standard output: scripts wait for it and
// read the addresses from it.
func readyLine(srv *server.Server) string {
	line := "ready data=" + srv.Addrs()[0].String()
	if addr := srv.AdminAddr(); addr != nil {
		line += " admin=" + addr.String()
	}
	if addr := srv.GossipAddr(); addr != "" {
		line += " node=" + srv.Name() + " gossip=" + addr
	}
	return line + " fabrics=" + strings.Join(srv.Devices(), ",")
}

// serverConfig translates the configuration into the server's.
func (a *app) serverConfig(ctx context.Context) (server.Config, error) {
	c, log := a.cfg, a.logger()
	listeners, err := a.fabrics(c.Config, log).pick(ctx, c.Config, log)
	if err != nil {
		return server.Config{}, err
	}
	secret, err := c.Secret()
	if err != nil {
		return server.Config{}, err
	}
	node, err := clusterConfig(c)
	if err != nil {
		return server.Config{}, err
	}
	list, err := a.tenants()
	if err != nil {
		return server.Config{}, err
	}
	// SIGHUP may bring tenants later.
	if len(secret) > 0 || c.TenantsFile != "" || c.TLS.Key != "" || node != nil && len(node.Keys) > 0 {
		if err := memory.KeepSecret(); err != nil {
			log.Warn("a core dump of this process would have its secrets in it", "err", err)
		}
	}
	cfg := server.Config{
		Listeners:       listeners,
		Secret:          secret,
		Tenants:         list,
		Private:         c.TenantsFile != "", // an empty list opens no door
		Name:            nodeName(),
		Cluster:         node,
		DataDir:         c.DataDir,
		Shards:          c.Shards,
		SyncInterval:    c.SyncInterval,
		MemoryLimit:     uint64(c.MemoryLimit),
		RegionSize:      uint64(c.RegionSize),
		IndexRegionSize: uint64(c.IndexRegionSize),
		Prefault:        c.Prefault,
		Lease:           time.Duration(c.Lease), // 0, when it is off, is the default
		LeaseOff:        c.Lease == 0,
		WatchBytes:      int64(c.WatchBytes),
		ScrubRate:       int64(c.ScrubRate),
		Credits:         c.Credits,
		MaxSessions:     c.MaxSessions,
		RKeyMaxAge:      time.Duration(c.RkeyMaxAge),
		MapTenants:      c.Shm == "trusted",
		RegionIdle:      time.Duration(c.RegionIdle),

		MaxSessionsPerHost: c.MaxSessionsPerHost, // 0: as many
		AdminListen:        c.AdminListen,
		EpochAbove:         a.above,
		Debug:              c.PProf,
		Logger:             log,
	}
	if node != nil {
		cfg.Name = node.NodeID
	}
	if err := planFiles(&cfg, log); err != nil {
		return server.Config{}, err
	}
	cfg.Wait, cfg.Spin = waiting(c.Config)
	if c.NUMANode >= 0 {
		cfg.NUMANode = &c.NUMANode
	}
	if c.WatchBytes == 0 {
		cfg.WatchBytes = -1 // none; 0 is the default
	}
	if c.ScrubRate == 0 {
		cfg.ScrubRate = -1
	}
	// The policy by its name. The type is the store's, which this program does
	// not import; its zero value is the first of three.
	for cfg.Sync.String() != c.Sync {
		if cfg.Sync++; cfg.Sync > 2 {
			return server.Config{}, fmt.Errorf("sync: the store knows no policy %q", c.Sync)
		}
	}
	for cfg.Mode.String() != c.Mode {
		if cfg.Mode++; cfg.Mode > 1 {
			return server.Config{}, fmt.Errorf("mode: the store knows no %q", c.Mode)
		}
	}
	for cfg.HugePages.String() != c.HugePages {
		if cfg.HugePages++; cfg.HugePages > server.HugeOn {
			return server.Config{}, fmt.Errorf("huge_pages: the server knows no %q", c.HugePages)
		}
	}
	return cfg, nil
}

// planFiles bounds connections and the store's files by the limit of open files, so
// that connections, which anybody can open, never leave the store without a file.
func planFiles(cfg *server.Config, log *slog.Logger) error {
	limit, err := machine.OpenFiles()
	if err != nil {
		log.Info("the limit of open files is unknown", "err", err)
		return nil
	}
	spaces := 0
	for _, t := range cfg.Tenants {
		if t.Prefix == "" && (t.Space == "" || t.Space == "own") {
			spaces++
		}
	}
	plan, need, ok := machine.PlanFiles(limit, cfg.Cluster != nil, spaces)
	if !ok {
		return fmt.Errorf("the limit of open files is %d: this node needs %d at least (ulimit -n; LimitNOFILE= of systemd)", limit, need)
	}
	cfg.MaxOpenFiles, cfg.SpaceOpenFiles, cfg.MaxConnections = plan.Store, plan.SpaceStore, plan.Sessions
	if plan.Sessions < cfg.MaxSessions {
		log.Warn("the limit of open files (ulimit -n; LimitNOFILE= of systemd) is too low for max_sessions: fewer clients are let in",
			"limit", limit, "max_sessions", cfg.MaxSessions, "let_in", plan.Sessions, "store_files", plan.Store)
	}
	return nil
}

// nodeName is what this node calls itself in sessions and logs.
func nodeName() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		return "kvserver"
	}
	return strings.ToValidUTF8(host[:min(len(host), 64)], "?")
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}
