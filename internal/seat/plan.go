package seat

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/meta"
)

// A Request is what an operator asks for.
type Request struct {
	Kind     meta.Kind
	Nodes    []Node // Add: those that come. Replace: the one that comes. Remove: those that go
	Old      string // Replace: the one that goes
	Replicas int    // Replicas: how many
}

// A Node is a node as a request names it. Of Remove only its id counts.
type Node struct {
	ID     string
	Weight uint32
	Store  [16]byte
	Zone   string
}

// Errors of Plan, wrapped with what they are about.
var (
	// ErrRequest: the request makes no sense for this cluster.
	ErrRequest = errors.New("cluster: not possible")
	// ErrBusy: another task has to end first.
	ErrBusy = errors.New("cluster: another task is under way")
)

func refuse(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrRequest, fmt.Sprintf(format, args...))
}

// Plan works out the task that a request comes to, and the state with it. A request that a task does which runs comes to that task, so that it may be made again, and so does one to add nodes
// that a task has added before, if nothing has to move: next is s then. One to add nodes that have their share, and that no task which is known has added, is refused; any other one that is fulfilled comes to a task
// without moves. now is milliseconds since 1970.
//
// ErrRequest, ErrBusy.
func Plan(s *meta.State, r Request, now int64) (next *meta.State, task *meta.Task, err error) {
	if err := r.check(s); err != nil {
		return nil, nil, err
	}
	for i := range s.Tasks {
		switch t := &s.Tasks[i]; {
		case t.Over():
		case r.is(t):
			return s, t, nil
		default:
			return nil, nil, fmt.Errorf("%w: task %d (%s); wait for it (kvclient cluster tasks --watch), or, if it waits for a node that does not come back, cancel it first (kvclient cluster cancel %d)", ErrBusy, t.ID, Describe(t), t.ID)
		}
	}
	d := s.Map.Draft()
	t := meta.Task{ID: s.NextTask(), Kind: r.Kind, Nodes: r.ids(), Replicas: r.Replicas, State: meta.Runs, Began: now, Moves: []meta.Move{}}
	known := true
	for _, n := range r.Nodes {
		if _, ok := d.Nodes[n.ID]; !ok && r.Kind != meta.Remove {
			known = false
			d.Nodes[n.ID] = cluster.DraftNode{Weight: max(1, n.Weight), Store: n.Store, Zone: n.Zone}
		}
	}
	switch r.Kind {
	case meta.Add, meta.Rebalance:
		t.Moves = rebalance(newPlacing(d))
	case meta.Remove:
		t.Moves, err = remove(d, r.ids())
	case meta.Replace:
		t.Moves, err = replace(d, r.Old, r.Nodes[0].ID)
	case meta.Replicas:
		t.Moves, err = replicas(newPlacing(d), r.Replicas)
	}
	if err != nil {
		return nil, nil, err
	}
	if r.Kind == meta.Add && known && len(t.Moves) == 0 {
		if done := r.doneBy(s); done != nil {
			return s, done, nil
		}
		return nil, nil, refuse("%s in the cluster already, with all that it is to have: nothing is to be done", areOf(r.ids()))
	}
	next = s.Clone()
	if !known {
		if next.Map, err = d.Map(s.Map); err != nil {
			return nil, nil, refuse("%v", err)
		}
	}
	if !next.AddTask(t) {
		return nil, nil, fmt.Errorf("%w: %d tasks", ErrBusy, meta.MaxTasks)
	}
	return next, &next.Tasks[len(next.Tasks)-1], nil
}

// ids are the nodes of the task.
func (r *Request) ids() (list []string) {
	if r.Kind == meta.Replace {
		list = append(list, r.Old)
	}
	for _, n := range r.Nodes {
		list = append(list, n.ID)
	}
	return list
}

// is says whether a task does what the request asks for.
func (r *Request) is(t *meta.Task) bool {
	return t.State == meta.Runs && t.Kind == r.Kind && t.Replicas == r.Replicas && slices.Equal(t.Nodes, r.ids())
}

// doneBy is the newest task that has done what the request asks for; nil: none is known.
func (r *Request) doneBy(s *meta.State) *meta.Task {
	for i := len(s.Tasks) - 1; i >= 0; i-- {
		if t := &s.Tasks[i]; t.State == meta.Done && t.Kind == r.Kind && slices.Equal(t.Nodes, r.ids()) {
			return t
		}
	}
	return nil
}

// areOf begins a sentence about nodes.
func areOf(ids []string) string {
	if len(ids) == 1 {
		return fmt.Sprintf("node %q is", ids[0])
	}
	return fmt.Sprintf("nodes %s are each", strings.Join(ids, ", "))
}

