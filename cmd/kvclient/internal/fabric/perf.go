package fabric

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

	"github.com/rdmakv/rdmakv/cmd/kvclient/internal/app"
	"github.com/rdmakv/rdmakv/internal/cli"
	"github.com/rdmakv/rdmakv/internal/config"
	"github.com/rdmakv/rdmakv/internal/perf"
	"github.com/rdmakv/rdmakv/rdma"
)

// perfOptions are the flags of fabric perf, of both ends.
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

// fabricPerfCmd is fabric perf, both ends of it. Its flags have the letters of
// perftest where perftest has one, because people who measure networks know them.
func fabricPerfCmd(a *app.App) *cobra.Command {
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
				return cli.Usagef("give either HOST:PORT of a server or --serve")
			case o.serve != "":
				return perfServe(cmd.Context(), a, &o)
			}
			return perfRun(a, cmd, &o, args[0])
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

// size reads a size of a message: plain bytes, as perftest takes them, or with a
// unit. flag is the name of the flag, for the error.
func (o *perfOptions) size(flag, s string) (int, error) {
	// A number alone is no size in config.yaml, and is one for perftest.
	n, err := strconv.ParseUint(s, 10, 62)
	if err != nil {
		var size config.Size
		if size, err = config.ParseSize(s); err != nil {
			return 0, cli.Usagef("--%s: %w", flag, err)
		}
		n = uint64(size)
	}
	if n < 1 || n > perf.MaxSize {
		return 0, cli.Usagef("--%s is %s, want 1 to %d bytes", flag, s, perf.MaxSize)
	}
	return int(n), nil
}

