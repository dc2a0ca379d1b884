package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rdmakv/rdmakv/bench/compare/report"
)

// TestTable: each goal of rdmakv is a target of a usual run with the limit that it has, of the
// figure that it is about, against the peer in its best configuration, and README shows it. A goal
// whose row was renamed, loosened or left out would be missed by nobody.
func TestTable(t *testing.T) {
	const iwarp, shm, four, shmFour = "rdmakv iwarp", "rdmakv shm", "rdmakv iwarp, 4 goroutines", "rdmakv shm, 4 goroutines"
	const reno, copied, most, least = "TCP stream in Go, Reno", "memory copy of 1 MiB", report.AtMost, report.AtLeast
	redis := []string{"Redis TCP, Go", "Redis TCP, C", "Redis TCP, redis-benchmark"}
	pipelined := []string{"Redis TCP, C, pipelined"}
	for _, want := range []struct {
		row, figure, ours string
		theirs            []string
		want              string
		limit             float64
	}{
		{"puts-durable-1", "p50", iwarp, []string{"bare Pebble"}, most, 1},
		{"puts-durable-1", "p50", iwarp, redis, most, 1},
		{"puts-durable-50", "rate", iwarp, redis, least, 1.7},
		{"puts-durable-50", "rate", iwarp, pipelined, least, 0.8},
		{"puts-off-50", "rate", iwarp, redis, least, 1.3},
		{"puts-off-1", "p50", iwarp, []string{"rdmakv iwarp, cache"}, most, 1.3},
		{"puts-off-50", "server_cpu_us", iwarp, nil, most, 5},
		{"puts-durable-50", "server_cpu_us", iwarp, nil, most, 9},
		{"put-1m-durable", "rate", four, []string{"disk, written in sequence"}, least, 0.5},
		{"put-1m-cache", "rate", inRegistered(four), []string{reno}, least, 0.8},
		{"put-1m-cache", "rate", inRegistered(shmFour), []string{copied}, least, 0.3},
		{"get-shm", "p50", shm, []string{"LMDB"}, most, 1},
		{"get-shm", "p50", shm, nil, most, 1},
		{"get-shm-1m", "p50", shm, []string{"LMDB"}, most, 0.5},
		{"rate-shm", "rate", shm, nil, least, 2e6},
		{"multiget-shm-1m", "rate", shm, nil, least, 5e6},
		{"growth", "p50", "rdmakv iwarp, 1 M", []string{"rdmakv iwarp, 100 k"}, most, 1.05},
		{"growth", "p50", "rdmakv shm, 1 M", []string{"rdmakv shm, 100 k"}, most, 1.5},
		{"get-iwarp", "p50", "rdmakv iwarp, poll", []string{"TCP ping-pong in Go, both spin"}, most, 1.08},
		{"get-iwarp", "p50", "rdmakv iwarp, event, one core", []string{"TCP ping-pong in Go, both sleep, one core"}, most, 1.1},
		{"rate-iwarp-50", "rate", iwarp, redis, least, 2.5},
		{"rate-iwarp-50", "rate", iwarp, pipelined, least, 1},
		{"get-1m", "rate", inRegistered(four), []string{reno}, least, 0.6},
		{"get-1m", "rate", "rdmakv shm, one caller", []string{copied}, least, 0.8},
		{"restart", "seconds", "after a clean stop", nil, most, 0.5},
		{"restart", "seconds", "after SIGKILL under load", nil, most, 1},
		{"restart", "rate", "after a clean stop", nil, least, 4e6},
		{"memory-resident", "resident_per_key", "rdmakv", []string{"Redis"}, most, 0.9},
		{"get-replicas", "p50", three, []string{oneNode}, most, 1.3},
		{"puts-replicas-1", "p50", three, []string{oneNode}, most, 1.6},
		{"puts-replicas-50", "rate", three, []string{"Redis WAIT 1 TCP, Go", "Redis WAIT 1 TCP, C"}, least, 1},
		{"puts-replicas-50", "rate", three, []string{"etcd", "etcd, at its leader", "etcd, 50 clients", "etcd, at its leader, 50 clients"}, least, 5},
		{"puts-replicas-50", "leader_cpu_us", oneGroup, []string{oneNode}, most, 1.4},
		{"puts-replicas-50", "follower_share", oneGroup, nil, most, 0.7},
	} {
		r := usualRow(t, want.row)
		if r.once {
			t.Errorf("%s has one round, so its ratios are no medians", r.Name)
		}
		if !slices.ContainsFunc(r.Targets, func(x report.Target) bool {
			return !x.Aside && x.Headline != "" && figureOf(r, x) == want.figure && x.Ours == want.ours &&
				slices.Equal(x.Theirs, want.theirs) && x.Want == want.want && x.Limit == want.limit
		}) {
			t.Errorf("no target %+v among %+v", want, r.Targets)
		}
	}
	// What is told beside a goal.
	for _, want := range []struct {
		row, figure, ours string
		theirs            []string
	}{
		{"puts-off-50", "rate", iwarp, pipelined},
		{"get-shm-1m", "p50", "rdmakv shm, places not known", []string{"LMDB"}},
		{"rate-shm", "rate", "LMDB", nil},
		{"multiget-shm-1m", "rate", "LMDB, loop", nil},
		{"memory", "bytes_per_key", "rdmakv, resident right after the load", []string{"Redis, resident"}},
		{"memory-resident", "resident_per_key", "rdmakv", nil},
		{"memory-resident", "resident_per_key", "Redis", nil},
		{"memory-resident", "resident_per_key", "LMDB", nil},
		{"get-1m", "rate", four, []string{"Redis TCP, Go", "Redis TCP, C", "Redis TCP, Go, 4 connections", "Redis TCP, C, 4 connections"}},
		{"put-1m", "rate", four, []string{"Redis TCP, Go", "Redis TCP, C"}},
		{"put-1m-cache", "rate", four, []string{"Redis TCP, Go", "Redis TCP, C"}},
		{"put-1m-durable", "rate", four, []string{"Redis TCP, Go", "Redis TCP, C"}},
		{"puts-off-50", "server_cpu_us", "Redis TCP, Go", nil},
		{"puts-off-50", "server_cpu_us", pipelined[0], nil},
		{"puts-durable-50", "server_cpu_us", "Redis TCP, Go", nil},
		{"puts-durable-50", "server_cpu_us", pipelined[0], nil},
		{"puts-replicas-50", "rate", three, []string{"Redis WAIT 1 TCP, C, pipelined"}},
		{"get-replicas", "p50", bounded, []string{oneNode}},
		{"multiget-replicas-64", "rate", three, []string{oneNode}},
	} {
		r := usualRow(t, want.row)
		if !slices.ContainsFunc(r.Targets, func(x report.Target) bool {
			return x.Aside && x.Headline != "" && figureOf(r, x) == want.figure && x.Ours == want.ours && slices.Equal(x.Theirs, want.theirs)
		}) {
			t.Errorf("%+v is not told beside the goal", want)
		}
	}
	for _, r := range []string{"get-shm-1m", "rate-shm", "multiget-shm-1m"} {
		if !slices.ContainsFunc(usualRow(t, r).Contenders, func(c report.Contender) bool { return c.System == "lmdb" }) {
			t.Errorf("%s is not beside LMDB", r)
		}
	}
	// WAIT is weaker than what rdmakv promises: who reads a row must be told.
	for _, name := range []string{"puts-replicas-1", "puts-replicas-50"} {
		if !strings.Contains(usualRow(t, name).Text, "in its memory, not on its disk") {
			t.Errorf("%s does not tell what WAIT waits for", name)
		}
	}
	if o, err := parse(nil, &bytes.Buffer{}); err != nil || o.rounds < 5 {
		t.Errorf("%d rounds by default, want 5 at least; %v", o.rounds, err)
	}
}

