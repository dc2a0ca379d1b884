package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/internal/route"
	"github.com/rdmakv/rdmakv/client/internal/session"
	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/feature"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// A cluster without replicas gets groups, which begin with the keys of its nodes, where they are.
//
//	ask      each node for the map in force, the one that it has promised, its program and its store
//	choose   the map with groups that a node has in force, else one that a node has promised; else a new proposal
//	prepare  at every node: it serves by the map before, and promises this one or none
//	commit   at every node, once all have promised: its shards become groups of one replica
//
// It is the birth of a map (birth.go) beside another one. A node that the commit did not reach asks the others for the map by itself.

// UpgradeOptions say what groups a cluster is to get. The zero value is two for each node.
type UpgradeOptions struct {
	// Zones are, by node, what fails at once with it, a rack say: all nodes have one or none has. They are looked at when the map is drawn up.
	Zones map[string]string
	// Dry says what would be done, and does nothing.
	Dry bool
}

// An UpgradePlan is what Upgrade does, or has done.
type UpgradePlan struct {
	Done       bool          `json:"done"`        // the map with groups is in force at every node
	Begun      bool          `json:"begun"`       // a node has it in force, or has promised it, from an earlier call
	MapVersion uint64        `json:"map_version"` // of the map by which the groups begin
	Groups     int           `json:"groups"`
	Nodes      []UpgradeNode `json:"nodes"` // by id
}

// An UpgradeNode is one node of it.
type UpgradeNode struct {
	ID      string `json:"id"`
	Version string `json:"version"` // the release of its program
	Newest  uint8  `json:"newest"`  // the newest feature level that the program reads
	Shards  int    `json:"shards"`
	Groups  int    `json:"groups"` // that its shards become
	State   string `json:"state"`  // of the map by which the groups begin: "none", "prepared" or "committed"
}

// Upgrade has a cluster without replicas get groups, which begin with the keys of its nodes, where they are: nothing is copied, and clients of this version go on meanwhile. Change gives the groups more replicas, then.
// All nodes must be there, run a program that reads shard maps with such groups, and be fit for replicas. It is done in two steps, as ClusterInit: each node promises the map, and only when all have is it put in force.
//
// Run again it finishes what was interrupted, and changes nothing where all is done. What it says is as it was then.
//
// Errors: ErrRefused if the cluster cannot be upgraded, because a node has an older program (the error names it and says what to do), or the cluster has had groups from the beginning; a *client.PartialError with
// the nodes that were not reached or have refused, whose promises are taken back then; ErrOtherMap. Without a deadline in ctx it has four times Config.Timeout. It needs the admin right.
func (a *Admin) Upgrade(ctx context.Context, o UpgradeOptions) (UpgradePlan, error) {
	if a.rt.Only() != nil {
		return UpgradePlan{}, a.fail("cluster-upgrade", nil, fmt.Errorf("%w: the server is alone, and no node of a cluster: kvclient cluster init --adopt makes it one", client.ErrUnsupported))
	}
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, 4*a.rt.Config().Timeout)
		defer cancel()
	}
	p, err := upgrade(ctx, a.rt, o)
	if err != nil {
		err = a.fail("cluster-upgrade", nil, err)
	}
	return p, err
}

