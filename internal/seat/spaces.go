package seat

import (
	"slices"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/feature"
	"github.com/rdmakv/rdmakv/internal/meta"
)

// Spaces of tenants. Tasks move the node's own groups, and know nothing of spaces: a group of a space goes to the nodes of the group beside which it runs (cluster.Replication.Beside), once that is at rest. What is left to do for that
// stands in the map alone, as who is there and who leaves, so whoever is the seat works it out anew. A space whose tenant a node does not have yet waits, and nothing waits for it but the
// removal of a node that has a replica of it.

// allows says which forms of a shard map may be written at which level.
var allows = feature.Allows

// CreateSpace works out the state with a space more, of so many groups (0: cluster.GroupsOfSpace, or one for each shard if there are fewer). If there is one that was asked for in the same words next is s.
//
// ErrRequest; feature.ErrNeeds: the cluster's level does not allow spaces yet.
func CreateSpace(s *meta.State, name string, groups int, memory uint64) (next *meta.State, err error) {
	if err := cluster.CheckSpaceName(name); err != nil {
		return nil, refuse("%v", err)
	}
	if groups == 0 {
		groups = min(cluster.GroupsOfSpace, len(s.Map.Owner))
	}
	if groups < 1 || groups > min(cluster.MaxGroups, len(s.Map.Owner)) {
		return nil, refuse("%d groups of a space: 1 to %d are possible", groups, min(cluster.MaxGroups, len(s.Map.Owner)))
	}
	d := s.Map.Draft()
	if is := d.Space(name); is != nil {
		if len(is.Groups) == groups && is.Memory == memory {
			return s, nil
		}
		return nil, refuse("there is a space %q, with %d groups and %d bytes of memory: drop it first (kvclient cluster space drop %s), which takes its keys away", name, len(is.Groups), is.Memory, name)
	}
	if d.AddSpace(s.Map, name, groups, memory) == nil {
		return nil, refuse("no numbers of groups are left")
	}
	next = s.Clone()
	if next.Map, err = d.Map(s.Map); err != nil {
		return nil, refuse("%v", err)
	}
	if err := allows(s.Level, feature.ShardMap, next.Map.Form()); err != nil {
		return nil, err
	}
	return next, nil
}

// DropSpace works out the state without a space, of which the caller has seen the number, so that a request that is made again does not drop another one that was made under the name since. If the space is gone next is s.
//
// ErrRequest: there never was such a space, or the name is another one's.
func DropSpace(s *meta.State, name string, number uint32) (next *meta.State, err error) {
	d := s.Map.Draft()
	switch is := d.Space(name); {
	case is == nil && (number == 0 || number > d.Last):
		return nil, refuse("there is no space %q", name)
	case is == nil:
		return s, nil
	case is.ID != number:
		return nil, refuse("space %q has number %d, and not %d: it was made again meanwhile", name, is.ID, number)
	}
	d.DropSpace(name)
	next = s.Clone()
	if next.Map, err = d.Map(s.Map); err != nil {
		return nil, refuse("%v", err)
	}
	return next, nil
}

// every are all groups of a draft, those of spaces behind the node's own.
func every(d *cluster.Draft) (list []*cluster.DraftGroup) {
	for i := range d.Groups {
		list = append(list, &d.Groups[i])
	}
	for i := range d.Spaces {
		for j := range d.Spaces[i].Groups {
			list = append(list, &d.Spaces[i].Groups[j])
		}
	}
	return list
}

// spaces brings the groups of spaces a step nearer to the nodes at which they are to be.
func (w *walk) spaces() {
	for i := range w.d.Spaces {
		space := &w.d.Spaces[i]
		for position := range space.Groups {
			if w.beside(space, position) {
				w.changed, w.mapped = true, true
			}
		}
	}
}

