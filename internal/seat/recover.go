package seat

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/meta"
)

// A group that has lost its majority for good is replaced by a new one, of what one of its replicas has (store.RecoverGroup):
//
//	operator   the voters that do not answer are down, and do not come back          nobody can know it but he
//	seat       no majority answers, and nobody leads, as far as the nodes say; so      Recover
//	           the map: a new group, whose only replica is at that node
//	node       makes the new group of its replica                                    package groups, store
//	others     give their replicas of the old group up, whenever they hear of the map
//
// The map is what burns the old group: its id is in no later one. What moves of it is dropped.

// A Loss is what a group loses that is recovered, as far as the nodes that answer know.
type Loss struct {
	Group   uint32
	From    string   // node
	Replica uint64   // of Group at From
	Last    uint64   // index of the newest entry there: what comes behind it is lost
	Heard   []string // nodes whose replicas of the group answer, From among them; by id
	Away    []string // nodes that have a replica of it by the map, and do not answer for it; by id
	Made    uint32   // the group that takes its place; 0: Group has been recovered from another node
}

// Recover works out the state in which a new group has taken the place of one, made of its replica at a node. r are reports of all nodes that answer, of now. If that was done before next is s.
// Millis is now, in milliseconds since 1970.
//
// ErrRequest: the group is not there, the meta group, or has a leader or a majority that answers; or the node has no replica of it that could be a beginning, or another one has more.
func Recover(s *meta.State, r Reports, group uint32, from string, millis int64) (next *meta.State, loss *Loss, err error) {
	d := s.Map.Draft()
	if d == nil {
		return nil, nil, refuse("this cluster has no meta group, so its map cannot be changed: an older version has made it")
	}
	if group == 0 {
		return nil, nil, refuse("group 0 is the meta group, which answers: it needs no recovery")
	}
	g := d.Group(group)
	if g == nil {
		for i := range d.Groups {
			if o := &d.Groups[i]; o.Was == group {
				if p := o.Replica(1); p != nil && p.Node == from {
					return s, &Loss{Group: group, From: from, Made: o.ID}, nil
				}
				return nil, nil, refuse("group %d was recovered before, as group %d, and not from node %q", group, o.ID, from)
			}
		}
		return nil, nil, refuse("there is no group %d: %s are", group, groupIDs(s))
	}
	if !s.Map.Has(from) {
		return nil, nil, unknown(s, from)
	}
	at := g.At(from)
	if at == nil {
		return nil, nil, refuse("node %q has no replica of group %d: %s have", from, group, strings.Join(nodesOf(g), ", "))
	}
	loss = &Loss{Group: group, From: from, Replica: at.ID}
	if err := r.mayRecover(group, from, at.ID, loss); err != nil {
		return nil, nil, err
	}
	loss.notes(g)
	if d.Groups[len(d.Groups)-1].ID == math.MaxUint32 {
		return nil, nil, refuse("no ids of groups are left")
	}
	next = s.Clone()
	loss.Made = d.Recover(group, from)
	if next.Map, err = d.Map(s.Map); err != nil {
		return nil, nil, refuse("%v", err)
	}
	for i := range next.Tasks {
		t := &next.Tasks[i]
		for j := range t.Moves {
			if m := &t.Moves[j]; m.Group == group && !m.Over() {
				m.State, m.Ended = meta.Dropped, millis
			}
		}
	}
	return next, loss, nil
}

