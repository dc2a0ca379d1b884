package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/rdmakv/rdmakv/internal/machine"
	"github.com/rdmakv/rdmakv/internal/server/auth"
	"github.com/rdmakv/rdmakv/internal/server/base"
	"github.com/rdmakv/rdmakv/internal/server/session"
	"github.com/rdmakv/rdmakv/store"
)

// A SpaceConfig names a space of the node: the part that one tenant with
// one-sided access has for itself (space.go).
type SpaceConfig struct {
	// Name is the name of the space and of its directory, DataDir/tenants/NAME:
	// 1 to 63 of [a-z0-9-.], beginning with a letter or a digit. Not "main",
	// which is the node's own.
	Name string
	// MemoryLimit bounds the regions of the space, bytes, beside
	// Config.MemoryLimit. Default 64 MiB, at least 16 MiB.
	MemoryLimit uint64
	// MaxSessions bounds the clients connected to the space. Default 256, at
	// most Config.MaxSessions.
	MaxSessions int
}

// MaxSpaces bounds the spaces of a node: each has a store, a beat, lanes and
// buffers of its own.
const MaxSpaces = 64

const (
	defSpaceMemory   = 64 << 20
	minSpaceMemory   = 16 << 20
	defSpaceSessions = 256
	// spaceLinger bounds how long the requests of a space that is taken away
	// may take to end.
	spaceLinger = 500 * time.Millisecond
)

func (c SpaceConfig) withDefaults(node *Config) SpaceConfig {
	def(&c.MemoryLimit, defSpaceMemory)
	def(&c.MaxSessions, min(defSpaceSessions, node.MaxSessions))
	return c
}

// checkSpaces returns every fault of a set of spaces.
func (c Config) checkSpaces(list []SpaceConfig) []error {
	var errs []error
	fault := func(format string, args ...any) { errs = append(errs, fmt.Errorf("server: "+format, args...)) }
	if len(list) > MaxSpaces {
		fault("%d spaces: at most %d", len(list), MaxSpaces)
	}
	seen := make(map[string]bool)
	def(&c.MemoryLimit, 1<<30) // the store's
	total := c.MemoryLimit
	for _, sp := range list {
		sp = sp.withDefaults(&c)
		if !auth.ValidName(sp.Name) {
			fault("space %q: the name must be 1 to %d of [a-z0-9-.], begin with a letter or a digit, and not be %q", sp.Name, auth.MaxName, auth.MainSpace)
		}
		if seen[sp.Name] {
			fault("space %q is named twice", sp.Name)
		}
		seen[sp.Name] = true
		if sp.MemoryLimit < minSpaceMemory {
			fault("space %q: memory limit = %d bytes: must be at least %d", sp.Name, sp.MemoryLimit, minSpaceMemory)
		}
		if sp.MaxSessions < 1 || sp.MaxSessions > c.MaxSessions {
			fault("space %q: max sessions = %d: must be 1 to %d", sp.Name, sp.MaxSessions, c.MaxSessions)
		}
		total += sp.MemoryLimit
	}
	// A node without spaces may promise more than it has, as ever: nobody else
	// lives on it. With tenants the promise is to others.
	if has := machine.Memory(); len(list) > 0 && has > 0 && total > uint64(has) {
		fault("memory limits: %d bytes for the node's own keys and %d for %d spaces are %d together, this machine (or its cgroup) has %d: lower memory_limit or the tenants'",
			c.MemoryLimit, total-c.MemoryLimit, len(list), total, has)
	}
	return errs
}

// A patientLock is a mutex for those who wait for sessions, or a device, while they hold it.
// It is a channel, so that in a simulation (testing/synctest) time passes while
// somebody waits for it. The zero value is free.
type patientLock struct {
	once sync.Once
	held chan struct{}
}

func (t *patientLock) Lock() {
	t.once.Do(func() { t.held = make(chan struct{}, 1) })
	t.held <- struct{}{}
}

func (t *patientLock) Unlock() { <-t.held }

// spaces are the spaces of a node, which are the same for the node and for each of them.
type spaces struct {
	srv *Server // the node

	// change is held by whoever opens and closes spaces; nothing on the way of a
	// request waits for it. Before mu.
	change patientLock
	reload sync.Mutex // held by SetTenants, for as long as opening spaces takes; before change

	mu     sync.RWMutex
	open   map[string]*Server // those that serve, and those that have fenced themselves
	failed map[string]error   // those that could not be opened, and why
	closed bool
}