// check holds a request to what makes sense for a map, and for the tasks before it.
func (r *Request) check(s *meta.State) error {
	m := s.Map
	if m.Replication == nil || m.Replication.Meta == nil {
		return refuse("this cluster has no meta group, so its map cannot be changed: an older version has made it")
	}
	seen := map[string]bool{}
	for _, n := range r.Nodes {
		if err := cluster.CheckNodeID(n.ID); err != nil {
			return refuse("%v", err)
		}
		if seen[n.ID] {
			return refuse("node %q is named twice", n.ID)
		}
		seen[n.ID] = true
		is, has := m.StoreOf(n.ID)
		switch {
		case r.Kind == meta.Remove && !has:
			return unknown(s, n.ID)
		case r.Kind == meta.Remove:
		case has && is != n.Store:
			return refuse("node %q is in the cluster, with another data directory: it must come back with its old one, or under another id take its own place (kvclient cluster replace %s NEW)", n.ID, n.ID)
		case n.Store == [16]byte{}:
			return refuse("node %q has no store", n.ID)
		case n.Weight > cluster.MaxWeight:
			return refuse("node %q has weight %d, 1 to %d are possible", n.ID, n.Weight, cluster.MaxWeight)
		case has:
			if err := r.differs(m, &n); err != nil {
				return err
			}
		}
	}
	switch r.Kind {
	case meta.Add:
		if len(r.Nodes) == 0 || r.Old != "" || r.Replicas != 0 {
			return refuse("adding names the nodes that come, and nothing else")
		}
	case meta.Remove:
		if len(r.Nodes) == 0 || r.Old != "" || r.Replicas != 0 {
			return refuse("removing names the nodes that go, and nothing else")
		}
	case meta.Replace:
		if len(r.Nodes) != 1 || r.Replicas != 0 {
			return refuse("a node and the one that takes its place are needed")
		}
		if !m.Has(r.Old) {
			return unknown(s, r.Old)
		}
		if seen[r.Old] {
			return refuse("node %q cannot take its own place", r.Old)
		}
	case meta.Rebalance:
		if len(r.Nodes) != 0 || r.Old != "" || r.Replicas != 0 {
			return refuse("rebalance names no nodes, and no number")
		}
	case meta.Replicas:
		if len(r.Nodes) != 0 || r.Old != "" {
			return refuse("the number of replicas names no nodes")
		}
		if n := r.Replicas; n < 1 || n > cluster.MaxReplicas || n%2 == 0 {
			return refuse("%d replicas: 1, 3, 5 or 7 are possible, because an even number bears no more losses than one less", n)
		}
	default:
		return refuse("%q is no kind of task", r.Kind)
	}
	return nil
}

// differs refuses another weight or zone for a node that is in the cluster: nothing would come of them, and the task would be done. What a request leaves open is well.
func (r *Request) differs(m *cluster.Map, n *Node) error {
	is := m.Draft().Nodes[n.ID]
	if n.Weight != 0 && n.Weight != is.Weight {
		return refuse("node %q is in the cluster with weight %d, and keeps it: remove it, and add it again with weight %d", n.ID, is.Weight, n.Weight)
	}
	if n.Zone != "" && n.Zone != is.Zone {
		zone := "without a zone"
		if is.Zone != "" {
			zone = fmt.Sprintf("in zone %q", is.Zone)
		}
		return refuse("node %q is in the cluster %s, and stays so: remove it, and add it again in zone %q", n.ID, zone, n.Zone)
	}
	return nil
}

// unknown refuses a node that is not in the cluster. If a task that is known has taken it out, the text says so: then the command was given again, and no name is wrong.
func unknown(s *meta.State, id string) error {
	for i := len(s.Tasks) - 1; i >= 0; i-- {
		t := &s.Tasks[i]
		goes := t.Kind == meta.Remove && slices.Contains(t.Nodes, id) || t.Kind == meta.Replace && len(t.Nodes) > 0 && t.Nodes[0] == id
		if goes && t.State == meta.Done {
			return refuse("node %q is not in the cluster any more: task %d (%s) has taken it out", id, t.ID, Describe(t))
		}
	}
	return refuse("node %q is not in the cluster: %s are", id, strings.Join(ids(s.Map), ", "))
}

func ids(m *cluster.Map) (list []string) {
	for _, n := range m.Nodes {
		list = append(list, n.ID)
	}
	return list
}

// goes notes a move in the placing and in the list.
func (p *placing) goes(list []meta.Move, g *cluster.DraftGroup, from, to string) []meta.Move {
	p.move(g, from, to)
	// A replica that was to go somewhere, and now goes on from there, goes to the last place at once.
	for i := range list {
		if m := &list[i]; m.Group == g.ID && m.To == from && from != "" {
			if m.To = to; m.From == m.To {
				return slices.Delete(list, i, i+1)
			}
			return list
		}
	}
	return append(list, meta.Move{Group: g.ID, From: from, To: to, State: meta.Waits})
}

