package server

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/consensus/transport"
	"github.com/rdmakv/rdmakv/internal/feature"
	"github.com/rdmakv/rdmakv/internal/seat"
	"github.com/rdmakv/rdmakv/internal/server/change"
	"github.com/rdmakv/rdmakv/internal/server/groups"
	"github.com/rdmakv/rdmakv/internal/server/member"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/store"
)

// What joins a node with its part in a cluster (package member).

// ClusterConfig makes a server a node of a cluster.
type ClusterConfig = member.Config

// MustNotServe reports whether an error of Start, or Err, says that the data directory
// must not be served: another process is this node, or was, further on. Starting again
// does not help.
func MustNotServe(err error) bool { return member.MustNotServe(err) }

// GossipAddr is where other nodes gossip with this one; "" on a server that is alone.
func (srv *Server) GossipAddr() string { return srv.member.Addr() }

// ReloadGossipKeys reads the gossip keys again: those that are new are understood, the
// first one is used, those that are gone are forgotten. After an error the keys are as
// before.
func (srv *Server) ReloadGossipKeys() error { return srv.member.ReloadKeys() }

// dir is the data directory as a member sees it.
func (c *Config) dir() member.Dir {
	d := member.Dir{FS: c.FS, Path: c.DataDir, Bare: c.Mode == store.Cache}
	if d.FS == nil {
		d.FS = vfs.Default
	}
	return d
}

// RegionTable returns the region table of the node's own keys as the cluster may be told
// of it; nil before Start. See member.Tables.
func (srv *Server) RegionTable(node string) *cluster.Table {
	main := srv.main
	if !main.Serving.Load() {
		return nil
	}
	var devices []string
	for _, d := range main.Rails.All() {
		devices = append(devices, d.Name())
	}
	return srv.tables.Make(node, main.Store, main.Regions, devices)
}

// A clusterNode is a node as its Member sees it.
type clusterNode struct{ *Server }

var _ member.Node = clusterNode{}

func (n clusterNode) Store() *store.Store { return n.main.Store }
func (n clusterNode) StandDown(why error) { n.standDown(why) }

func (n clusterNode) Suits(ctx context.Context, m *cluster.Map) error {
	if m.Replication == nil {
		return nil
	}
	if err := n.fit(); err != nil {
		return err
	}
	if m.BornBy() { // no meta group sees to it that its form may be written
		l, needs := n.member.Levels, feature.Needs(feature.ShardMap, m.Form())
		if err := l.Reads.Check(needs); needs > l.At() && err != nil {
			return fmt.Errorf("node %q: %w", n.cfg.Cluster.NodeID, err)
		}
		if l.Hold && needs > l.At() {
			return fmt.Errorf("node %q is told to keep the cluster at its feature level, and such a map needs level %d: take cluster.hold_level out of its configuration", n.cfg.Cluster.NodeID, needs)
		}
	}
	return n.groups.Suits(ctx, m, n.far())
}

// fit returns nil if the node may have replicas, else an error that says why not.
func (n clusterNode) fit() error {
	if names := n.spaces.tenants(); len(names) > 0 {
		return fmt.Errorf("node %q cannot have replicas: its tenant %q has one-sided access, and a store of its own, which has none", n.cfg.Cluster.NodeID, names[0].Name)
	}
	return n.groups.Fit()
}

// far says whether the node has a device by which other machines reach it.
func (n clusterNode) far() bool {
	return slices.ContainsFunc(n.devices.all(), func(d *device) bool { return d.Far() })
}

// kept are the replicas that the node keeps of groups that are gone, as it reports them.
func (n clusterNode) kept() (list []seat.KeptReport) {
	for _, k := range store.KeptOf(n.main.Store) {
		list = append(list, seat.KeptReport{Group: uint32(k.Group), Replica: uint64(k.Replica), Shard: k.Shard, Last: k.Last, LastTerm: k.Term, Votes: k.Votes})
	}
	return list
}

// mayJoin returns nil if the node may come into a cluster with replicas that has a map already.
func (n clusterNode) mayJoin(ctx context.Context) error {
	own := n.owned.Shards()
	if own != nil && own.Map.Has(n.cfg.Cluster.NodeID) {
		// A node that was taken out while it was down has its old map until the others tell it the new one, which they soon do.
		return fmt.Errorf("%w: node %q is in the cluster by its map of version %d, and has heard of no later one", change.ErrLater, n.cfg.Cluster.NodeID, own.Map.Version)
	}
	if left := store.ReplicasOf(n.main.Store); len(left) > 0 && own != nil {
		return fmt.Errorf("%w: node %q still gives up %d replicas that it had when it left", change.ErrLater, n.cfg.Cluster.NodeID, len(left))
	}
	if err := n.member.MayJoin(ctx); err != nil {
		return err
	}
	if !n.far() {
		return fmt.Errorf("node %q cannot have replicas: it listens by shared memory alone, which other machines do not reach (listen)", n.cfg.Cluster.NodeID)
	}
	return n.fit()
}