// mayRecover says whether a group can be made of a replica at a node, and notes what is known of the others.
func (r Reports) mayRecover(group uint32, from string, replica uint64, loss *Loss) error {
	if l := r.Leader(group); l != nil {
		return refuse("group %d has a leader, so nothing of it is lost: replica %d leads it", group, l.Replica)
	}
	n, answers := r[from]
	if !answers {
		return refuse("node %q does not answer", from)
	}
	if why, ok := n.Stopped[group]; ok {
		return refuse("the replica of group %d at node %q was stopped by an error, and is no beginning of a group: %s", group, from, why)
	}
	mine, _ := r.of(group, replica)
	switch {
	case mine == nil:
		return refuse("node %q does not run its replica of group %d: see its log", from, group)
	case len(mine.Voters) == 0 || mine.Last == 0:
		return refuse("the replica of group %d at node %q has nothing yet: it was to get all from the others", group, from)
	case !slices.Contains(mine.Voters, replica):
		return refuse("the replica of group %d at node %q has no vote, so it may lack what a majority had", group, from)
	case mine.Heard != 0:
		return refuse("the replica of group %d at node %q knows a leader, replica %d: that one lives", group, from, mine.Heard)
	}
	loss.Last = mine.Last
	heard := map[uint64]bool{}
	for node, n := range r {
		for i := range n.Groups {
			o := &n.Groups[i]
			if o.Group != group {
				continue
			}
			heard[o.Replica] = true
			loss.Heard = append(loss.Heard, node)
			if slices.Contains(o.Voters, o.Replica) && (o.LastTerm > mine.LastTerm || o.LastTerm == mine.LastTerm && o.Last > mine.Last) {
				return refuse("the replica of group %d at node %q has more, up to entry %d of term %d, than that at node %q, entry %d of term %d: recover from %[2]s", group, node, o.Last, o.LastTerm, from, mine.Last, mine.LastTerm)
			}
		}
	}
	for node, n := range r { // by whatever configuration: an older one may be the one in force
		for i := range n.Groups {
			o := &n.Groups[i]
			if o.Group != group {
				continue
			}
			there := 0
			for _, v := range o.Voters {
				if heard[v] {
					there++
				}
			}
			if there > len(o.Voters)/2 {
				return refuse("a majority of group %d answers, %d of the %d voters that node %q knows: it elects a leader by itself", group, there, len(o.Voters), node)
			}
		}
	}
	slices.Sort(loss.Heard)
	return nil
}

// groupIDs names the groups with shards.
func groupIDs(s *meta.State) string {
	var ids []string
	for _, g := range s.Map.Replication.Groups {
		ids = append(ids, fmt.Sprint(g.ID))
	}
	return strings.Join(ids, ", ")
}

// topGap is how many ids of replicas are left out in each group when the meta group is made anew: those that the lost replicas have given out behind what is known are below.
const topGap = 1 << 16

// RecoverMeta works out the map of the next generation, in which the meta group has one replica, at a node. m is the newest map that is known, and r are reports of all nodes that answer, of now. What
// was under way is not: replicas that were to leave stay, because nobody remembers the task, and each group's leader goes by what the map says.
//
// ErrRequest: the meta group has a leader or a majority that answers, or the node has no replica of it that could be a beginning, or another one has more.
func RecoverMeta(m *cluster.Map, r Reports, from string) (*cluster.Map, *Loss, error) {
	d := m.Draft()
	if d == nil {
		return nil, nil, refuse("this cluster has no meta group: an older version has made its map")
	}
	g := &d.Groups[0]
	at := g.At(from)
	if at == nil {
		return nil, nil, refuse("node %q has no replica of the meta group: %s have", from, strings.Join(nodesOf(g), ", "))
	}
	loss := &Loss{From: from, Replica: at.ID}
	if err := r.mayRecover(0, from, at.ID, loss); err != nil {
		return nil, nil, err
	}
	loss.notes(g)
	for i := range d.Groups {
		one := &d.Groups[i]
		if one.Top > math.MaxUint64-2*topGap {
			return nil, nil, refuse("no ids of replicas are left in group %d", one.ID)
		}
		one.Top += topGap
		stay := 0
		for j := range one.Replicas {
			if p := &one.Replicas[j]; stay < cluster.MaxReplicas { // more cannot stay; such a one leaves still
				p.Leaves = false
				stay++
			}
		}
	}
	g.Replicas = nil
	g.Add(from)
	next, err := d.Map(m)
	if err != nil {
		return nil, nil, refuse("%v", err)
	}
	if next.Version = m.NextGeneration(); next.Version == 0 {
		return nil, nil, refuse("no versions of shard maps are left")
	}
	return next, loss, nil
}

// notes notes which nodes of a group do not answer for it.
func (l *Loss) notes(g *cluster.DraftGroup) {
	for _, n := range nodesOf(g) {
		if !slices.Contains(l.Heard, n) {
			l.Away = append(l.Away, n)
		}
	}
	slices.Sort(l.Away)
}

// nodesOf are the nodes of the replicas of a group.
func nodesOf(g *cluster.DraftGroup) (list []string) {
	for _, p := range g.Replicas {
		list = append(list, p.Node)
	}
	return list
}
