package nodes

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rdmakv/rdmakv/client/admin"
	"github.com/rdmakv/rdmakv/internal/cli"
	"github.com/rdmakv/rdmakv/internal/doctor"
)

// A plan is what a change comes to, before it begins: the task with its moves, and
// what will be different for each node. As JSON it is what --dry-run prints; names
// are never changed.
type plan struct {
	Task       *admin.ClusterTask `json:"task"` // id 0: it has not begun
	MapVersion uint64             `json:"map_version"`
	Paused     bool               `json:"paused"`
	Bytes      uint64             `json:"bytes"` // that the replicas which come have, about; 0: not known
	Nodes      []planNode         `json:"nodes"` // by id
	asked      admin.ChangeRequest
	unsure     bool // the size of some replicas is not known
}

// A planNode is one node of a plan. Replicas are counted with those of the meta group.
type planNode struct {
	ID       string `json:"id"`
	Weight   uint32 `json:"weight"`
	Zone     string `json:"zone,omitempty"`
	Replicas int    `json:"replicas"` // now
	Then     int    `json:"then"`
	Comes    int    `json:"comes"` // replicas that it gets
	Goes     int    `json:"goes"`  // that it gives away
	New      bool   `json:"new"`   // it comes into the cluster
	Leaves   bool   `json:"leaves"`
}

// newPlan puts a plan together from what was asked for, the cluster as it is, and
// what the cluster has answered.
func newPlan(r admin.ChangeRequest, info admin.ClusterInfo, answer admin.ClusterAnswer) *plan {
	task := *answer.Task
	task.Moves = append([]admin.ClusterMove{}, task.Moves...)
	p := &plan{Task: &task, MapVersion: answer.MapVersion, Paused: answer.Paused, Nodes: []planNode{}, asked: r}
	nodes := make(map[string]*planNode)
	at := func(id string) *planNode {
		if nodes[id] == nil {
			nodes[id] = &planNode{ID: id}
		}
		return nodes[id]
	}
	for _, n := range info.Nodes {
		if n.Weight > 0 {
			*at(n.ID) = planNode{ID: n.ID, Weight: n.Weight, Zone: n.Zone}
		}
	}
	groups := slices.Clone(info.Founders)
	if info.Meta != nil {
		groups = append(groups, *info.Meta)
	}
	for i := range groups {
		for _, o := range groups[i].Replicas {
			if !o.Leaves {
				at(o.Node).Replicas++
			}
		}
	}
	p.note(r, at)
	for _, m := range task.Moves {
		if m.From != "" {
			at(m.From).Goes++
		}
		if m.To != "" {
			at(m.To).Comes++
			p.Bytes += m.Bytes
			p.unsure = p.unsure || m.Bytes == 0
		}
	}
	for _, id := range slices.Sorted(maps.Keys(nodes)) {
		n := nodes[id]
		n.Then = n.Replicas + n.Comes - n.Goes
		p.Nodes = append(p.Nodes, *n)
	}
	return p
}

// note notes which nodes come and go.
func (p *plan) note(r admin.ChangeRequest, at func(string) *planNode) {
	switch r.Kind {
	case admin.RemoveNodes:
		for _, n := range r.Nodes {
			at(n.ID).Leaves = true
		}
	case admin.ReplaceNode:
		at(r.Old).Leaves = true
		fallthrough
	case admin.AddNodes:
		for _, n := range r.Nodes {
			is := at(n.ID)
			if is.Weight != 0 {
				continue // it has come already
			}
			is.New, is.Weight, is.Zone = true, n.Weight, n.Zone
			if r.Kind == admin.ReplaceNode {
				is.Weight, is.Zone = cmp.Or(n.Weight, at(r.Old).Weight), cmp.Or(n.Zone, at(r.Old).Zone)
			}
			is.Weight = max(is.Weight, 1)
		}
	}
}

// runs says whether a task does what was asked for, or has done it.
func (p *plan) runs() bool { return p.Task.ID != 0 }

// changed says whether nodes come or go.
func (p *plan) changed() bool {
	return slices.ContainsFunc(p.Nodes, func(n planNode) bool { return n.New || n.Leaves })
}

// idle says that all is as was asked for. A node that was to come may lack the map even
// so, if an earlier run was cut short.
func (p *plan) idle() bool {
	return !p.runs() && len(p.Task.Moves) == 0 && !p.changed() && len(p.asked.Nodes) == 0
}

// asks says whether a person is asked: not about what runs already, nor about nothing.
func (p *plan) asks() bool { return !p.runs() && (len(p.Task.Moves) > 0 || p.changed()) }

// text is the plan for people.
func (p *plan) text() string {
	what := doctor.OneLine(p.Task.What)
	if p.runs() && p.Task.State == "done" {
		return fmt.Sprintf("task %d (%s) has done that: nothing is left to do\n", p.Task.ID, what)
	}
	if p.runs() {
		return fmt.Sprintf("task %d (%s) runs already: %s\n", p.Task.ID, what, progressText(p.Task))
	}
	if len(p.Task.Moves) == 0 {
		line := fmt.Sprintf("%s: no replica has to move\n", what)
		if !p.changed() {
			return line
		}
		return line + "\n" + p.table()
	}
	size := ""
	switch {
	case p.Bytes > 0 && p.unsure:
		size = fmt.Sprintf(", %s or more", cli.Bytes(int64(min(p.Bytes, 1<<62))))
	case p.Bytes > 0:
		size = fmt.Sprintf(", about %s", cli.Bytes(int64(min(p.Bytes, 1<<62))))
	}
	line := fmt.Sprintf("%s: %s, of %s%s\n", what, count(len(p.Task.Moves), "replica moves", "replicas move"), groupsOf(p.Task.Moves), size)
	if p.Paused {
		line += "moves are paused: none begins before kvclient cluster resume\n"
	}
	return line + "\n" + p.table()
}

// table has a line for each node.
func (p *plan) table() string {
	zones := slices.ContainsFunc(p.Nodes, func(n planNode) bool { return n.Zone != "" })
	row := func(zone string, cells ...string) string {
		if zones {
			cells = slices.Insert(cells, 2, cmp.Or(doctor.OneLine(zone), "-"))
		}
		return strings.Join(cells, "\t") + "\n"
	}
	lines := []string{row("zone", "node", "weight", "replicas", "then", "comes", "goes", "")}
	for _, n := range p.Nodes {
		note := ""
		switch {
		case n.New:
			note = "new"
		case n.Leaves:
			note = "leaves the cluster"
		}
		lines = append(lines, row(n.Zone, doctor.OneLine(n.ID), fmt.Sprint(n.Weight), fmt.Sprint(n.Replicas), fmt.Sprint(n.Then), fmt.Sprint(n.Comes), fmt.Sprint(n.Goes), note))
	}
	return cli.Table(lines)
}

// groupsOf names the groups of moves.
func groupsOf(moves []admin.ClusterMove) string {
	ids, meta := []uint32{}, false
	for _, m := range moves {
		if m.Group == 0 {
			meta = true
		} else {
			ids = append(ids, m.Group)
		}
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	text := ""
	switch {
	case len(ids) == 1:
		text = fmt.Sprintf("group %d", ids[0])
	case len(ids) > 1:
		text = fmt.Sprintf("%d groups", len(ids))
	}
	switch {
	case meta && text != "":
		return text + " and the meta group"
	case meta:
		return "the meta group"
	}
	return text
}

// count writes a number with the form of a word for one or for several.
func count(n int, one, several string) string {
	if n == 1 {
		return "1 " + one
	}
	return cli.Thousands(int64(n)) + " " + several
}
