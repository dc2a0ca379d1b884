package session

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdmakv/rdmakv/internal/server/base"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma/mem"
	"github.com/rdmakv/rdmakv/rdma/wait"
)

// Limits of a SessionConfig.
const (
	MinReplySize = 12 << 10 // of a reply, as of the receives of a client
	MaxCredits   = 1024
)

// A Config is what sessions and their lanes need to know of the configuration of a
// space. Its names are those of Config.
type Config struct {
	Name string

	Lease, Beat, Keepalive          time.Duration // told to clients
	Idle, SendTimeout, SetupTimeout time.Duration

	Credits, InitialCredits  int
	RequestSize, ReplySize   int
	ReceiveBytes, ReplyBytes int64
	MaxSessions, Lanes       int

	MemoryKind     mem.Kind
	SharedReceives Shared
	Wait           wait.Mode
	Spin           time.Duration
}

// A Env is what the sessions of a space share with the rest of it.
type Env struct {
	Registry *Registry // of the node
	Handler  Handler
	Counters *base.Counters
	Bounds   *base.Bounds
	Log      *base.Log
	Clock    base.Clock
	Fence    *base.Fence
	Draining *atomic.Bool
	// fatal fences the space. It does not wait.
	Fatal func(error)
	// shared says whether more than one tenant may use the space.
	Shared func() bool
	// Replicated says whether the keys are replicated now. If they are, no session that is opened may READ, whatever its login may, but by words (Words), if the
	// space has cells. nil: they are not.
	Replicated func() bool
	Cells      bool
	// Anew says whether only clients that name wire.FeatureAnew are let in. nil: all are.
	Anew func() bool
}

// A Group is the sessions of the node itself, or of a space: being set up and open.
type Group struct {
	cfg Config
	Env

	Gate    gate
	flusher flusher        // of replies to writes
	share   atomic.Int64   // receiveShare, as the janitor found it last
	lanes   sync.WaitGroup // their goroutines

	// Guarded by registry.mu.
	all    map[uint64]*Session
	opens  int  // of all: are open
	sealed bool // enter lets no session in any more
}

func (g *Group) replicated() bool { return g.Replicated != nil && g.Replicated() }

func NewGroup(cfg Config, env Env) *Group {
	g := &Group{cfg: cfg, Env: env, flusher: newFlusher(), all: make(map[uint64]*Session)}
	g.share.Store(math.MaxInt64)
	return g
}

// ReceiveShare is how many receives the sessions of one tenant may have grown to.
func (g *Group) ReceiveShare() int64 {
	if !g.Shared() {
		return math.MaxInt64
	}
	return max(1, g.cfg.ReceiveBytes/int64(g.cfg.RequestSize)/base.ShareParts)
}

// UpdateShare has the group look what its tenants' share of receives is. The group does so
// by itself every now and then.
func (g *Group) UpdateShare() { g.share.Store(g.ReceiveShare()) }

// Share is the share as the group found it last.
func (g *Group) Share() int64 { return g.share.Load() }

// Wrote notes that a session has replies to writes of the commit being published.
func (g *Group) Wrote(s *Session) { g.flusher.wrote(s) }

// Published posts the replies to the writes of a commit. It does not wait.
func (g *Group) Published() { g.flusher.published() }

// WaitLanes waits until no lane of any rail is polled.
func (g *Group) WaitLanes() { g.lanes.Wait() }

// Enter counts the set-up of a session in, with the life of its space; false once the
// group is sealed or serves says no.
func (g *Group) Enter(life *sync.WaitGroup, serves func() bool) bool {
	return g.Registry.enter(g, life, serves)
}

// Seal ends that: no session comes into the group any more.
func (g *Group) Seal() { g.Registry.seal(g) }

// List returns the sessions as they are now.
func (g *Group) List() []*Session { return g.Registry.list(g) }

// Opened returns how many sessions are open.
func (g *Group) Opened() int { return g.Registry.opensIn(g) }

// Credits returns how many requests the clients of all sessions may still send.
func (g *Group) Credits() (n int) {
	for _, s := range g.List() {
		n += int(max(0, s.allowed.Load()))
	}
	return n
}

