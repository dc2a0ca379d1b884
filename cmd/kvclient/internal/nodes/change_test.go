package nodes

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/admin"
	"github.com/rdmakv/rdmakv/cmd/kvclient/internal/app"
)

// A fakeCluster is a changer whose task gets on by one move at each look. Its texts steer terminals.
type fakeCluster struct {
	info     admin.ClusterInfo
	task     admin.ClusterTask
	requests []admin.ChangeRequest
	fail     func(dry bool, asked int) error
	looks    int
	look     func(f *fakeCluster, a *admin.ClusterAnswer) error // changes what a look shows
}

func newFakeCluster() *fakeCluster {
	f := &fakeCluster{task: admin.ClusterTask{What: "add n4\x1b[2J", Kind: "add", State: "runs", LeftMS: 61_000, Moves: []admin.ClusterMove{
		{Group: 0, To: "n4", State: "waits"},
		{Group: 1, From: "n1", To: "n4", State: "waits", Bytes: 3 << 30, Step: "learns\n", Behind: 12345},
		{Group: 2, From: "n2", To: "n4", State: "waits", Bytes: 1 << 30, Why: "the node\x1b[31m is away"},
	}}}
	f.info = admin.ClusterInfo{Clustered: true, MapVersion: 4, Replicas: 3, Groups: 2}
	group := func(id uint32, nodes ...string) (g admin.Group) {
		g.ID = id
		for i, n := range nodes {
			g.Replicas = append(g.Replicas, admin.Replica{ID: uint64(i + 1), Node: n, Votes: true})
		}
		return g
	}
	meta := group(0, "n1")
	f.info.Founders, f.info.Meta = []admin.Group{group(1, "n1", "n2", "n3"), group(2, "n2", "n3", "n1")}, &meta
	for _, n := range []string{"n1", "n2", "n3"} {
		f.info.Nodes = append(f.info.Nodes, admin.ClusterNode{ID: n, Weight: 1, Zone: "z" + n[1:]})
	}
	f.info.Nodes = append(f.info.Nodes, admin.ClusterNode{ID: "n4", State: "alive"})
	return f
}

func (f *fakeCluster) Cluster(context.Context) (admin.ClusterInfo, error) { return f.info, nil }

func (f *fakeCluster) Change(_ context.Context, r admin.ChangeRequest) (admin.ClusterAnswer, error) {
	f.requests = append(f.requests, r)
	if f.fail != nil {
		if err := f.fail(r.Dry, len(f.requests)); err != nil {
			return admin.ClusterAnswer{}, err
		}
	}
	t := f.task
	if !r.Dry {
		f.task.ID, f.task.Began = 3, 1000
		t = f.task
	}
	return admin.ClusterAnswer{State: "taken", MapVersion: 5, Task: &t}, nil
}

func (f *fakeCluster) Tasks(context.Context) (admin.ClusterAnswer, error) {
	f.looks++
	f.task.Moves = slices.Clone(f.task.Moves)
	i := slices.IndexFunc(f.task.Moves, func(m admin.ClusterMove) bool { return m.State != "done" })
	switch {
	case i < 0:
		f.task.State, f.task.Ended = "done", 64_000
	case f.task.Moves[i].State == "moves":
		f.task.Moves[i].State = "done"
	default:
		f.task.Moves[i].State = "moves"
	}
	a := admin.ClusterAnswer{State: "taken", MapVersion: 6, Tasks: []admin.ClusterTask{{ID: 2, State: "done"}, f.task}}
	if f.look != nil {
		return a, f.look(f, &a)
	}
	return a, nil
}

// runChange does a change at f, and returns its error and what it has printed.
func runChange(ctx context.Context, f *fakeCluster, ch change, r admin.ChangeRequest, stdin, output string) (stdout, stderr string, err error) {
	var out, errOut bytes.Buffer
	ch.a = &app.App{Stdin: strings.NewReader(stdin), Stdout: &out, Stderr: &errOut, Output: output}
	ch.name = "cluster add"
	err = ch.do(ctx, f, r, time.Now().Add(ch.wait))
	return out.String(), errOut.String(), err
}

