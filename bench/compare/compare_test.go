package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/bench/compare/clients"
	"github.com/rdmakv/rdmakv/bench/compare/jobs"
	"github.com/rdmakv/rdmakv/bench/compare/report"
	"github.com/rdmakv/rdmakv/bench/compare/servers"
)

// TestMain makes the test program a worker, or what runs in a network of its own, when it is
// started as one.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == workerArg {
		if err := work(context.Background(), os.Stdin, os.Stdout); err != nil {
			_, _ = os.Stderr.WriteString(err.Error())
			os.Exit(1)
		}
		os.Exit(0)
	}
	if len(os.Args) > 1 && os.Args[1] == networkArg {
		args, err := enterNetwork(os.Args[1:])
		if err != nil {
			os.Exit(noNetwork)
		}
		if err := showNetwork(args, os.Stderr); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestFlags(t *testing.T) {
	o, err := parse([]string{"-rounds", "7", "-slice", "2s", "-rows", "get-shm"}, io.Discard)
	if err != nil || o.rounds != 7 || o.slice != 2*time.Second || o.seed == 0 {
		t.Errorf("%+v, %v", o, err)
	}
	if !filepath.IsAbs(o.bin) {
		t.Errorf("kvserver is looked for in %q, whatever directory it is started in", o.bin)
	}
	if o, err = parse([]string{"-quick"}, io.Discard); err != nil || o.rounds != 2 || o.slice != 100*time.Millisecond {
		t.Errorf("%+v, %v", o, err)
	}
	if o, err = parse([]string{"-quick", "-rounds", "3"}, io.Discard); err != nil || o.rounds != 3 {
		t.Errorf("%+v, %v", o, err)
	}
	for _, bad := range [][]string{{"-rounds", "0"}, {"-slice", "1ms"}, {"-slice", "2h"}, {"more"}, {"-unknown"}} {
		if _, err := parse(bad, io.Discard); err == nil {
			t.Errorf("%v was taken", bad)
		}
	}
}

// TestRows: every row can be judged, whatever the flags; names are unique.
func TestRows(t *testing.T) {
	for _, o := range []options{{}, {quick: true}, {big: true}, {big: true, quick: true}} {
		seen := map[string]bool{}
		for _, r := range allRows(o) {
			if err := r.Check(); err != nil {
				t.Error(err)
			}
			if seen[r.Name] || len(r.asked) == 0 || len(r.asked) != len(r.Contenders) || r.Text == "" {
				t.Errorf("row %q", r.Name)
			}
			seen[r.Name] = true
			for _, target := range r.Targets {
				if target.Want == report.AtMost && target.Limit <= 0 {
					t.Errorf("%s: %q has the limit %v", r.Name, target.Text, target.Limit)
				}
			}
		}
	}
	rows, err := choose(allRows(options{}), options{rows: "restart, get-shm"})
	if err != nil || len(rows) != 2 || rows[0].Name != "restart" {
		t.Errorf("%d rows, %v", len(rows), err)
	}
	if _, err := choose(allRows(options{}), options{rows: "get-shm,none"}); err == nil || !strings.Contains(err.Error(), "puts-off-50") {
		t.Errorf("an unknown row: %v", err)
	}
}

// TestRounds: every contender has one turn in every round, the order changes, and one that fails, or
// measures nothing, does not spoil it for the others.
func TestRounds(t *testing.T) {
	r := newRow("test", "Test", "A test.", p50())
	ask := func(name string, f func() (report.Sample, error)) contender {
		return contender{Contender: report.Contender{Name: name, Kind: report.Ours}, group: "x",
			measure: func(context.Context, *rig) (report.Sample, error) { return f() }}
	}
	r.add(
		ask("a", func() (report.Sample, error) { return report.Sample{P50: 1}, nil }),
		ask("b", func() (report.Sample, error) { return report.Sample{P50: 2}, nil }),
		ask("fails", func() (report.Sample, error) { return report.Sample{}, errors.New("no luck") }),
		ask("nothing", func() (report.Sample, error) { return report.Sample{}, nil }),
	)
	r.versus("a against b", "a", "b", report.AtMost, 0.5).target("a against all", "a", "x", report.AtMost, 1)
	o := options{dir: t.TempDir(), rounds: 6, slice: 10 * time.Millisecond, seed: 1}
	var log bytes.Buffer
	if err := r.run(t.Context(), o, &log); err != nil {
		t.Fatal(err)
	}
	orders := map[int]int{}
	for _, c := range r.Contenders {
		if len(c.Rounds) != 6 {
			t.Errorf("%s had %d turns", c.Name, len(c.Rounds))
		}
		for i, round := range c.Rounds {
			if round.Round != i+1 || round.Order < 1 || round.Order > 4 {
				t.Errorf("%s: %+v", c.Name, round)
			}
			orders[round.Round] += round.Order
		}
	}
	for round, sum := range orders {
		if sum != 1+2+3+4 {
			t.Errorf("round %d has turns that add up to %d", round, sum)
		}
	}
	first := r.Contenders[0].Rounds
	if !slices.ContainsFunc(first, func(x report.Round) bool { return x.Order != first[0].Order }) {
		t.Error("the order never changed")
	}
	if r.Contenders[2].Rounds[0].Error != "no luck" || r.Contenders[3].Rounds[0].Error == "" {
		t.Errorf("errors %q and %q", r.Contenders[2].Rounds[0].Error, r.Contenders[3].Rounds[0].Error)
	}
	if r.Targets[0].Reached != report.Yes || r.Targets[0].Ratio.Median != 0.5 {
		t.Errorf("%+v", r.Targets[0])
	}
	if !strings.Contains(log.String(), "no luck") {
		t.Errorf("the log does not tell what failed:\n%s", &log)
	}
	if left, err := os.ReadDir(o.dir); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// TestInterrupted: Ctrl-C ends a run at once, and nothing is left.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	r := newRow("test", "Test", "A test.", p50())
	r.add(contender{Contender: report.Contender{Name: "a"}, measure: func(ctx context.Context, _ *rig) (report.Sample, error) {
		cancel()
		<-ctx.Done()
		return report.Sample{}, ctx.Err()
	}})
	o := options{dir: t.TempDir(), rounds: 6, slice: 10 * time.Millisecond, seed: 1}
	if err := r.run(ctx, o, io.Discard); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if left, err := os.ReadDir(o.dir); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// TestWorkers runs jobs in processes of their own.
func TestWorkers(t *testing.T) {
	ctx := t.Context()
	if s, err := employ(ctx, job{Copy: &copyJob{64, 10 * time.Millisecond}}); err != nil || s.Ops == 0 {
		t.Errorf("%+v, %v", s, err)
	}
	cores := servers.Cores()
	on := pins{on: len(cores) > 0}
	if on.on {
		on.server, on.client = cores[0], cores[len(cores)-1]
	}
	p := &clients.PingPong{Network: "tcp", Request: 10, Answer: 100, Duration: 20 * time.Millisecond}
	if s, err := facing(ctx, job{PingPong: p, pins: on}); err != nil || s.Ops == 0 {
		t.Errorf("%+v, %v", s, err)
	}
	if s, err := facing(ctx, job{Stream: &clients.Stream{Chunk: 4096, Duration: 20 * time.Millisecond}}); err != nil || s.Ops == 0 {
		t.Errorf("%+v, %v", s, err)
	}
	if _, err := employ(ctx, job{}); err == nil || !strings.Contains(err.Error(), "nothing") {
		t.Errorf("a job of nothing: %v", err)
	}
	// The results say which waiting mode, fabric or system this build does not have.
	for text, target := range map[string]jobs.Target{
		"wait":    {System: "rdmakv", Fabric: "iwarp", Wait: "never"},
		"fabric":  {System: "rdmakv", Fabric: "pigeon"},
		"system":  {System: "other"},
		"refused": {System: "redis", Network: "unix", Addr: filepath.Join(t.TempDir(), "nobody")},
	} {
		l := &jobs.Load{Target: target, Records: 1, Value: 1, Op: "get", Choice: "uniform", Callers: 1, Duration: time.Millisecond}
		if s, err := employ(ctx, job{Load: l}); err == nil {
			t.Errorf("%s: %+v", text, s)
		}
	}
	limited, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	if _, err := employ(limited, job{Copy: &copyJob{64, time.Minute}}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a worker that takes too long: %v", err)
	}
}

// TestPeersAreAsked lets each way of asking have a turn, where the peers are
// installed: the whole path from a started server to a sample.
func TestPeersAreAsked(t *testing.T) {
	o := options{dir: t.TempDir(), rounds: 1, slice: 20 * time.Millisecond, seed: 3, quick: true}
	d := dataset{records: 200, value: 64, choice: "uniform"}
	for _, p := range []peer{{"redis", "unix", "always"}, {"memcached", "tcp", ""}} {
		t.Run(p.String(), func(t *testing.T) {
			for _, program := range []string{"redis-server", "redis-benchmark", "memcached", "gcc"} {
				if _, err := exec.LookPath(program); err != nil {
					t.Skip(program + " is not installed; scripts/bench-compare installs it")
				}
			}
			// A turn has to be long enough for one exchange. How long that is depends on
			// what else this machine does: it is found by trying.
			var r *row
			for o := o; ; o.slice *= 4 {
				o.dir = t.TempDir()
				r = newRow("test", "Test", "A test.", rate())
				r.add(p.ways(d, workload{op: "get", callers: 1, batch: 4})...)
				// Another server, because the client in C does not store values that the others know.
				puts := dataset{records: 200, value: 65, choice: "uniform"}
				r.add(grown(p.inC(puts, workload{op: "put", callers: 3}, false), "puts"))
				if err := r.run(t.Context(), o, io.Discard); err != nil {
					t.Fatal(err)
				}
				short := slices.ContainsFunc(r.Contenders, func(c report.Contender) bool {
					return len(c.Rounds) > 0 && strings.Contains(c.Rounds[0].Error, "no exchange")
				})
				if !short || o.slice > 5*time.Second {
					break
				}
			}
			for _, c := range r.Contenders {
				if c.Summary == nil || c.Rounds[0].Rate <= 0 || c.Rounds[0].Error != "" {
					t.Errorf("%s: %+v", c.Name, c.Rounds)
				}
			}
			if r.Error != "" {
				t.Error(r.Error)
			}
		})
	}
}

// TestOutput: a part of the rows does not replace the results of a whole run, and
// the page can be made again from them.
func TestOutput(t *testing.T) {
	root := t.TempDir()
	o := options{root: root, dir: filepath.Join(root, "stores")}
	res := &report.Result{Schema: report.Schema, Rounds: 1, Rows: []report.Row{}}
	for _, c := range []struct {
		o    options
		want string
	}{
		{options{root: root, dir: o.dir, rows: "get-shm"}, filepath.Join(o.dir, partDir)},
		{options{root: root, dir: o.dir, quick: true}, filepath.Join(o.dir, partDir)},
		{o, root},
	} {
		if err := write(c.o, res, io.Discard); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{resultsFile, pageFile} {
			if _, err := os.Stat(filepath.Join(c.want, name)); err != nil {
				t.Error(err)
			}
			if c.want != root {
				if _, err := os.Stat(filepath.Join(root, name)); err == nil {
					t.Errorf("a part of the rows has written %s", name)
				}
			}
		}
	}
	lab := &report.Result{Schema: report.Schema, Rows: []report.Row{{Name: "lab-x", Title: "Lab row"}}}
	if err := report.WriteFile(filepath.Join(root, labFile), func(w io.Writer) error { return lab.WriteJSON(w) }); err != nil {
		t.Fatal(err)
	}
	if err := rewrite(o); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(root, pageFile))
	if err != nil || !bytes.Contains(page, []byte("## Lab row")) {
		t.Errorf("the page without the lab: %v\n%s", err, page)
	}
	if err := os.WriteFile(filepath.Join(root, labFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := rewrite(o); err == nil {
		t.Error("results that cannot be read are not told")
	}
}
