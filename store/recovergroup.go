package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/store/internal/checkpoint"
	"github.com/rdmakv/rdmakv/store/internal/ckpt"
	"github.com/rdmakv/rdmakv/store/internal/disk"
	"github.com/rdmakv/rdmakv/store/internal/entry"
	"github.com/rdmakv/rdmakv/store/internal/image"
	"github.com/rdmakv/rdmakv/store/internal/shard"
	"github.com/rdmakv/rdmakv/store/internal/tables"
	"github.com/rdmakv/rdmakv/store/layout"
)

// How a store makes a new group of what its replica of another one has, of which a majority is lost for good:
//
//	Stop                            the engine runs the old replica no more; it votes no more
//	Salvage                         all that its log has is applied, also what nobody has said is committed
//	the cell ends                   its word is one that nobody believes
//	End                             what was under way is answered
//	Reach                           the base has all of that, so the shards have nothing that is newer
//	BaseOf                          what that is in few bytes (begins, below)
//	                                no checkpoint runs
//	  Create                        the engine has the log of the new replica: it begins behind entry 1, and has nothing before it
//	  Recovered                     the base has the new replica in the place of the old one: durable, in one step
//	  Begin                         the shards number as the new group does; they are its
//	DropStream                      the log keeps nothing of the old one
//
// Keys, results of requests and values in parts stay where they are, in the base and in memory, because they are by shard. A crash before Recovered leaves the old replica, which has applied more than
// it should have and must not run (Config.Keeps); RecoverGroup is called again. A crash behind it leaves the new one.
//
// The new group begins as a snapshot of index 1 (R19): whoever comes into it gets its state from this replica, because no log has its entry 1. The state record of the group and the keys that it speaks
// of stand in one base, so no replica can have the one without the other.

// recoverGap is how many numbers of the old group are left out for each time that its shards were taken over so. Those that the lost replicas have given out behind what is here are below that many, so
// that no version comes twice for different values: a group gives out a few hundred thousand a second, and a replica that lags by 2^32 of them would have been sent a snapshot long before. What is here may be of the group
// before the one that is lost, whose numbers began a gap above, so one gap would not do. There are 2^12 gaps.
const recoverGap = 1 << 32

// RecoverGroup makes a new group, of which this store has the only replica, of all that its replica of another group has. times is how often the shards have been taken over so, this time counted. The new group has a higher id, the same shards, and this replica
// as its only founder. What is under way at the old replica is answered with an unknown outcome, and versions in the new group are above all that the old one has given out. That the old group
// has lost its majority for good is for the caller to know: if it has not, there are two groups that have other writes behind the same ones.
//
// When it returns nil that is durable, and the replica takes part, or will once no reader believes the memory of the store's last life. A group that was recovered before is no error. After an error the
// old replica takes no part any more, and RecoverGroup is called again.
//
// Errors: ErrGroups (the replica is not here, or has nothing; ids, shards or founders are not as they must be), consensus.ErrNoLog, ErrEpochs, ErrClosed, ErrFatal, ctx's, and those of log and base.
func RecoverGroup(ctx context.Context, s *Store, from consensus.GroupID, replica consensus.ReplicaID, times uint16, c Group) error {
	g := s.groups
	if err := c.check(s); err != nil {
		return err
	}
	if times == 0 {
		return fmt.Errorf("%w: group %d is to be made of group %d for the 0th time", ErrGroups, c.ID, from)
	}
	if v := c.Founders.Voters; c.ID <= from || len(v) != 1 || v[0].ID != c.Replica || len(c.Founders.Learners) != 0 {
		return fmt.Errorf("%w: group %d, of %d founders, is to be made of group %d: it needs a higher id, and one founder", ErrGroups, c.ID, len(v), from)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(g.ctx, cancel)()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return s.fence.Or(ErrClosed)
	}
	shards := slices.Sorted(slices.Values(c.Shards))
	if i := slices.IndexFunc(g.members, func(m *member) bool { return m.group == c.ID }); i >= 0 {
		if m := g.members[i]; m.id != c.Replica || !slices.Equal(m.found.Shards, shards) || m.gone {
			return fmt.Errorf("%w: replica %d of group %d is here, of shards %v", ErrGroups, m.id, m.group, m.found.Shards)
		}
		return nil
	}
	i := slices.IndexFunc(g.members, func(m *member) bool {
		return m.group == from && m.id == replica && slices.Equal(m.found.Shards, shards)
	})
	if i < 0 {
		return fmt.Errorf("%w: replica %d of group %d, of shards %v, is not here", ErrGroups, replica, from, shards)
	}
	if former, err := s.disk.Former(uint32(c.ID)); err != nil {
		return err
	} else if uint64(c.Replica) <= former {
		return fmt.Errorf("%w: replica %d of group %d was given up here", ErrGroups, former, c.ID)
	}
	m := &member{group: c.ID, id: c.Replica}
	if err := m.recover(ctx, s, g, g.members[i], times, c.Founders); err != nil {
		if g.ctx.Err() != nil {
			return s.fence.Or(ErrClosed)
		}
		return fmt.Errorf("store: group %d is not made of replica %d of group %d yet: ask for it again: %w", c.ID, replica, from, err)
	}
	g.tellOrphans(s)
	if s.before.over.Load() && s.cfg.TakePart == nil {
		return g.engine.Start(m.ctx, m.group, m.id, &machine{m, s})
	}
	s.life.Go(func() {
		if g.mayTakePart(s) {
			m.takePart(s, g)
		}
	})
	return nil
}