var addN4 = admin.ChangeRequest{Kind: admin.AddNodes, Nodes: []admin.NodeWeight{{ID: "n4", Weight: 2, Zone: "z4"}}}

// TestChanges: a change shows its plan, asks, begins once, and is watched to its end; in text and as JSON, which has lists for lists.
func TestChanges(t *testing.T) {
	for name, tc := range map[string]struct {
		ch            change
		spoil         func(*fakeCluster)
		r             admin.ChangeRequest
		stdin, output string
		begins        bool
		fails         string // "" for nil
		says          []string
	}{
		"watched to its end":    {ch: change{yes: true}, begins: true, says: []string{"add n4?[2J: 3 replicas move, of 2 groups and the meta group, 4.0 GiB or more", "n4    2       z4    0         3     3      0     new", "task 3 (add n4?[2J) is done: 3 moves in 1m3s"}},
		"asked, yes":            {stdin: "y\n", begins: true, says: []string{"begin? [y/N]", "is done"}},
		"asked, no":             {stdin: "n\n", fails: "nothing was begun", says: []string{"3 replicas move"}},
		"only shown":            {ch: change{dry: true}, says: []string{"3 replicas move"}},
		"only shown, JSON":      {ch: change{dry: true}, output: "json", says: []string{`"id":0`, `"then":2`, `"new":true`, `"bytes":4294967296`}},
		"detached":              {ch: change{yes: true, detach: true}, begins: true, says: []string{"task 3 (add n4?[2J) runs: 0 of 3 moves, about 1m1s left", "kvclient cluster cancel 3"}},
		"detached, JSON":        {ch: change{yes: true, detach: true}, output: "json", begins: true, says: []string{`"id":3`, `"state":"runs"`}},
		"watched, JSON":         {ch: change{yes: true}, output: "json", begins: true, says: []string{`"state":"done"`, `"map_version":6`}},
		"it runs already":       {spoil: func(f *fakeCluster) { f.task.ID = 3 }, begins: true, says: []string{"task 3 (add n4?[2J) runs already: 0 of 3 moves", "is done"}},
		"it was done before":    {spoil: func(f *fakeCluster) { f.task.ID, f.task.State = 3, "done" }, begins: true, says: []string{"task 3 (add n4?[2J) has done that: nothing is left to do", "is done"}},
		"nothing moves":         {ch: change{yes: true}, spoil: func(f *fakeCluster) { f.task.Moves = nil }, begins: true, says: []string{"no replica has to move", "new"}},
		"nothing is to be done": {r: admin.ChangeRequest{Kind: admin.Rebalance}, spoil: func(f *fakeCluster) { f.task.Moves = nil }, says: []string{"no replica has to move"}},
		"nothing, JSON":         {r: admin.ChangeRequest{Kind: admin.Rebalance}, output: "json", spoil: func(f *fakeCluster) { f.task.Moves = nil }, says: []string{`"moves":[]`}},
		"the plan is refused":   {ch: change{yes: true}, spoil: refusing(true), fails: "the cluster refuses: n4 is no good"},
		"it is refused":         {ch: change{yes: true}, spoil: refusing(false), begins: true, fails: "the cluster refuses: n4 is no good"},
		"it is not known": {ch: change{yes: true}, spoil: func(f *fakeCluster) {
			f.fail = func(dry bool, _ int) error { return map[bool]error{false: client.ErrOutcomeUnknown}[dry] }
		}, begins: true, fails: "outcome unknown"},
		"canceled by another": {ch: change{yes: true}, spoil: func(f *fakeCluster) {
			f.look = func(f *fakeCluster, a *admin.ClusterAnswer) error {
				a.Tasks[1].State, a.Tasks[1].Why = "canceled", "by ops\x1b[2J"
				return nil
			}
		}, begins: true, fails: "task 3 (add n4?[2J) was canceled: by ops?[2J"},
		"forgotten": {ch: change{yes: true}, spoil: func(f *fakeCluster) {
			f.look = func(_ *fakeCluster, a *admin.ClusterAnswer) error { a.Tasks = nil; return nil }
		}, begins: true, fails: "is not known any more"},
		"not to be looked at": {ch: change{yes: true}, spoil: func(f *fakeCluster) {
			f.look = func(f *fakeCluster, _ *admin.ClusterAnswer) error {
				return fmt.Errorf("%w: nobody leads", client.ErrUnavailable)
			}
		}, begins: true, fails: "goes on, and cannot be looked at now"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeCluster()
				if tc.spoil != nil {
					tc.spoil(f)
				}
				if tc.r.Kind == "" {
					tc.r = addN4
				}
				out, errOut, err := runChange(t.Context(), f, tc.ch, tc.r, tc.stdin, tc.output)
				if (err == nil) != (tc.fails == "") || err != nil && !strings.Contains(err.Error(), tc.fails) {
					t.Errorf("%v, want %q", err, tc.fails)
				}
				begun := 0
				for _, r := range f.requests {
					if !r.Dry {
						begun++
					}
				}
				if (begun == 1) != tc.begins || begun > 1 || !f.requests[0].Dry {
					t.Errorf("requests %+v", f.requests)
				}
				said := out + errOut
				if err != nil {
					said += err.Error()
				}
				if strings.Contains(said, "\x1b") {
					t.Errorf("it steers the terminal: %q", said)
				}
				for _, want := range tc.says {
					if !strings.Contains(said, want) {
						t.Errorf("no %q in\n%s", want, said)
					}
				}
				if tc.output == "json" && (!json.Valid([]byte(out)) || strings.Contains(out, ":null") || strings.Count(out, "\n") != 1) {
					t.Errorf("it prints %q", out)
				}
			})
		})
	}
}

