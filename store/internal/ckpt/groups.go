package ckpt

import (
	"context"
	"slices"

	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/store/internal/checkpoint"
	groupentry "github.com/rdmakv/rdmakv/store/internal/entry"
	"github.com/rdmakv/rdmakv/store/log"
)

// What a keeper does for replicated groups besides: a round takes in what their replicas have
// published, and tells them when the base has it, so that the log may let it go (R6).
//
// The records of a group's dirty keys stand where its entries do, and an entry that is not in
// the base may stand before the base's place: it was appended first, and published later. So
// readers hold the log from the oldest entry on that the base lacks, of any group. All later entries
// of the group stand behind it, because an index is appended behind the one before it, and all
// behind it are appended again when it is.
//
// A version says nothing over groups, because each of them numbers for itself. What leaves the
// sets of a group's shards is told from the number that the base has of that group.

// A Group is a replica, as a keeper sees it.
type Group interface {
	ID() consensus.GroupID
	Stream() uint64 // of the log
	Shards() []uint16
	// Published returns the newest entry that is published, and the configurations that were
	// applied behind the newest state that Saved was told.
	Published() (index uint64, configs []consensus.Config)
	// Due returns up to which entry rounds may take in, and the configurations as Published does. It is
	// less than what is published while a check waits for the base to be at its place.
	Due() (index uint64, configs []consensus.Config)
	// Saved says up to where the base has the group. It waits for nothing.
	Saved(s groupentry.State)
}

// A followed group is one that rounds take in.
type followed struct {
	Group
	state groupentry.State // of the base
}

// AddGroup has rounds take in what a replica has published behind a state of the base. It is called
// before the replica publishes anything.
func (k *Keeper) AddGroup(g Group, s groupentry.State) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.groups = append(k.groups, &followed{Group: g, state: s})
}

// Alone calls a function while no round runs, that changes the base. An error after which nobody knows what the base has
// fences the store.
func (k *Keeper) Alone(ctx context.Context, change func() error) error {
	select {
	case k.rounds <- struct{}{}:
		defer func() { <-k.rounds }()
	case <-ctx.Done():
		return ctx.Err()
	}
	err := change()
	if fatal := fatal(err); fatal != nil {
		k.c.Life.Fence.Fail(fatal)
	}
	return err
}

// Replace has another state of a group take the place of the base's. change does it, while no round runs; when it
// returns, the base has that state, and the group's shards have nothing that is newer. After its error all is as before.
func (k *Keeper) Replace(ctx context.Context, id consensus.GroupID, s groupentry.State, change func() error) error {
	return k.Alone(ctx, func() error {
		if err := change(); err != nil {
			return err
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		for _, g := range k.groups {
			if g.ID() == id {
				g.state = s
			}
		}
		k.meet() // who waits for an entry that the state has need not wait
		return nil
	})
}

// RemoveGroup has rounds of a keeper take in no more of a group. change takes the group out of the base, while no round runs; when it returns, the base has nothing of
// it, and its shards have nothing that is newer. After its error all is as before. A group that is not there is none that rounds take in: change is
// called all the same.
func RemoveGroup(ctx context.Context, k *Keeper, id consensus.GroupID, change func() error) error {
	return k.Alone(ctx, func() error {
		if err := change(); err != nil {
			return err
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		// A new list, because who goes through the groups has the old one.
		k.groups = slices.DeleteFunc(slices.Clone(k.groups), func(g *followed) bool { return g.ID() == id })
		k.meet() // nobody waits for an entry of it any more
		return nil
	})
}

// oldest is the position of the oldest entry that the base lacks, of the groups that which says yes
// to, or the base's place, if that stands before. The log is asked each time, because an entry
// that is not committed may be replaced by one that stands behind it, and then nothing keeps
// what stood in its place. Caller holds mu.
func (k *Keeper) oldest(which func(*followed) bool) log.Position {
	at := k.place.Frame
	for _, g := range k.groups {
		if !which(g) {
			continue
		}
		if first, err := k.c.Log.EntryAt(g.Stream(), g.state.Applied+1); err == nil {
			at = min(at, first)
		}
	}
	return at
}

// held is from where on somebody may read the log: a write of a group that is published is an
// entry behind the base's. Caller holds mu.
func (k *Keeper) held() log.Position { return k.oldest(func(*followed) bool { return true }) }

// useful is from where on a round takes something in: it can do nothing for a group that has
// published all that the base lacks. Caller holds mu.
func (k *Keeper) useful() log.Position { return k.oldest((*followed).lags) }

// lags says whether the base lacks something that the group has published.
func (g *followed) lags() bool {
	to, _ := g.Due()
	return to > g.state.Applied
}

// following returns the groups of a round, another first each time, so that one that is busy does
// not keep the others out.
func (k *Keeper) following() []*followed {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.groups) == 0 {
		return nil
	}
	k.turn = (k.turn + 1) % len(k.groups)
	return append(append([]*followed(nil), k.groups[k.turn:]...), k.groups[:k.turn]...)
}

// wants says what a round is to take in of groups.
func wants(groups []*followed) []checkpoint.Group {
	var list []checkpoint.Group
	for _, g := range groups {
		to, configs := g.Due()
		list = append(list, checkpoint.Group{ID: g.ID(), Stream: g.Stream(), From: g.state, To: to, Configs: configs})
	}
	return list
}

// lags says whether the base lacks something that a group has published.
func (k *Keeper) lags() bool {
	for _, g := range k.groupList() {
		if g.lags() {
			return true
		}
	}
	return false
}

// reach is how far the base has come: it rises with every round that takes something in.
func (k *Keeper) reach() (sum uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, g := range k.groups {
		sum += g.state.Applied
	}
	return sum + uint64(k.place.At)
}

// groupList is the groups there are, as they are now.
func (k *Keeper) groupList() []followed {
	k.mu.Lock()
	defer k.mu.Unlock()
	list := make([]followed, 0, len(k.groups))
	for _, g := range k.groups {
		list = append(list, *g)
	}
	return list
}

// leaveGroups tells the shards of groups what is in the base now.
func (k *Keeper) leaveGroups(groups []*followed, done *checkpoint.Done) {
	for i, g := range groups {
		for _, id := range g.Shards() {
			k.leaveShard(done, id, done.States[i].Turn.Newest(id))
		}
	}
}

// reachedGroups is the end of a round for its groups: who reads holds the log from there on, and
// then the log may let go of what stands before.
func (k *Keeper) reachedGroups(groups []*followed, done *checkpoint.Done) {
	for i, g := range groups {
		s := done.States[i]
		k.mu.Lock()
		further := s.Applied > g.state.Applied
		g.state = s
		k.mu.Unlock()
		if further {
			g.Saved(s)
		}
	}
}

// ofGroups are the shards of groups. Versions of those say nothing of others.
func ofGroups(groups []*followed) map[uint16]bool {
	if len(groups) == 0 {
		return nil
	}
	of := map[uint16]bool{}
	for _, g := range groups {
		for _, id := range g.Shards() {
			of[id] = true
		}
	}
	return of
}
