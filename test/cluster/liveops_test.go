package cluster

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/client/admin"
	"github.com/rdmakv/rdmakv/test/node"
)

// What operators do wrong, and what becomes of a command that is interrupted.

// A tasks is as much as is needed of what "cluster tasks -o json" prints.
type tasks struct {
	Seat       string `json:"seat"`
	MapVersion uint64 `json:"map_version"`
	Paused     bool   `json:"paused"`
	Tasks      []task `json:"tasks"`
}

type task struct {
	ID    uint64              `json:"id"`
	What  string              `json:"what"`
	State string              `json:"state"`
	Moves []admin.ClusterMove `json:"moves"`
}

// last is the newest task; there is one.
func (ts *tasks) last() *task { return &ts.Tasks[len(ts.Tasks)-1] }

// running is how many tasks are not over.
func (ts *tasks) running() (n int) {
	for _, t := range ts.Tasks {
		if t.State != "done" && t.State != "canceled" {
			n++
		}
	}
	return n
}

// tasks asks the cluster for its tasks.
func (w *world) tasks(t *testing.T) (ts tasks) {
	t.Helper()
	out := w.must("east", w.asked("cluster", "tasks", "-o", "json")...)
	if err := json.Unmarshal([]byte(out), &ts); err != nil {
		t.Fatalf("cluster tasks: %v: %s", err, out)
	}
	return ts
}

// asked are arguments with the addresses of the first three nodes, of which one may be away.
func (w *world) asked(args ...string) []string {
	return append([]string{"--server", strings.Join(w.Addrs()[:3], ",")}, args...)
}

// awaitTasks waits until the tasks are as wanted.
func (w *world) awaitTasks(t *testing.T, what string, is func(*tasks) bool) tasks {
	t.Helper()
	for ctx := within(t); ; {
		ts := w.tasks(t)
		if is(&ts) {
			return ts
		}
		if pause(ctx, 100*time.Millisecond); ctx.Err() != nil {
			t.Fatalf("%s: not so in time: %+v", what, ts)
		}
	}
}

// refuses runs a command of cluster, which must end with the exit code and one line that has the words, and change nothing.
func (w *world) refuses(t *testing.T, code int, words string, args ...string) {
	t.Helper()
	before := w.tasks(t)
	out, got, errOut := w.kvclient(t, w.net.Host("east"), w.asked(append([]string{"cluster"}, args...)...)...)
	if waits, rest, _ := strings.Cut(errOut, "\n"); strings.HasPrefix(waits, "kvclient: waiting for ") && strings.Contains(waits, "has not heard of") {
		errOut = rest // before it was refused it has said for whom it waits
	}
	if got != code || strings.Count(errOut, "\n") != 1 || !strings.Contains(errOut, words) {
		t.Errorf("cluster %q ends with %d, want %d and one line with %q:\n%s%s", args, got, code, words, out, errOut)
	}
	after := w.tasks(t)
	moved := after.MapVersion != before.MapVersion && before.running() == 0 // a task that runs goes on, and makes maps
	if moved || after.Paused != before.Paused || len(after.Tasks) != len(before.Tasks) {
		t.Errorf("cluster %q was refused, and is not without effect: %+v, before it %+v", args, after, before)
	}
}

// A running is a kvclient that may be interrupted.
type running struct {
	node.Process
	out, errOut bytes.Buffer // to be read once it has ended
}

// begins starts a command of cluster and does not wait for it.
func (w *world) begins(t *testing.T, args ...string) *running {
	t.Helper()
	r := &running{}
	p, err := w.net.Host("east").On().Start(node.Command{
		Path: path.Join(w.opt.Bin, "kvclient"), Args: w.asked(append([]string{"--timeout", "30s", "cluster"}, args...)...),
		Env: []string{"RDMAKV_FABRIC=" + w.opt.Fabric, "RDMAKV_SECRET_FILE=" + w.seen(w.SecretFile())}, Stdout: &r.out, Stderr: &r.errOut,
	})
	must(t, err)
	r.Process = p
	return r
}