func upgrade(ctx context.Context, f *route.Router, o UpgradeOptions) (plan UpgradePlan, err error) {
	if err := f.Refresh(ctx, nil); err != nil {
		return plan, err
	}
	m := f.Map()
	switch r := (*cluster.Replication)(nil); {
	case m == nil:
		return plan, client.ErrNoMap
	default:
		if r = m.Replication; r == nil || r.Adopts && m.BornBy() {
			break
		}
		if r.Meta == nil {
			return plan, fmt.Errorf("%w: the cluster was made with replicas by a version that knew no changes of a map (%s), and such a one is not upgraded in place: kvclient cluster backup, and kvclient cluster restore into a new cluster", ErrRefused, replicasOf(m))
		}
		if !r.Adopts {
			return plan, fmt.Errorf("%w: the cluster was made with groups of replicas (%s): kvclient cluster replicas COUNT changes how many", ErrRefused, replicasOf(m))
		}
		return donePlan(m), nil // a later map shows that all have promised the one before it, and nodes that missed it follow by themselves
	}
	var all []*candidate
	for _, n := range m.Nodes {
		p, err := f.Peer(n.ID)
		if err != nil {
			return plan, err
		}
		all = append(all, &candidate{p: p, zone: o.Zones[n.ID]})
	}
	status := make([]wire.NodeStatus, len(all))
	if err := atEach(f, all, func(c *candidate) error {
		return c.meet(ctx, f, func() (err error) {
			if err = c.askBoth(ctx); err == nil {
				status[slices.Index(all, c)], err = c.status(ctx)
			}
			return err
		})
	}); err != nil {
		return plan, err
	}
	next, err := chooseUpgrade(all, o)
	if err != nil {
		return plan, err
	}
	plan = planOf(all, status, next)
	if err := maySpeak(all, status, next); err != nil || o.Dry || plan.Done {
		return plan, err
	}
	if next.BornBy() {
		if err := prepareAll(ctx, f, all, next); err != nil {
			return plan, err
		}
	}
	err = atEach(f, all, func(c *candidate) error {
		return c.meet(ctx, f, func() error {
			if !next.BornBy() { // the meta group has agreed on it since
				return c.follow(ctx, next)
			}
			err := c.step(ctx, wire.MapCommit, next, wire.MapCommitted)
			if errors.Is(err, errRefusedMap) { // it may have a later one by now
				err = c.follow(ctx, next)
			}
			return err
		})
	})
	if err != nil {
		return plan, fmt.Errorf("all nodes have promised the map, and not all have confirmed that it is in force; run it again: %w", err)
	}
	plan.Done = true
	for i := range plan.Nodes {
		plan.Nodes[i].State = wire.MapCommitted.String()
	}
	return plan, nil
}

// askBoth learns which map a node has in force, and which one it has promised beside that. committed is the map with groups alone.
func (c *candidate) askBoth(ctx context.Context) error {
	p := c.p.Begin(ctx)
	return c.p.Ask(&p, "cluster-upgrade", nil, func(s *session.Session) error {
		n, err := s.FetchNews(&p)
		if err != nil {
			return err
		}
		c.shards, c.view, c.name, c.committed, c.promised, c.before = int(s.Welcome.Shards), n.View, n.View.Cluster, nil, nil, n.Map
		if n.Map == nil {
			return client.ErrNoMap
		}
		if n.Map.Replication != nil {
			c.committed = n.Map
			return nil
		}
		text, err := s.Document(&p, wire.DocumentPromise, nil, session.MaxNews)
		if errors.Is(err, client.ErrNoMap) {
			return nil
		}
		if err == nil {
			c.promised, err = cluster.ParseMap(text)
		}
		if err != nil {
			return s.BadNews(err)
		}
		return nil
	})
}

// chooseUpgrade says by which map the groups begin.
func chooseUpgrade(all []*candidate, o UpgradeOptions) (next *cluster.Map, err error) {
	var from *cluster.Map
	for _, c := range all {
		if c.before.Replication == nil {
			if from != nil && from.Digest() != c.before.Digest() {
				return nil, fmt.Errorf("%w: nodes have committed %v and %v", ErrOtherMap, from, c.before)
			}
			from = c.before
		}
		if m := c.committed; m != nil && (next == nil || m.Version > next.Version) {
			next = m
		}
	}
	if next != nil {
		if from == nil {
			return next, nil
		}
		return next, cluster.CheckChange(from, next)
	}
	for _, c := range all { // of several that were begun, each run takes the same
		if c.promised != nil && (next == nil || c.promised.Digest() < next.Digest()) {
			next = c.promised
		}
	}
	if next != nil {
		if err := zonesAre(next, o.Zones); err != nil {
			return nil, err
		}
		return next, cluster.CheckChange(from, next)
	}
	want := cluster.Want{}
	for _, c := range all {
		want.Stores = append(want.Stores, c.store)
		if len(o.Zones) > 0 {
			want.Zones = append(want.Zones, c.zone)
		}
	}
	for id := range o.Zones {
		if !from.Has(id) {
			return nil, fmt.Errorf("%w: node %q is given a zone, and is not in the cluster", client.ErrOptions, clipped(id))
		}
	}
	if len(o.Zones) > 0 && len(o.Zones) != len(all) {
		return nil, fmt.Errorf("%w: %d of %d nodes have a zone: either all have one or none has, because those without would count as one zone", client.ErrOptions, len(o.Zones), len(all))
	}
	if next, err = cluster.ProposeAdopting(from, want); err != nil {
		return nil, fmt.Errorf("%w: %w", client.ErrOptions, err)
	}
	return next, nil
}

