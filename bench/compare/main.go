// Compare measures rdmakv beside Redis, memcached, LMDB and etcd, on one machine, in one
// run, and writes the results: docs/benchmarks.md, pictures beside it, the table in
// README.md, and bench/results/latest.json. "make bench-compare" installs the peers and
// runs it, in some 35 minutes.
//
//	compare -rows get-shm,puts-durable-50 -rounds 7
//	compare -quick                 a test of the program itself, in a minute or two
//	compare -page                  write the page again from latest.json
//	compare -lab FILE              take over what "make lab-bench" has measured
//
// # How it measures
//
// A row is one question, such as how long a get of 64 B takes, asked of several
// contenders: rdmakv over one fabric, a peer by one of several clients, a floor.
// In every round each of them has one turn, in an order drawn anew, so that load
// on the machine disturbs all alike; figures are compared within a round. Servers
// run as long as their row does, and are idle while it is not their turn. The
// load comes from one other process: for rdmakv, and for one of the ways in which
// a peer is asked, it is this program again ("compare worker") under
// internal/load, with the same keys, values, order and clock. For etcd it is a program
// of a module of its own (etcd), which takes the same jobs.
//
// Where a peer can be asked in several ways, the one that is best for it counts.
//
// All of it runs in a network namespace of its own, in which every TCP socket has
// the congestion control of rdmakv's, where the machine lets it.
//
// If a contender fails, its place in the page says so, and the others go on.
//
// The files, one idea each: main (flags), network (where it runs), run (rounds), rig
// (servers of a row), row (what a row is made of), contenders, lmdb, etcd, floors,
// rows_get, rows_multiget, rows_large, rows_put and rows_replicas (the questions), growth, memory
// (bytes per key), restart, job and worker (the process that makes the load; what a load is, package jobs says),
// output (what is written), lab (what a guest has measured).
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// options are the flags.
type options struct {
	bin    string // directory of kvserver
	dir    string // for the stores: on the disk that is to be measured
	root   string // of the repository: where the results go
	rows   string
	rounds int
	slice  time.Duration
	seed   uint64
	quick  bool
	page   bool
	lab    string // results of a guest
	list   bool
	big    bool
	dry    bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if len(os.Args) == 2 && os.Args[1] == workerArg {
		if err := work(ctx, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	args, measures := os.Args[1:], inOwnNetwork
	if len(args) > 0 && args[0] == networkArg {
		var err error
		if args, err = enterNetwork(args); err != nil {
			fmt.Fprintln(os.Stderr, "compare:", err)
			os.Exit(noNetwork)
		}
		measures = nil
	}
	if err := run(ctx, args, os.Stderr, measures); err != nil {
		if !errors.Is(err, errTold) {
			fmt.Fprintln(os.Stderr, "compare:", err)
		}
		os.Exit(1)
	}
}

// run is the command: it parses the flags, then lists, rewrites the page, or
// measures, by again if that is not nil and can.
func run(ctx context.Context, args []string, log io.Writer, again func(context.Context, []string, io.Writer) (bool, error)) error {
	o, err := parse(args, log)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	if o.page {
		return rewrite(o)
	}
	if o.lab != "" {
		return takeLab(o, log)
	}
	rows, err := choose(allRows(o), o)
	if err != nil {
		return err
	}
	if o.list {
		for _, r := range rows {
			fmt.Fprintf(log, "%-18s %s\n", r.Name, r.Title)
		}
		return nil
	}
	if again != nil {
		if ran, err := again(ctx, args, log); ran || err != nil {
			return err
		}
	}
	return compare(ctx, o, rows, log)
}

func parse(args []string, log io.Writer) (o options, err error) {
	f := flag.NewFlagSet("compare", flag.ContinueOnError)
	f.SetOutput(log)
	f.StringVar(&o.bin, "bin", "bin", "directory with kvserver")
	f.StringVar(&o.dir, "dir", ".cache/compare", "directory for the stores: its disk is what durable writes are measured on")
	f.StringVar(&o.root, "root", ".", "root of the repository, where docs/ and bench/results/ are written")
	f.StringVar(&o.rows, "rows", "", "only these rows, by name, separated by commas; -list tells the names")
	f.IntVar(&o.rounds, "rounds", 5, "rounds of every row")
	f.DurationVar(&o.slice, "slice", 800*time.Millisecond, "for how long a contender is measured in a round")
	f.Uint64Var(&o.seed, "seed", 0, "seed of orders and keys; 0 draws one")
	f.BoolVar(&o.quick, "quick", false, "few rounds of few milliseconds and small stores: a test of the program, not of the machine")
	f.BoolVar(&o.page, "page", false, "measure nothing: write the page and the pictures from the last results")
	f.StringVar(&o.lab, "lab", "", "measure nothing: take what this file has of the lab's results into "+labFile+", and write the page")
	f.BoolVar(&o.list, "list", false, "list the rows")
	f.BoolVar(&o.big, "big", false, "also stores of 10 and 50 million keys, where there is the memory")
	f.BoolVar(&o.dry, "dry", false, "print the results, write no file")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	if o.seed == 0 {
		o.seed = uint64(rand.Uint32())
	}
	// Servers run in directories of their own.
	if o.bin, err = filepath.Abs(o.bin); err != nil {
		return o, err
	}
	set := make(map[string]bool)
	f.Visit(func(f *flag.Flag) { set[f.Name] = true })
	if o.quick {
		if !set["rounds"] {
			o.rounds = 2
		}
		if !set["slice"] {
			o.slice = 100 * time.Millisecond
		}
	}
	if o.rounds < 1 || o.rounds > 1000 {
		return o, fmt.Errorf("-rounds is %d, want 1 to 1000", o.rounds)
	}
	if o.slice < 10*time.Millisecond || o.slice > time.Minute {
		return o, fmt.Errorf("-slice is %v, want 10ms to 1m", o.slice)
	}
	return o, nil
}

// choose filters the rows, and refuses names that are none.
func choose(rows []row, o options) ([]row, error) {
	if o.rows == "" {
		return rows, nil
	}
	var chosen []row
	var names []string
	for _, r := range rows {
		names = append(names, r.Name)
	}
	for name := range strings.SplitSeq(o.rows, ",") {
		found := false
		for _, r := range rows {
			if r.Name == strings.TrimSpace(name) {
				chosen, found = append(chosen, r), true
			}
		}
		if !found {
			return nil, fmt.Errorf("-rows: there is no row %q; there are: %s", name, strings.Join(names, ", "))
		}
	}
	return chosen, nil
}
