package space

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/rdmakv/rdmakv/internal/control"
	"github.com/rdmakv/rdmakv/internal/server/auth"
	"github.com/rdmakv/rdmakv/internal/server/base"
	"github.com/rdmakv/rdmakv/internal/server/memory"
	"github.com/rdmakv/rdmakv/internal/server/session"
	"github.com/rdmakv/rdmakv/internal/server/work"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/store"
)

// A Config is a space of a node in sizes, directories and times.
type Config struct {
	Store    store.Config // without what the space itself sets: memory and callbacks
	Memory   memory.RegionsConfig
	Turnover memory.TurnoverConfig
	Sessions session.Config

	StagingBytes int64
	Workers      int // of gets; scans have a quarter
	// ReaderLock: whoever has memory of an earlier incarnation mapped is waited for
	// before anybody is served.
	ReaderLock bool

	// Keeping has the regions outlive this process; nil: they do not.
	Keeping *memory.Keeping

	Linger       time.Duration      // for which clients may leave by themselves at the end
	DrainTimeout time.Duration      // of the end
	OnFill       func(FillProgress) // nil: the log tells it
}

// Handlers answer the requests of a space.
type Handlers interface {
	session.Handler
	// Run has requests that wait for memory go on when it is there, until ctx ends.
	Run(ctx context.Context)
	// Refuse answers what waits and could wait for long: the space is ending.
	Refuse()
	Watches() int     // long polls that wait
	Held() int        // places that are held for clients
	Growing() int     // puts that wait for memory
	Slowed() int      // puts that wait because the log is nearly full
	HoldShare() int64 // how many bytes may be held for one tenant
}

// An Env is what a node gives to a space.
type Env struct {
	Name     string // "" is the main space
	Log      *base.Log
	Registry *session.Registry
	Bounds   *base.Bounds
	Owned    *base.Ownership   // nil: the server is alone
	Line     *memory.StageLine // in which staging memory waits for its turn
	// Shared says whether more than one login may use the space.
	Shared func() bool
	// MakeHandlers makes the handlers of the space, whose parts are open.
	MakeHandlers func(*Space) Handlers
}

// A Space is one keyspace of a node. Its life: New, a rail on each device, Open, Serve,
// then Drain, Leave, Halt and Close, one after the other (Shutdown); Abandon if it never
// served.
type Space struct {
	Config Config
	Env

	Rails    Rails // one on each device of the node
	Sessions *session.Group
	Counters *base.Counters
	Clock    base.Clock
	Fence    *base.Fence
	Handlers Handlers // nil until the space is open, as is what follows
	Regions  *memory.Regions
	Turnover *memory.Turnover // of them
	Staging  *memory.Staging
	Store    *store.Store
	Gets     *work.Pool // workers of gets, and of writes that ask the disk
	Scans    *work.Pool // workers of what takes long by nature

	Incarnation uint64
	Shards      int

	Fill fill
	beats
	life
	lanePulse
	control *control.Server // nil if it cannot be
}

// New makes a space that has no rails yet.
func New(cfg Config, env Env) *Space {
	sp := &Space{
		Config: cfg, Env: env, Counters: &base.Counters{}, Clock: base.NewClock(), Fence: base.NewFence(),
		beats: newBeats(), lanePulse: lanePulse{LaneSilence: laneSilence},
	}
	sp.Fill.sp = sp
	sp.run, sp.stop = context.WithCancel(context.Background())
	sp.Sessions = session.NewGroup(cfg.Sessions, session.Env{
		Registry: env.Registry, Counters: sp.Counters, Bounds: env.Bounds, Log: env.Log,
		Clock: sp.Clock, Fence: sp.Fence, Draining: &sp.Draining, Fatal: sp.Fail, Shared: env.Shared, Replicated: sp.replicated, Cells: env.Name == "", Anew: sp.anew,
	})
	return sp
}

