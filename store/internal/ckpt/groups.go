package ckpt

import (
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
// readers hold the log from the oldest entry on that the base lacks, of any group. That a later
// entry stands behind it holds because an index is appended behind the one before it, and all
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
	// Saved says up to where the base has the group. It waits for nothing.
	Saved(s groupentry.State)
}

// A followed group is one that rounds take in.
type followed struct {
	Group
	state  groupentry.State // of the base
	oldest log.Position     // no entry that the base lacks stands before it
}

// AddGroup has rounds take in what a replica has published behind a state of the base. It is called
// before the replica publishes anything.
func (k *Keeper) AddGroup(g Group, s groupentry.State) {
	f := &followed{Group: g, state: s, oldest: k.oldest(g, s.Applied)}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.groups = append(k.groups, f)
}

// oldest returns a position before which no entry of a group stands that follows an index.
func (k *Keeper) oldest(g Group, applied uint64) log.Position {
	end := k.c.Log.Stats().End // before the look: what is appended behind it stands there
	at, err := k.c.Log.EntryAt(g.Stream(), applied+1)
	if err != nil {
		return end
	}
	return min(at, end)
}

// held is from where on somebody may read the log. Caller holds mu.
func (k *Keeper) held() log.Position {
	at := k.place.Frame
	for _, g := range k.groups {
		at = min(at, g.oldest)
	}
	return at
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
		to, configs := g.Published()
		list = append(list, checkpoint.Group{ID: g.ID(), Stream: g.Stream(), From: g.state, To: to, Configs: configs})
	}
	return list
}

// lags says whether the base lacks something that a group has published.
func (k *Keeper) lags() bool {
	for _, g := range k.groupList() {
		if to, _ := g.Published(); to > g.state.Applied {
			return true
		}
	}
	return false
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
		oldest := k.oldest(g, s.Applied)
		k.mu.Lock()
		further := s.Applied > g.state.Applied
		g.state, g.oldest = s, oldest
		k.mu.Unlock()
		if further {
			g.Saved(s)
		}
	}
}

// isGroups says whether a shard is one of a group's. Versions of those say nothing of others.
func isGroups(groups []*followed, id uint16) bool {
	for _, g := range groups {
		for _, s := range g.Shards() {
			if s == id {
				return true
			}
		}
	}
	return false
}