// ends waits for its end.
func (r *running) ends(t *testing.T) (code int) {
	t.Helper()
	timer := time.AfterFunc(patience, func() { _ = r.Signal(syscall.SIGKILL) })
	defer timer.Stop()
	code, _ = r.Wait()
	return code
}

// well waits until all replicas take part, and has cluster check end with 0: no task runs, and nothing is wrong.
func (w *world) well(t *testing.T) {
	t.Helper()
	w.awaitTasks(t, "all tasks are over", func(ts *tasks) bool { return ts.running() == 0 && !ts.Paused })
	w.allTakePart(t)
	for ctx := within(t); ; { // gossip may not have converged yet after a kill
		out, code, errOut := w.kvclient(t, w.net.Host("east"), w.asked("cluster", "check")...)
		if code == 0 {
			return
		}
		if pause(ctx, time.Second); ctx.Err() != nil {
			t.Fatalf("cluster check ends with %d\n%s%s", code, out, errOut)
		}
	}
}

// TestLiveOperator: a command that changes the cluster and is wrong says why in a line and changes nothing; one that is interrupted, or whose node or seat is killed,
// goes on or is finished by the same command. Clients lose nothing meanwhile. All parts take three minutes: make nightly.
func TestLiveOperator(t *testing.T) {
	if testing.Short() {
		t.Skip("moves replicas between real nodes: make cluster-test")
	}
	parallel(t)
	w := founded(t)
	load, _ := w.startLoad("operator")
	step := func(name string, f func(t *testing.T)) {
		if !t.Run(name, func(t *testing.T) {
			f(t)
			w.well(t)
		}) {
			t.FailNow()
		}
	}
	step("wrong", w.wrongCommands)
	if *everyPart {
		step("strangers", w.strangers)
		step("interrupted", w.interrupted)
		step("pause, cancel", w.pausedAndCanceled)
		step("its node is killed", func(t *testing.T) { w.whileKilled(t, func(tasks) string { return "n1" }, "add", "n4") })
	}
	step("the seat is killed", func(t *testing.T) { w.whileKilled(t, func(ts tasks) string { return ts.Seat }, "add", "n5") })
	if *everyPart {
		step("out and back", w.outAndBack)
	}
	judge(t, load)
	w.alikeFrom(t, w.net.Host("east"), len(w.groups(w.Nodes[0])))
}

// wrongCommands are those that the cluster of n1 to n3 refuses, and those that are none.
func (w *world) wrongCommands(t *testing.T) {
	for _, c := range []struct {
		code  int
		words string
		args  string
	}{
		{1, `has not heard of "n9"`, "add n9 --wait 1s --yes"},
		{2, "named twice", "add n4 n4 --yes"},
		{1, "is in the cluster with weight 1", "add n1:3 --yes"},
		{1, "is in the cluster without a zone", "add n1@r9 --yes"},
		{2, "the weight must be", "add n4:0 --yes"},
		{2, "the weight must be", "add n4:70000 --yes"},
		{2, `"n4@": zone ""`, "add n4@ --yes"},
		{2, `"N4": node id "N4"`, "add N4 --yes"},
		{2, "is missing", "add --yes"},
		{1, `node "n9" is not in the cluster: n1, n2, n3 are`, "remove n9 --yes"},
		{1, `node "n4" is not in the cluster`, "remove n4 --yes"},
		{1, "2 nodes would be left", "remove n1 --yes"},
		{1, "no node would be left", "remove n1 n2 n3 --yes"},
		{2, "named twice", "remove n1 n1 --yes"},
		{2, "cannot take its own place", "replace n1 n1 --yes"},
		{1, "has a replica at every other node", "replace n1 n2 --yes"},
		{1, `node "n9" is not in the cluster`, "replace n9 n4 --yes"},
		{1, `has not heard of "n9"`, "replace n1 n9 --wait 1s --yes"},
		{2, "are possible", "replicas 2 --yes"},
		{2, "are possible", "replicas 9 --yes"},
		{1, "5 replicas on 3 nodes", "replicas 5 --yes"},
		{2, "takes no arguments", "rebalance n1 --yes"},
		{2, "takes no arguments", "pause n1"},
		{2, "takes no arguments", "resume n1"},
		{2, "takes no arguments", "tasks 1"},
		{1, "there is no task 99", "cancel 99"},
		{2, `"0" is no task`, "cancel 0"},
		{2, `"n1" is no task`, "cancel n1"},
		{2, "no terminal", "add n4"},
		{2, "--dry-run begins nothing", "add n4 --dry-run --yes"},
	} {
		w.refuses(t, c.code, c.words, strings.Fields(c.args)...)
		if t.Failed() {
			t.Fatalf("cluster %s", c.args)
		}
	}
	// What is so already is no mistake.
	for _, args := range []string{"rebalance --yes", "replicas 3 --yes", "add n4 n5 --dry-run", "resume"} {
		w.must("east", w.asked(append([]string{"cluster"}, strings.Fields(args)...)...)...)
	}
}