func newSpaces(srv *Server) *spaces {
	return &spaces{srv: srv, open: make(map[string]*Server), failed: make(map[string]error)}
}

// of returns the server of a space: the node itself for "" and "main", nil for one that
// does not exist or does not serve. It may be called for each connection.
func (g *spaces) of(name string) *Server {
	if name == "" || name == auth.MainSpace {
		return g.srv
	}
	g.mu.RLock()
	defer g.mu.RUnlock()
	if sp := g.open[name]; sp != nil && sp.Ready() {
		return sp
	}
	return nil
}

// every returns the node itself and then its open spaces by name, those included that
// have fenced themselves. Everything that is true of all keys of a node (whose shards
// they are, that there are none) is to be done for each.
func (g *spaces) every() []*Server {
	g.mu.RLock()
	defer g.mu.RUnlock()
	list := slices.SortedFunc(maps.Values(g.open), func(a, b *Server) int { return cmp.Compare(a.space, b.space) })
	return slices.Insert(list, 0, g.srv)
}

// set makes the node have the spaces of list and no others: it opens
// those that are missing, tries again those that failed, and closes those that
// are not named: their sessions end within a second, their files stay. A space
// whose limits have changed keeps its old ones until the next start; the log
// says so.
//
// A fault of the list changes nothing and is returned. A space that cannot be
// opened (its store is damaged, say) does not stop the others: the error is
// returned, logged, and stands in Spaces; its tenant is refused.
//
// ctx bounds the opening. Calls are serialised.
func (g *spaces) set(ctx context.Context, list []SpaceConfig) error {
	g.change.Lock()
	defer g.change.Unlock()
	wanted := make(map[string]SpaceConfig, len(list))
	full := make([]SpaceConfig, 0, len(list))
	for _, c := range list {
		c = c.withDefaults(&g.srv.cfg)
		wanted[c.Name] = c
		full = append(full, c)
	}
	if err := errors.Join(g.srv.cfg.checkSpaces(full)...); err != nil {
		return err
	}
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		return errNotServing
	}
	clear(g.failed)
	var gone []*Server
	for name, sp := range g.open {
		c, ok := wanted[name]
		switch {
		case !ok:
			gone = append(gone, sp)
		case c.MemoryLimit != sp.cfg.MemoryLimit || c.MaxSessions != sp.cfg.MaxSessions:
			g.srv.log.Warn(base.LogAlways, "the limits of a space are changed at the next start", "space", name,
				"memory_limit", sp.cfg.MemoryLimit, "memory_limit_next", c.MemoryLimit)
		}
		delete(wanted, name)
	}
	g.mu.Unlock()
	var closing sync.WaitGroup
	for _, sp := range gone {
		closing.Go(func() { g.close(sp) })
	}
	closing.Wait()
	return g.openAll(ctx, wanted)
}

