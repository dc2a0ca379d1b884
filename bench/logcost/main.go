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
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/rdmakv/rdmakv/bench/compare/report"
)

// A scale says how much is measured.
type scale struct {
	rounds      int
	slice       time.Duration // of one write case in a round
	beside      time.Duration // of one case beside neighbours
	segment     int           // bytes of a log segment
	keys        []int         // of the stores that checkpoints go to
	checkpoints int           // one upon the other
	batch       int           // records of one of them
	fill        int           // keys of the store that is started
	scanBytes   int           // values of a scan, all together
}

var (
	// fullScale takes less than ten minutes on two cores that do nothing else. Its checkpoints have a
	// quarter of the size that the store's would have, over a quarter of the keys:
	// what counts is how much of the key space a checkpoint covers.
	fullScale  = scale{5, 150 * time.Millisecond, time.Second, 64 << 20, []int{250_000, 2_500_000}, 12, 250_000, 500_000, 128 << 20}
	bigScale   = scale{7, 300 * time.Millisecond, 5 * time.Second, 64 << 20, []int{1_000_000, 10_000_000}, 20, 1_000_000, 2_000_000, 512 << 20}
	quickScale = scale{2, 10 * time.Millisecond, 50 * time.Millisecond, 2 << 20, []int{5_000, 50_000}, 8, 5_000, 5_000, 4 << 20}
)

// A bench is what all tables share.
type bench struct {
	scale
	dir string // for files, on the disk that is measured
	rnd *rand.Rand
	log io.Writer
}

// tables are all there are, in the order of the page.
var tables = []struct {
	name    string
	measure func(context.Context, *bench) (*table, error)
}{
	{"syncs", measureSyncs},
	{"plain", measurePlain},
	{"replay", measureReplay},
	{"fill", measureFill},
	{"beside", measureBeside},
	{"levels", measureLevels},
	{"scans", measureScans},
	{"checkpoint", measureCheckpoint},
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "logcost:", err)
		os.Exit(1)
	}
}

// run is the command: the page goes to out, what it is about to do to log.
func run(ctx context.Context, args []string, out, log io.Writer) (err error) {
	f := flag.NewFlagSet("logcost", flag.ContinueOnError)
	f.SetOutput(log)
	dir := f.String("dir", ".cache/logcost", "directory for the files: its disk is what is measured")
	only := f.String("only", "", "only these tables, separated by commas; -list tells their names")
	rounds := f.Int("rounds", 0, "rounds of each table; 0: what the size has")
	seed := f.Uint64("seed", 0, "seed of orders and keys; 0 draws one")
	quick := f.Bool("quick", false, "small sizes and few rounds: a test of the program, not of the machine")
	big := f.Bool("big", false, "full sizes: stores of 10 million keys")
	list := f.Bool("list", false, "list the tables")
	if err := f.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		return err
	}
	names, err := choose(*only)
	if err != nil {
		return err
	}
	if *list {
		fmt.Fprintln(out, strings.Join(names, "\n"))
		return nil
	}
	b := &bench{scale: fullScale, log: log}
	switch {
	case *quick:
		b.scale = quickScale
	case *big:
		b.scale = bigScale
	}
	if *rounds > 0 {
		b.rounds = *rounds
	}
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	if err := os.MkdirAll(*dir, 0o777); err != nil {
		return err
	}
	if b.dir, err = os.MkdirTemp(*dir, "run-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.dir)) }()
	machine := report.ThisMachine(b.dir)
	fmt.Fprintf(out, "%s, Linux %s, %d cores, %s; %s; direct I/O wants %s; seed %d\n", machine.CPU, machine.Kernel,
		machine.Cores, virtual(machine.Virtual), machine.Disk, alignments(b.dir), *seed)
	for _, t := range tables {
		if !slices.Contains(names, t.name) {
			continue
		}
		b.rnd = rand.New(rand.NewPCG(*seed, 0)) // each table alone repeats what it did among all
		began := time.Now()
		result, err := t.measure(ctx, b)
		if result != nil { // what was measured until an error is told too
			fmt.Fprintf(out, "\n### %s\n\n%s", t.name, result.markdown())
		}
		if err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
		fmt.Fprintf(log, "%s took %.1f s\n", t.name, time.Since(began).Seconds())
	}
	return nil
}

// choose returns the names of the tables that are asked for.
func choose(only string) (names []string, err error) {
	for _, t := range tables {
		names = append(names, t.name)
	}
	if only == "" {
		return names, nil
	}
	asked := strings.Split(only, ",")
	for _, name := range asked {
		if !slices.Contains(names, name) {
			return nil, fmt.Errorf("there is no table %q: there are %s", name, strings.Join(names, ", "))
		}
	}
	return asked, nil
}

func virtual(v bool) string {
	if v {
		return "a virtual machine"
	}
	return "no virtual machine"
}

// A turn is one case of a table: it measures once, and adds to its row.
type turn func() error

// turns lets each case have its turn in each round, in an order drawn anew.
func (b *bench) turns(ctx context.Context, rounds int, cases []turn) error {
	for range rounds {
		for _, i := range b.rnd.Perm(len(cases)) {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := cases[i](); err != nil {
				return err
			}
		}
	}
	return nil
}

// path names a new file below the directory of the run.
func (b *bench) path(name string) string {
	return filepath.Join(b.dir, fmt.Sprintf("%s-%08x", name, b.rnd.Uint32()))
}
