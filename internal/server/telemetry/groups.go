package telemetry

import (
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/store"
)

// What metrics tell about the groups of replicas of which the node has one. A node without any has none of these metrics.
//
// Sums and maxima over the groups, and no labels for single groups: a cluster may have hundreds, and cluster status shows each.
var (
	descReplicas  = newDesc("group_replicas", "Replicas of this node, by state: leads, follows, learns (no vote), waits (takes no part yet), stopped (fenced by an error).", "state")
	descUnapplied = newDesc("group_unapplied_entries", "Entries that this node knows to be committed and does not show yet, in all groups.")
	descPeerLag   = newDesc("group_peer_lag_entries", "Entries that the replica lacks which is furthest behind, of all groups that this node leads.")
	descPeersAway = newDesc("group_peers_away", "Replicas at other nodes that this node, as their leader, has not heard within an election timeout.")
	descNoLead    = newDesc("group_leaderless", "Groups of this node's replicas of which the node knows no leader.")
)

// replicaStates are the states of a GroupStatus.
var replicaStates = [...]string{"leads", "follows", "learns", "waits", "stopped"}

// collectGroups shows how the node's replicas stand, and what they have done; of the node alone. st are those of its own keys.
func (n *Node) collectGroups(out sink, st *store.GroupStats) {
	if n.Groups == nil {
		return
	}
	list := n.Groups()
	if len(list) == 0 {
		return
	}
	states, sum := make(map[string]int), sumOf(list)
	for i := range list {
		states[list[i].State]++
	}
	for _, state := range replicaStates {
		out.gauge(descReplicas, float64(states[state]), state)
	}
	out.gauge(descUnapplied, float64(sum.unapplied))
	out.gauge(descPeerLag, float64(sum.lag))
	out.gauge(descPeersAway, float64(sum.away))
	out.gauge(descNoLead, float64(sum.leaderless))
	numbers(out, groupNumbers, st)
}

// A groupSum is what the states of groups come to.
type groupSum struct {
	unapplied, lag   uint64
	away, leaderless int
}

// sumOf sums up the states of groups.
func sumOf(list []wire.GroupStatus) (sum groupSum) {
	for i := range list {
		g := &list[i]
		sum.unapplied += g.Committed - min(g.Committed, g.Applied)
		if g.Leader == "" {
			sum.leaderless++
		}
		if g.State != "leads" {
			continue // of the others the leader alone knows
		}
		for _, p := range g.Replicas {
			if p.ID == g.Replica {
				continue
			}
			sum.lag = max(sum.lag, g.Last-min(g.Last, p.Match))
			if !p.Active {
				sum.away++
			}
		}
	}
	return sum
}

// What replicas have done since the start.
var groupNumbers = []numberOf[store.GroupStats]{
	countOf("group_elected_total", "How often a replica of this node was elected to lead its group.", func(s *store.GroupStats) uint64 { return s.Elected }),
	countOf("group_terms_total", "How often a replica of this node has heard of a later term: each election begins one.", func(s *store.GroupStats) uint64 { return s.Terms }),
	countOf("group_entries_proposed_total", "Entries of writes that this node has proposed as a leader.", func(s *store.GroupStats) uint64 { return s.Entries }),
	countOf("group_entry_bytes_proposed_total", "Their bytes.", func(s *store.GroupStats) uint64 { return s.EntryBytes }),
	countOf("group_snapshots_sent_total", "Snapshots that were begun to be sent to replicas that lack entries which the log has no more.", func(s *store.GroupStats) uint64 { return s.Sent }),
	countOf("group_snapshots_received_total", "Snapshots that took the place of what a replica of this node had.", func(s *store.GroupStats) uint64 { return s.Received }),
	countOf("group_checks_total", "Checks that have come to a digest here (kvclient cluster check).", func(s *store.GroupStats) uint64 { return s.Checks }),
	countOf("group_checks_failed_total", "Checks that have not, because something was damaged, or another check was under way, for example.", func(s *store.GroupStats) uint64 { return s.ChecksFailed }),
}
