package nodes

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/rdmakv/rdmakv/client/admin"
	"github.com/rdmakv/rdmakv/cmd/kvclient/internal/app"
)

// A fakeFixed is a cluster without replicas that can get them. Its texts steer terminals.
type fakeFixed struct {
	*fakeCluster
	plan     admin.UpgradePlan
	upgrades []bool // whether each was dry
	refuses  error
}

func newFakeFixed() *fakeFixed {
	f := &fakeFixed{fakeCluster: newFakeCluster(), plan: admin.UpgradePlan{MapVersion: 2, Groups: 6}}
	f.info = admin.ClusterInfo{Clustered: true, MapVersion: 1, Replicas: 1}
	for _, n := range []string{"n1", "n2", "n3"} {
		f.plan.Nodes = append(f.plan.Nodes, admin.UpgradeNode{ID: n, Version: "1.2\x1b[2J", Newest: 1, Shards: 11, Groups: 2, State: "none"})
		f.info.Nodes = append(f.info.Nodes, admin.ClusterNode{ID: n, Weight: 1})
	}
	f.task.What, f.task.Kind = "3 replicas", "replicas"
	return f
}

func (f *fakeFixed) Upgrade(_ context.Context, o admin.UpgradeOptions) (admin.UpgradePlan, error) {
	f.upgrades = append(f.upgrades, o.Dry)
	if f.refuses != nil {
		return admin.UpgradePlan{}, f.refuses
	}
	if !o.Dry {
		f.plan.Done = true
		f.info.Groups, f.info.MapVersion = 6, 2
	}
	return f.plan, nil
}

// TestUpgradeCommand: cluster upgrade shows what it will do, asks once, has the groups begin and then the replicas come; it finishes what another run has begun, and does nothing where nothing is left to do.
func TestUpgradeCommand(t *testing.T) {
	for name, c := range map[string]struct {
		u             upgrade
		spoil         func(*fakeFixed)
		stdin, output string
		upgrades      []bool
		changes       int // requests for replicas
		fails         string
		says          []string
	}{
		"dry":             {u: upgrade{replicas: 3, change: change{dry: true}}, upgrades: []bool{true}, says: []string{"6 groups", "2 others", "no way back", "n2"}},
		"dry, as JSON":    {u: upgrade{replicas: 3, change: change{dry: true}}, output: "json", upgrades: []bool{true}, says: []string{`"groups":6`, `"done":false`}},
		"to its end":      {u: upgrade{replicas: 3, change: change{yes: true}}, upgrades: []bool{true, false}, changes: 2, says: []string{"6 groups", "is done"}},
		"asked":           {u: upgrade{replicas: 3}, stdin: "y\n", upgrades: []bool{true, false}, changes: 2, says: []string{"is done"}},
		"asked, no":       {u: upgrade{replicas: 3}, stdin: "n\n", upgrades: []bool{true}, fails: "nothing was begun"},
		"one replica":     {u: upgrade{replicas: 1, change: change{yes: true}}, upgrades: []bool{true, false}, says: []string{"1 replica"}},
		"too few nodes":   {u: upgrade{replicas: 5, change: change{yes: true}}, upgrades: []bool{true}, fails: "the cluster has 3: say --replicas 3"},
		"a node is older": {u: upgrade{replicas: 3, change: change{yes: true}}, spoil: func(f *fakeFixed) { f.refuses = fmt.Errorf("%w: n2, which runs 0.9", admin.ErrRefused) }, upgrades: []bool{true}, fails: "n2, which runs"},
		"was begun": {u: upgrade{replicas: 3, change: change{yes: true}}, spoil: func(f *fakeFixed) { f.plan.Begun = true; f.plan.Nodes[0].State = "committed" },
			upgrades: []bool{true, false}, changes: 2, says: []string{"an earlier run has begun this", "is done"}},
		"groups were there": {u: upgrade{replicas: 3, change: change{yes: true}}, spoil: func(f *fakeFixed) { f.plan.Done, f.plan.Begun, f.info.Groups = true, true, 6 },
			upgrades: []bool{true}, changes: 2, says: []string{"is done"}},
		"all is done": {u: upgrade{replicas: 3, change: change{yes: true}}, spoil: func(f *fakeFixed) { f.plan.Done, f.plan.Begun, f.info.Groups, f.info.Replicas = true, true, 6, 3 },
			upgrades: []bool{true}, says: []string{"nothing is left to do"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeFixed()
				if c.spoil != nil {
					c.spoil(f)
				}
				var out, errOut bytes.Buffer
				u := c.u
				u.name, u.await = "cluster upgrade", func(context.Context) error { return nil }
				u.a = &app.App{Stdin: strings.NewReader(c.stdin), Stdout: &out, Stderr: &errOut, Output: c.output}
				err := u.upgrade(t.Context(), f)
				if (err == nil) != (c.fails == "") || err != nil && !strings.Contains(err.Error(), c.fails) {
					t.Errorf("%v, want %q", err, c.fails)
				}
				if !slices.Equal(f.upgrades, c.upgrades) || len(f.requests) != c.changes {
					t.Errorf("upgrades %v (dry), %d requests for replicas", f.upgrades, len(f.requests))
				}
				for _, r := range f.requests {
					if r.Kind != admin.SetReplicas || r.Replicas != c.u.replicas {
						t.Errorf("asked for %+v", r)
					}
				}
				for _, words := range c.says {
					if !strings.Contains(out.String(), words) {
						t.Errorf("it does not say %q:\n%s%s", words, &out, &errOut)
					}
				}
				if strings.Contains(out.String()+errOut.String(), "\x1b") {
					t.Errorf("a text of a node steers the terminal: %q", out.String())
				}
				if c.output == "json" && !json.Valid(out.Bytes()) {
					t.Errorf("no JSON: %s", &out)
				}
			})
		})
	}
}