// plan lists the tests to run, each with its size, all checked: if the tenth of
// them is wrong, that must show before the first nine have been measured.
func (o *perfOptions) plan(sizeGiven bool) (plan []perf.Params, err error) {
	var sizes []int
	switch {
	case len(o.tests) == 0:
		return nil, cli.Usagef("--test names no test; there are: %s", strings.Join(perf.Tests(), ", "))
	case len(o.sizes) == 0:
		return nil, cli.Usagef("--size names no size")
	case o.sweep && sizeGiven:
		return nil, cli.Usagef("both --size and --sweep are given")
	case o.sweep:
		for n := 2; n <= 8<<20; n *= 2 { // as perftest -a
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
		return nil, cli.Usagef("both --iterations and --duration are given")
	}
	// "all" is no name of a test, so it stands alone.
	tests := o.tests
	if len(tests) == 1 && tests[0] == "all" {
		tests = perf.Tests()
	}
	for _, name := range tests {
		op, kind, err := perf.ParseTest(name)
		if err != nil {
			return nil, &cli.UsageError{Err: err}
		}
		for _, n := range sizes {
			p := o.params
			p.Op, p.Kind, p.Size = op, kind, n
			// These flags are of bandwidth, and --test all runs both kinds.
			if kind == perf.Latency {
				p.Depth, p.Batch, p.SignalEvery = 0, 0, 0
			}
			p.Fill()
			if err := p.Check(); err != nil {
				return nil, &cli.UsageError{Err: fmt.Errorf("%s: %w", name, err)}
			}
			plan = append(plan, p)
		}
	}
	return plan, nil
}

// perfRun is the client. --timeout bounds the way to the server, not the tests.
func perfRun(a *app.App, cmd *cobra.Command, o *perfOptions, addr string) error {
	// --size has a default, so only cobra knows whether it was given beside
	// --sweep.
	plan, err := o.plan(cmd.Flags().Changed("size"))
	if err != nil {
		return err
	}
	ctx := cmd.Context()
	setup, cancel := context.WithTimeout(ctx, a.Config.Timeout)
	defer cancel()
	w, passed, err := wayTo(setup, a, addr)
	if err != nil {
		return err
	}
	return perfTests(ctx, setup, a, w, passed, plan, addr)
}

// perfTests carries out a plan over w; setup bounds opening its device. passed says
// why better ways are not used, which is printed once.
func perfTests(ctx, setup context.Context, a *app.App, w way, passed []error, plan []perf.Params, addr string) error {
	// It is printed as late as possible, once: an error of the server may make it
	// irrelevant.
	tell := func() {
		for _, why := range passed {
			fmt.Fprintf(a.Stderr, "kvclient: not used: %v\n", why)
		}
		passed = nil
	}
	dev, err := w.fabric.Open(setup, w.device)
	if err != nil {
		tell()
		return err
	}
	defer dev.Close() // an error of closing changes nothing of the results
	out := perfPrinter{App: a}
	for i, p := range plan {
		var done atomic.Uint64
		stop := perfProgress(a, p, &done)
		res, err := perf.Run(ctx, dev, w.addr, p, perf.Options{Progress: &done})
		stop()
		if i == 0 && errors.Is(err, syscall.ECONNREFUSED) { // whatever the fabric
			if !slices.ContainsFunc(passed, func(err error) bool { return !noDevice(err) }) {
				passed = nil // that this machine has no device is no news
			}
			tell()
			// The commonest mistake here is that the other end has not been
			// started.
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

// noDevice reports whether a fabric is not used because this machine has nothing
// for it, which need not be printed. A device of verbs that leads nowhere, as with
// a port that is down, is another matter: then the fabric says so.
func noDevice(err error) bool {
	op := (*rdma.OpError)(nil)
	return errors.Is(err, rdma.ErrNoDevice) && (!errors.As(err, &op) || op.Fabric != "verbs")
}

// perfProgress shows on a terminal how far a test is. Elsewhere nothing is shown:
// each test prints a line when it is done.
func perfProgress(a *app.App, p perf.Params, done *atomic.Uint64) (stop func()) {
	if !cli.IsTerminal(a.Stderr) {
		return func() {}
	}
	start := time.Now()
	end := cli.Every(cli.RedrawEvery, func() {
		of := fmt.Sprintf("of %s", cli.Thousands(int64(p.Iterations)))
		if p.Duration > 0 {
			of = fmt.Sprintf("in %s of %v", cli.Duration(time.Since(start)), p.Duration)
		}
		cli.Redraw(a.Stderr, fmt.Sprintf("%s, %d bytes: %s %s", p.Name(), p.Size, cli.Thousands(int64(done.Load())), of))
	})
	return func() {
		end()
		cli.Wipe(a.Stderr)
	}
}

// perfServe is the server, on every fabric that is allowed, so that the client
// chooses. It ends with its context, or when one of its listeners fails.
func perfServe(ctx context.Context, a *app.App, o *perfOptions) (err error) {
	if o.limits.MaxSize, err = o.size("max-size", o.maxSize); err != nil {
		return err
	}
	// These bound what an unknown peer may ask of the server: memory and time.
	if o.limits.MaxDepth < 1 || o.limits.MaxDepth > perf.MaxDepth || o.limits.MaxTests < 1 || o.limits.MaxTests > 1024 ||
		o.limits.MaxTime < time.Second || o.limits.MaxTime > perf.MaxDuration {
		return cli.Usagef("want --max-depth 1 to %d, --max-tests 1 to 1024, --max-time 1s to %v", perf.MaxDepth, perf.MaxDuration)
	}
	ways, passed := waysAt(ctx, a, o.serve)
	// A server's user has to know on which fabrics it does not listen.
	for _, why := range passed {
		fmt.Fprintf(a.Stderr, "kvclient: not used: %v\n", why)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	done := make(chan error, len(ways))
	running := 0
	var mu sync.Mutex // one line at a time
	told := func(w way, t perf.Test) {
		mu.Lock()
		defer mu.Unlock()
		perfTold(a, w, t)
	}
	for _, w := range ways {
		s, dev, err := perfListen(ctx, a, w, o.limits, told)
		if err != nil {
			mu.Lock() // the servers before it may be telling something
			fmt.Fprintf(a.Stderr, "kvclient: not used: %v\n", err)
			mu.Unlock()
			continue
		}
		running++
		mu.Lock()
		fmt.Fprintf(a.Stderr, "kvclient: serving on %v at %v (%s)\n", w, s.Addr(), w.reason)
		mu.Unlock()
		go func() {
			err := errors.Join(s.Serve(ctx), dev.Close())
			cancel(err) // if one ends early, all do
			done <- err
		}()
	}
	// All others have said already why they do not run.
	if running == 0 {
		return fmt.Errorf("nothing to serve on at %s: %w", o.serve, rdma.ErrNoDevice)
	}
	for range running {
		err = errors.Join(err, <-done)
	}
	return err
}

// perfListen opens a device and listens there. The caller closes both.
func perfListen(ctx context.Context, a *app.App, w way, limits perf.Limits, told func(way, perf.Test)) (*perf.Server, rdma.Device, error) {
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

// perfTold prints one line for each test that a server has done.
func perfTold(a *app.App, w way, t perf.Test) {
	line := fmt.Sprintf("kvclient: %v, %v: ", w, t.Remote)
	if t.Name != "" {
		line += fmt.Sprintf("%s of %d bytes, %s", t.Name, t.Size, cli.Duration(t.Took))
	}
	if t.Err != nil {
		line += fmt.Sprintf(" failed: %q", t.Err.Error()) // quoted: an unknown peer's bytes may stand in it
	}
	fmt.Fprintln(a.Stderr, line)
}
