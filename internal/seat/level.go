package seat

import (
	"errors"
	"fmt"
	"slices"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/feature"
	"github.com/rdmakv/rdmakv/internal/meta"
)

// A Rise is what becomes of the feature level of a cluster next.
type Rise struct {
	To  feature.Level // the level that all nodes of the map read; the one in force if nothing rises
	Why string        // what is in the way of a higher one, for people; "": nothing is
}

// Level works out how far the feature level can rise (R20): to the newest one that every node of the map reads, as far as its program has said so, and the seat's own
// program, which reads own. A node that has said nothing holds the level, because it may be of any program; so does one whose operator wants that. It holds as well for reports that are a
// moment old, because a node that has gone back to an older program meanwhile reads the level before: it was in force then, and a later one stops its replica of the meta group.
func Level(s *meta.State, r Reports, own feature.Range) Rise {
	to, whose := own.Newest, "the seat's program"
	for i := range s.Map.Nodes {
		id := s.Map.Nodes[i].ID
		n, heard := r[id]
		switch {
		case !heard:
			return Rise{s.Level, fmt.Sprintf("node %s has not said which levels its program reads", id)}
		case n.Hold:
			return Rise{s.Level, fmt.Sprintf("node %s holds the level (cluster.hold_level)", id)}
		}
		if newest := n.newest(); newest < to {
			to, whose = newest, fmt.Sprintf("the program of node %s", id)
		}
	}
	to = max(to, s.Level)
	if to < own.Newest {
		return Rise{to, fmt.Sprintf("%s reads no level above %d", whose, to)}
	}
	return Rise{To: to}
}

// newest is the newest level that the node's program reads.
func (n *Report) newest() feature.Level {
	if n.Reads == nil {
		return 0
	}
	return n.Reads.Newest
}

// Raise is the state in which the level has risen as far as it can; nil: it stays. It is called by the seat alone.
func Raise(s *meta.State, r Reports, own feature.Range) *meta.State {
	to := Level(s, r, own).To
	if to <= s.Level {
		return nil
	}
	n := s.Clone()
	n.Level = to
	return n
}

// ErrUnheard: gossip has not told the seat yet of a node that is to come. It may a moment later.
var ErrUnheard = errors.New("ask again")

// MayCome returns nil if nodes may come into the cluster with the programs that they have, else an error that says which may not. reads says which levels
// the program of a node reads, as gossip has it; false: gossip does not know the node (ErrUnheard).
func MayCome(s *meta.State, nodes []Node, reads func(node string) (newest feature.Level, known bool)) error {
	if s.Level == 0 {
		return nil
	}
	for _, n := range nodes {
		if slices.ContainsFunc(s.Map.Nodes, func(m cluster.MapNode) bool { return m.ID == n.ID }) {
			continue
		}
		newest, known := reads(n.ID)
		switch {
		case !known:
			return fmt.Errorf("%w: the seat has not heard yet by gossip which levels the program of node %s reads: %w", ErrRequest, n.ID, ErrUnheard)
		case newest < s.Level:
			return fmt.Errorf("%w: node %s runs a program that reads no level above %d, and the cluster is at level %d: start the node with a newer program", ErrRequest, n.ID, newest, s.Level)
		}
	}
	return nil
}
