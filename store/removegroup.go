package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/store/internal/checkpoint"
	"github.com/rdmakv/rdmakv/store/internal/ckpt"
	"github.com/rdmakv/rdmakv/store/internal/shard"
	"github.com/rdmakv/rdmakv/store/internal/tables"
)

// How a store gives up a replica while it is open:
//
//	Stop                            the engine runs it no more; it votes no more, and writes nothing into its log
//	the cell ends                   its word is one that nobody believes
//	End                             what was under way is answered; the shards are the group's still, so nobody writes to them
//	Withhold                        every miss is asked, from here on
//	  a lease                       nobody believes a miss any more that he has read before
//	Clear                           memory has nothing of it
//	                                no checkpoint runs
//	  GiveUp                        the base has neither the shards nor the replica: durable, in one step
//	  End, forget                   nothing is newer than the base; results of requests, values in parts and events are forgotten
//	                                the shards are nobody's
//	DropStream                      the log keeps nothing of it: durable
//
// A crash before GiveUp leaves the replica whole, because its log is whole: the next start runs it, and RemoveGroup is called again. A crash behind GiveUp leaves it gone, and
// the next start drops its stream (groupstreams.go).
//
// The base comes before the log because a replica without a log has forgotten its votes, and must never run again. If the stream went first, the base would name such a
// replica behind a crash. It would not run, since Reconcile finds no log, but that rule alone would stand between a lost vote and two leaders of one term, and the node would
// have a replica that is lost where none should be. In this order nothing names the replica when its votes go: neither base nor log know it, and the base
// knows its id as one that is not used again (former.N, package disk), so AddGroup refuses it.
//
// A read that was told before that this store leads the group (Confirm) may look at the shards when they are empty. It is told that another store knows
// (leftOf), because the group has what is not here any more.

// RemoveGroup has a store give up a replica, whether or not it takes part: one that was stopped by an error, or whose log is gone, goes, too. When it returns nil the store has nothing
// of it, in memory and on its disk, and AddGroup may give it another replica of the group, which has a higher id. That there is none of the group is no
// error. The store gives up the replica alone: that the group does without it is for the caller to see to, before.
//
// After any other error than ErrGroups the replica may have been stopped, and takes no part until the store is opened again; RemoveGroup is called again then.
// It waits for a lease, for a checkpoint that is under way, and for the disk; ctx bounds all of that but what the disk has been told to write.
//
// Errors: ErrGroups (another replica of the group is here), ErrClosed, ErrFatal, ctx's, and those of log and base.
func RemoveGroup(ctx context.Context, s *Store, group consensus.GroupID, replica consensus.ReplicaID) error {
	g := s.groups
	if g.engine == nil {
		return nil // it has no replicas
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(g.ctx, cancel)()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return s.fence.Or(ErrClosed)
	}
	if i := slices.IndexFunc(g.members, func(m *member) bool { return m.group == group }); i >= 0 {
		m := g.members[i]
		if m.id != replica {
			return fmt.Errorf("%w: replica %d of group %d is here, not %d", ErrGroups, m.id, group, replica)
		}
		if err := m.giveUp(ctx, s, g); err != nil {
			if g.ctx.Err() != nil {
				return s.fence.Or(ErrClosed)
			}
			return fmt.Errorf("store: replica %d of group %d is not given up yet: remove it again: %w", replica, group, err)
		}
	}
	if err := g.dropOrphans(s, 0); err != nil {
		return fmt.Errorf("store: replica %d of group %d is given up, and the log keeps its entries: remove it again: %w", replica, group, err)
	}
	return nil
}

// giveUp is RemoveGroup of a replica, but for its stream in the log. Caller holds g.mu.
func (m *member) giveUp(ctx context.Context, s *Store, g *groupSide) error {
	if err := m.stop(g); err != nil {
		return err
	}
	for _, id := range m.found.Shards {
		g.left[id].Store(m)
		m.cleared(s, s.shards[id].Withhold())
	}
	if err := m.waitLease(ctx, s); err != nil {
		return errors.Join(err, ctx.Err())
	}
	for _, id := range m.found.Shards {
		s.shards[id].Clear()
	}
	return ckpt.RemoveGroup(ctx, s.ckpt, m.group, func() error {
		to, err := s.disk.Tables(ctx, 0)
		if err != nil {
			return err
		}
		// What the tables have to wait for comes before the locks.
		if err := errors.Join(checkpoint.GiveUp(to, m.group, m.id, m.found.Shards), to.Ready(ctx)); err != nil {
			return errors.Join(err, to.Abort())
		}
		return s.journal.Change(&s.ckpt.Leaving, func() error { return m.vanish(ctx, s, g, to) })
	})
}

// stop ends the part that the replica takes, and answers what is under way. It may be called again.
func (m *member) stop(g *groupSide) error {
	m.cancel()
	m.part.Lock()
	m.gone = true
	err := g.engine.Stop(m.group, false)
	m.part.Unlock()
	if err != nil && !errors.Is(err, consensus.ErrNoGroup) {
		return err
	}
	k := g.keptOf(m.group)
	k.word, k.shown = max(k.word, m.cell.end()), max(k.shown, m.State().Applied)
	m.End(&NotLeaderError{Group: m.group})
	m.running.Wait()
	return nil
}

// vanish takes the replica out of the base and forgets it. Nothing is ordered in its shards, no checkpoint runs, and nobody takes a moment of the store. After
// an error nothing has been done.
func (m *member) vanish(ctx context.Context, s *Store, g *groupSide, to *tables.Tables) error {
	if _, err := to.Commit(ctx); err != nil {
		return err
	}
	m.has.Store(false)
	next, _ := s.pipe.Versions() // of the store's own writes, should some come
	for _, id := range m.found.Shards {
		shard.End(s.shards[id], next-1, &NotLeaderError{Group: m.group})
	}
	s.dedup.Forget(m.found.Shards)
	s.parts.Forget(m.found.Shards)
	s.Events.end(m.found.Shards)
	g.past.mu.Lock()
	g.past.stats.add(m)
	claim(s, m.found.Shards, nil)
	g.past.mu.Unlock()
	for _, id := range m.found.Shards {
		s.filler.Again(s.shards[id]) // it finds nothing, and counts the shard as filled
	}
	g.members = slices.DeleteFunc(slices.Clone(g.members), func(o *member) bool { return o == m })
	return nil
}

// leftOf returns nil, or an error for a shard whose replica was given up: who asks is to ask another store of the group.
func (g *groupSide) leftOf(shard uint16) error {
	if m := g.left[shard].Load(); m != nil {
		return &NotLeaderError{Group: m.group}
	}
	return nil
}

// ReplicasOf returns the replicas that a store has, by the numbers of their groups: those that its directory names, also those that take no part. One that is being given
// up is among them until it is gone. ID, Replica and Shards of each are filled in; Shards rise. It waits for nothing, and is safe for concurrent use.
func ReplicasOf(s *Store) []Group {
	var list []Group
	for _, m := range s.groups.list() {
		if m.has.Load() {
			list = append(list, Group{ID: m.group, Replica: m.id, Shards: slices.Clone(m.found.Shards)})
		}
	}
	slices.SortFunc(list, func(a, b Group) int { return cmp.Compare(a.ID, b.ID) })
	return list
}
