package groups

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/internal/server/base"
	"github.com/rdmakv/rdmakv/store"
)

// The replicas that a node has are those that its map gives it:
//
//	the store has one that the map has not   it is given up: the map says so when the group is rid of it, and it is the only one who may say it (R24)
//	the map has one that the store has not   it is made: a founder with what the group begins with, a later one empty
//	the map has a new group in the place of  the first replica of the new group is made of the one that the store has of the old group; if that is gone, there is no new
//	one that has lost its majority           group, because an empty one would be taken for all that there was
//	and another replica of the old group     it is kept, and does not run, until the map says that the new group stands (cluster.Begins): the node that makes that may be lost, too
//
// What fails is tried again, until it succeeds or the map is another one. A replica of a group that is to go goes before another one of it comes.

// How often it is tried again.
const (
	againFirst = 100 * time.Millisecond
	againMost  = 5 * time.Second
)

// A host brings the store's replicas to those of the map.
type host struct {
	g    *Groups
	told map[held]string // what has failed with a replica, and was told of
}

// run does so until the node ends.
func (h *host) run() {
	for rest := againFirst; ; rest = min(2*rest, againMost) {
		var again <-chan time.Time
		if !h.once() {
			again = time.After(rest)
		}
		select {
		case <-again:
		case <-h.g.wake:
			rest = againFirst / 2
		case <-h.g.ctx.Done():
			return
		}
	}
}

// once tries it for the map in force. false: something has failed.
func (h *host) once() (all bool) {
	g := h.g
	st, m, wanted := g.env.Store(), g.current(), make(map[held]store.Group)
	for _, c := range g.wanted(m) {
		wanted[held{c.ID, c.Replica}] = c
	}
	all = true
	made := made(m, m.IndexOf(g.env.Node))
	for _, has := range store.ReplicasOf(st) {
		r := held{has.ID, has.Replica}
		if _, ok := wanted[r]; ok {
			delete(wanted, r)
			delete(made, r.group)
			continue
		}
	}
	for _, has := range store.ReplicasOf(st) {
		r := held{has.ID, has.Replica}
		if gives(m, g.env.Node, has.ID, has.Replica) {
			continue
		}
		if to, ok := heirOf(made, has.ID); ok {
			c := wanted[held{to, first}]
			c.Founders = consensus.Config{Index: 1, Voters: []consensus.Member{{ID: first, Node: g.env.Node}}}
			all = h.did("the node cannot make a new group of the replica of one that has lost its majority", r, store.RecoverGroup(g.ctx, st, has.ID, has.Replica, timesOf(m, to), c)) && all
			delete(wanted, held{to, first})
			delete(made, to)
			continue
		}
		if keepsBurnt(m, g.env.Node, &has) {
			err := store.KeepGroup(g.ctx, st, has.ID, has.Replica)
			if !errors.Is(err, store.ErrNothingKept) {
				all = h.did("the node cannot keep what it has of a group that has lost its majority", r, err) && all
				continue
			}
		}
		all = h.did("the node cannot give a replica up that the shard map does not have any more", r, store.RemoveGroup(g.ctx, st, has.ID, has.Replica)) && all
	}
	for r, c := range wanted {
		if was, ok := made[r.group]; ok && r.replica == first {
			all = h.did("the node cannot make a group of what it had of another one", r, fmt.Errorf("%w: group %d is to be made of the replica of group %d here, and there is none: was the data directory exchanged?", store.ErrGroups, r.group, was)) && all
			continue
		}
		if c.Adopts && m.Replication.Born > 1 && g.env.EndReaders != nil { // else no key was served before
			if err := g.env.EndReaders(g.ctx); err != nil {
				all = h.did("the node cannot begin a group with its keys", r, err) && all
				continue
			}
		}
		all = h.did("the node cannot have a replica that the shard map gives it", r, store.AddGroup(g.ctx, st, c)) && all
	}
	return all
}

// first is the id of the replica that a new group is made of.
const first consensus.ReplicaID = 1

// made are the groups of a map whose first replica is at a node and begins with what the node has of another group, and of which.
func made(m *cluster.Map, node int) map[consensus.GroupID]consensus.GroupID {
	of := make(map[consensus.GroupID]consensus.GroupID)
	for i := range m.Replication.Groups {
		if g := &m.Replication.Groups[i]; g.Was != 0 && consensus.ReplicaID(g.At(node)) == first {
			of[consensus.GroupID(g.ID)] = consensus.GroupID(g.Was)
		}
	}
	return of
}

// heirOf is the group that is to be made of one.
func heirOf(made map[consensus.GroupID]consensus.GroupID, of consensus.GroupID) (consensus.GroupID, bool) {
	for to, was := range made {
		if was == of {
			return to, true
		}
	}
	return 0, false
}

// timesOf is how often the shards of a group have been taken over.
func timesOf(m *cluster.Map, id consensus.GroupID) uint16 {
	for i := range m.Replication.Groups {
		if g := &m.Replication.Groups[i]; consensus.GroupID(g.ID) == id {
			return g.Times
		}
	}
	return 0
}

// keepsBurnt says whether a node keeps a replica that the map does not give it: its group gave way to another one, of which too little is there yet.
func keepsBurnt(m *cluster.Map, id string, has *store.Group) bool {
	there := slices.ContainsFunc(m.Replication.Groups, func(g cluster.Group) bool { return consensus.GroupID(g.ID) == has.ID })
	return !there && m.Burnt(has.Shards[0], m.IndexOf(id))
}

// gives says whether a map gives a node a replica; m nil: there is none, and the node keeps what it has.
func gives(m *cluster.Map, id string, group consensus.GroupID, replica consensus.ReplicaID) bool {
	if m == nil {
		return true
	}
	node := m.IndexOf(id)
	for i := range m.Replication.Groups {
		if of := &m.Replication.Groups[i]; consensus.GroupID(of.ID) == group {
			return node >= 0 && consensus.ReplicaID(of.At(node)) == replica
		}
	}
	return false
}

// did notes what came of one replica, and says whether it is as it is to be.
func (h *host) did(what string, r held, err error) bool {
	g := h.g
	switch text := fmt.Sprint(err); {
	case err == nil:
		delete(h.told, r)
		if g.env.Changed != nil {
			g.env.Changed()
		}
		return true
	case g.ctx.Err() != nil || errors.Is(err, store.ErrClosed):
		return true
	case h.told[r] != text:
		h.told[r] = text
		g.env.Log.Error(base.LogAlways, what+"; it is tried again", "group", r.group, "replica", r.replica, "err", err)
	}
	return false
}