// beside does the next step of one group of a space, and says whether there was one:
//
//	a replica that leaves, at a node that is to have one again   stays
//	a replica that leaves, once all others vote without it       is out (R24: settled)
//	a replica at a node that is to have none, without a vote     leaves
//	one that is missing, and one that is too many                comes, and leaves, at once, as in a move of a task; one such in a group
//	the replica at the node of the preferred leader              is the first one
//
// The group beside which it runs is at rest then, so that nothing has to be taken back that a task that was canceled takes back.
func (w *walk) beside(space *cluster.DraftSpace, position int) bool {
	g, beside := &space.Groups[position], w.d.Beside(w.s.Map, position)
	moves := func(t meta.Task) bool {
		return slices.ContainsFunc(t.Moves, func(m meta.Move) bool { return m.Group == beside.ID && m.Running() })
	}
	lead := w.r.Leader(g.ID)
	if lead == nil || slices.ContainsFunc(w.s.Tasks, moves) {
		return false
	}
	var wanted []string
	for _, p := range beside.Replicas {
		if !p.Leaves {
			wanted = append(wanted, p.Node)
		}
	}
	for i := range g.Replicas {
		if p := &g.Replicas[i]; p.Leaves && slices.Contains(wanted, p.Node) {
			p.Leaves = false
			return true
		}
	}
	for _, p := range g.Replicas {
		if p.Leaves && w.without(g, p.ID) {
			g.Take(p.ID, 0)
			return true
		}
	}
	extra := w.extra(g, wanted)
	for _, p := range extra {
		if !slices.Contains(lead.Voters, p.ID) && staying(g) > 1 {
			p.Leaves = true
			return true
		}
	}
	if staying(g) < len(g.Replicas) {
		return false
	}
	move := meta.Move{Group: g.ID}
	if i := slices.IndexFunc(wanted, func(n string) bool { return g.At(n) == nil }); i >= 0 {
		move.To = wanted[i]
	}
	if len(extra) > 0 && (move.To != "" || w.mayShrink(beside, extra[0].Node)) {
		move.From = extra[0].Node
	}
	if move.From == "" && move.To == "" {
		return first(g, wanted)
	}
	if w.crowded(space, &move) || unfit(w.d, w.r, &move) != "" {
		return false
	}
	if move.From != "" {
		g.At(move.From).Leaves = true
	}
	if move.To != "" {
		g.Add(move.To)
	}
	return true
}

// staying is how many replicas of a group do not leave.
func staying(g *cluster.DraftGroup) (n int) {
	for _, p := range g.Replicas {
		if !p.Leaves {
			n++
		}
	}
	return n
}

// without says whether a replica that leaves may be given up: all that stay vote, and it is out.
func (w *walk) without(g *cluster.DraftGroup, gone uint64) bool {
	return !slices.ContainsFunc(g.Replicas, func(p cluster.DraftReplica) bool {
		return !p.Leaves && !w.r.settled(g.ID, gone, p.ID, w.s.Map.Version)
	})
}

// extra are the replicas that stay at nodes which are to have none, those first whose nodes a task takes out of the cluster.
func (w *walk) extra(g *cluster.DraftGroup, wanted []string) (list []*cluster.DraftReplica) {
	for i := range g.Replicas {
		switch p := &g.Replicas[i]; {
		case p.Leaves || slices.Contains(wanted, p.Node):
		case w.goes(p.Node):
			list = slices.Insert(list, 0, p)
		default:
			list = append(list, p)
		}
	}
	return list
}

// goes says whether a task that runs takes a node out of the cluster.
func (w *walk) goes(node string) bool {
	return slices.ContainsFunc(w.s.Tasks, func(t meta.Task) bool { return !t.Over() && slices.Contains(leaving(&t), node) })
}

// leaving are the nodes that a task takes out of the map at its end.
func leaving(t *meta.Task) []string {
	switch {
	case t.State == meta.Canceling:
	case t.Kind == meta.Remove:
		return t.Nodes
	case t.Kind == meta.Replace:
		return t.Nodes[:1]
	}
	return nil
}

// mayShrink says whether a group of a space may have a replica less, at a node: the group beside it was lost, and is at one node until others have it, and what that has lost the space need not lose.
func (w *walk) mayShrink(beside *cluster.DraftGroup, node string) bool {
	return beside.Was == 0 || beside.Phase == cluster.Settled || w.goes(node)
}

// crowded says whether so much is under way that a move of a space's group waits: of tasks, and of the same space. Other spaces do not count, so that none waits for another tenant.
func (w *walk) crowded(space *cluster.DraftSpace, m *meta.Move) bool {
	if w.s.Paused {
		return true
	}
	moves := running(w.s)
	for i := range space.Groups {
		g := &space.Groups[i]
		var from, to string
		for _, p := range g.Replicas {
			switch lead := w.r.Leader(g.ID); {
			case p.Leaves:
				from = p.Node
			case lead != nil && !slices.Contains(lead.Voters, p.ID):
				to = p.Node
			}
		}
		if from != "" || to != "" {
			moves = append(moves, meta.Move{Group: g.ID, From: from, To: to})
		}
	}
	return w.l.full(moves, m) != ""
}

// first has the replica at the first of some nodes be the first one of a group; false: it is.
func first(g *cluster.DraftGroup, nodes []string) bool {
	i := slices.IndexFunc(g.Replicas, func(p cluster.DraftReplica) bool { return p.Node == nodes[0] })
	if i <= 0 {
		return false
	}
	p := g.Replicas[i]
	g.Replicas = slices.Insert(slices.Delete(g.Replicas, i, i+1), 0, p)
	return true
}