// Run posts the replies of large commits, and ends sessions that pass their bounds, until
// ctx ends.
func (g *Group) Run(ctx context.Context) {
	var janitor sync.WaitGroup
	janitor.Go(func() { g.janitor(ctx) })
	g.flusher.run(ctx)
	janitor.Wait()
}

// janitor ends sessions that are silent or that do not take what is sent to them, and
// has their handlers forget what has run out.
func (g *Group) janitor(ctx context.Context) {
	// Often enough that no bound is passed by more than a quarter.
	period := min(g.cfg.Idle, g.cfg.SendTimeout, 2*g.cfg.Lease) / 4
	tick := time.NewTicker(period)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			g.UpdateShare()
			for _, s := range g.List() {
				s.check(g.Clock.Now())
			}
		}
	}
}

// check ends the session if it has passed one of its bounds.
func (s *Session) check(now int64) {
	cfg := &s.group.cfg
	s.mu.Lock()
	slow := len(s.sent) > 0 && now-s.sentSince > int64(cfg.SendTimeout)
	if slow {
		s.endLocked(base.CauseSlow, nil)
	}
	s.mu.Unlock()
	// A client whose requests are being handled may well wait in silence; one
	// that has not said Hello has a deadline of its own (watch).
	if !slow && sessionState(s.state.Load()) == stateOpen && s.inflight.Load() == 1 && now-s.heard.Load() > int64(cfg.Idle) {
		s.leave(base.CauseIdle, wire.StatusIdle, "")
	}
	if conn := s.Conn(); conn != nil {
		conn.Tick(now)
	}
}

// Farewell tells all clients that the space is shutting down.
func (g *Group) Farewell() {
	for _, s := range g.List() {
		s.farewell()
	}
}

// End ends all sessions at once.
func (g *Group) End(c base.Cause, err error) {
	for _, s := range g.List() {
		s.End(c, err)
	}
}

// Drain waits until no session has a request under way, or a reply to send.
func (g *Group) Drain(ctx context.Context) {
	g.await(ctx, func() bool {
		for _, s := range g.List() {
			if s.Busy() {
				return false
			}
		}
		return true
	})
}

// Gone waits until every session has left by itself.
func (g *Group) Gone(ctx context.Context) {
	g.await(ctx, func() bool { return len(g.List()) == 0 })
}

// await waits until is says yes, ctx ends or the space is fenced.
func (g *Group) await(ctx context.Context, is func() bool) {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		case <-g.Fence.Done():
			return
		}
	}
}

// Busy says whether a request is under way or a reply waits to be sent.
func (s *Session) Busy() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.inflight.Load() > 1 || len(s.out) > 0
}

// A flusher posts the replies to the writes of a published group, with one doorbell
// for each session.
type flusher struct {
	mu    sync.Mutex
	group []*Session    // those with replies of the group that the store is publishing
	wake  chan struct{} // wakes run; room for one
}

func newFlusher() flusher { return flusher{wake: make(chan struct{}, 1)} }

// wrote notes that s has replies of the group being published.
func (f *flusher) wrote(s *Session) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !s.grouped {
		s.grouped = true
		f.group = append(f.group, s)
	}
}

// published is the store's OnCommit: it posts the replies of the commit. It runs on
// the publishing goroutine, which must get back to publishing: a few sessions are
// served here, because waking another goroutine costs a lone writer more than the
// doorbell; more are left to run.
func (f *flusher) published() {
	f.mu.Lock()
	n := len(f.group)
	var few [2]*Session
	if n <= len(few) {
		for i, s := range f.group {
			few[i] = s
			s.grouped = false
		}
		clear(f.group)
		f.group = f.group[:0]
	}
	f.mu.Unlock()
	if n <= len(few) {
		for _, s := range few[:n] {
			s.Flush()
		}
		return
	}
	select {
	case f.wake <- struct{}{}:
	default: // it is awake already and will look again
	}
}

// run posts the replies of large groups until ctx ends.
func (f *flusher) run(ctx context.Context) {
	var batch []*Session
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.wake:
		}
		f.mu.Lock()
		batch, f.group = f.group, batch[:0]
		for _, s := range batch {
			s.grouped = false
		}
		f.mu.Unlock()
		for _, s := range batch {
			s.Flush()
		}
		clear(batch)
	}
}
