package seat

import (
	"slices"
	"testing"

	"github.com/rdmakv/rdmakv/internal/feature"
)

// withSpaces has every level allow spaces, while a test runs.
func withSpaces(t *testing.T) {
	asked := allows
	t.Cleanup(func() { allows = asked })
	allows = func(feature.Level, feature.Family, int) error { return nil }
}

// TestModelOfSpaces is TestModel with spaces that come and go meanwhile: no replica of a space's group is given up that votes, none begins a group twice, and in the end each is where the one is beside which it runs.
func TestModelOfSpaces(t *testing.T) {
	withSpaces(t)
	made := 0
	for i := range modelRuns() {
		w := newWorld(t, uint64(i), false)
		w.spaces = true
		for range 3 {
			for range 1200 {
				w.steps++
				w.chaos()
			}
			for _, h := range w.hosts {
				h.alive = true
			}
			w.cut = nil
			w.note("all are well")
			w.agree(Pause(w.s, false), nil, w.s)
			w.converge()
		}
		for _, r := range w.groups {
			if r.space && r.committed > 0 {
				made++
			}
		}
	}
	if made < modelRuns() {
		t.Errorf("%d groups of spaces have begun in %d clusters", made, modelRuns())
	}
}

// TestModelOfSpacesOfALoss: a node is lost for good, and replaced: spaces go to the one that takes its place, and it leaves the map. What a space has lost with it, because it had not come further, is dropped.
func TestModelOfSpacesOfALoss(t *testing.T) {
	withSpaces(t)
	kept := 0
	for i := range modelRuns() {
		w := newWorld(t, uint64(i), true)
		w.spaces = true
		for range 600 + w.rand.IntN(1200) {
			w.steps++
			w.chaos()
		}
		for _, h := range w.hosts {
			h.alive = true
		}
		w.cut = nil
		// As in TestModelOfALoss: what is under way goes on for a while, and then the one dies at any moment of it.
		w.agree(Pause(w.s, false), nil, w.s)
		for range w.rand.IntN(4) {
			w.calm()
		}
		for range w.rand.IntN(100) {
			w.steps++
			w.chaos()
		}
		w.cut = nil
		for n, h := range w.hosts {
			h.alive = n != w.victim
		}
		w.note("%s is lost", w.victim)
		for range 5 {
			w.calm()
		}
		w.agree(Pause(w.s, false), nil, w.s)
		for id := range w.s.NextTask() {
			if next, err := Cancel(w.s, id, w.now); err == nil {
				w.agree(next, nil, w.s)
			}
		}
		for _, s := range w.s.Map.Replication.Spaces {
			for j := range s.Groups {
				r := w.group(s.Groups[j].ID)
				if r.committed == 0 || r.short() {
					w.note("space %s is lost", s.Name)
					next, err := DropSpace(w.s, s.Name, s.ID)
					w.agree(next, err, w.s)
					break
				}
			}
		}
		if !w.s.Map.Has(w.victim) {
			continue
		}
		w.settle()
		w.names = append(w.names, "spare")
		w.hosts["spare"] = &host{alive: true}
		next, _, err := Plan(w.s, Request{Kind: "replace", Old: w.victim, Nodes: []Node{w.node("spare")}}, w.now)
		if err != nil {
			w.fault("%v", err)
		}
		w.agree(next, nil, w.s)
		if w.converge(); w.s.Map.Has(w.victim) {
			w.fault("node %s is in the cluster still", w.victim)
		}
		kept += len(w.s.Map.Replication.Spaces)
	}
	if kept < modelRuns()/4 {
		t.Errorf("%d spaces were there at the end of %d clusters", kept, modelRuns())
	}
	t.Logf("%d spaces were there at the end of %d clusters", kept, modelRuns())
}

// short says whether a replica that is there knows a configuration of which no majority is there. One may be behind with it for good, if the leader was lost by which it was to hear of the next one: then a group of two voters that was
// to become one of three has lost one of two.
func (r *raft) short() bool {
	return !slices.ContainsFunc(r.sorted(), func(m *member) bool { return r.alive(m.node) && len(m.config.Voters) > 0 }) || slices.ContainsFunc(r.sorted(), func(m *member) bool {
		there := 0
		for _, v := range m.config.Voters {
			if r.up(v.ID) != nil {
				there++
			}
		}
		return r.alive(m.node) && len(m.config.Voters) > 0 && there < m.config.Majority()
	})
}

// settle has tasks end, whether or not groups of spaces can go where they are to be: the node may be the one that is lost.
func (w *world) settle() {
	for range 400 {
		if w.steps++; w.over() {
			return
		}
		w.calm()
	}
	for i := range w.s.Tasks {
		if !w.s.Tasks[i].Over() {
			w.fault("task %+v does not end", w.s.Tasks[i])
		}
	}
}
