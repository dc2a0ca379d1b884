package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/store/log"
)

// How a store keeps what it has of a group that has lost its majority, while another store makes a new group of what that one has:
//
//	Stop, Salvage   as of RecoverGroup: the replica votes no more, and all that its log has is applied
//	Reach           the base has it
//	TrimStream      the log has no entries of it, which would keep the segments of all others; it has still which replica it was, and of which term
//
// The replica never takes part again (Config.Keeps). RecoverGroup makes a group of it, should the other store be lost, too; RemoveGroup gives it up. A crash anywhere leaves the replica, with its log or
// without the entries that the base has, and KeepGroup is called again.

// A Kept is a replica of a group that is gone, which its store keeps.
type Kept struct {
	Group   consensus.GroupID
	Replica consensus.ReplicaID
	Shard   uint16 // the first one of the group
	Last    uint64 // index of its newest entry, which is applied
	Term    uint64 // of that entry
	Votes   bool   // by the newest configuration that it has
}

// ErrNothingKept: a replica has nothing that is worth to be kept: it was to get all from the others.
var ErrNothingKept = errors.New("store: the replica has nothing")

// KeepGroup has a store run a replica no more, and keep what it has. When it returns nil that is durable, and the log has no entries of it. It may be called again, also behind a start.
//
// Errors: ErrGroups (the replica is not here), ErrNothingKept, consensus.ErrNoLog, ErrClosed, ErrFatal, ctx's, and those of log and base. After an error the replica takes no part any more.
func KeepGroup(ctx context.Context, s *Store, group consensus.GroupID, replica consensus.ReplicaID) error {
	g := s.groups
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(g.ctx, cancel)()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return s.fence.Or(ErrClosed)
	}
	i := slices.IndexFunc(g.members, func(m *member) bool { return m.group == group && m.id == replica })
	if i < 0 {
		return fmt.Errorf("%w: replica %d of group %d is not here", ErrGroups, replica, group)
	}
	m := g.members[i]
	if m.kept.Load() != nil {
		return nil
	}
	last, err := m.salvage(ctx, s, g)
	if err == nil {
		err = s.ckpt.Reach(ctx, m.group, last)
	}
	if err == nil {
		err = log.TrimStream(s.journal.Log(), m.stream, last)
	}
	switch {
	case err != nil && g.ctx.Err() != nil:
		return s.fence.Or(ErrClosed)
	case err != nil:
		return fmt.Errorf("store: replica %d of group %d is not kept yet: ask for it again: %w", replica, group, err)
	}
	at := m.State()
	m.kept.Store(&Kept{Group: m.group, Replica: m.id, Shard: m.found.Shards[0], Last: at.Applied, Term: at.Term, Votes: at.Config.Voter(m.id)})
	return nil
}

// KeptOf returns the replicas that a store keeps of groups that are gone, by the numbers of the groups. It waits for nothing, and is safe for concurrent use.
func KeptOf(s *Store) (list []Kept) {
	for _, m := range s.groups.list() {
		if k := m.kept.Load(); k != nil && m.has.Load() {
			list = append(list, *k)
		}
	}
	slices.SortFunc(list, func(a, b Kept) int { return cmp.Compare(a.Group, b.Group) })
	return list
}
