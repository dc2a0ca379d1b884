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

	"github.com/rdmakv/rdmakv/internal/cli/fabrics"
	"github.com/rdmakv/rdmakv/internal/config"
	"github.com/rdmakv/rdmakv/internal/machine"
	"github.com/rdmakv/rdmakv/internal/secret"
	"github.com/rdmakv/rdmakv/internal/server"
	"github.com/rdmakv/rdmakv/internal/version"
)

const (
	// shutdownLimit is how long an end may take in all, whatever hangs: less than
	// systemd and Kubernetes are told to wait (deploy/). Requests under way and the
	// last sync are well inside it.
	shutdownLimit = 30 * time.Second
	// lastWords is the part of it that is left for the report of what hangs, and for
	// the exit.
	lastWords = 2 * time.Second
	// regionIdle is after how long a region of items in which nothing stands is given
	// back to the machine: memory for others, against registering again.
	regionIdle = 10 * time.Minute
	// maxDump bounds the list of goroutines, bytes.
	maxDump = 256 << 10
)

// errForced ends the program at a second signal.
var errForced = errors.New("ended at once by a second signal: the next start recovers from the log")

// serve runs the node until a signal ends it, or until it can serve no longer. The
// order matters: processors are pinned before there is memory, so that memory is
// near them; nothing is printed to standard output before every listener is open,
// because scripts take the ready line as leave to connect.
func (a *app) serve(ctx context.Context) error {
	// Before there is work, memory or a device.
	if err := machine.Pin(a.cfg.Expert.Cores); err != nil {
		return fmt.Errorf("expert.cores: %w", err)
	}
	// From here on everything that goes to standard error has to go around the bar.
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
	release, err := a.keepMemory(ctx, &cfg, cfg.Logger)
	if err != nil {
		return err
	}
	defer release()
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
	go machine.GiveBack(ctx)
	// In a goroutine of its own, because a start may take minutes and must be as
	// easy to end as a node that serves.
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
		if err == nil { // it was up before it saw the signal
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
	// The node has failed by itself. How its end goes adds nothing to why.
	_ = a.shutdown(srv, log)
	return fmt.Errorf("this node cannot go on: %w", srv.Err())
}

// attend waits for what ends the node: a signal, or nil if it has failed. Meanwhile
// it reloads when a signal asks for that. Opening spaces may take minutes, in which
// the node must still be easy to end; so a reload has a goroutine of its own, one at
// a time, and its context ends with attend.
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

// An ender can be shut down: a *server.Server, or in tests one that hangs.
type ender interface {
	Shutdown(context.Context) error
	Ending() string
}

// shutdown ends the node cleanly, unless another signal forbids that, or something
// hangs for longer than an end may take. A store that is not closed recovers from
// its log, as after a crash: it is slower to start, and nothing is lost.
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

// hangs logs what an end waited for in vain, with every goroutine: once the process
// is gone nothing else tells why it hung. The stacks name functions, no values, so
// no key and no secret is in them.
func (a *app) hangs(log *slog.Logger, what string) error {
	// Into memory first: the list is cut at a bound, and written in one piece.
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

// serverConfig translates the configuration into the server's. Words of the
// configuration become types here, and "0" and "off", which mean "none" to a user,
// become what means none to the server, whose own zero values mean the default.
func (a *app) serverConfig(ctx context.Context) (server.Config, error) {
	c, log := a.cfg, a.logger()
	listeners, err := a.fabrics(c.Config, log).pick(ctx, c.Config, log)
	if err != nil {
		return server.Config{}, err
	}
	nodeSecret, err := c.Secret()
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
	if len(nodeSecret) > 0 || c.TenantsFile != "" || c.TLS.Key != "" || node != nil && len(node.Keys) > 0 {
		if err := secret.Protect(); err != nil {
			log.Warn("a core dump of this process would have its secrets in it", "err", err)
		}
	}
	cfg := server.Config{
		Listeners:       listeners,
		Secret:          nodeSecret,
		Tenants:         list,
		Private:         c.TenantsFile != "", // an empty list opens no door
		Name:            nodeName(),
		Cluster:         node,
		DataDir:         c.DataDir,
		Shards:          c.Shards,
		SyncInterval:    c.SyncInterval,
		MemoryLimit:     uint64(c.MemoryLimit),
		RegionSize:      uint64(c.Expert.RegionSize),
		IndexRegionSize: uint64(c.Expert.IndexRegionSize),
		Prefault:        prefault(c.Config),
		Lease:           time.Duration(c.Lease), // 0, when it is off, is the default
		LeaseOff:        c.Lease == 0,
		WatchBytes:      int64(c.WatchBytes),
		LogBytes:        int64(c.LogBytes),
		SnapshotRate:    int64(c.Cluster.MoveRate),
		MaxSessions:     c.MaxSessions,
		RKeyMaxAge:      time.Duration(c.RkeyMaxAge),
		MapTenants:      c.Shm == "trusted",
		RegionIdle:      regionIdle,

		MaxSessionsPerHost: c.Expert.MaxSessionsPerHost, // 0: as many
		AdminListen:        c.AdminListen,
		EpochAbove:         a.above,
		Debug:              c.PProf,
		Logger:             log,
	}
	// In a cluster the id is what logs and clients of all nodes call it.
	if node != nil {
		cfg.Name = node.NodeID
	}
	if err := boundFiles(&cfg, log); err != nil {
		return server.Config{}, err
	}
	cfg.Wait, cfg.Spin = fabrics.Waiting(c.Config)
	// numactl's choice comes first, because that of a region would override it.
	if node, ok := machine.DeviceNode(devicesOf(listeners)...); ok && !machine.Placed() {
		log.Info("registered memory is taken from the NUMA node of the devices", "node", node)
		cfg.NUMANode = &node
	}
	if c.WatchBytes == 0 {
		cfg.WatchBytes = -1 // none; 0 is the default
	}
	return cfg, errors.Join(cfg.Sync.UnmarshalText([]byte(c.Sync)), cfg.Mode.UnmarshalText([]byte(c.Mode)),
		cfg.HugePages.UnmarshalText([]byte(c.HugePages)))
}

// devicesOf names the devices that a node listens with.
func devicesOf(listeners []server.Listener) (names []string) {
	for _, l := range listeners {
		names = append(names, l.Device)
	}
	return names
}

// prefault says whether the pages of a region are taken from the machine before it is
// used. By default they are where huge pages are asked for: a huge page is taken whole
// anyway, and that there are too few of them is then found out at the start.
func prefault(c config.Config) bool {
	return c.Expert.Prefault == "on" || c.Expert.Prefault == "auto" && (c.HugePages == "try" || c.HugePages == "on")
}

// nodeName is what this node calls itself in sessions and logs, if it is not one of
// a cluster: the name of the host, cut to what a session's welcome can carry.
func nodeName() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		return "kvserver"
	}
	return strings.ToValidUTF8(host[:min(len(host), 64)], "?")
}

// orNone writes "none" for an empty text, which could not be seen in a log.
func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}
