package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// An Authority keeps the map: it alone says which node owns a shard. Each node keeps
// the map that all of them agreed on at the cluster's birth, and in a cluster with replicas
// follows the later ones. The code above sees only this interface.
type Authority interface {
	// Map returns the map in force, nil before there is one. It never blocks.
	Map() *Map

	// Change replaces previous (nil: none) by next, durably, if the map in
	// force has the version and digest of previous; then Map returns next.
	// Otherwise nothing changes and the error says why: ErrOtherMap if another
	// map is in force, ErrOtherCluster, ErrNotYet.
	Change(ctx context.Context, previous, next *Map) error
}

// Errors about maps.
var (
	ErrNoMap        = errors.New("cluster: no shard map yet: run kvclient cluster init with the ids of its nodes")
	ErrOtherCluster = errors.New("cluster: the shard map of another cluster")
	ErrOtherMap     = errors.New("cluster: another shard map is in force")
	ErrFixed        = errors.New("cluster: a later shard map may not change that")
	ErrNotYet       = errors.New("cluster: changing the map of a live cluster is not possible yet: back up per shard with kvserver backup, and restore into a new cluster")
)

// CheckChange says whether next may follow previous (nil: none): the rules that
// every Authority keeps. next must be well formed and of the same cluster. The
// same map again is accepted, so that a call whose reply was lost can be
// repeated.
//
// The first map has version 1. Where both maps have replicas a later version may name other nodes, put replicas
// elsewhere and prefer other leaders; versions may be left out. ErrFixed if it changes what stays for ever, which is
//
//	the shards, how many there are and which group each has   else a key would be looked for in another group's log; but for a group that was burnt, whose
//	                                                          shards go to one new group all together (Group.Was)
//	the ids of the groups                                     likewise; a new one is above all that were, so none comes twice
//	the node, and its store, of a replica that both have      else one replica would vote twice, or have forgotten its vote (R18)
//	that ids of replicas rise                                 a node that got a group again is another replica of it
//	which meta groups were made anew                          ErrTwoMetas: the cluster has two of them
//
// Without replicas the first map is also the last: ErrNotYet. But one may get groups, which begin with what its nodes have (Replication.Adopts): the shards stay where they are. Later maps may follow that
// one at nodes that have not heard of it.
func CheckChange(previous, next *Map) error {
	if next == nil {
		return ErrNoMap
	}
	if err := next.Check(); err != nil {
		return err
	}
	switch {
	case previous == nil && next.Version == 1:
		return nil
	case previous == nil:
		return fmt.Errorf("%w: the first one must have version 1, this one has %d", ErrNotYet, next.Version)
	case previous.Cluster != next.Cluster || previous.Name != next.Name:
		return fmt.Errorf("%w: this node belongs to %s, the map to %s", ErrOtherCluster, previous.identity(), next.identity())
	case twoMetas(previous, next) != nil:
		return twoMetas(previous, next)
	case previous.Version == next.Version && previous.Digest() == next.Digest():
		return nil
	case previous.Version >= next.Version:
		return fmt.Errorf("%w: version %d digest %016x here, version %d digest %016x wanted", ErrOtherMap,
			previous.Version, previous.Digest(), next.Version, next.Digest())
	case previous.Replication == nil && next.Replication != nil && next.Replication.Adopts && next.Replication.Born == previous.Version+1:
		return checkUpgrade(previous, next)
	case previous.Replication == nil || next.Replication == nil:
		return fmt.Errorf("%w (version %d is in force, version %d was wanted)", ErrNotYet, previous.Version, next.Version)
	}
	return checkFixed(previous, next)
}

