package store

import (
	"errors"
	"log/slog"

	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/store/log"
)

// Where entries of groups stand in the log. Each replica that a store has, or has had, has a stream of its own, because the log takes no more into a
// stream that was dropped:
//
//	number of the stream   n << 32 | group      n = 1, 2, ...: the n-th replica of the group here, about. Below 1 << 32 is the store's own stream
//
// Which one a replica has its base says (package disk). A stream that no replica of the base has is an orphan: the replica was given up, and a crash came before its stream
// was dropped, or it was never added, because a crash came behind Create. Nobody runs on it any more, so it is dropped: it would keep its
// entries for ever.
//
// Group 0 is none of the store's: the cluster's meta group, whose machine is another one. Its entries stand in the same log, in the stream of the number of the replica,
// and whoever runs it drops them.

// MetaReplica says which replica of group 0 the engine is about to create or to start. None of it runs meanwhile.
func MetaReplica(s *Store, id consensus.ReplicaID) {
	s.groups.streams.Store(consensus.GroupID(0), uint64(id)<<32)
}

// DropMeta drops what the log has of a replica of group 0, durably, whatever else is left of it. Nobody may run the replica, then or later. That there is nothing of it is no error.
//
// Errors: those of the log.
func DropMeta(s *Store, id consensus.ReplicaID) error {
	stream, has := uint64(id)<<32, false
	s.journal.Log().Streams(func(i log.Info) { has = has || i.Stream == stream && !i.Dropped })
	if !has {
		return nil
	}
	return s.journal.Log().DropStream(stream)
}

// firstStream is the first stream of a group.
func firstStream(id consensus.GroupID) uint64 { return 1<<32 | uint64(id) }

// Stream is the one that the replica has. It is not known before the engine has created its log, so it is not replica.Config's.
func (m *member) Stream() uint64 { return m.stream }

// told is what the base is told of it: 0 for the first of a group, as of replicas that programs knew of before there were others.
func (m *member) told() uint64 {
	if m.stream == firstStream(m.group) {
		return 0
	}
	return m.stream
}

// nextStream is the stream of the same group behind one.
func nextStream(stream uint64) uint64 { return stream + 1<<32 }

// isOfGroup says whether a stream is a group's.
func isOfGroup(stream uint64) bool { return stream>>32 != 0 }

// streamOf is the stream of the replica of a group that the store has, or is about to have.
func (g *groupSide) streamOf(id consensus.GroupID) uint64 {
	if stream, ok := g.streams.Load(id); ok {
		return stream.(uint64)
	}
	return firstStream(id)
}

// dropOrphans drops the streams of groups that no replica has, but those of one group (but; 0: none is left out), which is about to get one. Caller
// holds mu, or is alone.
//
// Errors: those of the log. The streams stay, and are dropped by the next call.
func (g *groupSide) dropOrphans(s *Store, but consensus.GroupID) (err error) {
	mine := make(map[uint64]bool)
	for _, m := range g.members {
		mine[m.stream] = true
	}
	var orphans []uint64
	s.journal.Log().Streams(func(i log.Info) {
		if isOfGroup(i.Stream) && uint32(i.Stream) != 0 && !i.Dropped && !mine[i.Stream] && (but == 0 || uint32(i.Stream) != uint32(but)) {
			orphans = append(orphans, i.Stream)
		}
	})
	for _, stream := range orphans {
		err = errors.Join(err, s.journal.Log().DropStream(stream))
	}
	return err
}

// tellOrphans is dropOrphans at a start. A log that has no room for it is no reason not to serve.
func (g *groupSide) tellOrphans(s *Store) {
	if err := g.dropOrphans(s, 0); err != nil && s.fence.Failed() == nil {
		s.fence.Report(slog.LevelWarn, "the log keeps entries of replicas that this store has no more: they go when a replica is added or removed, or at the next start", "err", err)
	}
}

// create has the engine create the log of a replica which the store is about to have, in a stream that no other one has had. What a call before it has
// left, which was interrupted, is gone on with; if it was another replica's, it is dropped.
func (g *groupSide) create(s *Store, m *member) error {
	known := make(map[uint64]bool) // whether it was dropped
	s.journal.Log().Streams(func(i log.Info) { known[i.Stream] = i.Dropped })
	for m.stream = firstStream(m.group); ; m.stream = nextStream(m.stream) {
		dropped, seen := known[m.stream]
		if dropped {
			continue
		}
		g.streams.Store(m.group, m.stream)
		err := g.engine.Create(m.group, m.id, m.found.State)
		if err == nil || !seen {
			return err
		}
		if e := s.journal.Log().DropStream(m.stream); e != nil {
			return errors.Join(err, e)
		}
	}
}
