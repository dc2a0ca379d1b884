package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/magiconair/properties"
	ycsbclient "github.com/pingcap/go-ycsb/pkg/client"
	"github.com/pingcap/go-ycsb/pkg/measurement"
	"github.com/pingcap/go-ycsb/pkg/prop"
	_ "github.com/pingcap/go-ycsb/pkg/workload" // registers "core"
	"github.com/pingcap/go-ycsb/pkg/ycsb"

	"github.com/rdmakv/rdmakv/client"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Environ(), os.Stderr); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "ycsb:", err)
		}
		os.Exit(1)
	}
}

// list is a flag that may be repeated.
type list []string

func (l *list) String() string { return strings.Join(*l, " ") }

// Set adds one.
func (l *list) Set(s string) error {
	*l = append(*l, s)
	return nil
}

// run is the command. The measurements go to standard output, which is how
// go-ycsb has it.
func run(ctx context.Context, args, env []string, stderr io.Writer) error {
	var files, values list
	flags := flag.NewFlagSet("ycsb", flag.ContinueOnError)
	flags.SetOutput(stderr)
	workload := flags.String("workload", "", "a to f: YCSB's properties for it; -P and -p go over them")
	flags.Var(&files, "P", "file of properties; may be repeated")
	flags.Var(&values, "p", "NAME=VALUE, a property; may be repeated. rdmakv.NAME is a key of rdmakv's configuration")
	flags.Usage = func() {
		fmt.Fprintln(stderr, "usage: ycsb [-workload a..f] [-P FILE] [-p NAME=VALUE ...] load|run|both")
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); err != nil {
		return err
	}
	what := flags.Arg(0)
	if flags.NArg() != 1 || !slices.Contains([]string{"load", "run", "both"}, what) {
		return errors.New(`want one of load (store the records), run (the workload), both`)
	}
	p, err := makeProperties(*workload, files, values)
	if err != nil {
		return err
	}
	c, err := dial(ctx, p, env)
	if err != nil {
		return err
	}
	d := &db{c: c}
	for _, phase := range []string{"load", "run"} {
		if ctx.Err() == nil && (what == phase || what == "both") {
			if err = phaseOf(ctx, p, d, phase == "run"); err != nil {
				break
			}
		}
	}
	return errors.Join(err, d.outcome(), ctx.Err(), c.Close())
}

// phaseOf loads the records or runs the operations. The core workload counts what
// was inserted, so each phase makes its own.
func phaseOf(ctx context.Context, p *properties.Properties, d *db, transactions bool) error {
	if _, _, err := p.Set(prop.DoTransactions, fmt.Sprint(transactions)); err != nil {
		return err
	}
	if !transactions {
		undo, err := oneMore(p)
		if err != nil {
			return err
		}
		defer undo()
	}
	measurement.InitMeasure(p)
	creator := ycsb.GetWorkloadCreator(p.GetString(prop.Workload, "core"))
	if creator == nil {
		return fmt.Errorf("workload=%s is none that go-ycsb has: want core", p.GetString(prop.Workload, ""))
	}
	w, err := creator.Create(p)
	if err != nil {
		return err
	}
	defer w.Close()
	begun := time.Now()
	ycsbclient.NewClient(p, w, ycsbclient.DbWrapper{DB: d}).Run(ctx)
	name := map[bool]string{false: "Load", true: "Run"}[transactions]
	fmt.Printf("%s finished, takes %s\n", name, time.Since(begun).Round(time.Microsecond))
	measurement.Output()
	return nil
}

// oneMore has the load phase store one record more than recordcount where keys are
// chosen by Zipf's law: go-ycsb's choice includes the number behind the last record
// there. Without it some gets of a sound store would fail, and a lost record would
// not be noticed among them. undo takes it back.
func oneMore(p *properties.Properties) (undo func(), err error) {
	if p.GetString(prop.RequestDistribution, "") != "zipfian" {
		return func() {}, nil
	}
	before := p.GetString(prop.RecordCount, "")
	_, _, err = p.Set(prop.RecordCount, fmt.Sprint(p.GetInt64(prop.RecordCount, 0)+1))
	return func() { _, _, _ = p.Set(prop.RecordCount, before) }, err
}

// makeProperties joins the defaults, the workload's properties, those of files
// and those of the command line, each over those before it.
func makeProperties(workload string, files, values []string) (*properties.Properties, error) {
	p := properties.NewProperties()
	if err := setAll(p, defaults); err != nil {
		return nil, err
	}
	if workload != "" {
		preset, ok := workloads[workload]
		if !ok {
			return nil, fmt.Errorf("-workload is %q, want one of %s", workload, strings.Join(slices.Sorted(maps.Keys(workloads)), ", "))
		}
		if err := setAll(p, preset); err != nil {
			return nil, err
		}
	}
	for _, file := range files {
		more, err := properties.LoadFile(file, properties.UTF8)
		if err != nil {
			return nil, err
		}
		p.Merge(more)
	}
	for _, value := range values {
		name, text, ok := strings.Cut(value, "=")
		if !ok {
			return nil, fmt.Errorf("-p %q: want NAME=VALUE", value)
		}
		if _, _, err := p.Set(name, text); err != nil {
			return nil, fmt.Errorf("-p %q: %w", value, err)
		}
	}
	// go-ycsb ends the process where there are fewer operations than threads.
	return p, checkCounts(p)
}

// checkCounts checks the numbers that go-ycsb takes for granted.
func checkCounts(p *properties.Properties) error {
	threads := p.GetInt64(prop.ThreadCount, 1)
	for _, name := range []string{prop.RecordCount, prop.OperationCount} {
		if n := p.GetInt64(name, 0); n < threads || threads < 1 {
			return fmt.Errorf("%s=%d and %s=%d: want at least one thread and no more than that", name, n, prop.ThreadCount, threads)
		}
	}
	return nil
}

// own is what the properties of rdmakv's configuration begin with.
const own = "rdmakv."

// dial connects with rdmakv's own configuration: its files and environment, and
// over them the properties rdmakv.NAME.
func dial(ctx context.Context, p *properties.Properties, env []string) (*client.Client, error) {
	for _, name := range p.Keys() {
		if key, ok := strings.CutPrefix(name, own); ok {
			env = append(env, "RDMAKV_"+strings.ToUpper(key)+"="+p.GetString(name, ""))
		}
	}
	cfg, err := clientConfig(env)
	if err != nil {
		return nil, err
	}
	return client.Dial(ctx, cfg)
}