// refusing has the cluster refuse the plan, or what comes behind it.
func refusing(plan bool) func(*fakeCluster) {
	return func(f *fakeCluster) {
		f.fail = func(dry bool, _ int) error {
			if dry != plan {
				return nil
			}
			return &client.Error{Op: "cluster-add", Err: fmt.Errorf("%w: n4 is no good", admin.ErrRefused)}
		}
	}
}

// TestChangeFailure: what is in the way stands first, in one line; whether anything was done is never left out.
func TestChangeFailure(t *testing.T) {
	refused := fmt.Errorf("%w: node \"n4\" cannot\n come", admin.ErrRefused)
	partly := func(errs ...error) error {
		p := &client.PartialError{Total: len(errs)}
		for i, err := range errs {
			p.Failures = append(p.Failures, client.Failure{Index: -1, Node: fmt.Sprintf("n%d", i+4), Err: err})
		}
		return &client.Error{Op: "cluster-add", Err: p}
	}
	for _, tc := range []struct {
		err  error
		want string
	}{
		{&client.Error{Op: "cluster-add", Err: refused}, `the cluster refuses: node "n4" cannot  come`},
		{partly(refused), `the cluster refuses: node "n4" cannot  come`},
		{partly(refused, client.ErrTimeout), `rdmakv cluster-add: 2 of 2 failed: n4: the cluster refuses: node "n4" cannot  come; n5: no answer in time`},
		{&client.Error{Op: "cluster-add", Err: fmt.Errorf("%w: %w", client.ErrOutcomeUnknown, refused)}, "rdmakv cluster-add: " + client.ErrOutcomeUnknown.Error()},
		{client.ErrTimeout, "no answer in time"},
	} {
		err := changeFailure(tc.err)
		if !strings.HasPrefix(err.Error(), tc.want) || !errors.Is(err, errors.Unwrap(tc.err)) && err != tc.err {
			t.Errorf("%v\n want %s", err, tc.want)
		}
	}
}

// TestChangeInterrupted: Ctrl-C while a task is watched ends the watching, and says that the task goes on.
func TestChangeInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 1200*time.Millisecond)
		defer cancel()
		_, errOut, err := runChange(ctx, newFakeCluster(), change{yes: true}, addN4, "", "")
		if err != app.ErrInterrupted || !strings.Contains(errOut, "task 3 (add n4?[2J) goes on: kvclient cluster tasks --watch shows it, kvclient cluster cancel 3 ends it") {
			t.Errorf("%v, %q", err, errOut)
		}
	})
}