// recover has a new replica take the place of an old one. Caller holds g.mu.
func (m *member) recover(ctx context.Context, s *Store, g *groupSide, old *member, times uint16, founders consensus.Config) error {
	last, err := old.salvage(ctx, s, g)
	if err != nil {
		return err
	}
	if err := s.ckpt.Reach(ctx, old.group, last); err != nil {
		return err
	}
	next := max(1, old.State().Turn.Next)
	gap := uint64(times) * recoverGap
	if gap > layout.MaxNumber || next > layout.MaxNumber-gap {
		return ErrEpochs
	}
	m.found = entry.State{
		State: consensus.State{Applied: 1, Term: 1, Config: founders}, Turn: entry.Turn{Next: next + gap}, Shards: old.found.Shards,
	}
	if err := g.dropOrphans(s, m.group); err != nil {
		return err
	}
	begins, err := m.begins(ctx, s)
	if err != nil {
		return err
	}
	err = ckpt.RemoveGroup(ctx, s.ckpt, old.group, func() error {
		if at, err := checkpoint.StateOf(s.disk, old.group); err != nil || at.Applied != last {
			return errors.Join(err, fmt.Errorf("the base is at entry %d of group %d, not at entry %d", at.Applied, old.group, last))
		}
		if err := g.create(s, m); err != nil {
			return err
		}
		m.follow(s, g) // behind create, which finds the stream
		to, err := s.disk.Tables(ctx, 0)
		if err == nil {
			// What the tables have to wait for comes before the locks.
			if err = errors.Join(checkpoint.Recovered(to, old.group, old.id, m.group, m.id, m.told(), &m.found, &begins), to.Ready(ctx)); err != nil {
				err = errors.Join(err, to.Abort())
			}
		}
		if err == nil {
			err = s.journal.Change(&s.ckpt.Leaving, func() error { return m.succeed(ctx, s, g, old, to) })
		}
		if err != nil {
			m.cancel()
			m.cell.end()
		}
		return err
	})
	if err != nil {
		return err
	}
	s.ckpt.AddGroup(m, m.found)
	m.live(s, g)
	return nil
}