// strangers are nodes that cannot come: of another cluster, with other shards, and one that gossip knows and that does not run.
func (w *world) strangers(t *testing.T) {
	for _, c := range []struct{ id, host, words, flag string }{
		{"n6", "west", `has not heard of "n6"`, "--cluster-name=other"},
		{"n7", "west", "64 shards", "--shards=64"},
	} {
		s := w.NewServer(c.id, w.net.Host(c.host))
		must(t, s.Start(within(t), c.flag))
		w.refuses(t, 1, c.words, "add", c.id, "--wait", "3s", "--yes")
		w.refuses(t, 1, c.words, "replace", "n1", c.id, "--wait", "3s", "--yes")
		must(t, s.Stop(patience))
	}
	n5 := w.Node("n5")
	must(t, n5.Kill())
	w.refuses(t, 1, "n5", "add", "n5", "--wait", "1s", "--yes", "--timeout", "5s")
	must(t, n5.Start(within(t)))
	w.awaitViews(t, w.net.Host("east"), []string{"n1", "n2", "n3"}, "n5", "alive")
}

// interrupted: kvclient is interrupted, or killed at whatever it does, and the same command finishes.
func (w *world) interrupted(t *testing.T) {
	w.must("east", w.asked("cluster", "pause")...) // so the task does not end before the signal
	p := w.begins(t, "add", "n4", "n5", "--yes")
	ts := w.awaitTasks(t, "the task runs", func(ts *tasks) bool { return ts.running() == 1 })
	// The watching may not have begun when the task has: the command ends by the signal in any case, and only then tells of the task.
	must(t, p.Signal(syscall.SIGINT))
	if code := p.ends(t); code != 130 {
		t.Errorf("SIGINT: it ends with %d, want 130: %s", code, &p.errOut)
	}
	w.refuses(t, 1, "another task is under way", "remove", "n1", "--yes")
	w.refuses(t, 1, "another task is under way", "replicas", "1", "--yes")
	if again := w.tasks(t); again.running() != 1 || len(again.Tasks) != len(ts.Tasks) {
		t.Errorf("the task is gone with who watched it: %+v", again)
	}
	w.must("east", w.asked("cluster", "resume")...)
	w.changes(t, "add", "n4", "n5")
	w.changes(t, "add", "n4", "n5")
	for _, after := range []time.Duration{0, 20 * time.Millisecond, 100 * time.Millisecond, 400 * time.Millisecond} {
		p := w.begins(t, "remove", "n5", "--yes")
		time.Sleep(after)
		must(t, p.Signal(syscall.SIGKILL))
		p.ends(t)
		w.awaitTasks(t, "all tasks are over", func(ts *tasks) bool { return ts.running() == 0 })
		out, code, errOut := w.kvclient(t, w.net.Host("east"), w.asked("cluster", "remove", "n5", "--yes")...)
		if code != 0 && !strings.Contains(errOut, "has taken it out") {
			t.Fatalf("remove again: %d %s%s", code, out, errOut)
		}
		w.refuses(t, 1, "is not in the cluster any more", "remove", "n5", "--yes")
		w.changes(t, "add", "n5")
	}
}

