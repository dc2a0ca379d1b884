package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
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

// A Group is a replica of a group of shards, which this store has. Writes of its shards are ordered while this
// replica leads, and are done when a majority of the group has them; else they fail with ErrNotLeader.
type Group struct {
	ID      consensus.GroupID
	Replica consensus.ReplicaID // of this store; never used again once its directory is lost
	Shards  []uint16            // of the group, alike at all its replicas, for ever
	// Founders is what the group begins with, alike at all its first replicas: Config.Index is 1. It counts only when the store
	// hears of the group for the first time. Without voters this replica begins with nothing, and gets the state from the others.
	Founders consensus.Config
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
}

// ErrNotLeader: this store orders no writes of the shard now. A *NotLeaderError says who may.
var ErrNotLeader = base.ErrNotLeader

// ErrGroups: the store's directory and its configuration do not agree on the replicas that it has.
var ErrGroups = errors.New("store: the directory has other replicas than the configuration")

// A NotLeaderError says which replica leads a group, as far as this one knows.
type NotLeaderError = replica.NotLeaderError

// groupStream is where a group's entries stand in the log. The store's own writes have another stream.
func groupStream(id consensus.GroupID) uint64 { return 1<<32 | uint64(id) }

// A groupSide is what of a store concerns replicated groups.
//
//	open     the base says where each group stands, or is told of it; the engine is made
//	follow   the shards are there: replicas publish to them, and checkpoints take in what they publish
//	start    replicas take part, when no reader believes the last life any more (R18)
//	close    they take part no more; what is under way is answered
type groupSide struct {
	engine  Engine
	members []*member
	of      []*member         // by shard; nil: it is in no group
	direct  *direct           // answers their writes
	alone   *pipeline.Orderer // of shards of no group
	ctx     context.Context
	cancel  context.CancelFunc
}

// newGroupSide returns that of a store which is not open yet, with so many shards.
func newGroupSide(shards int) groupSide {
	g := groupSide{of: make([]*member, shards)}
	g.ctx, g.cancel = context.WithCancel(context.Background())
	return g
}

// A member is a replica of this store.
type member struct {
	*replica.Replica             // once it is followed
	c                Group       // of the store's configuration
	found            entry.State // of the base, at the start
	order            *pipeline.Orderer
}

// open makes the engine, and tells it and the base of groups that are new here. A crash in between is no harm: the engine is told
// first, and again.
func (g *groupSide) open(s *Store) (err error) {
	if err := g.known(s); err != nil {
		return err
	}
	if len(s.cfg.Groups) == 0 {
		return nil
	}
	g.engine, err = s.cfg.Engine(EngineEnv{Log: s.journal.Log(), Stream: groupStream, Fenced: func(id consensus.GroupID, err error) {
		if g.ctx.Err() == nil {
			s.fence.Report(slog.LevelError, "a replica was stopped: this store takes no part in its group any more", "group", id, "err", err)
		}
	}})
	if err != nil {
		return fmt.Errorf("store: the engine of replicated groups: %w", err)
	}
	for _, c := range s.cfg.Groups {
		m := &member{c: c}
		if err := m.open(s, g); err != nil {
			return fmt.Errorf("store: group %d: %w", c.ID, err)
		}
		g.members = append(g.members, m)
		for _, id := range c.Shards {
			g.of[id] = m
		}
	}
	return nil
}