// levels is what the node has to do with the feature level of its cluster.
func (n clusterNode) levels() change.Levels {
	l := n.member.Levels
	return change.Levels{Reads: l.Reads, Hold: l.Hold, At: l.At, Raise: l.Raise, ReadsOf: l.ReadsOf}
}

func (n clusterNode) Replicate(m *cluster.Map) error {
	err := n.groups.InForce(m)
	n.change.InForce(m)
	return err
}

func (n clusterNode) Await(m *cluster.Map) error { return groups.Await(n.groups, m) }

// routes are how this node reaches another one for what replicas say to each other: by its devices that reach other machines, RNICs first, to
// the addresses that gossip has of that node.
func (srv *Server) routes(node string) (list []transport.Route) {
	members := srv.member.Members()
	if members == nil {
		return nil
	}
	other := members.View().Member(node)
	if other == nil {
		return nil
	}
	for _, d := range srv.devices.all() {
		if !d.Far() || d.Away() != nil {
			continue
		}
		for _, e := range other.Endpoints {
			if e.Fabric == d.Attr.Fabric {
				list = append(list, transport.Route{Device: d.Dev, Addr: e.Addr})
			}
		}
	}
	slices.SortStableFunc(list, func(a, b transport.Route) int { return soft(a.Device) - soft(b.Device) })
	return list
}

// soft is 1 for a device that is software, 0 for an RNIC.
func soft(d rdma.Device) int {
	if d.Attr().Fabric == "verbs" {
		return 0
	}
	return 1
}

func (n clusterNode) ReleaseOwned() {
	for _, sp := range n.spaces.every() {
		sp.ReleaseOwned()
	}
}

func (n clusterNode) Bump() {
	for _, sp := range n.spaces.every() {
		sp.Bump()
	}
}

func (n clusterNode) Endpoints(hosts []string, fallback string) []cluster.Endpoint {
	var out []cluster.Endpoint
	for _, p := range n.devices.listening() {
		host, port, err := net.SplitHostPort(p.ln.Addr().String())
		if err != nil {
			continue
		}
		at := hosts
		if len(at) == 0 {
			if ip, err := netip.ParseAddr(host); host == "" || err == nil && ip.IsUnspecified() {
				host = fallback
			}
			at = []string{host}
		}
		for _, h := range at {
			e := cluster.Endpoint{Fabric: p.dev.Attr.Fabric, Addr: net.JoinHostPort(h, port)}
			if h != "" && !slices.Contains(out, e) {
				out = append(out, e)
			}
		}
	}
	return out
}

// HoldsNothing: while a node has no map it takes no keys, so the answer stays right.
func (n clusterNode) HoldsNothing(ctx context.Context) error {
	id := n.cfg.Cluster.NodeID
	n.spaces.mu.RLock()
	for name := range n.spaces.failed {
		n.spaces.mu.RUnlock()
		return fmt.Errorf("node %q cannot tell whether it is empty: its space %q could not be opened", id, name)
	}
	n.spaces.mu.RUnlock()
	for _, sp := range n.spaces.every() {
		if sp.Config.Store.Mode == store.Cache {
			continue // began empty
		}
		for req := (store.ScanRequest{Limit: 1, KeysOnly: true}); ; {
			page, err := sp.Store.Scan(ctx, req)
			if err != nil {
				return fmt.Errorf("node %q cannot tell whether it is empty: %w", id, err)
			}
			if len(page.Entries) > 0 {
				return fmt.Errorf("node %q holds keys, which would be another node's: back them up (kvclient export), and start it with an empty data_dir", id)
			}
			if !page.More {
				break
			}
			req.After = page.Next
		}
	}
	return nil
}

// Bump has the clients of the main space come for what is new (space.Space.Bump). To be
// called after Start.
func (srv *Server) Bump() { srv.main.Bump() }

// StoreForTests is the store of a node's own keys, which a simulation of a whole cluster looks into; nil before Start.
func StoreForTests(srv *Server) *store.Store { return srv.main.Store }

// MetaForTests is a node's replica of the meta group, as its status tells of it; nil: it has none.
func MetaForTests(srv *Server) *wire.MetaStatus { return srv.change.Status() }

// GroupsForTests are a node's replicas, as its status tells of them.
func GroupsForTests(srv *Server) []wire.GroupStatus { return srv.groups.Status() }