// Open opens regions, store, staging and pools over the rails. spare says of each rail
// whether the space may do without it, until regions.Settle; nil: of none.
func (sp *Space) Open(ctx context.Context, spare []bool) error {
	var (
		pds   []rdma.PD
		sinks []memory.Sink
		gone  = true
	)
	for _, r := range sp.Rails.list {
		pds = append(pds, r.PD)
		sinks = append(sinks, memory.Sink{PD: r.PD, Attr: r.Attr})
		gone = gone && (r.Attr.Caps.Has(rdma.CapDiesWithProcess) || r.Attr.Caps.Has(rdma.CapMapped) && sp.Config.ReaderLock)
	}
	sp.Regions = memory.NewRegions(sp.Config.Memory, sp.Log, pds...)
	if spare != nil {
		sp.Regions.MaySpare(spare)
	}
	// The devices are open before the store takes its lock and closed after it
	// gives it back. Where all of them die with the process, no memory of an
	// earlier incarnation can be read once the lock is ours; where clients had it
	// mapped, waitReaders waits for them before anybody is served. A space that was
	// closed while the node goes on has ended all READs of its memory itself.
	if err := sp.openStore(ctx, gone); err != nil {
		return err
	}
	sp.Turnover = memory.NewTurnover(sp.Config.Turnover, sp.Regions, sp.Store, sp.Log)
	sp.Staging = memory.NewStaging(sinks, sp.Config.StagingBytes, sp.Config.Memory.Kind, sp.Line)
	sp.Sessions.UpdateShare()
	sp.openPools()
	sp.Handlers = sp.MakeHandlers(sp)
	sp.Sessions.Handler = sp.Handlers
	return nil
}

// openStore opens the store over memory of the open devices.
func (sp *Space) openStore(ctx context.Context, predecessorGone bool) error {
	cfg := sp.Config.Store
	cfg.Memory, cfg.PredecessorGone, cfg.Withheld = sp.Regions, predecessorGone, sp.withheld()
	if sp.Config.Keeping != nil {
		kept, err := memory.Keep(sp.Regions, sp.Config.Keeping, store.KeptRecordBytes)
		if err != nil {
			return err
		}
		cfg.Memory, cfg.Kept = kept, true
	}
	cfg.OnFatal, cfg.OnCommit, cfg.OnView, cfg.Progress = sp.storeFailed, sp.Sessions.Published, sp.Regions.Changed, sp.Fill.progress
	st, err := store.Open(ctx, cfg)
	if err != nil {
		return err
	}
	sp.Store = st
	sp.Incarnation = st.Incarnation()
	sp.Shards = int(st.View().Shards)
	id := st.ID()
	sp.Log.Replace(cfg.Logger.With("store", fmt.Sprintf("%x", id[:4]), "incarnation", fmt.Sprintf("%016x", sp.Incarnation)))
	sp.ReleaseOwned()
	return nil
}

// Serve begins to serve over what is open; sessions may come, and who wants a backup.
func (sp *Space) Serve() {
	sp.startControl()
	sp.Store.Beat(time.Now())
	sp.lastBeat.Store(sp.Clock.Now())
	go sp.beatLoop(sp.beat)
	for _, r := range sp.Rails.list {
		r.RunLanes()
	}
	turnover, handlers, sessions := sp.Turnover, sp.Handlers, sp.Sessions
	sp.wg.Go(func() { turnover.Run(sp.run, sp.Fence.Done()) })
	sp.wg.Go(func() { sp.reclaimLoop(sp.run) })
	sp.wg.Go(func() { handlers.Run(sp.run) })
	sp.wg.Go(func() { sessions.Run(sp.run) })
	sp.Serving.Store(true)
}

// withheld is Config.Withheld of the store: at first all shards are, until ReleaseOwned
// says which are the node's.
func (sp *Space) withheld() func(uint16) bool {
	if sp.Owned == nil {
		return nil
	}
	return func(uint16) bool { return true }
}

// replicated says whether the keys are: what is in the memory of a replica that does not lead is old, and an item that is READ does not tell.
func (sp *Space) replicated() bool {
	own := sp.Owned.Shards()
	return own != nil && own.Replicated()
}

// anew says whether the keys are in groups that began with them.
func (sp *Space) anew() bool {
	own := sp.Owned.Shards()
	return own != nil && own.Replicated() && own.Map.Replication.Adopts
}

// ReleaseOwned has the index of the store answer misses in the node's own
// shards. It may be called again at any time.
func (sp *Space) ReleaseOwned() {
	own := sp.Owned.Shards()
	if own == nil {
		return
	}
	if own.Replicated() {
		sp.dismissReaders()
		if sp.Name != "" { // a tenant's space has no replicas
			return
		}
	}
	for shard := range uint16(sp.Shards) {
		if !own.Mine(shard) {
			continue
		}
		if err := sp.Store.Release(shard); err != nil {
			return // the store has ended: closed, or fenced, which is told elsewhere
		}
	}
}

// readers are the clients that may READ, because they came before the map in force.
func readers(sp *Space) (list []*session.Session) {
	for _, s := range sp.Sessions.List() {
		if s.Login.OneSided && s.Greeted() && !s.Words() && !session.NoReads(s) {
			list = append(list, s)
		}
	}
	return list
}

