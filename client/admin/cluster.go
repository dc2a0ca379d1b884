package admin

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/internal/route"
	"github.com/rdmakv/rdmakv/client/internal/session"
	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// A ClusterInfo is a cluster as its nodes have told of it. Owners is law; what
// the nodes carry beside their shards is gossip: true a moment ago, or not.
type ClusterInfo struct {
	Clustered   bool          `json:"clustered"`    // false: one server that is alone; the rest is empty
	Name        string        `json:"name"`         //
	ID          string        `json:"id"`           // random, hexadecimal; "" before there is a map
	Teller      string        `json:"teller"`       // the node that has told last
	ViewVersion uint64        `json:"view_version"` // its count of changes
	MapVersion  uint64        `json:"map_version"`  // 0: there is no map yet
	MapDigest   uint64        `json:"map_digest"`   //
	Shards      int           `json:"shards"`       //
	Owners      []string      `json:"owners"`       // node id, by shard
	Nodes       []ClusterNode `json:"nodes"`        // by id: those of the map and those that gossip knows
	Replicas    int           `json:"replicas"`     // on how many nodes each key is to be, of those that leave not counted; 0: there is no map yet
	Groups      int           `json:"groups"`       // of replicas; 0: each shard is on one node alone

	// Founders are the groups as the map has them, by id, with the replicas that each is to have, and those that are to leave. How they
	// are now GroupsOf says. nil: there are none.
	Founders []Group `json:"founders,omitempty"`
	// Meta is the group that agrees on later maps, likewise, of id 0 and without shards; nil: the map has none, and never changes.
	Meta *Group `json:"meta,omitempty"`
}

// A ClusterNode is one node of a cluster.
type ClusterNode struct {
	ID          string     `json:"id"`
	Weight      uint32     `json:"weight"`         // 0: not in the map
	Zone        string     `json:"zone,omitempty"` // what fails with it, as the map says; "": nobody has said
	Shards      int        `json:"shards"`         // that it owns
	Leads       int        `json:"leads"`          // groups that it leads where it can, by the map
	State       string     `json:"state"`          // "alive", "suspect", "left", "dead"; "unknown": gossip has not told of it
	Since       time.Time  `json:"since"`          // when that changed, by the teller's clock
	Incarnation uint64     `json:"incarnation"`    // new at each start; 0: not known
	Gossip      string     `json:"gossip"`         // HOST:PORT
	Endpoints   []Endpoint `json:"endpoints"`      // where it takes clients

	Regions      uint32 `json:"regions"` // in its published table
	TableVersion uint64 `json:"table_version"`
	TableDigest  uint64 `json:"table_digest"`
	MapVersion   uint64 `json:"map_version"` // that it has committed; 0: none
	MapDigest    uint64 `json:"map_digest"`
}

// An Endpoint is where a node takes connections of one fabric.
type Endpoint struct {
	Fabric string `json:"fabric"`
	Addr   string `json:"addr"`
}

// Cluster asks a node for news, any that can be reached, and returns what is
// known of the cluster. It works before there is a shard map, too. It fails if
// no node can be asked.
func (a *Admin) Cluster(ctx context.Context) (ClusterInfo, error) {
	one := a.rt.Only()
	if one == nil {
		ctx, cancel := context.WithTimeout(ctx, a.rt.Config().Timeout)
		defer cancel()
		if err := a.rt.Refresh(ctx, nil); err != nil {
			return ClusterInfo{}, a.fail("cluster", nil, err)
		}
		return infoOf(a.rt), nil
	}
	// Of one server, which may be a node that is asked directly.
	p := one.Begin(ctx)
	var info ClusterInfo
	err := one.Ask(&p, "cluster", nil, func(s *session.Session) error {
		if s.Welcome.Flags&wire.WelcomeClustered == 0 {
			info = ClusterInfo{}
			return nil
		}
		n, err := s.FetchNews(&p)
		if err == nil {
			info = newInfo(n.View, n.Map, n.View.Members)
		}
		return err
	})
	return info, err
}

// infoOf is what the fleet knows now.
func infoOf(f *route.Router) ClusterInfo { return newInfo(f.Seen()) }