// open looks where the base stands in the group.
func (m *member) open(s *Store, g *groupSide) error {
	found, ok, err := checkpoint.StateOf(s.disk, m.c.ID)
	if err != nil {
		return err
	}
	shards := slices.Sorted(slices.Values(m.c.Shards))
	if m.found = found; ok {
		if !slices.Equal(found.Shards, shards) {
			return fmt.Errorf("%w: it has shards %v here, and is said to have %v", ErrGroups, found.Shards, shards)
		}
		return nil
	}
	for _, id := range shards {
		if empty, err := s.isEmpty(id); err != nil {
			return err
		} else if !empty {
			return fmt.Errorf("%w: shard %d has keys from before", ErrGroups, id)
		}
	}
	m.found.Shards = shards
	if len(m.c.Founders.Voters) > 0 {
		m.found.State = consensus.State{Applied: 1, Term: 1, Config: m.c.Founders}
	}
	m.found.Turn.Next = 1
	if err := g.engine.Create(m.c.ID, m.c.Replica, m.found.State); err != nil {
		return err
	}
	to, err := s.disk.Tables(g.ctx, 0)
	if err != nil {
		return err
	}
	return checkpoint.Found(g.ctx, to, m.c.ID, &m.found)
}

// isEmpty says whether a shard has no key, in base or log.
func (s *Store) isEmpty(shard uint16) (bool, error) {
	if n, _ := s.journal.Sets[shard].Counts(); n > 0 {
		return false, nil
	}
	records, err := s.disk.Records(disk.AppendKey(nil, shard, 0, nil), disk.AppendKey(nil, shard+1, 0, nil))
	if err != nil {
		return false, err
	}
	records.First()
	empty := !records.Valid()
	return empty, errors.Join(records.Error(), records.Close())
}

// known refuses groups that the base has and the configuration has not: their shards would be written to with versions that
// their replicas do not have.
func (g *groupSide) known(s *Store) error {
	ids, err := checkpoint.GroupsOf(s.disk)
	for _, id := range ids {
		if !slices.ContainsFunc(s.cfg.Groups, func(c Group) bool { return c.ID == id }) {
			return fmt.Errorf("%w: the store has a replica of group %d, and is started without it", ErrGroups, id)
		}
	}
	return err
}

// none is the newest version that the base has of a shard; own is what it is of one in no group.
func (g *groupSide) none(shard uint16, own layout.Version) layout.Version {
	if m := g.of[shard]; m != nil {
		return m.found.Turn.Newest(shard)
	}
	return own
}

// follow makes the replicas, over shards that are there.
func (g *groupSide) follow(s *Store) {
	for _, m := range g.members {
		m.Replica = replica.New(replica.Config{
			Group: m.c.ID, Stream: groupStream(m.c.ID), Life: max(1, rand.Uint64()), Shards: s.shards, Mine: m.c.Shards, Seed: s.mem.Seed,
			Propose: func(term uint64, data []byte) error { return g.engine.Propose(m.c.ID, term, data) },
			Trim: func(upTo uint64) {
				if err := g.engine.Trim(m.c.ID, upTo); err != nil && !errors.Is(err, consensus.ErrNoGroup) && !errors.Is(err, consensus.ErrClosed) {
					s.fence.Report(slog.LevelWarn, "the log keeps entries of a group that the base has", "group", m.c.ID, "err", err)
				}
			},
			At: func(index uint64) (log.Position, error) { return s.journal.Log().EntryAt(groupStream(m.c.ID), index) },
			Reserve: func(size int) (layout.Place, uint8) {
				// A region may have to be registered; a full memory is not waited for.
				place, class, err := s.evictor.Reserve(size, true)
				if err != nil {
					return 0, 0
				}
				return place, class
			},
			Free: s.mem.Slabs.Free, Results: s.dedup,
			Publish: func(writes []*flight.Flight) { s.journal.PublishWrites(writes, s.shards, s.dedup) },
			Done:    func(writes []*flight.Flight, bytes int64) { g.direct.published(writes, bytes) },
			Void:    func(writes []*flight.Flight, bytes int64) { g.direct.void(writes, bytes) },
		}, m.found)
		for _, id := range m.c.Shards {
			sh := s.shards[id]
			sh.Agreed = true
			sh.Mu.Lock()
			sh.Dirty.Leave(m.found.Turn.Newest(id), nil)
			sh.Mu.Unlock()
		}
		s.ckpt.AddGroup(m, m.found)
	}
}