// rebalance brings every node to its share, groups into as many zones as they can be in, and the meta group to its size.
func rebalance(p *placing) []meta.Move {
	list := p.sizeMeta([]meta.Move{})
	for i := range p.groups {
		g := &p.groups[i]
		for from, to := p.spread(g); to != ""; from, to = p.spread(g) { // fewer pairs of replicas are in one zone each time
			list = p.goes(list, g, from, to)
		}
	}
	return p.evenOut(list)
}

// evenOut brings the nodes to their shares.
func (p *placing) evenOut(list []meta.Move) []meta.Move {
	for {
		hops := p.even()
		if len(hops) == 0 {
			// No single one can go. Those of a chain do together, and bring one node nearer to its share.
			if hops = p.chain(); len(hops) == 0 {
				return list
			}
			for _, h := range hops {
				list = p.goes(list, h.g, h.from, h.to)
			}
			continue
		}
		for i := range hops { // the first one is as it was, so this ends
			if h := &hops[i]; p.still(h) {
				list = p.goes(list, h.g, h.from, h.to)
			}
		}
	}
}

// sizeMeta gives the meta group as many replicas as its nodes are worth.
func (p *placing) sizeMeta(list []meta.Move) []meta.Move {
	g := &p.groups[0]
	for want := cluster.MetaReplicas(len(p.nodes)); len(g.Replicas) != want; {
		if len(g.Replicas) > want {
			list = p.goes(list, g, p.least(g), "")
			continue
		}
		to := p.best(g, "")
		if to == "" {
			break
		}
		list = p.goes(list, g, "", to)
	}
	return list
}

// remove gives what nodes have to the others.
func remove(d *cluster.Draft, gone []string) ([]meta.Move, error) {
	p := newPlacing(d, gone...)
	if len(p.nodes) == 0 {
		return nil, refuse("no node would be left")
	}
	list := []meta.Move{}
	for i := range p.groups {
		g := &p.groups[i]
		for _, r := range slices.Clone(g.Replicas) {
			if !slices.Contains(gone, r.Node) {
				continue
			}
			to := p.best(g, r.Node)
			if to == "" && g.ID != 0 {
				return nil, refuse("group %d has %d replicas, and %d nodes would be left: each replica needs a node of its own (kvclient cluster replace has another node take the place, kvclient cluster replicas makes them fewer)", g.ID, len(g.Replicas), len(p.nodes))
			}
			list = p.goes(list, g, r.Node, to)
		}
	}
	return p.evenOut(p.sizeMeta(list)), nil // what was given to the next best may have to be evened out
}

// replace gives what a node has to another one. Where that has a replica already, a third node gets the one that is left over, if there is one.
func replace(d *cluster.Draft, old, fresh string) (list []meta.Move, err error) {
	p := newPlacing(d, old)
	list = []meta.Move{}
	for i := range p.groups {
		g := &p.groups[i]
		switch {
		case g.At(old) == nil:
		case g.At(fresh) == nil:
			list = p.goes(list, g, old, fresh)
		default:
			to := p.best(g, old)
			if to == "" && g.ID != 0 {
				return nil, refuse("group %d has a replica at every other node, %s among them: nothing can take that of %s", g.ID, fresh, old)
			}
			list = p.goes(list, g, old, to)
		}
	}
	return p.sizeMeta(list), nil
}

// replicas gives each group so many replicas.
func replicas(p *placing, want int) ([]meta.Move, error) {
	if len(p.nodes) < want {
		return nil, refuse("%d replicas on %d nodes: each replica of a group is on a node of its own; add nodes first", want, len(p.nodes))
	}
	p.share = shares(p.nodes, want*(len(p.groups)-1), len(p.groups)-1, p.has)
	list := []meta.Move{}
	for i := range p.groups[1:] {
		g := &p.groups[1+i]
		for len(g.Replicas) < want {
			list = p.goes(list, g, "", p.best(g, ""))
		}
		for len(g.Replicas) > want {
			list = p.goes(list, g, p.least(g), "")
		}
	}
	return p.evenOut(list), nil
}

// Describe says what a task does, in words that follow its number.
func Describe(t *meta.Task) string {
	switch t.Kind {
	case meta.Replace:
		if len(t.Nodes) == 2 {
			return fmt.Sprintf("replace %s by %s", t.Nodes[0], t.Nodes[1])
		}
	case meta.Replicas:
		return fmt.Sprintf("%d replicas", t.Replicas)
	case meta.Rebalance:
		return "rebalance"
	}
	return string(t.Kind) + " " + strings.Join(t.Nodes, " ")
}

// Millis is a time as tasks have it.
func Millis(t time.Time) int64 { return t.UnixMilli() }
