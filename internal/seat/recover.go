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
//	others     run their replicas of the old group no more, and keep them             cluster.Begins
//	seat       the new group has published something of its own; later, three        phases
//	           replicas of it vote: the map says so
//	others     give up what they have kept                                           cluster.Stands, cluster.Settled
//
// The map is what burns the old group: its id is in no later one. What moves of it is dropped.
//
// The node may be lost, too, before others have what it had. Then the new group has no leader, and the next one is made of what another node has kept of the first one: Recover of either number.

// A Loss is what a group loses that is recovered, as far as the nodes that answer know.
type Loss struct {
	Group   uint32
	From    string   // node
	Replica uint64   // of Group, or of the group that it was made of, at From
	Last    uint64   // index of the newest entry there: what comes behind it is lost
	Heard   []string // nodes whose replicas of the group answer, From among them; by id
	Away    []string // nodes that have a replica of it by the map, and do not answer for it; by id
	Made    uint32   // the group that takes its place; 0: Group has been recovered from another node
	// Since is the group that was made of Group before, and is lost, too: all that it has acknowledged is; 0: none was.
	Since   uint32
	Forgets []string // what is not done any more, for people: moves that are dropped
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
		if g = heirOf(d, group); g == nil {
			return nil, nil, refuse("there is no group %d: %s are", group, groupIDs(s))
		}
		if p := g.Replica(1); p != nil && p.Node == from {
			return s, &Loss{Group: group, From: from, Made: g.ID}, nil
		}
	}
	if !s.Map.Has(from) {
		return nil, nil, unknown(s, from)
	}
	was := g.ID
	loss = &Loss{Group: group, From: from}
	if at := g.At(from); at != nil {
		loss.Replica = at.ID
		err = r.mayRecover(g.ID, from, at.ID, loss)
	} else if g.Was == 0 {
		return nil, nil, refuse("node %q has no replica of group %d: %s have", from, group, strings.Join(nodesOf(g), ", "))
	} else {
		was, err = r.mayRecoverKept(s.Map, g, from, loss)
	}
	if err != nil {
		return nil, nil, err
	}
	loss.notes(g)
	if max(d.Last, d.Groups[len(d.Groups)-1].ID) == math.MaxUint32 {
		return nil, nil, refuse("no ids of groups are left")
	}
	next = s.Clone()
	burnt := g.ID
	if loss.Made = d.Recover(g.ID, from, was); loss.Made == 0 {
		return nil, nil, refuse("group %d cannot be made of group %d once more", g.ID, was)
	}
	if next.Map, err = d.Map(s.Map); err != nil {
		return nil, nil, refuse("%v", err)
	}
	for i := range next.Tasks {
		t := &next.Tasks[i]
		for j := range t.Moves {
			if m := &t.Moves[j]; m.Group == burnt && !m.Over() {
				m.State, m.Ended = meta.Dropped, millis
				loss.Forgets = append(loss.Forgets, fmt.Sprintf("a move of task %d (%s)", t.ID, Describe(t)))
			}
		}
	}
	return next, loss, nil
}

// heirOf is the group that was made of one which is gone; nil: none was.
func heirOf(d *cluster.Draft, group uint32) *cluster.DraftGroup {
	for _, g := range every(d) {
		if g.Was == group {
			return g
		}
	}
	return nil
}

// mayRecover says whether a group can be made of a replica at a node, and notes what is known of the others.
func (r Reports) mayRecover(group uint32, from string, replica uint64, loss *Loss) error {
	n, answers := r[from]
	if l := r.Leader(group); l != nil {
		return refuse("group %d has a leader, so nothing of it is lost: replica %d leads it", group, l.Replica)
	}
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
	for node, n := range r {
		for i := range n.Groups {
			o := &n.Groups[i]
			if o.Group != group {
				continue
			}
			loss.Heard = append(loss.Heard, node)
			if slices.Contains(o.Voters, o.Replica) && (o.LastTerm > mine.LastTerm || o.LastTerm == mine.LastTerm && o.Last > mine.Last) {
				return refuse("the replica of group %d at node %q has more, up to entry %d of term %d, than that at node %q, entry %d of term %d: recover from %[2]s", group, node, o.Last, o.LastTerm, from, mine.Last, mine.LastTerm)
			}
		}
	}
	slices.Sort(loss.Heard)
	return r.noMajority(group)
}

