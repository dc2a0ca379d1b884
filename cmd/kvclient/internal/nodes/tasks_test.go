package nodes

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/admin"
	"github.com/rdmakv/rdmakv/cmd/kvclient/internal/app"
	"github.com/rdmakv/rdmakv/internal/doctor"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// TestTasksText: what runs is seen at a glance, with what is in its way; numbers that cannot be do no harm, and texts do not steer a terminal.
func TestTasksText(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	f := newFakeCluster()
	run := f.task
	run.ID, run.Began = 3, now.Add(-time.Minute).UnixMilli()
	run.Moves[0].State, run.Moves[1].State = "done", "moves"
	wild := admin.ClusterTask{ID: math.MaxUint64, What: "\x1b]0;x\a", State: "canceled", Began: math.MaxInt64, Ended: math.MinInt64, LeftMS: math.MaxInt64, Why: "too\nlate"}
	wild2 := admin.ClusterTask{ID: 9, What: "x", State: "strange\x1b", Began: 1, LeftMS: math.MaxInt64, Moves: []admin.ClusterMove{{Group: 7, State: "moves", Behind: math.MaxUint64, Bytes: math.MaxUint64}}}
	r := newTasksReport(admin.ClusterAnswer{Paused: true, Tasks: []admin.ClusterTask{run, wild, wild2}})
	text := r.text(now)
	if strings.ContainsAny(text, "\x1b\a\r") {
		t.Errorf("it steers the terminal: %q", text)
	}
	for _, want := range []string{"moves are paused", "1 of 3", "11:59:00", "1m0s", "about 1m1s", "learns, 12,345 entries behind", "the node?[31m is away", "too late", "3.0 GiB"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	many := admin.ClusterTask{ID: 1, What: "add n4", State: "runs"}
	for i := range 500 {
		many.Moves = append(many.Moves, admin.ClusterMove{Group: uint32(i + 1), To: "n4", State: "moves"})
	}
	text = newTasksReport(admin.ClusterAnswer{Tasks: []admin.ClusterTask{many}}).text(now)
	if n := strings.Count(text, "\n"); n > 30 || !strings.Contains(text, "and 480 moves more") {
		t.Errorf("%d lines\n%s", n, text)
	}
	ended := admin.ClusterTask{ID: 1, What: "add n4", State: "canceled", Moves: []admin.ClusterMove{{State: "done"}, {State: "undone"}, {State: "dropped"}}}
	if text := newTasksReport(admin.ClusterAnswer{Tasks: []admin.ClusterTask{ended}}).text(now); !strings.Contains(text, "1 of 3") {
		t.Errorf("what was undone counts as done:\n%s", text)
	}
	if text := newTasksReport(admin.ClusterAnswer{}).text(now); text != "there are no tasks\n" {
		t.Errorf("%q", text)
	}
}

// TestTasksJSON: lists are lists, also empty ones, and a watch prints a line for each change until no task runs.
func TestTasksJSON(t *testing.T) {
	text, err := json.Marshal(newTasksReport(admin.ClusterAnswer{Tasks: []admin.ClusterTask{{ID: 1}}}))
	if err != nil || strings.Contains(string(text), "null") || !strings.Contains(string(text), `"moves":[]`) {
		t.Errorf("%s, %v", text, err)
	}
	if text, _ := json.Marshal(newTasksReport(admin.ClusterAnswer{})); !strings.Contains(string(text), `"tasks":[]`) {
		t.Errorf("%s", text)
	}
	for _, output := range []string{"json", "text"} {
		synctest.Test(t, func(t *testing.T) {
			var out bytes.Buffer
			f := newFakeCluster()
			f.task.ID = 3
			w := watcher{a: &app.App{Stdout: &out, Stderr: new(bytes.Buffer), Output: output}, of: f, every: lookEvery}
			if err := w.all(t.Context()); err != nil {
				t.Error(err)
			}
			if f.looks != 7 || output == "json" && strings.Count(out.String(), "\n") != 7 || strings.Contains(out.String(), "\x1b") {
				t.Errorf("%d looks, %s", f.looks, &out)
			}
			for line := range strings.Lines(out.String()) {
				if output == "json" && !json.Valid([]byte(line)) {
					t.Errorf("%q", line)
				}
			}
		})
	}
	synctest.Test(t, func(t *testing.T) { // what stays as it is is printed once
		var out bytes.Buffer
		f := newFakeCluster()
		f.look = func(_ *fakeCluster, a *admin.ClusterAnswer) error {
			a.Tasks = []admin.ClusterTask{{ID: 3, State: "runs"}}
			return nil
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		w := watcher{a: &app.App{Stdout: &out, Output: "json"}, of: f, every: lookEvery}
		if err := w.all(ctx); err != app.ErrInterrupted || strings.Count(out.String(), "\n") != 1 {
			t.Errorf("%v, %s", err, &out)
		}
	})
}

// TestDrawing: on a terminal each report takes the place of the last one, and no line is wider than the terminal.
func TestDrawing(t *testing.T) {
	var out bytes.Buffer
	d := drawing{a: &app.App{Stdout: &out, Output: "text"}, tty: true}
	wide := newTasksReport(admin.ClusterAnswer{Tasks: []admin.ClusterTask{{ID: 1, What: strings.Repeat("x", 300), State: "runs"}}})
	for range 2 {
		if err := d.show(wide); err != nil {
			t.Fatal(err)
		}
	}
	parts := strings.Split(out.String(), "\x1b[2A\x1b[J")
	if len(parts) != 2 || parts[0] != parts[1] {
		t.Errorf("%q", &out)
	}
	for line := range strings.Lines(parts[0]) {
		if len([]rune(line)) > 80 {
			t.Errorf("%d columns: %q", len(line), line)
		}
	}
}

// TestTaskTold: whoever cancels a task is told how that goes, and has not failed.
func TestTaskTold(t *testing.T) {
	for state, want := range map[string]string{"canceling": "is being canceled", "canceled": "was canceled: 1 of 2 moves are done", "done": "is done: 2 moves", "runs": "1 of 2 moves"} {
		for _, output := range []string{"text", "json"} {
			var out bytes.Buffer
			task := &admin.ClusterTask{ID: 3, What: "add n4", State: state, Moves: []admin.ClusterMove{{State: "done"}, {State: "moves"}}}
			err := watcher{a: &app.App{Stdout: &out, Output: output}}.told(admin.ClusterAnswer{}, task, true)
			if err != nil || output == "text" && !strings.Contains(out.String(), want) || output == "json" && !json.Valid(out.Bytes()) {
				t.Errorf("%s: %v, %s", state, err, &out)
			}
		}
	}
}

// liveCluster is a status of a cluster with replicas whose map can change: kv3 comes, and kv1 has a replica that leaves.
func liveCluster() *statusReport {
	st := goodCluster()
	st.Meta = &admin.Group{Replicas: []admin.Replica{{ID: 1, Node: "kv1", Leaves: true}, {ID: 2, Node: "kv2"}}}
	st.Map.Version, st.ID = 4, "ab"
	for i := range st.Nodes {
		st.Nodes[i].Status.Map.Version, st.Nodes[i].Status.ClusterID, st.Nodes[i].Zone = 4, "ab", fmt.Sprintf("z%d", i)
	}
	st.Groups = []admin.Group{{ID: 1, Leader: "kv1", Term: 2, Shards: []uint16{0}, Replicas: []admin.Replica{
		{ID: 1, Node: "kv1", Votes: true, State: "leads", Active: true, Leaves: true},
		{ID: 2, Node: "kv2", Votes: true, State: "follows", Active: true},
		{ID: 3, Node: "kv3", State: "learns", Active: true, Snapshot: true},
		{ID: 4, Node: "kv4", State: "learns", Active: true, Lag: 20_000},
		{ID: 5, Node: "kv5"},
	}}}
	st.Tasks = []admin.ClusterTask{{ID: 3, What: "add kv3", Kind: "add", State: "runs", Moves: []admin.ClusterMove{{Group: 1, To: "kv3", State: "done"}, {State: "moves"}}}}
	return st
}

// TestStatusOfLiveCluster: status tells which task runs and how far it is, zones, the meta group, and what becomes of replicas.
func TestStatusOfLiveCluster(t *testing.T) {
	st := liveCluster()
	text := st.text()
	for _, want := range []string{"task 3 (add kv3) runs: 1 of 2 moves", "agrees on changes: kv1 (leaves), kv2", "zone", "z1", "kv1 (leaves)", "kv3 (snapshot)", "kv4 (learns, 20000)"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	st.Paused, st.TasksError = true, "nobody\x1b leads"
	if text := st.text(); !strings.Contains(text, "moves are paused") || !strings.Contains(text, "is not known: nobody? leads") {
		t.Error(text)
	}
	st.Nodes[1].Status.Map = wire.MapStatus{State: "committed", Version: 3, Digest: "00000000000000bb"}
	if text := st.text(); !strings.Contains(text, "version 3") || strings.Contains(text, "OTHER") {
		t.Error(text)
	}
}

// TestCheckOfLiveCluster: while replicas move nothing is called a failure that passes by itself, and what does not is.
func TestCheckOfLiveCluster(t *testing.T) {
	for name, tc := range map[string]struct {
		spoil   func(*statusReport)
		codes   string // of failures and warnings
		passing bool
	}{
		"replicas move": {func(*statusReport) {}, "", false},
		"a node is behind": {func(st *statusReport) {
			st.Nodes[1].Status.Map = wire.MapStatus{State: "committed", Version: 3, Digest: "00000000000000bb"}
		}, codeMapBehind, true},
		"a node is ahead": {func(st *statusReport) {
			st.Nodes[1].Status.Map = wire.MapStatus{State: "committed", Version: 5, Digest: "00000000000000bb"}
		}, codeMapBehind, true},
		"another map of the same version": {func(st *statusReport) { st.Nodes[1].Status.Map.Digest = "00000000000000bb" }, codeMapDiffers, false},
		"another cluster's map": {func(st *statusReport) {
			st.Nodes[1].Status.Map.Version, st.Nodes[1].Status.ClusterID = 3, "cd"
		}, codeMapDiffers, false},
		"it has not been told yet": {func(st *statusReport) {
			st.Nodes[1].Status.Map = wire.MapStatus{State: "none"}
			st.Tasks[0].Moves[0].To = "kv2"
		}, codeMapBehind, false},
		"it has lost its map": {func(st *statusReport) { st.Nodes[1].Status.Map = wire.MapStatus{State: "none"} }, codeMapDiffers, false},
		"one that has not come": {func(st *statusReport) {
			st.Nodes[1].Weight, st.Nodes[1].Status.Map = 0, wire.MapStatus{State: "none"}
		}, codeMapDiffers, false},
	} {
		st := liveCluster()
		tc.spoil(st)
		r := checkCluster(st)
		var codes []string
		for _, s := range r.Steps {
			if s.Level == doctor.Fail || s.Level == doctor.Warn {
				codes = append(codes, s.Code)
			}
		}
		if strings.Join(codes, " ") != tc.codes || passing(r) != tc.passing {
			t.Errorf("%s: %v, passing %v\n%s", name, codes, passing(r), r.Text())
		}
	}
}

// TestAskTasks: what status is told of tasks; what older versions and tenants without the right cannot be asked is left out.
func TestAskTasks(t *testing.T) {
	for name, tc := range map[string]struct {
		err   error
		tasks int
		says  string
	}{
		"they run": {nil, 1, ""}, "older": {client.ErrUnsupported, 0, ""}, "no right": {client.ErrDenied, 0, ""}, "nobody leads": {errors.New("nobody leads"), 0, "nobody leads"},
	} {
		f, st := newFakeCluster(), &statusReport{}
		f.look = func(_ *fakeCluster, _ *admin.ClusterAnswer) error { return tc.err }
		st.askTasks(t.Context(), &app.App{}, f)
		if len(st.Tasks) != tc.tasks || st.TasksError != tc.says {
			t.Errorf("%s: %+v, %q", name, st.Tasks, st.TasksError)
		}
	}
}
