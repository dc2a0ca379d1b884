package meta

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/rdmakv/rdmakv/internal/cluster"
)

// TestCheck: a state with one thing broken is none, and the error says which.
func TestCheck(t *testing.T) {
	for want, f := range map[string]func(s *State){
		"version 0": func(s *State) { s.Version = 0 },
		"a shard map without a meta group": func(s *State) {
			m, r := *s.Map, *s.Map.Replication
			r.Meta, r.Zones, r.Groups = nil, nil, nil
			for _, g := range s.Map.Replication.Groups {
				g.Top = 0
				g.Replicas = unmarked(g.Replicas)
				r.Groups = append(r.Groups, g)
			}
			m.Replication, s.Map = &r, &m
		},
		"65 tasks": func(s *State) {
			for len(s.Tasks) <= MaxTasks {
				s.Tasks = append(s.Tasks, Task{ID: s.NextTask(), Kind: Rebalance, State: Done})
			}
		},
		"task 0 stands behind":                     func(s *State) { s.Tasks[0].ID = 0 },
		"task 3 stands behind":                     func(s *State) { s.Tasks[1].ID = 3 },
		"task 2 stands behind":                     func(s *State) { s.Tasks[1].ID = 2 },
		"of kind \"grow\"":                         func(s *State) { s.Tasks[1].Kind = "grow" },
		"of kind \"\"":                             func(s *State) { s.Tasks[1].Kind = "" },
		"has state \"paused\"":                     func(s *State) { s.Tasks[1].State = "paused" },
		"a move of task 4 has state \"rests\"":     func(s *State) { s.Tasks[1].Moves[0].State = "rests" },
		fmt.Sprint("has ", MaxMoves+1, " moves"):   func(s *State) { s.Tasks[1].Moves = make([]Move, MaxMoves+1) },
		fmt.Sprint(cluster.MaxNodes+1, " nodes"):   func(s *State) { s.Tasks[1].Nodes = make([]string, cluster.MaxNodes+1) },
		"task 3: cluster: malformed":               func(s *State) { s.Tasks[0].Nodes[0] = "A" },
		"node id \"b!\"":                           func(s *State) { s.Tasks[1].Moves[1].From = "b!" },
		"node id \"c!\"":                           func(s *State) { s.Tasks[1].Moves[1].To = "c!" },
		"goes from \"\" to \"\"":                   func(s *State) { s.Tasks[1].Moves[1] = Move{State: Waits} },
		"goes from \"a1\" to \"a1\"":               func(s *State) { s.Tasks[1].Moves[1].To = "a1" },
		"task 3 is over, and a move of it is not":  func(s *State) { s.Tasks[0].Moves[0].State = Waits },
		"task 4 is over, and a move of it is not":  func(s *State) { s.Tasks[1].State = Done },
		"a move of task 4 has begun without an id": func(s *State) { s.Tasks[1].Moves[0].FromID = 0 },
		"of task 4 has begun without an id":        func(s *State) { s.Tasks[1].Moves[0].ToID = 0 },
		"a move of task 4 has begun without an":    func(s *State) { s.Tasks[1].Moves[1].State = Undoes },
		"has begun without an id":                  func(s *State) { s.Tasks[1].Moves[0].From = "" },
		"tasks 4 and 4 move group 1 at once":       func(s *State) { s.Tasks[1].Moves = append(s.Tasks[1].Moves, s.Tasks[1].Moves[0]) },
		"tasks 4 and 5 move group 1 at once": func(s *State) {
			more := s.Tasks[1]
			more.ID = 5
			s.Tasks = append(s.Tasks, more)
		},
	} {
		s := sample(t)
		if err := s.check(); err != nil {
			t.Fatal(err)
		}
		f(s)
		_, err := Parse(s.Encode())
		if !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error with %q, got %v", want, err)
		}
		if strings.Contains(fmt.Sprint(err), "\n") {
			t.Errorf("more than one line: %v", err)
		}
	}
	for name, f := range map[string]func(s *State){
		"every kind":      func(s *State) { s.Tasks[1].Kind = Replicas },
		"a replica more":  func(s *State) { s.Tasks[1].Moves[1].From = "" },
		"a replica less":  func(s *State) { s.Tasks[1].Moves[1].To = "" },
		"no tasks":        func(s *State) { s.Tasks = nil },
		"being canceled":  func(s *State) { s.Tasks[1].State, s.Tasks[1].Moves[0].State = Canceling, Undoes },
		"the group later": func(s *State) { s.Tasks[1].Moves[1].Group = 1 },
	} {
		s := sample(t)
		f(s)
		if _, err := Parse(s.Encode()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// unmarked takes out of replicas what only a map with a meta group has.
func unmarked(list []cluster.Replica) (out []cluster.Replica) {
	for _, p := range list {
		p.Leaves = false
		out = append(out, p)
	}
	return out
}

// TestFollows: a state that breaks one rule of what may follow is refused by Apply, and the error says which.
func TestFollows(t *testing.T) {
	// In the sample group 1 has replica 1 at from, on its way out, and replica 4 at to.
	for want, f := range map[string]func(s, n *State){
		"version 4 behind 2":    func(_, n *State) { n.Version++ },
		"version 2 behind 2":    func(_, n *State) { n.Version-- },
		"the ids of tasks fall": func(_, n *State) { n.Tasks = n.Tasks[:1] },
		"ids of tasks fall":     func(_, n *State) { n.Tasks = nil },
		"two shard maps of version 2": func(s, n *State) {
			n.Map = redraw(t, s.Map, func(d *cluster.Draft) { d.Group(1).Take(1, 4) })
			n.Map.Version--
		},
		"shard map version 4 behind 2": func(s, n *State) {
			n.Map = redraw(t, redraw(t, s.Map, func(*cluster.Draft) {}), func(*cluster.Draft) {})
		},
		"shard map version 1 behind 2": func(s, n *State) {
			n.Map = redraw(t, s.Map, func(*cluster.Draft) {})
			n.Map.Version = 1
		},
		"belongs to": func(s, n *State) {
			n.Map = redraw(t, s.Map, func(*cluster.Draft) {})
			n.Map.Name = "other"
		},
		"ids up to 3 behind 4": func(s, n *State) {
			n.Map = redraw(t, s.Map, func(d *cluster.Draft) { d.Group(1).Take(4, 0); d.Group(1).Top = 3 })
		},
		"replica 3 of group 1 has an id that was given before": func(s, n *State) {
			s.Map = redraw(t, s.Map, func(d *cluster.Draft) { d.Group(1).Take(3, 0) })
			n.Map = redraw(t, s.Map, func(d *cluster.Draft) {
				g := d.Group(1)
				g.Replicas = append(g.Replicas, cluster.DraftReplica{Node: gap(d), ID: 3})
			})
		},
		"it needs another id there": func(s, n *State) {
			n.Map = redraw(t, s.Map, func(d *cluster.Draft) {
				g := d.Group(1)
				g.Take(1, 0)
				g.Replica(4).Node = from(Begin(firstMap(t, 4)))
			})
		},
		"replica 2 of group 1 is gone, and was not on its way out": func(s, n *State) {
			n.Map = redraw(t, s.Map, func(d *cluster.Draft) { d.Group(1).Take(2, 0) })
		},
		"in the place of group 1, begins with 2 replicas": func(s, n *State) {
			n.Map = redraw(t, s.Map, func(d *cluster.Draft) {
				g := d.Group(d.Recover(1, d.Group(1).Replicas[0].Node, 1))
				g.Add(gapOf(d, g.ID))
			})
		},
		"in the place of group 1, begins with 1 replicas, up to id 2": func(s, n *State) {
			n.Map = redraw(t, s.Map, func(d *cluster.Draft) { d.Group(d.Recover(1, d.Group(1).Replicas[0].Node, 1)).Top++ })
		},
		"and not with the one of a node that has one": func(s, n *State) {
			n.Map = redraw(t, s.Map, func(d *cluster.Draft) {
				away := gapOf(d, 2)
				d.Group(d.Recover(2, d.Group(2).Replicas[0].Node, 2)).Replicas[0].Node = away
			})
		},
		"is the 3. behind the 0.": func(s, n *State) {
			n.Map = redraw(t, s.Map, func(d *cluster.Draft) { d.Group(d.Recover(1, d.Group(1).Replicas[0].Node, 1)).Times = 3 })
		},
		"and in phase 1 at its beginning": func(s, n *State) {
			n.Map = redraw(t, s.Map, func(d *cluster.Draft) { d.Group(d.Recover(1, d.Group(1).Replicas[0].Node, 1)).Phase = cluster.Stands })
		},
		"replica 4 of group 1 is gone, and was": func(s, n *State) {
			n.Map = redraw(t, s.Map, func(d *cluster.Draft) { d.Group(1).Take(4, 0) })
		},
		"of group 0 is gone, and was not": func(s, n *State) {
			n.Map = redraw(t, s.Map, func(d *cluster.Draft) { d.Groups[0].Take(1, 0) })
		},
	} {
		s := sample(t)
		s.Version = 2
		n := s.Clone()
		f(s, n)
		base := s.Version
		entry := append(AppendEntry(nil, s.Clone())[:entryHead:entryHead], n.Encode()...)
		after, answer := s.Apply(entry)
		if err := Outcome(answer); after != s || s.Version != base || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error with %q, got %v", want, err)
		}
	}
	for name, f := range map[string]func(s, n *State){
		"a group gives way to another one": func(s, n *State) {
			n.Map = redraw(t, s.Map, func(d *cluster.Draft) { d.Recover(2, d.Group(2).Replicas[1].Node, 2) })
		},
		"and that to a third one, of what another node has kept": func(s, n *State) {
			s.Map = redraw(t, s.Map, func(d *cluster.Draft) { d.Recover(2, d.Group(2).Replicas[1].Node, 2) })
			n.Map = redraw(t, s.Map, func(d *cluster.Draft) {
				last := d.Groups[len(d.Groups)-1].ID
				d.Recover(last, gapOf(d, last), 2)
			})
		},
		"it stands": func(s, n *State) {
			s.Map = redraw(t, s.Map, func(d *cluster.Draft) { d.Recover(2, d.Group(2).Replicas[1].Node, 2) })
			n.Map = redraw(t, s.Map, func(d *cluster.Draft) { d.Groups[len(d.Groups)-1].Phase = cluster.Stands })
		},
		"the same map":       func(_, _ *State) {},
		"who leaves is gone": func(s, n *State) { n.Map = redraw(t, s.Map, func(d *cluster.Draft) { d.Group(1).Take(1, 4) }) },
		"who leaves stays": func(s, n *State) {
			n.Map = redraw(t, s.Map, func(d *cluster.Draft) { d.Group(1).Replica(1).Leaves = false })
		},
		"another one of a later id": func(s, n *State) { n.Map = redraw(t, s.Map, func(d *cluster.Draft) { d.Group(2).Add(gapOf(d, 2)) }) },
		"ids are left out":          func(s, n *State) { n.Map = redraw(t, s.Map, func(d *cluster.Draft) { d.Group(2).Top = 9 }) },
		"a task more":               func(_, n *State) { n.AddTask(Task{ID: n.NextTask(), Kind: Rebalance, State: Runs}) },
		"an old task less":          func(_, n *State) { n.Tasks = n.Tasks[1:] },
		"another node": func(s, n *State) {
			n.Map = redraw(t, s.Map, func(d *cluster.Draft) { d.Nodes["b"] = cluster.DraftNode{Weight: 1, Store: [16]byte{77}} })
		},
	} {
		s := sample(t)
		n := s.Clone()
		f(s, n)
		after, answer := s.Apply(AppendEntry(nil, n))
		if err := Outcome(answer); err != nil || !bytes.Equal(after.Encode(), n.Encode()) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// gap is a node at which group 1 has no replica.
func gap(d *cluster.Draft) string { return gapOf(d, 1) }

func gapOf(d *cluster.Draft, group uint32) string {
	for _, n := range []string{"a1", "a2", "a3", "a4"} {
		if d.Group(group).At(n) == nil {
			return n
		}
	}
	return ""
}
