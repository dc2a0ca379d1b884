package telemetry

import (
	"fmt"
	"strconv"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/membership"
)

// What metrics tell about the cluster, as this node sees it.
var (
	descMembers    = newDesc("cluster_members", "Nodes of the cluster as gossip sees them, by state.", "state")
	descMap        = newDesc("cluster_map_info", "1 for the shard map that this node has; state is none, prepared or committed.", "cluster", "node", "state", "version", "digest")
	descOwned      = newDesc("cluster_shards_owned", "Shards that are this node's.")
	descMapsOther  = newDesc("cluster_members_with_another_map", "Live nodes that have another shard map than this one, or none.")
	descConflicts  = newDesc("cluster_conflicts", "Node ids that two processes had when they were looked at last, as this node knows: proved by the cluster's secret, or claimed without.", "proof")
	descStoodDown  = newDesc("cluster_stood_down", "1 once this node serves no more because another process is this node, its disk is older than what the cluster has seen, or its program does not read the cluster's feature level.")
	descLevel      = newDesc("cluster_feature_level", "Feature level of the cluster, as this node has noted it: what its nodes may write for each other.")
	descReadsLevel = newDesc("cluster_feature_level_newest", "Newest feature level that this node's program reads: where it is above the level, an upgrade is not at its end, or the level is held.")
	descSeeds      = newDesc("gossip_seeds_unreached", "Seeds (gossip.join) that did not answer at the last attempt.")
)

// collectCluster shows what a node of a cluster has beside; of the node alone.
func (n *Node) collectCluster(out sink) {
	m := n.Member
	if m == nil || m.Members() == nil {
		return
	}
	node, name := m.Identity()
	state, digest := m.MapState()
	version, owned := uint64(0), 0
	if own := n.Owned.Shards(); own != nil {
		version, owned = own.Map.Version, len(own.Map.Shards(node))
	}
	out.gauge(descMap, 1, name, node, state.String(), strconv.FormatUint(version, 10), fmt.Sprintf("%016x", digest))
	out.gauge(descOwned, float64(owned))
	others := 0
	s := m.Members().Stats()
	for _, st := range []cluster.State{cluster.Alive, cluster.Suspect, cluster.Left, cluster.Dead} {
		out.gauge(descMembers, float64(s.Members[st]), st.String())
	}
	for _, o := range m.Members().View().Members {
		if o.State == cluster.Alive && (o.MapVersion != version || version != 0 && o.MapDigest != digest) {
			others++
		}
	}
	out.gauge(descMapsOther, float64(others))
	out.gauge(descSeeds, float64(len(s.JoinErrors)))
	proved := 0
	for _, x := range s.Open {
		if x.Proved {
			proved++
		}
	}
	out.gauge(descConflicts, float64(proved), "proved")
	out.gauge(descConflicts, float64(len(s.Open)-proved), "unproved")
	out.gauge(descStoodDown, boolNumber(n.StoodDown))
	out.gauge(descLevel, float64(m.Levels.At()))
	out.gauge(descReadsLevel, float64(m.Levels.Reads.Newest))
	numbers(out, gossipNumbers, &s)
}

// The counters and gauges of gossip.
var gossipNumbers = []numberOf[membership.Stats]{
	gaugeOf("gossip_health_score", "0 is well; above it the node suspects itself of being slow.", func(s *membership.Stats) int { return s.Health }),
	gaugeOf("gossip_tables", "Region tables held of other nodes.", func(s *membership.Stats) int { return s.Tables }),
	gaugeOf("gossip_table_bytes", "What those take.", func(s *membership.Stats) int { return s.TableBytes }),
	gaugeOf("gossip_queued_messages", "Broadcasts that wait to be sent.", func(s *membership.Stats) int { return s.Queued }),
	countOf("gossip_adverts_made_total", "Tables that this node has gossiped.", func(s *membership.Stats) uint64 { return s.AdvertsMade }),
	countOf("gossip_adverts_new_total", "Tables of others that were new and passed on.", func(s *membership.Stats) uint64 { return s.AdvertsNew }),
	countOf("gossip_adverts_old_total", "Tables of others that were known before.", func(s *membership.Stats) uint64 { return s.AdvertsOld }),
	countOf("gossip_refuted_total", "Tables of this node that it never made.", func(s *membership.Stats) uint64 { return s.Refuted }),
	countOf("gossip_mended_total", "Push/pulls that this node began because a region table was missing.", func(s *membership.Stats) uint64 { return s.Mended }),
	countOf("gossip_malformed_total", "Messages that broke a rule.", func(s *membership.Stats) uint64 { return s.Malformed }),
	countOf("gossip_dropped_total", "Messages for which there was no room.", func(s *membership.Stats) uint64 { return s.Dropped }),
	countOf("gossip_wrong_key_total", "Gossip turned away because its key is another.", func(s *membership.Stats) uint64 { return s.WrongKey }),
	countOf("gossip_wrong_cluster_total", "Gossip turned away because its cluster is another.", func(s *membership.Stats) uint64 { return s.WrongCluster }),
	countOf("gossip_not_allowed_total", "Gossip turned away because gossip.allow has not its source.", func(s *membership.Stats) uint64 { return s.NotAllowed }),
	countOf("gossip_busy_total", "Gossip turned away because too many streams were open.", func(s *membership.Stats) uint64 { return s.Busy }),
	countOf("gossip_conflicts_total", "Messages about two nodes with one id.", func(s *membership.Stats) uint64 { return s.Conflicts }),
	countOf("gossip_unproved_total", "Claims and statements that the cluster's secret does not bear out.", func(s *membership.Stats) uint64 { return s.Unproved }),
}