// zonesAre fails if a map that was promised before has other zones than are asked for now.
func zonesAre(m *cluster.Map, zones map[string]string) error {
	if len(zones) == 0 {
		return nil
	}
	for i, n := range m.Nodes {
		if m.Replication.Zones[i] != zones[n.ID] {
			return fmt.Errorf("%w: %v is promised, with node %q in zone %q; to finish it, name no zones", ErrOtherMap, m, n.ID, m.Replication.Zones[i])
		}
	}
	return nil
}

// maySpeak fails if a node runs a program that does not read a map.
func maySpeak(all []*candidate, status []wire.NodeStatus, m *cluster.Map) error {
	needs := feature.Needs(feature.ShardMap, m.Form())
	var list []string
	for i := range all {
		if newestOf(&status[i]) < uint8(needs) {
			program := status[i].Version
			if status[i].Revision != "" {
				program += " (" + status[i].Revision[:min(len(status[i].Revision), 12)] + ")"
			}
			list = append(list, fmt.Sprintf("%s, which runs %s", all[i].p.Node, cmp.Or(wire.CleanText([]byte(program)), "an older one")))
		}
	}
	if len(list) == 0 {
		return nil
	}
	return fmt.Errorf("%w: a program that reads feature level %d is needed at every node: start with this release, one after the other: %s", ErrRefused, needs, strings.Join(list, "; "))
}

func newestOf(st *wire.NodeStatus) uint8 {
	if st.Levels == nil {
		return 0
	}
	return st.Levels.Newest
}

// planOf is what the nodes come to.
func planOf(all []*candidate, status []wire.NodeStatus, m *cluster.Map) UpgradePlan {
	p := UpgradePlan{Done: true, MapVersion: m.Replication.Born, Groups: len(m.Replication.Groups), Nodes: []UpgradeNode{}}
	for i, c := range all {
		n := UpgradeNode{ID: c.p.Node, Version: wire.CleanText([]byte(status[i].Version)), Newest: newestOf(&status[i]), Shards: len(c.before.Shards(c.p.Node)), State: wire.MapNone.String()}
		groups := make(map[uint16]bool)
		for shard, g := range m.Replication.Group {
			if c.before.OwnerOf(uint16(shard)) == c.p.Node {
				groups[g] = true
			}
		}
		n.Groups = len(groups)
		switch {
		case c.committed != nil:
			n.State, p.Begun = wire.MapCommitted.String(), true
		case c.promised != nil && c.promised.Digest() == m.Digest():
			n.State, p.Begun = wire.MapPromised.String(), true
		}
		p.Done = p.Done && c.committed != nil
		p.Nodes = append(p.Nodes, n)
	}
	return p
}

// donePlan is that of a cluster whose map has changed since.
func donePlan(m *cluster.Map) UpgradePlan {
	p := UpgradePlan{Done: true, Begun: true, MapVersion: m.Replication.Born, Groups: len(m.Replication.Groups), Nodes: []UpgradeNode{}}
	for _, n := range m.Nodes {
		p.Nodes = append(p.Nodes, UpgradeNode{ID: n.ID, Shards: len(m.Shards(n.ID)), State: wire.MapCommitted.String()})
	}
	return p
}
