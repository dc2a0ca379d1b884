package cluster

import (
	"errors"
	"fmt"
)

// What becomes of a cluster that has lost more than it bears, and whose operator goes on with what is left.
//
// A group that has lost its majority gives way to a new one, which is made of what one node has:
//
//	Begins    the node is to make the new group, or makes it     every other node keeps what it has of the old one, and runs none of it
//	Stands    the new group has committed something of its own   a node gives what it has kept up where the new group is to have a replica
//	Settled   three replicas of it vote, and have all            nobody keeps anything of the old one
//
// If the node is lost before others have all that it had, the next group is made of what another node has kept. The seat says how far it is; phases only rise.
//
// The meta group that has lost its majority is made anew by one node, with a random number (Replication.Lives). Nodes have one lineage of such numbers. A map whose lineage is another
// one is of a second meta group of the cluster: two nodes were told to make it, and did not reach each other. No node goes from one to the other, whichever version is higher.

// A Phase is how far a group is that was made of what a node had of another one.
type Phase uint8

const (
	Begins Phase = iota
	Stands
	Settled
)

// MaxGenerations bounds how often the meta group can be made anew.
const MaxGenerations = 64

// ErrTwoMetas: a map is of another meta group of the same cluster than the one in force.
var ErrTwoMetas = errors.New("cluster: there are two meta groups of this cluster")

// Life is the number of the meta group that has made the map; 0: the first one, which was never made anew.
func (m *Map) Life() uint64 {
	if m.Replication == nil || len(m.Replication.Lives) == 0 {
		return 0
	}
	return m.Replication.Lives[len(m.Replication.Lives)-1]
}

// Parts says whether a map of a version, which a meta group of a number has made (Life), is of another line of meta groups than m. Of a later generation than m's it does not say so: that map
// itself has to be looked at (CheckChange).
func (m *Map) Parts(version, life uint64) bool {
	if m.Replication == nil || version>>generationBits > uint64(len(m.Replication.Lives)) {
		return false
	}
	here := uint64(0)
	if g := version >> generationBits; g > 0 {
		here = m.Replication.Lives[g-1]
	}
	return here != life
}

// twoMetas says whether both maps can be of one line of meta groups: nil, or an error that says of which two they are.
func twoMetas(a, b *Map) error {
	if a.Replication == nil || b.Replication == nil {
		return nil
	}
	for i := range min(len(a.Replication.Lives), len(b.Replication.Lives)) {
		if x, y := a.Replication.Lives[i], b.Replication.Lives[i]; x != y {
			return fmt.Errorf("%w: it was made anew as %016x, of which version %d is here, and as %016x, of which version %d was wanted; stop the nodes of one of them (docs/failures.md)",
				ErrTwoMetas, x, a.Version, y, b.Version)
		}
	}
	return nil
}

// follows says whether a group may have taken the place of another one, by what both say of themselves. It was made of that, of one that came behind it, or of the one
// that both were made of.
func (g *Group) follows(was *Group) bool {
	return g.Was != 0 && g.ID > was.ID && g.Times > was.Times && (g.Was >= was.ID || was.Was != 0 && g.Was >= was.Was)
}

// Burnt says what a node does with a replica of a group that a map does not have any more, by one of the group's shards: true: it keeps it, and does not run it. Node is an index in Nodes; -1: it
// is not in the map, and gives all up.
func (m *Map) Burnt(shard uint16, node int) (keeps bool) {
	r := m.Replication
	if r == nil || node < 0 || int(shard) >= len(r.Group) {
		return false
	}
	g := &r.Groups[r.Group[shard]]
	switch {
	case g.Was == 0 || g.Phase == Settled:
		return false
	case g.Phase == Begins:
		return true
	}
	return g.At(node) == 0
}
