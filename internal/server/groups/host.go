package groups

import (
	"errors"
	"fmt"
	"time"

	"github.com/rdmakv/rdmakv/internal/cluster"
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

// host brings the store's replicas to those of the map, until the node ends.
func (g *Groups) host() {
	told := make(map[held]string)
	for rest := againFirst; ; rest = min(2*rest, againMost) {
		m := g.current()
		var again <-chan time.Time
		if !g.hostNow(m, told) {
			again = time.After(rest)
		}
		select {
		case <-again:
		case <-g.wake:
			rest = againFirst / 2
		case <-g.ctx.Done():
			return
		}
	}
}

// hostNow tries once to bring the store's replicas to those of a map. false: something has failed, which was told of unless told has it.
func (g *Groups) hostNow(m *cluster.Map, told map[held]string) (all bool) {
	all = true
	did := func(what string, r held, err error) {
		switch text := fmt.Sprint(err); {
		case err == nil:
			delete(told, r)
			if g.env.Changed != nil {
				g.env.Changed()
			}
		case g.ctx.Err() != nil || errors.Is(err, store.ErrClosed):
		case told[r] != text:
			told[r] = text
			all = false
			g.env.Log.Error(base.LogAlways, what+"; it is tried again", "group", r.group, "replica", r.replica, "err", err)
		default:
			all = false
		}
	}
	st := g.env.Store()
	wanted := make(map[held]store.Group)
	for _, c := range g.wanted(m) {
		wanted[held{c.ID, c.Replica}] = c
	}
	for _, h := range store.ReplicasOf(st) {
		r := held{h.ID, h.Replica}
		if _, ok := wanted[r]; ok {
			delete(wanted, r)
			continue
		}
		did("the node cannot give a replica up that the shard map does not have any more", r, store.RemoveGroup(g.ctx, st, h.ID, h.Replica))
	}
	for r, c := range wanted {
		did("the node cannot have a replica that the shard map gives it", r, store.AddGroup(g.ctx, st, c))
	}
	return all
}
