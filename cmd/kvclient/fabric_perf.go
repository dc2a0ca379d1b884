package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdmakv/rdmakv/internal/config"
	"github.com/rdmakv/rdmakv/internal/perf"
	"github.com/rdmakv/rdmakv/rdma"
)

// perfOptions are the flags of fabric perf.
type perfOptions struct {
	serve  string
	tests  []string
	sizes  []string
	sweep  bool
	params perf.Params
	limits perf.Limits
	// maxSize is limits.MaxSize as it is written.
	maxSize string
}

func (a *app) fabricPerfCmd() *cobra.Command {
	var o perfOptions
	cmd := &cobra.Command{
		Use:   "perf [HOST:PORT]",
		Short: "measure a fabric between two hosts, as perftest does",
		Long: `perf measures latency and bandwidth of RDMA between two hosts, without the
store: one end runs "perf --serve HOST:PORT", the other "perf HOST:PORT".

Tests: ` + strings.Join(perf.Tests(), ", ") + `.
The figures are those of perftest's ib_read_lat and so on: read_lat is the whole
round trip of a READ; write_lat and send_lat are half a ping and its pong, one
way; t_typical is the median; MiB are 2^20 bytes.

The server grants READ and WRITE on a scratch buffer of each connection for the
time of its test, and nothing else. It asks nobody for a password: let it run
while you measure, on a network whose members may use the link.`,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case (o.serve == "") == (len(args) == 0):
				return usagef("give either HOST:PORT of a server or --serve")
			case o.serve != "":
				return a.perfServe(cmd.Context(), &o)
			}
			return a.perfRun(cmd, &o, args[0])
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.serve, "serve", "", "be the server, at this HOST:PORT")
	f.StringSliceVarP(&o.tests, "test", "t", []string{"read_lat"}, "tests to run, or all")
	f.StringSliceVarP(&o.sizes, "size", "s", []string{"64"}, "sizes of a message: bytes, or with a unit (4KiB)")
	f.BoolVarP(&o.sweep, "sweep", "a", false, "all powers of two from 2 bytes to 8MiB, a second each unless told otherwise")
	f.Uint64VarP(&o.params.Iterations, "iterations", "n", 0, "messages to measure; 0: 10000 for latency, 5000 for bandwidth")
	f.DurationVarP(&o.params.Duration, "duration", "D", 0, "measure for so long instead")
	f.Uint64Var(&o.params.Warmup, "warmup", 100, "messages before the measurement")
	f.IntVar(&o.params.Depth, "depth", 0, "bandwidth: messages in flight; 0: 128 (perftest --tx-depth)")
	f.IntVarP(&o.params.Batch, "batch", "l", 0, "bandwidth: messages posted with one doorbell; 0: 1 (perftest --post_list)")
	f.IntVarP(&o.params.SignalEvery, "signal-every", "Q", 0, "a completion for every n-th message; 0: 1 (perftest --cq-mod)")
	f.BoolVarP(&o.params.Events, "events", "e", false, "sleep until there is a completion event, instead of polling")
	f.IntVar(&o.params.Inline, "inline", 0, "largest payload sent inline; 0: the default, -1: none")
	f.StringVar(&o.maxSize, "max-size", "8MiB", "--serve: largest message")
	f.IntVar(&o.limits.MaxDepth, "max-depth", 1024, "--serve: most messages in flight")
	f.DurationVar(&o.limits.MaxTime, "max-time", 10*time.Minute, "--serve: longest test")
	f.IntVar(&o.limits.MaxTests, "max-tests", 4, "--serve: tests at a time")
	_ = cmd.RegisterFlagCompletionFunc("test", cobra.FixedCompletions(append(perf.Tests(), "all"), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// size reads a size of a message: plain bytes, as perftest takes them, or with
// a unit.
func (o *perfOptions) size(flag, s string) (int, error) {
	n, err := strconv.ParseUint(s, 10, 62)
	if err != nil {
		var size config.Size
		if size, err = config.ParseSize(s); err != nil {
			return 0, usagef("--%s: %w", flag, err)
		}
		n = uint64(size)
	}
	if n < 1 || n > perf.MaxSize {
		return 0, usagef("--%s is %s, want 1 to %d bytes", flag, s, perf.MaxSize)
	}
	return int(n), nil
}

// plan lists the tests to run, each with its size, all checked.
func (o *perfOptions) plan(sizeGiven bool) (plan []perf.Params, err error) {
	var sizes []int
	switch {
	case len(o.tests) == 0:
		return nil, usagef("--test names no test; there are: %s", strings.Join(perf.Tests(), ", "))
	case len(o.sizes) == 0:
		return nil, usagef("--size names no size")
	case o.sweep && sizeGiven:
		return nil, usagef("both --size and --sweep are given")
	case o.sweep:
		for n := 2; n <= 8<<20; n *= 2 {
			sizes = append(sizes, n)
		}
		if o.params.Iterations == 0 && o.params.Duration == 0 {
			o.params.Duration = time.Second
		}
	default:
		for _, s := range o.sizes {
			n, err := o.size("size", s)
			if err != nil {
				return nil, err
			}
			sizes = append(sizes, n)
		}
	}
	if o.params.Iterations > 0 && o.params.Duration > 0 {
		return nil, usagef("both --iterations and --duration are given")
	}
	tests := o.tests
	if len(tests) == 1 && tests[0] == "all" {
		tests = perf.Tests()
	}
	for _, name := range tests {
		op, kind, err := perf.ParseTest(name)
		if err != nil {
			return nil, &usageError{err}
		}
		for _, n := range sizes {
			p := o.params
			p.Op, p.Kind, p.Size = op, kind, n
			if kind == perf.Latency {
				p.Depth, p.Batch, p.SignalEvery = 0, 0, 0
			}
			p.Fill()
			if err := p.Check(); err != nil {
				return nil, &usageError{fmt.Errorf("%s: %w", name, err)}
			}
			plan = append(plan, p)
		}
	}
	return plan, nil
}

// perfRun is the client.
func (a *app) perfRun(cmd *cobra.Command, o *perfOptions, addr string) error {
	plan, err := o.plan(cmd.Flags().Changed("size"))
	if err != nil {
		return err
	}
	ctx := cmd.Context()
	setup, cancel := context.WithTimeout(ctx, a.cfg.Timeout)
	defer cancel()
	w, passed, err := a.wayTo(setup, addr)
	if err != nil {
		return err
	}
	return a.perfTests(ctx, setup, w, passed, plan, addr)
}

// perfTests carries out a plan over w, setup bounds opening its device. passed says
// why better ways are not used, which is told once.
func (a *app) perfTests(ctx, setup context.Context, w way, passed []error, plan []perf.Params, addr string) error {
	tell := func() {
		for _, why := range passed {
			fmt.Fprintf(a.stderr, "kvclient: not used: %v\n", why)
		}
		passed = nil
	}
	dev, err := w.fabric.Open(setup, w.device)
	if err != nil {
		tell()
		return err
	}
	defer dev.Close()
	out := perfPrinter{app: a}
	for i, p := range plan {
		var done atomic.Uint64
		stop := a.perfProgress(p, &done)
		res, err := perf.Run(ctx, dev, w.addr, p, perf.Options{Progress: &done})
		stop()
		if i == 0 && errors.Is(err, syscall.ECONNREFUSED) { // whatever the fabric
			if !slices.ContainsFunc(passed, func(err error) bool { return !noDevice(err) }) {
				passed = nil // who has no device knows that
			}
			tell()
			return fmt.Errorf("no server at %s: %w (kvclient fabric perf --serve %s is one)", addr, syscall.ECONNREFUSED, addr)
		}
		tell()
		if err != nil {
			return fmt.Errorf("%s of %d bytes over %v: %w", p.Name(), p.Size, w, err)
		}
		if err := out.show(res); err != nil {
			return err
		}
	}
	return nil
}

// noDevice reports whether a fabric is not used because this machine has nothing for
// it. A device of verbs that leads nowhere, as with a port that is down, is another
// matter: then the fabric says so.
func noDevice(err error) bool {
	op := (*rdma.OpError)(nil)
	return errors.Is(err, rdma.ErrNoDevice) && (!errors.As(err, &op) || op.Fabric != "verbs")
}

// perfProgress shows on a terminal how far a test is.
func (a *app) perfProgress(p perf.Params, done *atomic.Uint64) (stop func()) {
	if !isTerminal(a.stderr) {
		return func() {}
	}
	quit, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		start := time.Now()
		tick := time.NewTicker(progressTTY)
		defer tick.Stop()
		for {
			select {
			case <-quit:
				fmt.Fprint(a.stderr, "\r\x1b[K")
				return
			case <-tick.C:
			}
			of := fmt.Sprintf("of %s", thousands(int64(p.Iterations)))
			if p.Duration > 0 {
				of = fmt.Sprintf("in %s of %v", shortDuration(time.Since(start)), p.Duration)
			}
			fmt.Fprintf(a.stderr, "\r%s, %d bytes: %s %s\x1b[K", p.Name(), p.Size, thousands(int64(done.Load())), of)
		}
	}()
	return func() {
		close(quit)
		<-gone
	}
}

// perfServe is the server: at addr on every fabric that is allowed, until the
// program is interrupted, which is no error.
func (a *app) perfServe(ctx context.Context, o *perfOptions) (err error) {
	if o.limits.MaxSize, err = o.size("max-size", o.maxSize); err != nil {
		return err
	}
	if o.limits.MaxDepth < 1 || o.limits.MaxDepth > perf.MaxDepth || o.limits.MaxTests < 1 || o.limits.MaxTests > 1024 ||
		o.limits.MaxTime < time.Second || o.limits.MaxTime > perf.MaxDuration {
		return usagef("want --max-depth 1 to %d, --max-tests 1 to 1024, --max-time 1s to %v", perf.MaxDepth, perf.MaxDuration)
	}
	ways, passed := a.waysAt(ctx, o.serve)
	for _, why := range passed {
		fmt.Fprintf(a.stderr, "kvclient: not used: %v\n", why)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	done := make(chan error, len(ways))
	running := 0
	var mu sync.Mutex // one line at a time
	told := func(w way, t perf.Test) {
		mu.Lock()
		defer mu.Unlock()
		a.perfTold(w, t)
	}
	for _, w := range ways {
		s, dev, err := a.perfListen(ctx, w, o.limits, told)
		if err != nil {
			mu.Lock() // the servers before it may be telling something
			fmt.Fprintf(a.stderr, "kvclient: not used: %v\n", err)
			mu.Unlock()
			continue
		}
		running++
		mu.Lock()
		fmt.Fprintf(a.stderr, "kvclient: serving on %v at %v (%s)\n", w, s.Addr(), w.reason)
		mu.Unlock()
		go func() {
			err := errors.Join(s.Serve(ctx), dev.Close())
			cancel(err) // if one ends early, all do
			done <- err
		}()
	}
	if running == 0 {
		return fmt.Errorf("nothing to serve on at %s: %w", o.serve, rdma.ErrNoDevice)
	}
	for range running {
		err = errors.Join(err, <-done)
	}
	return err
}

func (a *app) perfListen(ctx context.Context, w way, limits perf.Limits, told func(way, perf.Test)) (*perf.Server, rdma.Device, error) {
	dev, err := w.fabric.Open(ctx, w.device)
	if err != nil {
		return nil, nil, err
	}
	s, err := perf.Listen(ctx, dev, w.addr, limits, func(t perf.Test) { told(w, t) })
	if err != nil {
		return nil, nil, errors.Join(err, dev.Close())
	}
	return s, dev, nil
}

// perfTold is one line for each test that a server has done.
func (a *app) perfTold(w way, t perf.Test) {
	line := fmt.Sprintf("kvclient: %v, %v: ", w, t.Remote)
	if t.Name != "" {
		line += fmt.Sprintf("%s of %d bytes, %s", t.Name, t.Size, shortDuration(t.Took))
	}
	if t.Err != nil {
		line += fmt.Sprintf(" failed: %q", t.Err.Error()) // quoted: a stranger's bytes may stand in it
	}
	fmt.Fprintln(a.stderr, line)
}
