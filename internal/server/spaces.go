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
	"github.com/rdmakv/rdmakv/internal/server/space"
)

// spaceLinger bounds how long the requests of a space that is taken away
// may take to end.
const spaceLinger = 500 * time.Millisecond

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

// spaces are the spaces of a node: the main one, which lives as long as the node, and
// those of tenants, which come and go.
type spaces struct {
	node *Server
	main *space.Space

	// change is held by whoever opens and closes spaces; nothing on the way of a
	// request waits for it. Before mu.
	change patientLock
	reload sync.Mutex // held by SetTenants, for as long as opening spaces takes; before change

	mu     sync.RWMutex
	open   map[string]*space.Space // of tenants: those that serve, and those that have fenced themselves
	failed map[string]error        // of tenants: those that could not be opened, and why
	closed bool
}

func newSpaces(node *Server) *spaces {
	return &spaces{node: node, main: node.main, open: make(map[string]*space.Space), failed: make(map[string]error)}
}

// of returns a space by its name: the main one for "" and "main", nil for one that
// does not exist or does not serve. It may be called for each connection.
func (g *spaces) of(name string) *space.Space {
	if name == "" || name == auth.MainSpace {
		return g.main
	}
	g.mu.RLock()
	defer g.mu.RUnlock()
	if sp := g.open[name]; sp != nil && sp.Ready() {
		return sp
	}
	return nil
}

// every returns the main space and then those of tenants. Everything that is true of all
// keys of a node (whose shards they are, that there are none) is to be done for each.
func (g *spaces) every() []*space.Space { return slices.Insert(g.tenants(), 0, g.main) }