// usualRow is a row of a run without flags.
func usualRow(t *testing.T, name string) row {
	t.Helper()
	rows, err := choose(allRows(options{}), options{})
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(rows, func(r row) bool { return r.Name == name })
	if at < 0 {
		t.Fatalf("a usual run has no row %s", name)
	}
	return rows[at]
}

// figureOf is the name of the figure that a target is about.
func figureOf(r row, t report.Target) string {
	if t.Figure != nil {
		return t.Figure.Name
	}
	return r.Figure.Name
}

// TestRestart: a row of restarts measures stores that answer and are full again, after a stop
// and after a kill under load.
func TestRestart(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds kvserver")
	}
	bin := t.TempDir()
	if out, err := exec.Command("go", "build", "-o", filepath.Join(bin, "kvserver"), "github.com/rdmakv/rdmakv/cmd/kvserver").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	o, err := parse([]string{"-quick", "-rounds", "2", "-bin", bin, "-dir", t.TempDir()}, &bytes.Buffer{})
	if err != nil {
		t.Fatal(err)
	}
	r := restarted(o)
	var log bytes.Buffer
	if err := r.run(context.WithoutCancel(t.Context()), o, &log); err != nil {
		t.Fatal(err)
	}
	for _, c := range r.Contenders {
		for _, round := range c.Rounds {
			if round.Error != "" || round.Value <= 0 || round.Rate <= 0 || round.Value > round.Seconds {
				t.Errorf("%s: %+v", c.Name, round)
			}
		}
	}
	for _, target := range r.Targets {
		if target.Reached == report.NotMeasured {
			t.Errorf("%q: %s", target.Text, target.Because)
		}
	}
}

// TestReadme: a whole run writes README's table, and README has the place for it.
func TestReadme(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	res := &report.Result{Schema: report.Schema, Rounds: 5}
	for _, r := range allRows(options{}) {
		r.Judge()
		res.Rows = append(res.Rows, r.Row)
	}
	path := filepath.Join(root, readmeFile)
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := write(options{root: root, dir: root}, res, &bytes.Buffer{}); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| resident memory per key of 16 B + 64 B, 1 M keys, to Redis | at most 0.9 | **not measured** |  |",
		"| get of 64 B, shm, 10 k keys, p50, to LMDB in memory | at most 1 | **not measured** |  |",
		"| MultiGet of 64 keys, 64 B, shm, one thread, 1 M keys chosen uniformly, keys/s | at least 5 M/s |",
		"| restart, 10 M keys: memory full, in keys per second since the start | at least 4 M keys/s |", "\n## Where to read on\n",
	} {
		if !strings.Contains(string(got), want) {
			t.Errorf("README has no %q:\n%s", want, got)
		}
	}
	if err := os.WriteFile(path, []byte("# No place\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := rewrite(options{root: root}); err == nil {
		t.Error("a README without the place is not told")
	}
}
