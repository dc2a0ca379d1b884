package server

import (
	"fmt"
	"strconv"

	"github.com/rdmakv/rdmakv/internal/cluster"
)

// What metrics tell about the cluster, as this node sees it.
var (
	descMembers   = newDesc("cluster_members", "Nodes of the cluster as gossip sees them, by state.", "state")
	descMap       = newDesc("cluster_map_info", "1 for the shard map that this node has; state is none, prepared or committed.", "cluster", "node", "state", "version", "digest")
	descOwned     = newDesc("cluster_shards_owned", "Shards that are this node's.")
	descMapsOther = newDesc("cluster_members_with_another_map", "Live nodes that have another shard map than this one, or none.")
	descGossip    = newDesc("gossip_total", "Counters of gossip, by name.", "name")
	descGossipNow = newDesc("gossip", "Gauges of gossip, by name.", "name")
	descConflicts = newDesc("cluster_conflicts", "Node ids that two processes had when they were looked at last, as this node knows: proved by the cluster's secret, or claimed without.", "proof")
	descStoodDown = newDesc("cluster_stood_down", "1 once this node serves no more because another process is this node, or its disk is older than what the cluster has seen.")
	descSeeds     = newDesc("gossip_seeds_unreached", "Seeds (gossip.join) that did not answer at the last attempt.")
)

// cluster shows what a node of a cluster has beside; of the node alone.
func (c collector) cluster(out sink) {
	n := c.srv.cluster
	if n == nil || n.members == nil {
		return
	}
	state, digest := n.mapState()
	version, owned := uint64(0), 0
	if own := n.owned.Load(); own != nil {
		version, owned = own.m.Version, len(own.m.Shards(n.id.Node))
	}
	out.gauge(descMap, 1, n.id.Cluster, n.id.Node, state.String(), strconv.FormatUint(version, 10), fmt.Sprintf("%016x", digest))
	out.gauge(descOwned, float64(owned))
	others := 0
	s := n.members.Stats()
	for _, st := range []cluster.State{cluster.Alive, cluster.Suspect, cluster.Left, cluster.Dead} {
		out.gauge(descMembers, float64(s.Members[st]), st.String())
	}
	for _, m := range n.members.View().Members {
		if m.State == cluster.Alive && (m.MapVersion != version || version != 0 && m.MapDigest != digest) {
			others++
		}
	}
	out.gauge(descMapsOther, float64(others))
	out.gauge(descSeeds, float64(len(s.JoinErrors)))
	for name, v := range map[string]uint64{
		"adverts_made": s.AdvertsMade, "adverts_new": s.AdvertsNew, "adverts_old": s.AdvertsOld, "adverts_gap": s.AdvertsGap,
		"refuted": s.Refuted, "tables_asked": s.TablesAsked, "tables_got": s.TablesGot, "tables_given": s.TablesGiven, "parts_sent": s.PartsSent,
		"malformed": s.Malformed, "dropped": s.Dropped, "wrong_key": s.WrongKey, "wrong_cluster": s.WrongCluster,
		"not_allowed": s.NotAllowed, "busy": s.Busy, "conflicts": s.Conflicts, "unproved": s.Unproved,
	} {
		out.counter(descGossip, float64(v), name)
	}
	proved := 0
	for _, x := range s.Open {
		if x.Proved {
			proved++
		}
	}
	out.gauge(descConflicts, float64(proved), "proved")
	out.gauge(descConflicts, float64(len(s.Open)-proved), "unproved")
	stood := 0.0
	if c.srv.stoodDown.Load() {
		stood = 1
	}
	out.gauge(descStoodDown, stood)
	for name, v := range map[string]int{"health": s.Health, "tables": s.Tables, "table_bytes": s.TableBytes, "queued": s.Queued} {
		out.gauge(descGossipNow, float64(v), name)
	}
}