// start has replicas take part in their groups, once nobody believes the memory of the last life: else an old word would go on
// saying its term while this life votes.
func (g *groupSide) start(s *Store, d *direct, alone *pipeline.Orderer) {
	g.direct, g.alone = d, alone
	for _, m := range g.members {
		m.order = pipeline.NewOrderer(m, pipeline.OrderEnv{
			Memory: s.mem, Results: s.dedup, Reserve: s.evictor.Reserve, Read: s.ask,
		})
		s.life.Go(func() { m.Run(s.life) })
	}
	if len(g.members) == 0 {
		return
	}
	s.life.Go(func() {
		if s.before.waitUntil(g.ctx) != nil {
			return
		}
		for _, m := range g.members {
			if err := g.engine.Start(g.ctx, m.c.ID, m.c.Replica, &machine{m, s}); err != nil && g.ctx.Err() == nil {
				s.fence.Report(slog.LevelError, "a replica cannot take part in its group: its shards are not served here", "group", m.c.ID, "err", err)
			}
		}
	})
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
	if g.engine == nil {
		return nil
	}
	var errs []error
	for _, m := range g.members {
		if err := g.engine.Stop(m.c.ID, false); err != nil && !errors.Is(err, consensus.ErrNoGroup) && !errors.Is(err, consensus.ErrFenced) && !errors.Is(err, consensus.ErrClosed) {
			errs = append(errs, fmt.Errorf("store: group %d: %w", m.c.ID, err))
		}
	}
	errs = append(errs, g.engine.Close())
	for _, m := range g.members {
		if m.Replica != nil && m.order != nil {
			m.End()
		}
	}
	return errors.Join(errs...)
}

// gained says whether this store orders writes of a group now that is not in led, and brings that up to date.
func (g *groupSide) gained(led map[*member]bool) (any bool) {
	for _, m := range g.members {
		_, ready := m.Ready()
		any = any || ready && !led[m]
		led[m] = ready
	}
	return any
}

// orders says whether this store orders writes of a shard now.
func (g *groupSide) orders(shard uint16) bool {
	m := g.of[shard]
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
	m := g.of[sh.ID]
	if m == nil {
		return g.alone.Order(sh, f, w)
	}
	g.direct.gate.Return(f.Room)
	f.Room = 0
	return m.order.Order(sh, f, w)
}

// EngineOf returns the engine of a store's replicated groups; nil: there are none.
func EngineOf(s *Store) consensus.Engine {
	if s.groups.engine == nil {
		return nil
	}
	return s.groups.engine
}

// validGroups reports the faults of Config.Groups.
func (c *Config) validGroups(bad func(ok bool, format string, args ...any)) {
	if len(c.Groups) == 0 {
		return
	}
	bad(c.Engine != nil, "replicated groups without an engine")
	bad(c.Mode == Durable && c.Sync == Always, "replicated groups need mode durable and sync always: a replica that forgets what it has promised can lose writes of all")
	bad(c.WatchBytes == 0, "watching is not possible with replicated groups")
	of := make(map[uint16]consensus.GroupID)
	var ids []consensus.GroupID
	for i := range c.Groups {
		g := &c.Groups[i]
		bad(!slices.Contains(ids, g.ID), "group %d: there are two of it", g.ID)
		ids = append(ids, g.ID)
		bad(g.Replica != 0, "group %d: replica 0: ids begin at 1", g.ID)
		bad(len(g.Shards) > 0, "group %d: it has no shards", g.ID)
		for _, id := range g.Shards {
			other, taken := of[id]
			bad(int(id) < c.Shards, "group %d: shard %d of %d", g.ID, id, c.Shards)
			bad(!taken, "shard %d is in groups %d and %d", id, other, g.ID)
			of[id] = g.ID
		}
		if len(g.Founders.Voters) > 0 || len(g.Founders.Learners) > 0 {
			err := g.Founders.Check()
			bad(err == nil, "group %d: its founders: %v", g.ID, err)
			bad(g.Founders.Index == 1, "group %d: its founders' configuration has index %d, not 1", g.ID, g.Founders.Index)
		}
	}
}