// dismissReaders asks them to connect again.
func (sp *Space) dismissReaders() {
	for _, s := range readers(sp) {
		session.DismissOrEnd(s, base.CauseTable, "connect again: the cluster has replicas now, and what is READ of their keys counts by the words of voters alone")
	}
}

const (
	readersGrace = 500 * time.Millisecond // for which readers that were asked to connect again may take their answers
	readersEnd   = 10 * time.Second       // within which the QP of one that was ended is closed
	readersLook  = 5 * time.Millisecond   // the rest between two looks
)

// EndReaders returns when the keys are replicated and no client is left that READs them as of one node alone. It asks such clients to connect again, and ends those that have not left
// after readersGrace. Whoever begins groups with keys that clients read before calls it first: else a client could READ here what another replica has changed, and know nothing of it.
//
// Errors: ctx's, and one if the session of a client does not end.
func (sp *Space) EndReaders(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readersEnd)
	defer cancel()
	rest := time.NewTicker(readersLook)
	defer rest.Stop()
	var ended time.Time // when those that are left are ended; zero: none was asked yet
	for {
		if sp.replicated() { // from here on nobody becomes a reader
			left := readers(sp)
			switch {
			case len(left) == 0:
				return nil
			case ended.IsZero():
				sp.dismissReaders()
				ended = time.Now().Add(readersGrace)
			case time.Now().After(ended):
				for _, s := range left {
					session.EndReader(s)
				}
			}
		}
		select {
		case <-rest.C:
		case <-ctx.Done():
			return fmt.Errorf("server: clients that READ keys from before they were replicated have not ended: %w", context.Cause(ctx))
		}
	}
}

// StartRotation begins to renew the rkeys of all regions of this space. It fails
// with memory.ErrRotating, and when the space does not serve.
func (sp *Space) StartRotation() error {
	if !sp.Ready() {
		return ErrNotServing
	}
	return sp.Turnover.Start()
}

// RotationStat is how far it is.
func (sp *Space) RotationStat() memory.RotationStat {
	st := sp.Turnover.Stat()
	if st.Space = sp.Name; st.Space == "" {
		st.Space = auth.MainSpace
	}
	return st
}

// openPools starts the workers of the space. The main login is the operator's, or
// everybody's on a node without tenants: it may use all processors, and all workers of
// the gets. The others may not.
func (sp *Space) openPools() {
	n := sp.Config.Workers
	sp.Gets = work.New(work.Gets, n, n, max(1, n-n/4))
	// Scans take the time of processors more than that of disks. So that puts and
	// gets of others have some, one tenant scans on half of the processors at most.
	n = max(2, n/4)
	sp.Scans = work.New(work.Scans, n, max(1, n/2), max(1, n/4))
}

// closePools ends them.
func (sp *Space) closePools() {
	for _, p := range [...]*work.Pool{sp.Gets, sp.Scans} {
		if p != nil { // else the space has not come so far
			p.Close()
		}
	}
}

// FillProgress tells how far memory has been filled after a start.
type FillProgress = store.Progress

// A fill is how far the memory of a space has been filled after a start. The store
// tells it.
type fill struct {
	sp     *Space
	Last   atomic.Pointer[store.Progress] // nil: nothing was told yet
	logged atomic.Int64                   // when progress was last logged
}

// progress notes how far the fill has come; the store calls it.
func (f *fill) progress(p store.Progress) {
	f.Last.Store(&p)
	if tell := f.sp.Config.OnFill; tell != nil {
		tell(p)
	}
	if p.Done {
		what := []any{"keys", p.Keys, "bytes", p.Bytes, "took", p.Elapsed.Round(time.Millisecond)}
		if p.Err != nil {
			f.sp.Log.Warn(base.LogAlways, "memory is not filled", append(what, "err", p.Err)...)
		} else {
			f.sp.Log.Info("memory filled", what...)
		}
		return
	}
	// A line every few seconds is enough; the numbers are in /metrics.
	if now := f.sp.Clock.Now(); f.sp.Config.OnFill == nil && now-f.logged.Load() > int64(2*time.Second) {
		f.logged.Store(now)
		f.sp.Log.Info("filling memory", "keys", p.Keys, "expected", p.Expected, "shards_filled", p.ShardsFilled, "shards", p.Shards,
			"keys_per_second", int64(float64(p.Keys)/max(p.Elapsed.Seconds(), 1e-3)))
	}
}
