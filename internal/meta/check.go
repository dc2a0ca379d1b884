package meta

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/feature"
)

// allows says which forms of a shard map may come in force at which level.
var allows = feature.Allows

// What every state keeps to, and what the next one keeps to beside it. The rules are few, because the groups' own logs keep the data safe: what stands here is what
// no group can see, that an id is never given twice, and that a node is told to give a replica up only if the map said before that it leaves.

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrMalformed, fmt.Sprintf(format, args...))
}

// check holds a state to its rules, whatever was before.
func (s *State) check() error {
	switch {
	case s.Version == 0:
		return malformed("version 0")
	case s.Map.Replication == nil || s.Map.Replication.Meta == nil:
		return malformed("a shard map without a meta group")
	case len(s.Tasks) > MaxTasks:
		return malformed("%d tasks, at most %d", len(s.Tasks), MaxTasks)
	}
	moving := make(map[uint32]uint64) // by group: the task that moves it
	for i := range s.Tasks {
		t := &s.Tasks[i]
		if t.ID == 0 || i > 0 && t.ID <= s.Tasks[i-1].ID {
			return malformed("task %d stands behind a task of that or a higher number", t.ID)
		}
		if err := t.check(); err != nil {
			return err
		}
		for j := range t.Moves {
			m := &t.Moves[j]
			if !m.Running() {
				continue
			}
			if other, ok := moving[m.Group]; ok {
				return malformed("tasks %d and %d move group %d at once", other, t.ID, m.Group)
			}
			moving[m.Group] = t.ID
		}
	}
	return nil
}

func (t *Task) check() error {
	switch t.Kind {
	case Add, Remove, Replace, Rebalance, Replicas:
	default:
		return malformed("task %d is of kind %.40q", t.ID, t.Kind)
	}
	switch t.State {
	case Runs, Canceling, Done, Canceled:
	default:
		return malformed("task %d has state %.40q", t.ID, t.State)
	}
	if len(t.Moves) > MaxMoves || len(t.Nodes) > cluster.MaxNodes {
		return malformed("task %d has %d moves and %d nodes", t.ID, len(t.Moves), len(t.Nodes))
	}
	for _, n := range t.Nodes {
		if err := cluster.CheckNodeID(n); err != nil {
			return fmt.Errorf("%w: task %d: %w", ErrMalformed, t.ID, err)
		}
	}
	for i := range t.Moves {
		m := &t.Moves[i]
		switch m.State {
		case Waits, Moves, Undoes, Arrived, Undone, Dropped:
		default:
			return malformed("a move of task %d has state %.40q", t.ID, m.State)
		}
		for _, n := range []string{m.From, m.To} {
			if err := cluster.CheckNodeID(n); n != "" && err != nil {
				return fmt.Errorf("%w: task %d: %w", ErrMalformed, t.ID, err)
			}
		}
		switch {
		case m.From == "" && m.To == "" || m.From == m.To:
			return malformed("a move of task %d goes from %q to %q", t.ID, m.From, m.To)
		case t.Over() && !m.Over():
			return malformed("task %d is over, and a move of it is not", t.ID)
		case m.Running() && (m.From == "") != (m.FromID == 0) || m.Running() && (m.To == "") != (m.ToID == 0):
			return malformed("a move of task %d has begun without an id", t.ID)
		}
	}
	return nil
}

// differsByLevel says whether the next state differs from this one by its level alone. The entry of a rise has to be such: a program that does not read the level stops at it, by the level. If it had
// something else that only the level allows, that program would find the entry malformed, leave it out, and go on with another state than the others.
func (s *State) differsByLevel(n *State) bool {
	was := *n
	was.Level, was.Version = s.Level, s.Version
	return bytes.Equal(was.Encode(), s.Encode())
}

// follows says whether a state may follow this one: nil, or why not.
func (s *State) follows(n *State) error {
	if n.Version != s.Version+1 {
		return malformed("version %d behind %d", n.Version, s.Version)
	}
	if n.Level < s.Level {
		return malformed("feature level %d behind %d: it never falls", n.Level, s.Level)
	}
	if n.Level > s.Level && !s.differsByLevel(n) {
		return malformed("the feature level rises from %d to %d with something else", s.Level, n.Level)
	}
	if n.NextTask() < s.NextTask() && len(n.Tasks) > 0 || len(n.Tasks) == 0 && len(s.Tasks) > 0 {
		return malformed("the ids of tasks fall")
	}
	if n.Map.Version == s.Map.Version {
		if n.Map.Digest() != s.Map.Digest() {
			return malformed("two shard maps of version %d", n.Map.Version)
		}
		return nil
	}
	if n.Map.Version != s.Map.Version+1 {
		return malformed("shard map version %d behind %d", n.Map.Version, s.Map.Version)
	}
	// A program that does not know the form of the map refuses it as malformed, and this one, too: so replicas of either release come to the same.
	if err := allows(n.Level, feature.ShardMap, n.Map.Form()); err != nil {
		return err
	}
	if err := cluster.CheckChange(s.Map, n.Map); err != nil {
		return err
	}
	before, after := s.Map.Draft(), n.Map.Draft()
	for i := range before.Groups {
		b := &before.Groups[i]
		a := after.Group(b.ID)
		err := error(nil)
		if a != nil {
			err = groupFollows(b, a)
		} else {
			err = recovered(b, after)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// recovered says whether another group may stand in the place of one that is gone: it begins with a replica of it, or with what a node has kept of the one that it was made of itself, and with no other.
func recovered(b *cluster.DraftGroup, after *cluster.Draft) error {
	i := slices.IndexFunc(after.Groups, func(g cluster.DraftGroup) bool {
		return g.ID > b.ID && (g.Was == b.ID || b.Was != 0 && g.Was >= b.Was && g.Was < b.ID && g.Times == b.Times+1)
	})
	if i < 0 {
		return malformed("group %d is gone, and none has taken its place", b.ID)
	}
	a := &after.Groups[i]
	if a.Times != b.Times+1 || a.Phase != cluster.Begins {
		return malformed("group %d, in the place of group %d, is the %d. behind the %d., and in phase %d at its beginning", a.ID, b.ID, a.Times, b.Times, a.Phase)
	}
	if len(a.Replicas) != 1 || a.Top != 1 || a.Replicas[0].Leaves || a.Was == b.ID && b.At(a.Replicas[0].Node) == nil {
		return malformed("group %d, in the place of group %d, begins with %d replicas, up to id %d, and not with the one of a node that has one of the old group's", a.ID, b.ID, len(a.Replicas), a.Top)
	}
	return nil
}

func groupFollows(b, a *cluster.DraftGroup) error {
	if a.ID != b.ID || a.Top < b.Top {
		return malformed("group %d behind group %d, ids up to %d behind %d", a.ID, b.ID, a.Top, b.Top)
	}
	for _, p := range a.Replicas {
		old := b.Replica(p.ID)
		if old == nil && p.ID <= b.Top {
			return malformed("replica %d of group %d has an id that was given before", p.ID, a.ID)
		}
		if old != nil && old.Node != p.Node {
			return malformed("replica %d of group %d goes from node %q to %q: it has to be another one", p.ID, a.ID, old.Node, p.Node)
		}
	}
	for _, p := range b.Replicas {
		if !p.Leaves && a.Replica(p.ID) == nil {
			return malformed("replica %d of group %d is gone, and was not on its way out", p.ID, b.ID)
		}
	}
	return nil
}
