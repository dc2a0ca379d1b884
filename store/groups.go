package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/checkpoint"
	"github.com/rdmakv/rdmakv/store/internal/disk"
	"github.com/rdmakv/rdmakv/store/internal/entry"
	"github.com/rdmakv/rdmakv/store/internal/flight"
	"github.com/rdmakv/rdmakv/store/internal/pipeline"
	"github.com/rdmakv/rdmakv/store/internal/replica"
	"github.com/rdmakv/rdmakv/store/internal/shard"
	"github.com/rdmakv/rdmakv/store/layout"
	"github.com/rdmakv/rdmakv/store/log"
)

// A Group is a replica of a group of shards, which a store has (AddGroup). Writes of its shards are ordered while this
// replica leads, and are done when a majority of the group has them; else they fail with ErrNotLeader.
type Group struct {
	ID      consensus.GroupID
	Replica consensus.ReplicaID // of this store; never used again once its directory is lost
	Shards  []uint16            // of the group, alike at all its replicas, for ever
	// Founders is what the group begins with, alike at all its first replicas: Config.Index is 1. It counts only when the store
	// hears of the group for the first time. Without voters this replica begins with nothing, and gets the state from the others.
	Founders consensus.Config
	// Adopts: the group begins with what this store has in the shards, keys and results of requests, and nobody else has anything of it. This replica is its only founder.
	Adopts bool
}

// An Engine brings the replicas of a store to the same entries.
type Engine interface {
	consensus.Engine
	// Close ends it. No replica runs any more.
	Close() error
}

// An EngineEnv is what an Engine works on, of the store that it is made for.
type EngineEnv struct {
	Log    *log.Log                       // stays the store's
	Stream func(consensus.GroupID) uint64 // in which a group's entries stand
	// Fenced is told of a replica that was stopped by an error.
	Fenced func(consensus.GroupID, error)
	// Full says whether the disk is so full that puts are refused.
	Full func() bool
}

// ErrNotLeader: this store orders no writes of the shard now. A *NotLeaderError says who may.
var ErrNotLeader = base.ErrNotLeader

// ErrGroups: the store cannot have this replica, or not be without the ones that it has.
var ErrGroups = errors.New("store: no possible replicas")

// A NotLeaderError says which replica leads a group, as far as this one knows.
type NotLeaderError = replica.NotLeaderError

// A groupSide is what of a store concerns replicated groups.
//
//	open     the engine is made, and the base says where each group stands that it has
//	follow   the shards are there: replicas publish to them, and checkpoints take in what they publish
//	start    replicas take part, when no reader believes the last life any more (R18)
//	add      (addgroup.go) a replica that the store did not have
//	remove   (removegroup.go) one that it has no more
//	close    they take part no more; what is under way is answered
type groupSide struct {
	engine Engine
	of     []atomic.Pointer[member] // by shard; nil: it is in no group. Stored under the shard's lock
	direct *direct                  // answers their writes
	alone  *pipeline.Orderer        // of shards of no group
	ctx    context.Context
	cancel context.CancelFunc

	reading chan struct{} // capacity 1: a base is read for a check

	sent, received atomic.Uint64 // snapshots

	streams sync.Map                 // of the log, by group (groupstreams.go)
	copies  copies                   // of groups, for backups (groupcopy.go)
	left    []atomic.Pointer[member] // by shard: the replica that was given up; nil: none was, or there is another one
	past    past

	mu      sync.Mutex // held while a group is added or removed
	members []*member
	kept    map[consensus.GroupID]*kept
	closed  bool
}

// newGroupSide returns that of a store which is not open yet, with so many shards.
func newGroupSide(shards int) *groupSide {
	g := &groupSide{
		of: make([]atomic.Pointer[member], shards), left: make([]atomic.Pointer[member], shards), reading: make(chan struct{}, 1), kept: make(map[consensus.GroupID]*kept),
	}
	g.ctx, g.cancel = context.WithCancel(context.Background())
	return g
}

