package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/rdmakv/rdmakv/internal/memory"
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
	mainSpace        = "main"
	maxSpaceName     = 63
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

// validSpaceName says whether a name may be a space's, hence a directory's.
func validSpaceName(name string) bool {
	if name == "" || len(name) > maxSpaceName || name == mainSpace || name[0] == '.' || name[0] == '-' {
		return false
	}
	for i := range len(name) {
		c := name[i]
		if !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' || c == '.') {
			return false
		}
	}
	return true
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
		if !validSpaceName(sp.Name) {
			fault("space %q: the name must be 1 to %d of [a-z0-9-.], begin with a letter or a digit, and not be %q", sp.Name, maxSpaceName, mainSpace)
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
	if has := memory.Machine(); len(list) > 0 && has > 0 && total > uint64(has) {
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

// spaces are the spaces of a node. The zero value has none.
type spaces struct {
	// change is held by whoever opens and closes spaces; nothing on the way of a
	// request waits for it. Before mu.
	change patientLock

	mu     sync.RWMutex
	open   map[string]*Server // those that serve, and those that have fenced themselves
	failed map[string]error   // those that could not be opened, and why
	closed bool
}

// spaceOf returns the server of a space: the node itself for "" and "main", nil
// for one that does not exist or does not serve. It may be called for each
// connection.
func (srv *Server) spaceOf(name string) *Server {
	root := srv.root
	if name == "" || name == mainSpace {
		return root
	}
	root.spaces.mu.RLock()
	defer root.spaces.mu.RUnlock()
	if sp := root.spaces.open[name]; sp != nil && sp.Ready() {
		return sp
	}
	return nil
}

// everySpace returns the node itself and then its open spaces by name, those
// included that have fenced themselves. Everything that is true of all keys of
// a node (whose shards they are, that there are none) is to be done for each.
func (srv *Server) everySpace() []*Server {
	root := srv.root
	root.spaces.mu.RLock()
	defer root.spaces.mu.RUnlock()
	list := make([]*Server, 0, 1+len(root.spaces.open))
	for _, sp := range root.spaces.open {
		list = append(list, sp)
	}
	slices.SortFunc(list, func(a, b *Server) int {
		if a.space < b.space {
			return -1
		}
		return 1
	})
	return append([]*Server{root}, list...)
}

// SpaceStat is one space as the node's operator sees it.
type SpaceStat struct {
	Name     string `json:"name"`
	State    string `json:"state"` // serving, filling, fenced, failed, closing
	Detail   string `json:"detail,omitempty"`
	Sessions int    `json:"sessions"`
	Limit    uint64 `json:"memory_limit"`
	Used     int64  `json:"registered_bytes"`
}

// Spaces describes the spaces of the node, by name.
func (srv *Server) Spaces() []SpaceStat {
	root := srv.root
	var list []SpaceStat
	for _, sp := range root.everySpace()[1:] {
		list = append(list, sp.spaceStat())
	}
	root.spaces.mu.RLock()
	for name, err := range root.spaces.failed {
		list = append(list, SpaceStat{Name: name, State: "failed", Detail: err.Error()})
	}
	root.spaces.mu.RUnlock()
	slices.SortFunc(list, func(a, b SpaceStat) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	return list
}

func (srv *Server) spaceStat() SpaceStat {
	st := SpaceStat{Name: srv.space, State: "serving", Limit: srv.cfg.MemoryLimit}
	switch {
	case srv.Err() != nil:
		st.State, st.Detail = "fenced", srv.Err().Error()
	case srv.draining.Load():
		st.State = "closing"
	case !srv.Filled():
		st.State = "filling"
	}
	st.Used, _ = srv.regions.bytes()
	srv.sessMu.Lock()
	st.Sessions = srv.opens
	srv.sessMu.Unlock()
	return st
}

// setSpaces makes the node have the spaces of list and no others: it opens
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
func (srv *Server) setSpaces(ctx context.Context, list []SpaceConfig) error {
	root := srv.root
	g := &root.spaces
	g.change.Lock()
	defer g.change.Unlock()
	wanted := make(map[string]SpaceConfig, len(list))
	full := make([]SpaceConfig, 0, len(list))
	for _, c := range list {
		c = c.withDefaults(&root.cfg)
		wanted[c.Name] = c
		full = append(full, c)
	}
	if err := errors.Join(root.cfg.checkSpaces(full)...); err != nil {
		return err
	}
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		return errNotServing
	}
	if g.open == nil {
		g.open, g.failed = make(map[string]*Server), make(map[string]error)
	}
	clear(g.failed)
	var gone []*Server
	for name, sp := range g.open {
		c, ok := wanted[name]
		switch {
		case !ok:
			gone = append(gone, sp)
		case c.MemoryLimit != sp.cfg.MemoryLimit || c.MaxSessions != sp.cfg.MaxSessions:
			root.log.Warn(limitNone, "the limits of a space are changed at the next start", "space", name,
				"memory_limit", sp.cfg.MemoryLimit, "memory_limit_next", c.MemoryLimit)
		}
		delete(wanted, name)
	}
	g.mu.Unlock()
	var closing sync.WaitGroup
	for _, sp := range gone {
		closing.Go(func() { root.closeSpace(sp) })
	}
	closing.Wait()
	return root.openSpaces(ctx, wanted)
}

// openSpaces opens spaces, a few at a time. spaces.change is held.
func (srv *Server) openSpaces(ctx context.Context, wanted map[string]SpaceConfig) error {
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
			sp, err := srv.openSpace(ctx, c)
			srv.spaces.mu.Lock()
			if err != nil {
				srv.spaces.failed[c.Name] = err
			} else {
				srv.spaces.open[c.Name] = sp
			}
			srv.spaces.mu.Unlock()
			if sp != nil {
				sp.releaseOwned() // a map may have come while it was opened
			}
			if err != nil {
				srv.log.Error(limitNone, "a space cannot be opened: its tenants are refused, the others are served", "space", c.Name, "err", err)
				mu.Lock()
				errs = append(errs, fmt.Errorf("server: space %q: %w", c.Name, err))
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// closeSpace takes a space away from a node that goes on.
func (srv *Server) closeSpace(sp *Server) {
	ctx, cancel := context.WithTimeout(context.Background(), spaceLinger)
	defer cancel()
	err := sp.Shutdown(ctx)
	srv.spaces.mu.Lock()
	// One that is fenced keeps its lock and memory until the process ends, and
	// must not be opened a second time.
	if sp.Err() == nil {
		delete(srv.spaces.open, sp.space)
	}
	srv.spaces.mu.Unlock()
	if err != nil {
		srv.log.Error(limitNone, "closing a space", "space", sp.space, "err", err)
		return
	}
	srv.log.Info("space closed; its files stay", "space", sp.space, "dir", sp.cfg.DataDir)
}

// spaceFenced says whether a space of this node has lost its durability.
func (srv *Server) spaceFenced() bool {
	if srv.root != srv {
		return false
	}
	for _, sp := range srv.everySpace()[1:] {
		if sp.Err() != nil {
			return true
		}
	}
	return false
}

// shutdownSpaces ends all of them, at once, before the node ends itself.
func (srv *Server) shutdownSpaces(ctx context.Context) error {
	if srv.root != srv {
		return nil
	}
	g := &srv.spaces
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
	for _, sp := range srv.everySpace()[1:] {
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

// spaceDir is the directory of a space; none on a node that keeps nothing on
// disk.
func (c *Config) spaceDir(name string) string {
	if c.Mode == store.Cache {
		return ""
	}
	return joinPath(c.FS, c.DataDir, "tenants", name)
}