// tenants returns the open spaces of tenants by name, those included that have fenced
// themselves.
func (g *spaces) tenants() []*space.Space {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return slices.SortedFunc(maps.Values(g.open), func(a, b *space.Space) int { return cmp.Compare(a.Name, b.Name) })
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
		c = c.withDefaults(&g.node.cfg)
		wanted[c.Name] = c
		full = append(full, c)
	}
	if err := errors.Join(g.node.cfg.checkSpaces(full)...); err != nil {
		return err
	}
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		return space.ErrNotServing
	}
	clear(g.failed)
	var gone []*space.Space
	for name, sp := range g.open {
		c, ok := wanted[name]
		switch {
		case !ok:
			gone = append(gone, sp)
		case c.MemoryLimit != sp.Config.Store.MemoryLimit || c.MaxSessions != sp.Config.Sessions.MaxSessions:
			g.node.log.Warn(base.LogAlways, "the limits of a space are changed at the next start", "space", name,
				"memory_limit", sp.Config.Store.MemoryLimit, "memory_limit_next", c.MemoryLimit)
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
				sp.ReleaseOwned() // a map may have come while it was opened
			}
			if err != nil {
				g.node.log.Error(base.LogAlways, "a space cannot be opened: its tenants are refused, the others are served", "space", c.Name, "err", err)
				mu.Lock()
				errs = append(errs, fmt.Errorf("server: space %q: %w", c.Name, err))
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// make makes a space; openOne opens it. It returns the space's configuration, too.
func (g *spaces) make(c SpaceConfig) (*space.Space, *Config) {
	cfg := g.node.cfg.forSpace(c)
	cfg.Logger = cfg.Logger.With("space", c.Name)
	cfg.Shards = g.main.Shards // a shard map is the node's: every space has its shards
	sp := space.New(cfg.space(), g.node.spaceEnv(c.Name, base.NewLog(cfg.Logger), &cfg, g.node.tenantHandlers))
	sp.LaneSilence = g.main.LaneSilence
	return sp, &cfg
}

// openOne opens a space of a node that has its devices and its main space. It
// serves when openOne returns; nothing is left of it after an error.
func (g *spaces) openOne(ctx context.Context, c SpaceConfig) (_ *space.Space, err error) {
	begun := time.Now()
	sp, cfg := g.make(c)
	defer func() {
		if err != nil {
			sp.Abandon()
		}
	}()
	for _, d := range g.node.devices.all() {
		own, err := sp.MakeRail(d.Device)
		if err != nil && d.Away() == nil {
			return nil, err
		}
		if err != nil { // it is made when the device is back
			own = session.AbsentRail(sp.Sessions, d.Device, len(sp.Rails.All()))
		}
		sp.Rails.Add(own)
	}
	if err := sp.Open(ctx, nil); err != nil {
		return nil, err
	}
	for _, r := range sp.Rails.All() {
		if r.PD == nil {
			continue
		}
		if err := r.MakeLanes(len(sp.Rails.All())); err != nil {
			return nil, err
		}
	}
	closeDir(sp.Log, cfg) // nobody else has it
	sp.Serve()
	sp.Log.Info("space open", "dir", sp.Config.Store.Dir, "memory_limit", sp.Config.Store.MemoryLimit, "max_sessions", sp.Config.Sessions.MaxSessions,
		"took", time.Since(begun).Round(time.Millisecond))
	return sp, nil
}

// close takes a space away from a node that goes on.
func (g *spaces) close(sp *space.Space) {
	ctx, cancel := context.WithTimeout(context.Background(), spaceLinger)
	defer cancel()
	err := sp.Shutdown(ctx)
	g.mu.Lock()
	// One that is fenced keeps its lock and memory until the process ends, and
	// must not be opened a second time.
	if sp.Err() == nil {
		delete(g.open, sp.Name)
	}
	g.mu.Unlock()
	if err != nil {
		g.node.log.Error(base.LogAlways, "closing a space", "space", sp.Name, "err", err)
		return
	}
	g.node.log.Info("space closed; its files stay", "space", sp.Name, "dir", sp.Config.Store.Dir)
}

// fenced says whether a space of a tenant has lost its durability.
func (g *spaces) fenced() bool {
	return slices.ContainsFunc(g.tenants(), func(sp *space.Space) bool { return sp.Err() != nil })
}

// ending says what the ends of the spaces of tenants wait for. It waits for nothing.
func (g *spaces) ending() (list []string) {
	if !g.mu.TryRLock() { // who hangs may hold it
		return nil
	}
	defer g.mu.RUnlock()
	for name, sp := range g.open {
		if what := sp.Ending.Get(); what != "" {
			list = append(list, "space "+name+": "+what)
		}
	}
	return list
}

// shutdown ends the spaces of tenants, all at once. None is opened from then on.
func (g *spaces) shutdown(ctx context.Context) error {
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
	for _, sp := range g.tenants() {
		wg.Go(func() {
			if err := sp.Shutdown(ctx); err != nil {
				mu.Lock()
				errs = append(errs, fmt.Errorf("space %q: %w", sp.Name, err))
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// dirtyShare is the part of a store's memory limit that the keys of its newest writes take
// beside it, until a checkpoint has brought them into the base.
const dirtyShare = 8

// stateLimits logs what memory the node has promised, and to whom; and what all
// spaces together take beside that when each is as busy as it may be.
func (g *spaces) stateLimits(list []SpaceConfig) {
	srv := g.node
	if len(list) == 0 {
		return
	}
	sum, buffers := uint64(0), int64(0)
	for _, c := range list {
		c = c.withDefaults(&srv.cfg)
		own := srv.cfg.forSpace(c)
		sum += c.MemoryLimit
		buffers += own.ReceiveBytes + own.ReplyBytes + own.CacheBytes + int64(c.MemoryLimit/dirtyShare)
	}
	srv.log.Info("memory limits", "node", srv.cfg.MemoryLimit, "spaces", len(list), "their_sum", sum,
		"together", srv.cfg.MemoryLimit+sum, "machine", machine.Memory(), "their_buffers_at_most", buffers)
}