// TestChangeWaits: a node that the cluster has not heard of yet is waited for, as long as was said, and that is said where it takes a while: in one line
// while it waits, and in the error where the node has not come.
func TestChangeWaits(t *testing.T) {
	for _, tc := range []struct {
		wait, comes time.Duration
		done, says  bool // it is told on stderr for whom it waits
		took        time.Duration
	}{
		{0, 2 * time.Second, false, false, 0},
		{time.Second, 2 * time.Second, false, false, time.Second},
		{15 * time.Second, 500 * time.Millisecond, true, false, 600 * time.Millisecond},
		{15 * time.Second, 2 * time.Second, true, true, 2 * time.Second},
		{15 * time.Second, time.Hour, false, true, 15 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFakeCluster()
			begun := time.Now()
			heard := time.Duration(-1) // when a plan was made
			f.fail = func(bool, int) error {
				if time.Since(begun) < tc.comes {
					return fmt.Errorf("%w: the cluster has not heard of \"n4\"", client.ErrUnknownNode)
				}
				if heard < 0 {
					heard = time.Since(begun)
				}
				return nil
			}
			_, errOut, err := runChange(t.Context(), f, change{yes: true, wait: tc.wait}, addN4, "", "")
			if !tc.done {
				heard = time.Since(begun)
			}
			if (err == nil) != tc.done || !tc.done && !errors.Is(err, client.ErrUnknownNode) || heard != tc.took {
				t.Errorf("--wait %v, known after %v: %v after %v", tc.wait, tc.comes, err, heard)
			}
			if !tc.done && tc.wait > 0 && !strings.Contains(err.Error(), fmt.Sprintf("waited for %v: --wait", tc.took)) {
				t.Errorf("--wait %v: the error does not say that it has waited: %v", tc.wait, err)
			}
			if n := strings.Count(errOut, "waiting for"); (n == 1) != tc.says || n > 1 || tc.says && !strings.Contains(errOut, "has not heard of \"n4\"\n") {
				t.Errorf("--wait %v, known after %v: says %q", tc.wait, tc.comes, errOut)
			}
		})
	}
}

// TestPlanNodes: each node has what it has now and then; one that takes the place of another is like it.
func TestPlanNodes(t *testing.T) {
	f := newFakeCluster()
	f.info.Founders[0].Replicas[0].Leaves = true
	task := admin.ClusterTask{Moves: []admin.ClusterMove{{Group: 1, From: "n1", To: "n4"}, {Group: 0, From: "n1", To: "n4"}}}
	p := newPlan(admin.ChangeRequest{Kind: admin.ReplaceNode, Old: "n1", Nodes: []admin.NodeWeight{{ID: "n4"}}}, f.info, admin.ClusterAnswer{Task: &task})
	want := []planNode{
		{ID: "n1", Weight: 1, Zone: "z1", Replicas: 2, Goes: 2, Leaves: true},
		{ID: "n2", Weight: 1, Zone: "z2", Replicas: 2, Then: 2},
		{ID: "n3", Weight: 1, Zone: "z3", Replicas: 2, Then: 2},
		{ID: "n4", Weight: 1, Zone: "z1", Comes: 2, Then: 2, New: true},
	}
	if !slices.Equal(p.Nodes, want) {
		t.Errorf("%+v", p.Nodes)
	}
	if text := p.text(); !strings.Contains(text, "of group 1 and the meta group") || !strings.Contains(text, "leaves the cluster") {
		t.Error(text)
	}
}

// TestParseNodes: weight and zone stand behind the id, in that order, and either may be missing.
func TestParseNodes(t *testing.T) {
	for arg, want := range map[string]admin.NodeWeight{
		"n4": {ID: "n4"}, "n4:2": {ID: "n4", Weight: 2}, "n4@east": {ID: "n4", Zone: "east"}, "n4:2@a:b@c": {ID: "n4", Weight: 2, Zone: "a:b@c"},
	} {
		for _, init := range []bool{true, false} {
			if got, err := parseNodes([]string{arg}, init); err != nil || got[0] != want {
				t.Errorf("%s: %+v, %v", arg, got, err)
			}
		}
	}
	if got, err := parseNodes([]string{"n1", "n4:0@east"}, true); err != nil || !got[1].Out {
		t.Errorf("%+v, %v", got, err)
	}
}
