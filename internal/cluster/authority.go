package cluster

import (
	"context"
	"errors"
	"fmt"
)

// An Authority keeps the map: it alone says which node owns a shard. Today each
// node keeps the map that all of them agreed on at the cluster's birth; later a
// consensus group will. The code above sees only this interface.
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
	ErrNotYet       = errors.New("cluster: changing the map of a live cluster is not possible yet: back up per shard with kvserver backup, and restore into a new cluster")
)

// CheckChange says whether next may follow previous (nil: none): the rules that
// every Authority keeps. next must be well formed and of the same cluster. The
// same map again is accepted, so that a call whose reply was lost can be
// repeated. For now the first map is also the last: ErrNotYet for a later one.
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
	case previous.Version == next.Version && previous.Digest() == next.Digest():
		return nil
	case previous.Version >= next.Version:
		return fmt.Errorf("%w: version %d digest %016x here, version %d digest %016x wanted", ErrOtherMap,
			previous.Version, previous.Digest(), next.Version, next.Digest())
	}
	return fmt.Errorf("%w (version %d is in force, version %d was wanted)", ErrNotYet, previous.Version, next.Version)
}
