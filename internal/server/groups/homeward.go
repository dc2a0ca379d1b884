package groups

import (
	"context"
	"time"

	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/store"
)

// Leaders go back to their preferred nodes. The map spreads the groups over the nodes by their first replicas; an election takes whoever is
// quickest, so after a node was away the others lead all groups, and do all the work. The node that leads a group hands it to the first replica of
// the map
//
//	when it has led the group for quietFor, and nothing of the group has changed in that time: neither term, nor configuration,
//	     nor that the other replica was heard of, says that its disk has room, has no snapshot on its way, and lacks fewer than nearly entries;
//	one group at a time, at most one every homewardEvery.
//
// If the other does not take over, this node leads on, and waits for as long again. So a node that comes and goes gets its groups back once it
// has stayed, and no group changes its leader more often than once in quietFor because of this.

const (
	// quietFor is the default of Env.Quiet.
	quietFor = time.Minute
	// homewardChecks is how many looks there are in that time.
	homewardChecks = 12
	// nearly is how many entries the preferred replica may lack. It gets them before it stands, and nothing is ordered meanwhile.
	nearly = 256
)

// A stay is how long a group has been as it is.
type stay struct {
	term, config uint64
	looks        int // in a row at which it could have gone
}

// due notes a look at a group, of whose replica here the status is st, and says whether the group is to go to the preferred replica now.
func (s *stay) due(st *consensus.Status, preferred consensus.ReplicaID) bool {
	if !st.Leads || st.Fenced != nil || preferred == st.ID || !st.Config.Voter(preferred) || !ready(st, preferred) ||
		st.Term != s.term || st.Config.Index != s.config {
		*s = stay{term: st.Term, config: st.Config.Index}
		return false
	}
	s.looks++
	return s.looks >= homewardChecks
}

// ready says whether a replica could take over at once.
func ready(st *consensus.Status, id consensus.ReplicaID) bool {
	for _, p := range st.Peers {
		if p.ID == id {
			return p.Active && p.Room && !p.Snapshot && !p.Learner && p.Match+nearly >= st.Last
		}
	}
	return false
}

// homeward hands groups to their preferred nodes until the node ends.
func (g *Groups) homeward() {
	tick := time.NewTicker(max(g.quiet()/homewardChecks, time.Millisecond))
	defer tick.Stop()
	stays := map[consensus.GroupID]*stay{}
	for {
		select {
		case <-tick.C:
		case <-g.ctx.Done():
			return
		}
		for _, c := range g.mapped() {
			s := stays[c.ID]
			if s == nil {
				s = new(stay)
				stays[c.ID] = s
			}
			st, err := g.engine.Status(c.ID)
			if err != nil || !s.due(&st, g.preferred(&c)) {
				continue
			}
			*s = stay{}
			g.handBack(&c, g.preferred(&c))
			break // one at a time
		}
	}
}

// preferred is the first replica of a group by the map that does not leave: who is to lead.
func (g *Groups) preferred(c *store.Group) consensus.ReplicaID {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i := range g.m.Replication.Groups {
		of := &g.m.Replication.Groups[i]
		if consensus.GroupID(of.ID) != c.ID {
			continue
		}
		for _, p := range of.Replicas {
			if !p.Leaves {
				return consensus.ReplicaID(p.ID)
			}
		}
	}
	return 0
}

// handBack asks a replica to take over.
func (g *Groups) handBack(c *store.Group, to consensus.ReplicaID) {
	ctx, cancel := context.WithTimeout(g.ctx, handOver)
	defer cancel()
	if err := g.engine.Transfer(ctx, c.ID, to); err != nil && g.ctx.Err() == nil {
		g.env.Log.Info("a group stays here: the node that is to lead it by the map did not take over", "group", c.ID, "err", err)
	}
}