// salvage ends the part that the replica takes, applies all that its log has, and answers what is under way. It returns the newest entry. It may be called again.
func (m *member) salvage(ctx context.Context, s *Store, g *groupSide) (last uint64, err error) {
	engine, ok := g.engine.(consensus.Salvager)
	if !ok {
		return 0, fmt.Errorf("%w: what runs the replicas of this store recovers none", ErrGroups)
	}
	m.part.Lock()
	m.gone = true
	err = g.engine.Stop(m.group, false)
	m.part.Unlock()
	if err != nil && !errors.Is(err, consensus.ErrNoGroup) {
		return 0, err
	}
	if last, err = engine.Salvage(ctx, m.group, m.id, &machine{m, s}); err != nil {
		return 0, err
	}
	if last == 0 {
		return 0, fmt.Errorf("%w: replica %d of group %d: %w: it was to get all from the others", ErrGroups, m.id, m.group, ErrNothingKept)
	}
	return last, m.stop(g)
}

// succeed has the base, and then memory, know of the replica in the place of the old one. Nothing is ordered in its shards, no checkpoint runs, and nobody takes a moment of the store. After an error
// nothing has been done.
func (m *member) succeed(ctx context.Context, s *Store, g *groupSide, old *member, to *tables.Tables) error {
	if _, err := to.Commit(ctx); err != nil {
		return err
	}
	old.has.Store(false)
	m.has.Store(true)
	for _, id := range m.found.Shards {
		shard.Begin(s.shards[id], m.found.Turn.Newest(id))
		if old.floor != 0 { // nobody has a bound of the new group yet
			s.shards[id].Reached()
			s.filler.Again(s.shards[id])
		}
	}
	s.Events.end(m.found.Shards)
	s.Events.begin(m.group, m.found.Shards, m.found.Turn.Newest(0))
	g.past.mu.Lock()
	g.past.stats.add(old)
	claim(s, m.found.Shards, m)
	g.past.mu.Unlock()
	g.members = append(slices.DeleteFunc(slices.Clone(g.members), func(o *member) bool { return o == old }), m)
	return nil
}

// What a group began with, if it began with keys (R19). The base says it in the ingest that makes the replica (image.BaseOf), and it is compared as long as the base is there still, at entry 1:
//
//	when a store is opened       the making, or the first checkpoint behind it, was cut short: before the replica takes part
//	when it is sent              the first learner gets nothing else; it costs no pass of its own
//
// A replica whose base is another one is stopped, and says why. Behind the first checkpoint nothing can be compared, because the base has moved on. What that costs, and what not:
// docs/decisions/2026-11-30-base-digest.md.

// begins works out what the base has of the replica's shards. Nothing of that changes meanwhile: the base has all of it, and nobody orders in them.
func (m *member) begins(ctx context.Context, s *Store) (disk.GroupBase, error) {
	snap := s.disk.Snapshot()
	b, err := image.BaseOf(ctx, snap, m.found.Shards, func(context.Context, int) error {
		select {
		case <-s.fence.Down:
			return s.fence.Failed()
		default:
			return nil
		}
	})
	if closeErr := snap.Close(); err == nil {
		err = closeErr
	}
	return b, err
}

// beganSo compares what the base has with what the group began with, if it was opened there. Caller holds part.
func (m *member) beganSo(s *Store) error {
	if !m.opened || m.found.Applied != 1 {
		return nil
	}
	m.opened = false
	want, err := disk.GroupBaseIn(s.disk, uint32(m.group))
	if err != nil || want == nil {
		return err
	}
	if at, err := checkpoint.StateOf(s.disk, m.group); err != nil || at.Applied != 1 {
		return err
	}
	got, err := m.begins(m.ctx, s)
	if err == nil {
		err = image.SameBase(&got, want)
	}
	return err
}

// refuse stops a replica that must not take part, and says why.
func (m *member) refuse(s *Store, err error) {
	m.gone = true
	s.fence.Report(slog.LevelError, "a replica takes no part in its group: recover the group from another node, or give this node's replica up (kvclient cluster replace)", "group", m.group, "replica", m.id, "err", err)
}