// A member is a replica of this store.
type member struct {
	*replica.Replica // once it is followed
	id               consensus.ReplicaID
	group            consensus.GroupID
	found            entry.State // of the base, at the start
	cell             cell        // once it is followed
	checks           chan uint64 // likewise; capacity 1, because one check is under way at a time
	order            *pipeline.Orderer

	stream   uint64             // of the log
	floor    uint64             // what is older is not brought into memory; 0: nothing is too old. The applier's, once the replica takes part
	ctx      context.Context    // ends when the replica is given up, or the store ends
	cancel   context.CancelFunc //
	running  sync.WaitGroup     // what live has started
	has      atomic.Bool        // the base has the replica
	reaching atomic.Bool        // a checkpoint is waited for, for the sake of a new member
	clear    time.Time          // when its memory may be cleared; zero: whenever

	part sync.Mutex // held while the engine starts or stops the replica
	gone bool       // it never takes part again

	opened bool                  // the base had it when the store was opened, and it has not taken part. Under part
	unlike atomic.Pointer[error] // it has sent a base that is not what the group began with

	kept atomic.Pointer[Kept] // what is kept of it, though its group is gone; nil: it is not kept
}

// open makes the engine, and finds the groups that the base has.
func (g *groupSide) open(s *Store) (err error) {
	replicas, err := s.disk.Replicas()
	switch {
	case err != nil:
		return err
	case s.cfg.Engine == nil && len(replicas) == 0:
		g.tellOrphans(s)
		return nil
	case s.cfg.Engine == nil:
		return errors.Join(s.cfg.mayHaveGroups(), fmt.Errorf("%w: the directory has replicas of %d groups, and nothing that runs them: start it as the node of a cluster that it was", ErrGroups, len(replicas)))
	}
	full := func() bool { return s.disk.Admits(false) != nil }
	g.engine, err = s.cfg.Engine(EngineEnv{Log: s.journal.Log(), Stream: g.streamOf, Full: full, Fenced: func(id consensus.GroupID, err error) {
		if g.ctx.Err() == nil {
			s.fence.Report(slog.LevelError, "a replica was stopped: this store takes no part in its group any more", "group", id, "err", err)
			s.life.Go(func() { g.fenced(s, id) })
		}
	}})
	if err != nil {
		return fmt.Errorf("store: the engine of replicated groups: %w", err)
	}
	for _, r := range replicas {
		if err := s.cfg.mayHaveGroups(); err != nil {
			return err
		}
		m := &member{group: consensus.GroupID(r.Group), id: consensus.ReplicaID(r.ID), stream: r.Stream}
		if m.stream == 0 {
			m.stream = firstStream(m.group)
		}
		m.opened = true
		m.has.Store(true)
		g.streams.Store(m.group, m.stream)
		if m.found, err = checkpoint.StateOf(s.disk, m.group); err != nil {
			return err
		}
		corrupt := !slices.Equal(r.Shards, m.found.Shards)
		for _, shard := range r.Shards {
			if corrupt = corrupt || int(shard) >= len(g.of) || g.of[shard].Load() != nil; !corrupt {
				g.of[shard].Store(m)
			}
		}
		if corrupt {
			return &CorruptError{Shard: disk.StoreShard, Key: checkpoint.GroupKey(m.group), Detail: fmt.Sprintf("group %d has shards %v, of %d, and others have them, too", m.group, r.Shards, len(g.of))}
		}
		g.members = append(g.members, m)
	}
	g.tellOrphans(s)
	return nil
}

// MayHaveGroups says whether a store of this configuration may have replicas: nil, or an error that says what it needs. ErrGroups.
func (c Config) MayHaveGroups() error {
	c = c.withDefaults()
	return c.mayHaveGroups()
}

// mayHaveGroups is MayHaveGroups of a configuration that is whole.
func (c *Config) mayHaveGroups() error {
	if c.Mode != Durable || c.Sync != Always {
		return fmt.Errorf("%w: mode durable and sync always are needed, because a replica that forgets what it has promised can lose writes of all", ErrGroups)
	}
	if c.logSizes().Frame < c.groupEntry+groupFrame {
		return fmt.Errorf("%w: log bytes = %d: at least %d are needed, because the log has to take the largest entry of any replica", ErrGroups, c.LogBytes, MinGroupLogBytes)
	}
	return nil
}

// follow makes the replicas that the base has, over shards that are there.
func (g *groupSide) follow(s *Store) {
	for _, m := range g.members {
		m.follow(s, g)
		for _, id := range m.found.Shards {
			shard.Begin(s.shards[id], m.found.Turn.Newest(id))
		}
		s.ckpt.AddGroup(m, m.found)
	}
}

// cells is how many replicas may have one.
func (g *groupSide) cells() int {
	if g.engine == nil {
		return 0
	}
	return layout.MaxCells
}

