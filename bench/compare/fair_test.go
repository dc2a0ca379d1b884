package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/bench/compare/clients"
	"github.com/rdmakv/rdmakv/bench/compare/jobs"
	"github.com/rdmakv/rdmakv/bench/compare/report"
	"github.com/rdmakv/rdmakv/bench/compare/servers"
)

// TestLMDBIsAsked: LMDB is filled with the records of the others and read, alone and in batches,
// in memory, and nothing of it is left.
func TestLMDBIsAsked(t *testing.T) {
	if _, err := clients.CompileLMDB(t.Context(), t.TempDir()); err != nil {
		if os.Getenv("RDMAKV_REQUIRE_LMDB") != "" {
			t.Fatal(err)
		}
		t.Skipf("%v; scripts/prepare installs it", err)
	}
	o := options{dir: t.TempDir(), rounds: 1, slice: 20 * time.Millisecond, seed: 3, quick: true}
	d := dataset{records: 3000, value: 64, choice: "zipf"}
	before := inShm(t)
	r := newRow("test", "Test", "A test.", rate())
	r.add(lmdb("LMDB", d, 1), lmdb("LMDB, loop", d, 64), lmdb("LMDB, large", dataset{4, 1 << 20, "uniform"}, 1))
	if err := r.run(t.Context(), o, io.Discard); err != nil {
		t.Fatal(err)
	}
	for _, c := range r.Contenders {
		if got := c.Rounds[0]; got.Error != "" || got.Rate <= 0 || got.P50 <= 0 || got.P99 < got.P50 || got.ClientCPU <= 0 {
			t.Errorf("%s: %+v", c.Name, got)
		}
	}
	r = newRow("test", "Test", "A test.", report.Figure{Name: "resident_per_key", Unit: "B"})
	r.add(lmdbPerKey(d))
	if err := r.run(t.Context(), o, io.Discard); err != nil {
		t.Fatal(err)
	}
	if got := r.Contenders[0].Rounds[0]; got.Error != "" || got.Value < 80 || got.Value > 300 || got.BytesPerKey != got.Value-80 {
		t.Errorf("%+v", got)
	}
	if after := inShm(t); after != before {
		t.Errorf("left in memory: %s, before %s", after, before)
	}
}

// inShm are the names of what this program makes in memory.
func inShm(t *testing.T) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(shmDir, "kvc*", "data.mdb"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(found, " ")
}

// TestLMDBMissing: where its client cannot be compiled, the row goes on, and the page says why it
// is missing.
func TestLMDBMissing(t *testing.T) {
	bin := t.TempDir()
	gcc := filepath.Join(bin, "gcc")
	if err := os.WriteFile(gcc, []byte("#!/bin/sh\necho 'lmdb.c:1: lmdb.h: No such file' >&2; exit 1\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	o := options{dir: t.TempDir(), rounds: 2, slice: 10 * time.Millisecond, seed: 3, quick: true}
	r := newRow("test", "Test", "A test.", p50())
	r.add(lmdb("LMDB", dataset{100, 64, "uniform"}, 1), contender{Contender: report.Contender{Name: "we", Kind: report.Ours},
		measure: func(context.Context, *rig) (report.Sample, error) { return report.Sample{P50: 1}, nil }})
	r.versus("at most LMDB", "we", "LMDB", report.AtMost, 1).headline("to LMDB")
	if err := r.run(t.Context(), o, io.Discard); err != nil {
		t.Fatal(err)
	}
	if r.Contenders[1].Summary == nil {
		t.Error("the others were not measured")
	}
	var page bytes.Buffer
	if err := report.Page(&page, &report.Result{Rows: []report.Row{r.Row}}, nil); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"| LMDB |  | failed |", "liblmdb-dev", "lmdb.h: No such file", "**not measured**"} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("the page has no %q:\n%s", want, &page)
		}
	}
}

// TestPebbleIsAsked: bare Pebble is put to by the load generator, into a database that holds the
// keys.
func TestPebbleIsAsked(t *testing.T) {
	o := options{dir: t.TempDir(), rounds: 1, slice: 20 * time.Millisecond, seed: 3, quick: true}
	d := dataset{records: 300, value: 100, choice: "uniform"}
	r := newRow("test", "Test", "A test.", rate())
	r.add(pebble(d, 1, true))
	dir := ""
	r.add(contender{Contender: report.Contender{Name: "look", Kind: report.Floor}, measure: func(ctx context.Context, rig *rig) (report.Sample, error) {
		var err error
		if dir, err = rig.pebble(ctx, d); err != nil {
			return report.Sample{}, err
		}
		// Every key is there: a get of each, by the load generator, finds it.
		return employ(ctx, job{Load: &jobs.Load{Target: jobs.Target{System: "pebble", Addr: dir}, Records: d.records, Value: d.value, Op: "get",
			Choice: d.choice, Callers: 2, Duration: 20 * time.Millisecond, Touch: true}})
	}})
	if err := r.run(t.Context(), o, io.Discard); err != nil {
		t.Fatal(err)
	}
	for _, c := range r.Contenders {
		if got := c.Rounds[0]; got.Error != "" || got.Rate <= 0 {
			t.Errorf("%s: %+v", c.Name, got)
		}
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is left: %v", dir, err)
	}
}