// noMajority returns nil if no majority of a group answers, by whatever configuration: an older one may be the one in force.
func (r Reports) noMajority(group uint32) error {
	heard := map[uint64]bool{}
	for _, n := range r {
		for i := range n.Groups {
			if n.Groups[i].Group == group {
				heard[n.Groups[i].Replica] = true
			}
		}
	}
	for node, n := range r {
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
	return nil
}

// mayRecoverKept says whether a group that was made of another one, and is lost, can be made again, of what a node has kept of one before it; was is which one.
func (r Reports) mayRecoverKept(m *cluster.Map, g *cluster.DraftGroup, from string, loss *Loss) (was uint32, err error) {
	if l := r.Leader(g.ID); l != nil {
		return 0, refuse("group %d was made of group %d, and has a leader, so nothing of it is lost: replica %d leads it", g.ID, g.Was, l.Replica)
	}
	if err := r.noMajority(g.ID); err != nil {
		return 0, err
	}
	if _, answers := r[from]; !answers {
		return 0, refuse("node %q does not answer", from)
	}
	mine := r.kept(m, g, from)
	switch {
	case mine == nil:
		return 0, refuse("group %d was recovered before, as group %d, and node %q has kept nothing of it: %s have the new one", g.Was, g.ID, from, strings.Join(nodesOf(g), ", "))
	case !mine.Votes || mine.Last == 0:
		return 0, refuse("what node %q has kept of group %d is a replica without a vote, so it may lack what a majority had", from, mine.Group)
	}
	for node := range r {
		o := r.kept(m, g, node)
		if o == nil {
			continue
		}
		loss.Heard = append(loss.Heard, node)
		if p := g.At(node); p != nil {
			return 0, refuse("node %q answers, which is to make group %d of what it has of group %d: wait for it, or see its log", node, g.ID, o.Group)
		}
		if o.Votes && (o.Group > mine.Group || o.Group == mine.Group && (o.LastTerm > mine.LastTerm || o.LastTerm == mine.LastTerm && o.Last > mine.Last)) {
			return 0, refuse("node %q has kept more, up to entry %d of term %d of group %d, than node %q, entry %d of term %d of group %d: recover from %[1]s",
				node, o.Last, o.LastTerm, o.Group, from, mine.Last, mine.LastTerm, mine.Group)
		}
	}
	slices.Sort(loss.Heard)
	loss.Replica, loss.Last, loss.Since = mine.Replica, mine.Last, g.ID
	return mine.Group, nil
}

// kept is what a node has kept of a group before the one that has its shards by the map; nil: nothing.
func (r Reports) kept(m *cluster.Map, g *cluster.DraftGroup, node string) (best *KeptReport) {
	n := r[node]
	for i := range n.Kept {
		k := &n.Kept[i]
		if k.Group < g.Was || k.Group >= g.ID || k.at(m) != g.ID {
			continue
		}
		if best == nil || k.Group > best.Group {
			best = k
		}
	}
	return best
}

// at is the group that has the shard of what was kept, in its space; 0: none has.
func (k *KeptReport) at(m *cluster.Map) uint32 {
	r := m.Replication
	i := slices.IndexFunc(r.Spaces, func(s cluster.Space) bool { return s.ID == k.Space })
	switch {
	case int(k.Shard) >= len(r.Group):
		return 0
	case k.Space == 0:
		return r.Groups[r.Group[k.Shard]].ID
	case i < 0: // it was dropped
		return 0
	}
	return r.Spaces[i].Group(k.Shard).ID
}

// enough is how many replicas of a new group vote when nobody has to keep anything of the old one: so many lose nothing when one node is lost.
const enough = 3

// phases notes how far groups are that were made of others: what the nodes keep of the old ones depends on it.
func (w *walk) phases(s *meta.State) {
	for _, g := range every(w.d) {
		if g.Was == 0 || g.Phase == cluster.Settled {
			continue
		}
		l := w.r.Leader(g.ID)
		// Entry 1 is what it was made of. What comes behind it the new group alone has, durably.
		if l == nil || l.Shown < 2 || !w.r.settled(g.ID, 0, l.Replica, s.Map.Version) {
			continue
		}
		switch {
		case g.Phase == cluster.Begins:
			g.Phase = cluster.Stands
		case len(l.Voters) < enough || !w.shows(g.ID, l):
			continue
		default:
			g.Phase = cluster.Settled
		}
		w.changed, w.mapped = true, true
	}
}

// shows says whether a majority of a group's voters, and so many as are enough, have published a state of the new group at all: a voter that has just come has it from a snapshot.
func (w *walk) shows(group uint32, l *GroupReport) bool {
	have := 0
	for _, v := range l.Voters {
		if o, _ := w.r.of(group, v); o != nil && o.Shown >= l.Config {
			have++
		}
	}
	return have >= enough
}

// groupIDs names the groups with shards.
func groupIDs(s *meta.State) string {
	var ids []string
	for _, g := range every(s.Map.Draft())[1:] {
		ids = append(ids, fmt.Sprint(g.ID))
	}
	return strings.Join(ids, ", ")
}

// topGap is how many ids of replicas are left out in each group when the meta group is made anew: those that the lost replicas have given out behind what is known are below.
const topGap = 1 << 16

// RecoverMeta works out the map of the next generation, in which the meta group has one replica, at a node, and a random number, which is not 0. m is the newest map that is known, and r are reports of all nodes that answer, of now. What
// was under way is not: replicas that were to leave stay, because nobody remembers the task, and each group's leader goes by what the map says.
//
// ErrRequest: the meta group has a leader or a majority that answers, or the node has no replica of it that could be a beginning, or another one has more.
func RecoverMeta(m *cluster.Map, r Reports, from string, life uint64) (*cluster.Map, *Loss, error) {
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
	if !d.Gap() {
		return nil, nil, refuse("no numbers of groups are left")
	}
	for _, one := range every(d) {
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
	next.Replication.Lives = append(next.Replication.Lives, life)
	if err := next.Check(); err != nil {
		return nil, nil, refuse("%v", err)
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