// pausedAndCanceled: tasks are canceled while they are paused, and no ended task is.
func (w *world) pausedAndCanceled(t *testing.T) {
	for range 2 {
		w.must("east", w.asked("cluster", "pause")...)
	}
	w.must("east", w.asked("cluster", "remove", "n5", "--yes", "--detach")...)
	ts := w.tasks(t)
	last := ts.last()
	if last.State != "runs" || !ts.Paused {
		t.Errorf("%+v", ts)
	}
	for range 2 {
		w.must("east", w.asked("cluster", "cancel", fmt.Sprint(last.ID))...)
	}
	w.must("east", w.asked("cluster", "resume")...)
	ts = w.awaitTasks(t, "it is canceled", func(ts *tasks) bool { return ts.running() == 0 })
	if last = ts.last(); last.State != "canceled" {
		t.Errorf("%+v", last)
	}
	i := slices.IndexFunc(ts.Tasks, func(one task) bool { return one.State == "done" })
	w.refuses(t, 1, "was done before", "cancel", fmt.Sprint(ts.Tasks[i].ID))
	w.changes(t, "remove", "n4", "n5")
}

// whileKilled kills a node, of the tasks that run then, while a command watches its task. Moves of groups in which the node stays wait for it, because a further
// voter would make their majority larger; so it comes back after a while, and the same kvclient tells that its task is done.
func (w *world) whileKilled(t *testing.T, which func(tasks) string, args ...string) {
	w.must("east", w.asked("cluster", "pause")...)
	p := w.begins(t, append(args, "--yes")...)
	ts := w.awaitTasks(t, "the task runs", func(ts *tasks) bool { return ts.running() == 1 })
	s := w.Node(which(ts))
	w.must("east", w.asked("cluster", "resume")...)
	must(t, s.Kill())
	// The others have a seat while it is away, and it knows of the task.
	away := w.awaitTasks(t, "another seat answers", func(ts *tasks) bool { return ts.Seat != s.ID })
	if n, had := len(away.Tasks), len(ts.Tasks); n != had {
		t.Errorf("the seat %s knows of %d tasks, %s of %d", away.Seat, n, ts.Seat, had)
	}
	w.refuses(t, 1, "another task is under way", "replicas", "1", "--yes")
	must(t, s.Start(within(t)))
	if code := p.ends(t); code != 0 || !strings.Contains(p.out.String(), "is done") {
		t.Errorf("%s was killed and is back: kvclient ends with %d\n%s%s", s.ID, code, &p.out, &p.errOut)
	}
	w.changes(t, args...)
}

// outAndBack: a node that has left starts again and is empty; it comes back, also if it was away while it was taken out.
func (w *world) outAndBack(t *testing.T) {
	n5 := w.Node("n5")
	w.changes(t, "add", "n4", "n5") // by itself this part begins with three nodes
	w.changes(t, "remove", "n5")
	must(t, n5.Stop(patience))
	must(t, n5.Start(within(t)))
	// Who has its address alone is told of the others.
	w.must("east", "--server", n5.Addr(), "put", "out and back", "1")
	w.changes(t, "add", "n5")
	must(t, n5.Kill())
	w.changes(t, "remove", "n5")
	must(t, n5.Start(within(t)))
	w.must("east", "--server", n5.Addr(), "put", "out and back", "2")
	w.changes(t, "add", "n5")
}
