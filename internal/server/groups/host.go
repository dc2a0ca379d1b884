package groups

import (
	"errors"
	"fmt"
	"time"

	"github.com/rdmakv/rdmakv/internal/server/base"
	"github.com/rdmakv/rdmakv/store"
)

// The replicas that a node has are those that its map gives it:
//
//	the store has one that the map has not   it is given up: the map says so when the group is rid of it, and it is the only one who may say it (R24)
//	the map has one that the store has not   it is made: a founder with what the group begins with, a later one empty
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
	st, wanted := g.env.Store(), make(map[held]store.Group)
	for _, c := range g.wanted(g.current()) {
		wanted[held{c.ID, c.Replica}] = c
	}
	all = true
	for _, has := range store.ReplicasOf(st) {
		r := held{has.ID, has.Replica}
		if _, ok := wanted[r]; ok {
			delete(wanted, r)
			continue
		}
		all = h.did("the node cannot give a replica up that the shard map does not have any more", r, store.RemoveGroup(g.ctx, st, has.ID, has.Replica)) && all
	}
	for r, c := range wanted {
		all = h.did("the node cannot have a replica that the shard map gives it", r, store.AddGroup(g.ctx, st, c)) && all
	}
	return all
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
