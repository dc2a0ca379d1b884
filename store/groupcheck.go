package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/store/internal/checkpoint"
	"github.com/rdmakv/rdmakv/store/internal/disk"
	"github.com/rdmakv/rdmakv/store/internal/entry"
	"github.com/rdmakv/rdmakv/store/internal/image"
	"github.com/rdmakv/rdmakv/store/internal/replica"
)

// How a replica looks at what it has, when a check entry is applied (package replica says why all replicas must have the same there):
//
//	Reach     checkpoints bring the base to the entry, and no further
//	Alone     no checkpoint runs: a snapshot of the base is what the group had at the entry
//	Stands    checkpoints go on
//	DigestOf  the snapshot is read, beside all else, at checkRate
//
// What is read is what the disk has, so a base that has rotted is found, and puts pay nothing for it.

const (
	// checkRate is how many bytes of a base are read in a second for a check, at most; and half of the time it rests, because where values are small
	// the processor is what it takes.
	checkRate = 128 << 20
	// checkPatience is how long the base has to reach the place of a check. The log keeps entries meanwhile, so it must end.
	checkPatience = 30 * time.Second
)

type (
	// A GroupCheck is what a store knows of a check of a group (CheckGroup), a CheckState how far it is with it, and a GroupDigest
	// what it has come to.
	GroupCheck  = replica.Check
	CheckState  = replica.CheckState
	GroupDigest = replica.Digest
)

const (
	CheckUnknown = replica.CheckUnknown // the store has not seen it since it was opened, or has forgotten it: eight are known
	CheckBehind  = replica.CheckBehind  // its entry is not applied here yet
	CheckWaits   = replica.CheckWaits   // the base is not there yet
	CheckReads   = replica.CheckReads   // the base is read
	CheckDone    = replica.CheckDone
	CheckFailed  = replica.CheckFailed // GroupCheck.Err says why
)

// ErrOvertaken: the replica has got another one's state, which is behind the check.
var ErrOvertaken = replica.ErrOvertaken

// CheckGroup has all replicas of a group compute a digest of what they have at one place of the group's log, and returns the index of that
// place. This store must lead the group. CheckOf says what the digest is, here and at the other stores. It returns when the entry is
// applied here, which takes a majority; ctx bounds that. Safe for concurrent use; one check at a time is under way in a group.
//
// Errors: a *NotLeaderError; consensus.ErrNoGroup: the store has no replica of the group; ErrOverloaded: a check of the group is under way; ErrClosed; ctx's.
func CheckGroup(ctx context.Context, s *Store, id consensus.GroupID) (index uint64, err error) {
	m, err := s.groups.memberOf(s, id)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.groups.ctx, cancel)()
	index, err = m.Check(ctx)
	if err != nil && s.groups.ctx.Err() != nil {
		return 0, s.fence.Or(ErrClosed)
	}
	return index, err
}

// CheckOf says what the store knows of the check at an index. It waits for nothing, and is safe for concurrent use.
//
// Errors: consensus.ErrNoGroup, ErrClosed.
func CheckOf(s *Store, id consensus.GroupID, index uint64) (GroupCheck, error) {
	m, err := s.groups.memberOf(s, id)
	if err != nil {
		return GroupCheck{}, err
	}
	return m.CheckAt(index), nil
}

// memberOf is the store's replica of a group.
func (g *groupSide) memberOf(s *Store, id consensus.GroupID) (*member, error) {
	if g.ctx.Err() != nil {
		return nil, s.fence.Or(ErrClosed)
	}
	list := g.list()
	i := slices.IndexFunc(list, func(m *member) bool { return m.group == id })
	if i < 0 {
		return nil, fmt.Errorf("%w: group %d", consensus.ErrNoGroup, id)
	}
	return list[i], nil
}

// list is the replicas that are there now. It waits for none that is being added, which may take long.
func (g *groupSide) list() (list []*member) {
	seen := make(map[*member]bool)
	for i := range g.of {
		if m := g.of[i].Load(); m != nil && !seen[m] {
			seen[m] = true
			list = append(list, m)
		}
	}
	return list
}

// checkBegins hands a check to runChecks. It is called like Apply.
func (m *member) checkBegins(index uint64) {
	select {
	case m.checks <- index:
	default: // one that was overtaken twice is looked at still
		m.CheckOver(index, GroupDigest{}, replica.ErrChecking)
	}
}

// runChecks makes the digests of a replica, until it is given up or the store ends.
func (m *member) runChecks(s *Store, g *groupSide) {
	for {
		select {
		case index := <-m.checks:
			d, err := m.check(m.ctx, s, g, index)
			if err != nil && g.ctx.Err() != nil {
				err = ErrClosed
			}
			m.CheckOver(index, d, err)
		case <-m.ctx.Done():
			return
		case <-s.life.Stop:
			return
		case <-s.fence.Down:
			return
		}
	}
}

// check makes the digest of what the base has at an entry.
func (m *member) check(ctx context.Context, s *Store, g *groupSide, index uint64) (d GroupDigest, err error) {
	snap, state, err := m.stand(ctx, s, index)
	if err != nil {
		return d, err
	}
	m.CheckStands(index)
	defer func() { err = errors.Join(err, snap.Close()) }()
	select { // one base is read at a time
	case g.reading <- struct{}{}:
		defer func() { <-g.reading }()
	case <-ctx.Done():
		return d, ctx.Err()
	}
	began := time.Now() // of the piece
	got, err := image.DigestOf(ctx, snap, &state, func(ctx context.Context, n int) error {
		took := time.Since(began)
		select {
		case <-time.After(max(took, time.Duration(n)*time.Second/checkRate-took)):
			began = time.Now()
			return nil
		case <-s.fence.Down:
			return s.fence.Failed()
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	return GroupDigest{Sum: got.Sum, Keys: got.Keys, Results: got.Results}, err
}

// stand takes a snapshot of the base when it is at an entry.
func (m *member) stand(ctx context.Context, s *Store, index uint64) (snap disk.Snapshot, state entry.State, err error) {
	ctx, cancel := context.WithTimeout(ctx, checkPatience)
	defer cancel()
	if err = s.ckpt.Reach(ctx, m.group, index); err == nil {
		err = s.ckpt.Alone(ctx, func() error {
			snap = s.disk.Snapshot()
			return nil
		})
	}
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("store: no checkpoint has reached entry %d of group %d in %v: look for errors of checkpoints in the log of this node: %w", index, m.group, checkPatience, err)
	}
	if err != nil {
		return snap, state, err
	}
	if state, err = checkpoint.StateOf(snap, m.group); err == nil && state.Applied != index {
		err = replica.ErrOvertaken
	}
	if err != nil {
		err = errors.Join(err, snap.Close())
	}
	return snap, state, err
}