// follow makes the replica, behind what was found.
func (m *member) follow(s *Store, g *groupSide) {
	m.checks = make(chan uint64, 1)
	m.ctx, m.cancel = context.WithCancel(g.ctx)
	m.openCell(s, g)
	m.Replica = replica.New(replica.Config{
		Group: m.group, Stream: m.stream, Life: max(1, rand.Uint64()), Shards: s.shards, Mine: m.found.Shards, Seed: s.mem.Seed,
		MostEntry: s.cfg.groupEntry,
		Propose:   func(term uint64, data []byte) error { return g.engine.Propose(m.group, term, data) },
		Trim: func(upTo uint64) {
			if err := g.engine.Trim(m.group, upTo); err != nil && !errors.Is(err, consensus.ErrNoGroup) && !errors.Is(err, consensus.ErrClosed) {
				s.fence.Report(slog.LevelWarn, "the log keeps entries of a group that the base has", "group", m.group, "err", err)
			}
		},
		At: func(index uint64) (log.Position, error) { return s.journal.Log().EntryAt(m.stream, index) },
		Reserve: func(size int) (layout.Place, uint8) {
			if m.floor != 0 {
				return 0, 0
			}
			// A region may have to be registered; a full memory is not waited for.
			place, class, err := s.evictor.Reserve(size, true)
			if err != nil {
				return 0, 0
			}
			return place, class
		},
		Patience: s.cfg.groupPatience, Free: s.mem.Slabs.Free, Results: s.dedup, Short: func() { noteShort(s) },
		Publish: func(writes []*flight.Flight) { s.journal.PublishWrites(writes, s.shards, s.dedup) },
		Ready:   m.cell.ready, Configured: m.cell.configured, Shown: func(index uint64) { m.shown(s, index) },
		Check: m.checkBegins,
		Done: func(writes []*flight.Flight, bytes int64) {
			g.direct.published(writes, bytes)
			state := m.State()
			s.Events.pass(m.found.Shards, state.Turn.Newest(0)) // not all writes are in entries: what changed nothing has but its number
		},
		Void: func(writes []*flight.Flight, bytes int64) { g.direct.void(writes, bytes) },
	}, m.found)
	m.cell.published(m.found.Applied) // its memory shows that, or has it asked
	m.order = pipeline.NewOrderer(m, pipeline.OrderEnv{
		Memory: s.mem, Results: s.dedup, Reserve: s.evictor.Reserve, Read: s.ask,
		Expire: func(sh *shard.Shard, key []byte, second uint64, w pipeline.Wait) error {
			env := s.upkeep()
			return env.OrderExpired(sh, key, second, w)
		},
	})
}

// A lonely pusher takes writes of shards that are in no group, and of no others.
type lonely struct {
	*pipeline.Pipeline
	of []atomic.Pointer[member]
}

// Push implements pipeline.Pusher. Who has asked before the shard's group was added may come late.
func (l *lonely) Push(f *flight.Flight) error {
	switch m := l.of[f.Shard].Load(); {
	case m != nil:
		return &NotLeaderError{Group: m.group}
	case f.Reign != 0: // it was decided on as a group's, and the shard has become the store's own again, because AddGroup failed
		return &NotLeaderError{}
	}
	return l.Pipeline.Push(f)
}

// start has replicas take part in their groups, once nobody believes the memory of the last life: else an old word would go on
// saying its term while this life votes.
func (g *groupSide) start(s *Store, d *direct) {
	g.direct = d
	g.alone = pipeline.NewOrderer(&lonely{s.pipe, g.of}, pipeline.OrderEnv{Memory: s.mem, Results: s.dedup, Reserve: s.evictor.Reserve, Read: s.ask})
	for _, m := range g.members {
		s.Events.begin(m.group, m.found.Shards, m.found.Turn.Newest(0))
		m.live(s, g)
	}
	if len(g.members) > 0 {
		all := slices.Clone(g.members)
		s.life.Go(func() {
			if !g.mayTakePart(s) {
				return
			}
			for _, m := range all {
				if m.found.Applied == 1 { // its base may have to be read
					s.life.Go(func() { m.takePart(s, g) })
					continue
				}
				m.takePart(s, g)
			}
		})
	}
}

// closePatience is how long Close waits for writes of replicated groups. Where there is no majority they would never be done.
const closePatience = time.Second

// drain waits for what is under way, for a while.
func (g *groupSide) drain(idle, down <-chan struct{}) {
	if g.engine == nil {
		return
	}
	over := time.NewTimer(closePatience)
	defer over.Stop()
	select {
	case <-idle:
	case <-down:
	case <-over.C:
	}
}