func newInfo(told *cluster.View, m *cluster.Map, members []cluster.Member) ClusterInfo {
	info := ClusterInfo{Clustered: true}
	if told != nil {
		info.Name, info.Teller, info.ViewVersion = told.Cluster, told.Self, told.Version
	}
	nodes := make(map[string]*ClusterNode)
	for i := range members {
		nodes[members[i].ID] = clusterNode(&members[i])
	}
	if m != nil {
		info.Name, info.ID = m.Name, hex.EncodeToString(m.Cluster[:])
		info.MapVersion, info.MapDigest, info.Shards = m.Version, m.Digest(), len(m.Owner)
		info.Replicas = 1
		if r := m.Replication; r != nil {
			info.Replicas, info.Groups, info.Founders, info.Meta = replicasOfEach(m), len(r.Groups), foundersOf(m), metaOf(m)
		}
		for i, n := range m.Nodes {
			if nodes[n.ID] == nil {
				nodes[n.ID] = &ClusterNode{ID: n.ID, State: "unknown"}
			}
			nodes[n.ID].Weight = n.Weight
			if m.Replication != nil && m.Replication.Zones != nil {
				nodes[n.ID].Zone = m.Replication.Zones[i]
			}
		}
		for _, i := range m.Owner {
			id := m.Nodes[i].ID
			info.Owners = append(info.Owners, id)
			nodes[id].Shards++
		}
		for i := range info.Founders {
			nodes[info.Founders[i].Replicas[0].Node].Leads++
		}
	}
	for _, n := range nodes {
		info.Nodes = append(info.Nodes, *n)
	}
	slices.SortFunc(info.Nodes, func(a, b ClusterNode) int { return cmp.Compare(a.ID, b.ID) })
	return info
}

func clusterNode(m *cluster.Member) *ClusterNode {
	n := &ClusterNode{
		ID: m.ID, State: m.State.String(), Since: m.Since, Incarnation: m.Incarnation, Gossip: m.Gossip,
		Regions: m.Regions, TableVersion: m.TableVersion, TableDigest: m.TableDigest,
		MapVersion: m.MapVersion, MapDigest: m.MapDigest,
	}
	for _, e := range m.Endpoints {
		n.Endpoints = append(n.Endpoints, Endpoint{e.Fabric, e.Addr})
	}
	return n
}

// A NodeWeight is a node in the shard map to be made.
type NodeWeight struct {
	ID     string
	Weight uint32 // its share of the shards, relative to the others'; 0 is 1
	Out    bool   // it is left out of the map, and gets no shard; nothing else is looked at
	// Zone is what fails at once with the node, a rack say: replicas of a group are in different zones, as far as there are
	// enough. Either all nodes have one or none has. It is looked at when the map is drawn up, and not kept: a run that
	// finishes another one takes that one's map, whatever zones it is given. Only with replicas.
	Zone string
}

// ClusterInit has the nodes of a new cluster agree, once and for ever, which of
// them owns which shards. All of them must be reachable, empty, and have the same
// number of shards. A node that is alive and not named is an error, because it
// could never own a shard: name it with Out to leave it out. It is done in two steps, so that no two nodes can ever serve
// by two maps: each promises the map, durably, and only when all have does each
// put it into force.
//
// Run again with the same nodes it finishes what was interrupted, and changes
// nothing where all is done. With other nodes it fails with ErrOtherMap once
// there is a map or a promise; a node that refuses is named by a *PartialError,
// and what was promised is then taken back. It needs the admin right.
func (a *Admin) ClusterInit(ctx context.Context, nodes []NodeWeight) (ClusterInfo, error) {
	return a.ClusterInitWith(ctx, nodes, InitOptions{})
}

// InitOptions say what a new cluster is like. The zero value is one without replicas.
type InitOptions struct {
	// Replicas is on how many nodes each key is: 1 (or 0), 3, 5 or 7. With more than one a
	// write is done when a majority of them has it, and a minority may be lost.
	Replicas int
	// Groups is how many groups of replicas the shards make up, each with a leader of its own;
	// 0: two for each node, or one for each shard if there are fewer. Only with replicas, or Adopt.
	Groups int
	// Adopt has a cluster begin with one node that has keys, as a server that was alone has them. Its shards become Groups groups, 0: six, whose first replicas have the keys that are
	// there; other nodes come by Change. Replicas is 1.
	Adopt bool
}

// ClusterInitWith is ClusterInit with options. The nodes of a cluster with replicas must have
// the stores that they had when the map was made: one whose data directory was lost is
// no replica under its old name, and refuses. What does not fit the nodes is client.ErrOptions;
// with other options than those of the map that there is it fails with ErrOtherMap.
func (a *Admin) ClusterInitWith(ctx context.Context, nodes []NodeWeight, o InitOptions) (ClusterInfo, error) {
	if a.rt.Only() != nil {
		return ClusterInfo{}, a.fail("cluster-init", nil, fmt.Errorf("%w: the server is alone, and no node of a cluster", client.ErrUnsupported))
	}
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, 4*a.rt.Config().Timeout) // each step has one
		defer cancel()
	}
	if err := birth(ctx, a.rt, nodes, o); err != nil {
		return ClusterInfo{}, a.fail("cluster-init", nil, err)
	}
	return a.Cluster(ctx)
}

// ErrOtherMap: the nodes have agreed on, or promised, a shard map of other nodes.
var ErrOtherMap = errors.New("there is another shard map")