// TestOwnNetwork: a program started by inOwnNetwork has an own network in which it can connect, and
// TCP sockets that were told nothing have the congestion control of iwarp.
func TestOwnNetwork(t *testing.T) {
	var log bytes.Buffer
	ran, err := inOwnNetwork(t.Context(), []string{"show"}, &log)
	if !ran {
		if os.Getenv("RDMAKV_REQUIRE_NAMESPACES") != "" {
			t.Fatal(log.String())
		}
		t.Skip(log.String())
	}
	if err != nil || log.String() != clients.Congestion {
		t.Errorf("%v, it says %q", err, &log)
	}
	if ran, err := inOwnNetwork(t.Context(), []string{"fail"}, &log); !ran || !errors.Is(err, errTold) {
		t.Errorf("a run that fails: %v, %v", ran, err)
	}
	// In the network of the machine, none of it is done.
	before := report.ThisMachine(".").Congestion
	here, err := servers.Network()
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{networkArg, here}, {networkArg, ""}, {networkArg}, {"show", "net:[1]"}} {
		if _, err := enterNetwork(args); err == nil {
			t.Errorf("%q: the network of this machine was set up anew", args)
		}
	}
	if after := report.ThisMachine(".").Congestion; after != before {
		t.Errorf("the machine's congestion control is %s, before %s", after, before)
	}
}

// showNetwork is what the test program does in a network of its own: it connects to itself.
func showNetwork(args []string, out io.Writer) error {
	if len(args) != 1 || args[0] != "show" {
		return errors.New("no luck")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = io.WriteString(out, report.ThisMachine(".").Congestion)
	return err
}

// TestPicturesOfAWholeRun: the pictures for README have five bars each in a run in which nothing
// fails. A contender that was renamed would be missed by nobody.
func TestPicturesOfAWholeRun(t *testing.T) {
	var res report.Result
	for _, r := range allRows(options{}) {
		for i := range r.Contenders {
			r.Contenders[i].Rounds = []report.Round{{Round: 1, Sample: report.Sample{P50: 1, Rate: 1, BytesPerKey: 1, Value: 1}}}
		}
		r.Judge()
		res.Rows = append(res.Rows, r.Row)
	}
	pics, err := report.Pictures(&res)
	if err != nil {
		t.Fatal(err)
	}
	for name, labels := range map[string][]string{
		"benchmarks-gets.svg":  {"rdmakv, shared memory", "LMDB in memory", "rdmakv, iwarp over TCP", "memcached", "Redis"},
		"benchmarks-rates.svg": {"rdmakv, iwarp, one connection", "Redis, one connection, 50 pipelined", "Redis, 50 connections", "Redis, 50 UNIX sockets", "memcached, 50 connections"},
		"benchmarks-puts.svg":  {"rdmakv, iwarp, one connection", "rdmakv, shared memory", "Redis, one connection, 50 pipelined", "Redis, 50 connections", "bare Pebble, no network"},
	} {
		for _, label := range labels {
			if !strings.Contains(string(pics[name]), ">"+label+"<") {
				t.Errorf("%s has no bar of %s", name, label)
			}
		}
	}
}

// TestShortOfMemory: a row that needs more memory than there is says so, and measures nothing.
func TestShortOfMemory(t *testing.T) {
	r := newRow("test", "Test", "A test.", p50())
	r.add(contender{Contender: report.Contender{Name: "a"}, measure: func(context.Context, *rig) (report.Sample, error) {
		t.Error("it was measured")
		return report.Sample{}, nil
	}})
	r.target("a", "a", "", report.AtMost, 1)
	r.needs = 1 << 60
	if r.short("") != "" {
		t.Error("a machine that tells nothing is refused")
	}
	for text, enough := range map[string]bool{
		"MemTotal: 9 kB\nMemAvailable:   1000000 kB\n": false, "MemAvailable: 1152921504606846976 kB\n": true, "MemAvailable: x kB\n": true,
	} {
		if got := r.short(text); (got == "") != enough {
			t.Errorf("%q: %q", text, got)
		}
	}
	if memInfo() == "" {
		if runtime.GOOS == "linux" {
			t.Fatal("nothing is known of this machine's memory")
		}
		t.Skip("only Linux tells of its memory")
	}
	if err := r.run(t.Context(), options{dir: t.TempDir(), rounds: 1}, io.Discard); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(r.Targets[0].Because, "GiB available") || r.Targets[0].Reached != report.NotMeasured {
		t.Errorf("%+v", r.Targets[0])
	}
	rows := map[string]bool{}
	for _, r := range allRows(options{big: true}) {
		rows[r.Name] = r.needs > 0
	}
	if !rows["growth-10m"] || !rows["growth-50m"] {
		t.Errorf("with -big: %v", rows)
	}
}