// close ends the part that the replicas take, and answers what is under way. What is in an entry may be done by the others.
func (g *groupSide) close() error {
	g.cancel()
	g.copies.end()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	if g.engine == nil {
		return nil
	}
	var errs []error
	for _, m := range g.members {
		if err := g.engine.Stop(m.group, false); err != nil && !errors.Is(err, consensus.ErrNoGroup) && !errors.Is(err, consensus.ErrFenced) && !errors.Is(err, consensus.ErrClosed) {
			errs = append(errs, fmt.Errorf("store: group %d: %w", m.group, err))
		}
	}
	errs = append(errs, g.engine.Close())
	for _, m := range g.members {
		if m.Replica != nil && g.direct != nil {
			m.End(ErrClosed)
		}
	}
	return errors.Join(errs...)
}

// EndGroups ends the part that replicas take before the store is closed, and answers what is under way, which would wait for a majority: for
// those who wait for the answers before they close the store. Writes to the groups' shards are refused from then on.
func EndGroups(s *Store) error {
	ended := make(chan error, 1)
	go func() { ended <- s.groups.close() }()
	select {
	case err := <-ended:
		return err
	case <-s.fence.Down:
		return nil // Close says why
	}
}

// gained says whether this store orders writes of a group now that is not in led, and brings that up to date. While groups begin or end, which waits
// for the disk, it says no and leaves led as it is: the next call finds what this one did not.
func (g *groupSide) gained(led map[*member]bool) (any bool) {
	if !g.mu.TryLock() {
		return false
	}
	defer g.mu.Unlock()
	for _, m := range g.members {
		_, ready := m.Ready()
		any = any || ready && !led[m]
		led[m] = ready
	}
	maps.DeleteFunc(led, func(m *member, _ bool) bool { return !slices.Contains(g.members, m) })
	return any
}

// ReignOf says in which reign this store orders writes of a shard now, for Write.Reign; 0: the shard is in no group. It is read before
// that is looked at which the write is decided on.
//
// Errors: a *NotLeaderError, ErrShard.
func ReignOf(s *Store, shard uint16) (reign uint64, err error) {
	if int(shard) >= len(s.groups.of) {
		return 0, ErrShard
	}
	m := s.groups.of[shard].Load()
	if m == nil {
		return 0, nil
	}
	reign, ok := m.Ready()
	if !ok {
		return 0, m.NotLeader()
	}
	return reign, nil
}

// orders says whether this store orders writes of a shard now.
func (g *groupSide) orders(shard uint16) bool {
	m := g.of[shard].Load()
	if m == nil {
		return true
	}
	_, ready := m.Ready()
	return ready
}

// order gives a write that was admitted its place in the order of its shard. Room in the log that was set aside for it is
// given back if the shard is a group's, because the engine sets room aside for the entry that it will be in: if the write kept
// its own, a log that is full of it would have none for the entries.
func (g *groupSide) order(sh *shard.Shard, f *flight.Flight, w pipeline.Wait) error {
	m := g.of[sh.ID].Load()
	if m == nil {
		return g.alone.Order(sh, f, w)
	}
	g.direct.gate.Return(f.Room)
	f.Room = 0
	return m.order.Order(sh, f, w)
}

// Confirm returns when what this store shows of a shard is not older than the call: it leads the shard's group, a majority has confirmed
// that (ReadIndex), and it has published all that was done by then. For a shard of no group it returns at once.
//
// Errors: ErrNotLeader, ErrShard, ErrClosed, ctx's. Without a majority it fails with ErrNotLeader: when this store leads no more, which
// is two election timeouts away, or when none has confirmed it for 2 s.
func Confirm(ctx context.Context, s *Store, shardID uint16) error {
	if int(shardID) >= len(s.shards) {
		return ErrShard
	}
	m := s.groups.of[shardID].Load()
	if m == nil {
		return s.groups.leftOf(shardID)
	}
	if _, ready := m.Ready(); !ready {
		return m.NotLeader()
	}
	switch err := s.groups.engine.Barrier(ctx, m.group); {
	case errors.Is(err, consensus.ErrNotLeader), errors.Is(err, consensus.ErrNoGroup), errors.Is(err, consensus.ErrFenced):
		return m.NotLeader()
	case errors.Is(err, consensus.ErrClosed):
		return s.fence.Or(ErrClosed)
	case errors.Is(err, consensus.ErrBusy):
		return fmt.Errorf("%w: too many wait to know that this store leads", ErrOverloaded)
	default:
		return err
	}
}

// EngineOf returns the engine of a store's replicated groups; nil: there are none.
func EngineOf(s *Store) consensus.Engine {
	if s.groups.engine == nil {
		return nil
	}
	return s.groups.engine
}