// checkUpgrade says whether next, which has groups that begin with what nodes have, may follow previous, which has none. By the map with which they begin each node keeps the shards that it owns.
func checkUpgrade(previous, next *Map) error {
	switch {
	case len(previous.Owner) != len(next.Owner):
		return fmt.Errorf("%w: %d shards become %d", ErrFixed, len(previous.Owner), len(next.Owner))
	case next.Version != next.Replication.Born:
		return nil // what has moved since the meta group has agreed on
	case !slices.Equal(previous.Nodes, next.Nodes) || !slices.Equal(previous.Owner, next.Owner):
		return fmt.Errorf("%w: groups begin with what nodes have, and version %d has shards or nodes elsewhere than version %d", ErrFixed, next.Version, previous.Version)
	}
	return nil
}

// checkFixed compares what stays for ever in two maps with replicas, each of which is well formed. ErrFixed.
func checkFixed(previous, next *Map) error {
	fixed := func(text string, args ...any) error {
		return fmt.Errorf("%w: %s (version %d is in force, version %d was wanted)", ErrFixed, fmt.Sprintf(text, args...), previous.Version, next.Version)
	}
	before, after := previous.Replication, next.Replication
	switch {
	case len(previous.Owner) != len(next.Owner):
		return fixed("%d shards become %d", len(previous.Owner), len(next.Owner))
	case before.Meta != nil && after.Meta == nil:
		return fixed("the meta group is gone")
	case before.Born != after.Born && (before.Meta != nil || after.Born != previous.Version+1) || before.Adopts != after.Adopts:
		return fixed("groups that began by map %d are said to have begun by map %d", max(1, before.Born), max(1, after.Born))
	case len(before.Groups) != len(after.Groups):
		return fixed("%d groups become %d", len(before.Groups), len(after.Groups))
	}
	last := before.Groups[len(before.Groups)-1].ID // the highest id that ever was: a group that takes the place of another one has the highest
	to := make([]*Group, len(before.Groups))
	for shard, g := range before.Group {
		was, is := &before.Groups[g], &after.Groups[after.Group[shard]]
		switch {
		case to[g] != nil && to[g].ID != is.ID:
			return fixed("shards of group %d go to groups %d and %d", was.ID, to[g].ID, is.ID)
		case is.ID == was.ID && (is.Was != was.Was || is.Times != was.Times):
			return fixed("group %d, which was group %d, is said to have been group %d", was.ID, was.Was, is.Was)
		case is.ID == was.ID && is.Phase < was.Phase:
			return fixed("group %d goes from phase %d to phase %d", was.ID, was.Phase, is.Phase)
		case is.ID != was.ID && (is.ID <= last || !is.follows(was)):
			return fixed("shard %d goes from group %d to group %d, which was group %d", shard, was.ID, is.ID, is.Was)
		}
		to[g] = is
	}
	seen := make(map[uint32]bool) // as many groups as before, and each goes to one of its own, so none comes out of nothing
	for i, is := range to {
		if seen[is.ID] {
			return fixed("group %d gets shards of several groups, of group %d too", is.ID, before.Groups[i].ID)
		}
		seen[is.ID] = true
	}
	of := func(was, is *Group) error {
		for _, p := range was.Replicas {
			node := previous.Nodes[p.Node].ID
			for _, q := range is.Replicas {
				at := next.Nodes[q.Node].ID
				switch {
				case q.ID == p.ID && at != node:
					return fixed("replica %d of group %d goes from node %q to node %q: it needs another id there", p.ID, was.ID, node, at)
				case q.ID == p.ID && after.Stores[q.Node] != before.Stores[p.Node]:
					return fixed("replica %d of group %d at node %q is to be in another store: it needs another id there", p.ID, was.ID, node)
				case at == node && q.ID < p.ID:
					return fixed("replica %d of group %d at node %q becomes replica %d: ids rise", p.ID, was.ID, node, q.ID)
				}
			}
		}
		return nil
	}
	for i := range before.Groups {
		if before.Groups[i].ID != to[i].ID {
			continue // a group that is burnt, and one whose replicas are others
		}
		if err := of(&before.Groups[i], to[i]); err != nil {
			return err
		}
	}
	if before.Meta != nil {
		return of(before.Meta, after.Meta)
	}
	return nil
}
