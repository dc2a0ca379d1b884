package change

import (
	"context"
	"sync"
	"time"

	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/internal/seat"
)

// The leader of a group brings it to what the map wants, one step at a time (seat.Next).

const (
	// moveEvery is the rest between two looks at the groups that this node leads.
	moveEvery = 100 * time.Millisecond
	// nearly is how many entries a learner may lack, steadyLooks at how many looks in a row, until it can vote.
	nearly      = 256
	steadyLooks = 10
	// stepTime bounds a step.
	stepTime = 5 * time.Second
)

// doing is what this node does with the groups that it leads, for reports.
type doing struct {
	mu sync.Mutex
	of map[uint32]seat.Doing
}

func (d *doing) note(group uint32, what seat.Doing) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.of[group] = what
}

func (c *Changer) doingOf(group uint32) (step, why string) {
	c.doing.mu.Lock()
	defer c.doing.mu.Unlock()
	d := c.doing.of[group]
	if d.Act != seat.Nothing {
		step = stepTexts[d.Act]
	}
	return step, d.Why
}

// stepTexts say to operators what is being done; Act.String is for logs.
var stepTexts = [...]string{
	seat.AddLearner: "a replica is added, which learns",
	seat.Promote:    "the replica that comes gets its vote",
	seat.Transfer:   "another replica takes over the lead",
	seat.Demote:     "the replica that goes gives up its vote",
	seat.Remove:     "the replica that goes is taken out",
}

// A reign is what this node knows of a group since it leads it.
type reign struct {
	term   uint64
	since  time.Duration // when that was seen first, by time.Since(Changer.begun)
	steady steadiness
}

// A steadiness is how many looks in a row each learner of a group has lacked little.
type steadiness map[consensus.ReplicaID]int

// look notes a look at a group.
func (s steadiness) look(st *consensus.Status) {
	for _, l := range st.Config.Learners {
		ok := false
		for _, p := range st.Peers {
			ok = ok || p.ID == l.ID && p.Active && !p.Snapshot && p.Match+nearly >= st.Last
		}
		if s[l.ID]++; !ok {
			s[l.ID] = 0
		}
	}
	for id := range s {
		if !st.Config.Learner(id) {
			delete(s, id)
		}
	}
}

// move brings the groups that this node leads to what the map wants, until the node ends.
func (c *Changer) move() {
	reigns := map[uint32]*reign{}
	for c.rest(moveEvery) {
		now := c.now.Load()
		for _, g := range now.groups(c.env.Node) {
			id := consensus.GroupID(g.ID)
			st, err := c.env.Engine().Status(id)
			if err != nil || !st.Leads {
				delete(reigns, g.ID)
				c.note(g.ID, seat.Doing{})
				continue
			}
			r := reigns[g.ID]
			if r == nil || r.term != st.Term {
				r = &reign{st.Term, time.Since(c.begun), steadiness{}}
				reigns[g.ID] = r
			}
			r.steady.look(&st)
			next := seat.Next(g, &st, func(id consensus.ReplicaID) bool { return r.steady[id] >= steadyLooks })
			if next.Act != seat.Nothing && !c.isFresh(now, r.since) {
				next = seat.Doing{Why: "this node has not heard from the seat that its map is the newest one"}
			}
			if why := c.twin.standsStill(); next.Act != seat.Nothing && why != "" {
				next = seat.Doing{Why: why}
			}
			c.note(g.ID, next)
			if next.Act != seat.Nothing {
				c.step(id, &st, next)
			}
		}
	}
}

// step does one step.
func (c *Changer) step(id consensus.GroupID, st *consensus.Status, next seat.Doing) {
	ctx, cancel := context.WithTimeout(c.ctx, stepTime)
	defer cancel()
	var err error
	if next.Act == seat.Transfer {
		err = c.env.Engine().Transfer(ctx, id, next.Replica)
	} else {
		err = c.env.Engine().Change(ctx, id, next.Config, st.Config.Index)
	}
	switch {
	case c.ctx.Err() != nil:
	case err != nil:
		c.env.Log.Info("a step of a group has not been done, and is tried again", "group", id, "step", next.Act.String(), "replica", next.Replica, "err", err)
	default:
		c.env.Log.Info("a group changes", "group", id, "step", next.Act.String(), "replica", next.Replica)
	}
}