// openAll opens spaces, a few at a time. g.change is held.
func (g *spaces) openAll(ctx context.Context, wanted map[string]SpaceConfig) error {
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		errs []error
		few  = make(chan struct{}, 4)
	)
	for _, c := range wanted {
		few <- struct{}{}
		wg.Go(func() {
			defer func() { <-few }()
			sp, err := g.openOne(ctx, c)
			g.mu.Lock()
			if err != nil {
				g.failed[c.Name] = err
			} else {
				g.open[c.Name] = sp
			}
			g.mu.Unlock()
			if sp != nil {
				sp.releaseOwned() // a map may have come while it was opened
			}
			if err != nil {
				g.srv.log.Error(base.LogAlways, "a space cannot be opened: its tenants are refused, the others are served", "space", c.Name, "err", err)
				mu.Lock()
				errs = append(errs, fmt.Errorf("server: space %q: %w", c.Name, err))
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// make makes the Server of a space; openOne starts it.
func (g *spaces) make(c SpaceConfig) *Server {
	srv := g.srv
	cfg := srv.cfg.forSpace(c)
	cfg.Logger = cfg.Logger.With("space", c.Name)
	cfg.Shards = srv.shards // a shard map is the node's: every space has its shards
	sp := newServer(cfg)
	sp.root, sp.spaces, sp.space, sp.laneSilence, sp.bounds, sp.owned = srv, g, c.Name, srv.laneSilence, srv.bounds, srv.owned
	sp.openGroup(srv.registry)
	return sp
}

// openOne opens a space of a node that has its devices and its own store. It
// serves when openOne returns; nothing is left of it after an error.
func (g *spaces) openOne(ctx context.Context, c SpaceConfig) (_ *Server, err error) {
	begun := time.Now()
	sp := g.make(c)
	defer func() {
		if err != nil {
			sp.abandon()
		}
	}()
	for _, d := range g.srv.devices.all() {
		own, err := sp.devices.make(d.Device, true)
		if err != nil && d.Away() == nil {
			return nil, err
		}
		if err != nil { // it is made when the device is back
			own = &device{Device: d.Device, Rail: session.AbsentRail(sp.sessions, d.Device, len(sp.devices.list)), srv: sp, shares: true}
		}
		sp.devices.list = append(sp.devices.list, own)
	}
	if err := sp.openParts(ctx); err != nil {
		return nil, err
	}
	for _, d := range sp.devices.list {
		if d.PD == nil {
			continue
		}
		if err := d.makeLanes(); err != nil {
			return nil, err
		}
	}
	sp.runParts()
	sp.log.Info("space open", "dir", sp.cfg.DataDir, "memory_limit", sp.cfg.MemoryLimit, "max_sessions", sp.cfg.MaxSessions,
		"took", time.Since(begun).Round(time.Millisecond))
	return sp, nil
}

// close takes a space away from a node that goes on.
func (g *spaces) close(sp *Server) {
	ctx, cancel := context.WithTimeout(context.Background(), spaceLinger)
	defer cancel()
	err := sp.Shutdown(ctx)
	g.mu.Lock()
	// One that is fenced keeps its lock and memory until the process ends, and
	// must not be opened a second time.
	if sp.Err() == nil {
		delete(g.open, sp.space)
	}
	g.mu.Unlock()
	if err != nil {
		g.srv.log.Error(base.LogAlways, "closing a space", "space", sp.space, "err", err)
		return
	}
	g.srv.log.Info("space closed; its files stay", "space", sp.space, "dir", sp.cfg.DataDir)
}

// fenced says whether a space of srv has lost its durability. A space has no spaces.
func (g *spaces) fenced(srv *Server) bool {
	return srv == g.srv && slices.ContainsFunc(g.every()[1:], func(sp *Server) bool { return sp.Err() != nil })
}

// shutdown ends all of them, at once, before srv ends itself. A space has no spaces.
func (g *spaces) shutdown(ctx context.Context, srv *Server) error {
	if srv != g.srv {
		return nil
	}
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.change.Lock() // waits for an opening under way
	defer g.change.Unlock()
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		errs []error
	)
	for _, sp := range g.every()[1:] {
		wg.Go(func() {
			if err := sp.Shutdown(ctx); err != nil {
				mu.Lock()
				errs = append(errs, fmt.Errorf("space %q: %w", sp.space, err))
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// memTables is how many of Pebble's there are before writes wait.
const memTables = 4

// stateLimits logs what memory the node has promised, and to whom; and what all
// spaces together take beside that when each is as busy as it may be.
func (g *spaces) stateLimits(list []SpaceConfig) {
	srv := g.srv
	if len(list) == 0 {
		return
	}
	sum, buffers := uint64(0), int64(0)
	for _, c := range list {
		c = c.withDefaults(&srv.cfg)
		own := srv.cfg.forSpace(c)
		sum += c.MemoryLimit
		buffers += own.ReceiveBytes + own.ReplyBytes + own.CacheBytes + memTables*int64(own.MemTableBytes)
	}
	srv.log.Info("memory limits", "node", srv.cfg.MemoryLimit, "spaces", len(list), "their_sum", sum,
		"together", srv.cfg.MemoryLimit+sum, "machine", machine.Memory(), "their_buffers_at_most", buffers)
}

// spaceDir is the directory of a space; none on a node that keeps nothing on
// disk.
func (c *Config) spaceDir(name string) string {
	if c.Mode == store.Cache {
		return ""
	}
	return joinPath(c.FS, c.DataDir, "tenants", name)
}
