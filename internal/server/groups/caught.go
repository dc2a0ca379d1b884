package groups

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// Whoever restarts nodes one after the other waits until each is ready before he goes on. A group whose replica at the node before lacks entries still
// loses its majority with the next node, so a node with replicas is ready
//
//	once each of its replicas has caught up since the start: it leads, or it has published what its leader had published when it was
//	     heard, up to nearly entries;
//	as long as none of them was stopped by an error.
//
// The first is not taken back, because after it the others alone can change it: were a node not ready when the others are away, all would be unready at
// once, and nobody could tell which of them is the fault. Before it a node waits for the others without a bound: it cannot know whether they are down or it
// is cut off, and in the second case the next restart would take the majority. So all nodes have to be started without waiting for each other
// (Kubernetes: podManagementPolicy Parallel).

// caughtEvery is the rest between two looks whether replicas have caught up.
const caughtEvery = 100 * time.Millisecond

// catchUp notes which of the node's replicas have caught up, until the node ends.
func (g *Groups) catchUp() {
	look := time.NewTicker(caughtEvery)
	defer look.Stop()
	for {
		for _, c := range g.mapped() {
			g.mu.Lock()
			caught := g.caught[held{c.ID, c.Replica}]
			g.mu.Unlock()
			if st, err := g.engine.Status(c.ID); !caught && lacks(&st, err) == "" {
				g.mu.Lock()
				g.caught[held{c.ID, c.Replica}] = true
				g.mu.Unlock()
			}
		}
		select {
		case <-look.C:
		case <-g.ctx.Done():
			return
		}
	}
}

// lacks says why a replica has not caught up; "": it has. err is that the engine does not run it.
func lacks(st *consensus.Status, err error) string {
	has, wants := st.Applied, st.Shown
	if st.Leads {
		wants = st.Last // a majority has elected it, and what it has to publish is in its log
	}
	switch {
	case err != nil:
		return "it takes no part yet: see the node's log"
	case st.Fenced != nil:
		return "it was stopped: " + wire.CleanText([]byte(st.Fenced.Error()))
	case st.Leader == 0 && !st.Leads:
		return "it knows no leader: are a majority of the group's nodes up, and do they reach this one?"
	case wants == 0:
		return "its leader has not said yet what there is"
	case wants > has && wants-has > nearly:
		return fmt.Sprintf("it is %d entries behind its leader", wants-has)
	}
	return ""
}

// A held replica is one that the node has by its map.
type held struct {
	group   consensus.GroupID
	replica consensus.ReplicaID
}

// keeps says why a replica keeps its node from being ready; "": it does not. caught is that it has caught up since the start. One without a vote keeps nobody: no majority
// needs it.
func keeps(st *consensus.Status, err error, caught bool) string {
	if caught && st.Fenced == nil || err == nil && st.Fenced == nil && !st.Config.Voter(st.ID) {
		return ""
	}
	return lacks(st, err)
}

// A Lacking replica keeps its node from being ready.
type Lacking struct {
	Group uint32 // 0: the node has none of its replicas
	Why   string
}

// Lacking are the replicas that keep the node from being ready by the map in force, by group; nil: none does.
func (g *Groups) Lacking(m *cluster.Map) (list []Lacking) {
	if g == nil || m == nil || m.Replication == nil {
		return nil
	}
	g.mu.Lock()
	up := g.m != nil
	g.mu.Unlock()
	if !up {
		return []Lacking{{Why: "this node has none of the replicas that the shard map gives it: see its log"}}
	}
	for _, c := range g.mapped() {
		st, err := g.engine.Status(c.ID)
		g.mu.Lock()
		caught := g.caught[held{c.ID, c.Replica}]
		g.mu.Unlock()
		if why := keeps(&st, err, caught); why != "" {
			list = append(list, Lacking{uint32(c.ID), why})
		}
	}
	slices.SortFunc(list, func(a, b Lacking) int { return cmp.Compare(a.Group, b.Group) })
	return list
}
