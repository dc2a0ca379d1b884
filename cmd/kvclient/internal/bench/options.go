// Package bench is kvclient bench: it fills a store, puts it under one of YCSB's
// loads or another mix, and writes the result as text, JSON, CSV or a page with
// charts. Package internal/load makes the load; here are the flags, what is
// measured around it, and the forms of the result.
package bench

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rdmakv/rdmakv/cmd/kvclient/internal/app"
	"github.com/rdmakv/rdmakv/internal/cli"
	"github.com/rdmakv/rdmakv/internal/load"
	"github.com/rdmakv/rdmakv/store/layout"
)

// flags are the flags of bench as they are typed, before they are checked. They are
// kept beside the options of the load because the result shows them as the user
// wrote them.
type flags struct {
	workload, mix string
	readShare     float64
	records       int
	valueSize     string
	keySize       int
	hashed        bool
	prefix        string
	distribution  string
	theta         float64
	scanLength    int
	clients       int
	connections   int
	batch         int
	registered    bool
	bounded       time.Duration
	rate          float64
	duration      time.Duration
	operations    int64
	warmup        time.Duration
	seed          uint64
	skipLoad      bool
	loadOnly      bool
	reports       []string
}

// benchOutputs are the forms of the result, also by the names of files.
var benchOutputs = []string{"text", "json", "csv", "html", "svg"}

// Bounds of flags that package load has none for.
const (
	minBenchDuration = 10 * time.Millisecond
	maxPrefix        = 256
	maxConnections   = 1024
	maxReports       = 16
)

// Commands are the commands of this package, for the root command.
func Commands(a *app.App) []*cobra.Command { return []*cobra.Command{command(a)} }

// command is bench.
func command(a *app.App) *cobra.Command {
	var f flags
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "measure a store: YCSB workloads and others",
		Long: `bench stores --records keys, lets --clients callers make operations, and prints
operations per second and percentiles of their time, as the callers see it, by
operation and by path (1 READ, 2 READs, a message). Every value that is got is
checked. It writes to the store, under --prefix, and leaves the keys there.

Workloads (--workload): a to f are those of YCSB, with its mixes, choices of keys
and records of 1,000 B (10 fields of 100 B, here as one value):

  a  50 % get, 50 % put           d  95 % get, 5 % insert, the latest most often
  b  95 % get, 5 % put            e  95 % scan of up to 100 keys, 5 % insert
  c  gets                         f  50 % get, 50 % read-modify-write
  get, put  one operation, keys chosen uniformly, values of 100 B

--mix has any other: get=80,put=15,delete=5. Operations: get, put, insert, scan,
rmw, delete.

Callers: --clients is how many calls are under way at a time. They are goroutines
of this process and share --connections clients of the library, each with
its own connections and memory; one is what a program would have. Without --rate
each caller makes one call after the other (closed loop). With --rate calls are
due at fixed moments whatever the store does, and their time counts from when
they were due, so that a slow call is seen in those that had to wait for it.

Values (--value-size): 100, 4KiB, a range 64-1024, a list with shares
64:90,1-4096:9,1MiB:1, a law lognormal:MEDIAN:SIGMA, or etc (Facebook's ETC pool).

-o takes csv, html (a page with charts) and svg besides text and json; --report
writes further forms to files, by their extension. Times are in microseconds. The
exit code is 1 if an operation failed. Ctrl-C ends it with the result so far.`,
		Annotations: map[string]string{app.MoreOutputs: strings.Join(benchOutputs[2:], ",")},
		RunE: func(cmd *cobra.Command, _ []string) error {
			o, err := f.options(cmd.Flags().Changed)
			if err != nil {
				return err
			}
			b := &bench{App: a, flags: &f, o: o}
			return b.run(cmd.Context())
		},
	}
	f.add(cmd.Flags())
	_ = cmd.RegisterFlagCompletionFunc("distribution", cobra.FixedCompletions([]string{"zipf", "uniform", "latest"}, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("workload", cobra.FixedCompletions(workloadNames(), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// workloadNames are what --workload takes, for errors and for the shell.
func workloadNames() (names []string) {
	for _, w := range load.Workloads() {
		names = append(names, w.Name)
	}
	return names
}

// benchAliases are former names of flags, which still work: there are scripts with
// them. They are not in the help.
var benchAliases = map[string]string{"keys": "records", "sessions": "connections", "no-load": "skip-load"}

// add adds the flags of bench. Zero values and empty texts stand for the workload's
// own value, so that --workload a and one flag more is a workload of its own.
func (f *flags) add(set *pflag.FlagSet) {
	set.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if now, ok := benchAliases[name]; ok {
			name = now
		}
		return pflag.NormalizedName(name)
	})
	set.StringVar(&f.workload, "workload", "get", "a to f (YCSB), get or put")
	set.StringVar(&f.mix, "mix", "", "operations and their shares instead of the workload's: get=95,put=5")
	set.Float64Var(&f.readShare, "read-share", 1, "short for --mix: share of gets, 0 to 1; the others are puts")
	set.IntVar(&f.records, "records", 100_000, "number of keys that are stored before (also --keys)")
	set.StringVar(&f.valueSize, "value-size", "", "bytes of a value, or a distribution (default: the workload's, 1000 or 100)")
	set.IntVar(&f.keySize, "key-size", 0, "bytes of a key (default: the prefix and 10 digits)")
	set.BoolVar(&f.hashed, "hashed-keys", false, "keys are hashes of their numbers (16 digits), as YCSB's insertorder=hashed")
	set.StringVar(&f.prefix, "prefix", "bench/", "what the keys begin with")
	set.StringVar(&f.distribution, "distribution", "", "which keys: zipf, uniform or latest (default: the workload's)")
	set.Float64Var(&f.theta, "theta", 0.99, "skew of zipf and latest, above 0 and below 1")
	set.IntVar(&f.scanLength, "scan-length", 100, "a scan is of 1 to so many keys")
	set.IntVar(&f.clients, "clients", 1, "callers at a time")
	set.DurationVar(&f.bounded, "bounded", 0, "gets may be so old, and are READ at any replica; 0: they are new")
	set.IntVar(&f.connections, "connections", 1, "clients of the library that the callers share (also --sessions)")
	set.IntVar(&f.batch, "batch", 1, "keys in one call: MultiGet and MultiPut")
	set.BoolVar(&f.registered, "registered", false, "each caller puts from and gets into registered memory, a client.Buffer: for large values")
	set.Float64Var(&f.rate, "rate", 0, "operations per second, all callers together; 0: as fast as they can")
	set.DurationVar(&f.duration, "duration", 5*time.Second, "how long to measure; with --operations only if it is given")
	set.Int64Var(&f.operations, "operations", 0, "end after so many operations; 0: when --duration is over")
	set.DurationVar(&f.warmup, "warmup", 0, "how long to run before measuring (default: a tenth of --duration, at most 5s)")
	set.Uint64Var(&f.seed, "seed", 1, "seed of the random choices")
	set.BoolVar(&f.skipLoad, "skip-load", false, "the keys are there already, from a call with the same --records, --value-size, --prefix (also --no-load)")
	set.BoolVar(&f.loadOnly, "load-only", false, "store the keys and measure nothing")
	set.StringArrayVar(&f.reports, "report", nil, "write the result to a file, too: .json, .csv, .html, .svg, .txt; may be repeated")
}

// options checks all flags and makes the options of the load. It reports all faults
// at once: a run of minutes is tried with many flags, and one fault a call would be
// tedious. given tells whether a flag was given.
func (f *flags) options(given func(string) bool) (o load.Options, err error) {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, cli.Usagef(format, args...)) }
	// Bounds are checked one by one here, by the names of flags; Validate at the
	// end knows them by the names of fields.
	between := func(name string, v, least, most int) {
		if v < least || v > most {
			bad("--%s is %d, want %d to %d", name, v, least, most)
		}
	}
	// The zero Workload of an unknown name is not used: the fault is noted.
	w, ok := load.WorkloadByName(f.workload)
	if !ok {
		bad("--workload is %q, want one of %s", f.workload, strings.Join(workloadNames(), ", "))
	}
	if f.duration < minBenchDuration || f.duration > load.MaxDuration {
		bad("--duration is %v, want %v to %v", f.duration, minBenchDuration, load.MaxDuration)
	}
	if f.warmup < 0 || f.warmup > load.MaxDuration {
		bad("--warmup is %v, want 0 to %v", f.warmup, load.MaxDuration)
	}
	o = load.Options{
		Records: uint64(max(f.records, 0)), Keys: load.Keys{Prefix: f.prefix, Size: f.keySize, Hashed: f.hashed},
		Mix: w.Mix, Choice: w.Choice, Theta: f.theta, ScanMax: f.scanLength, Workers: f.clients, Batch: f.batch, Rate: f.rate,
		Duration: f.duration, Operations: uint64(max(f.operations, 0)), Warmup: f.warmup, Seed: f.seed,
	}
	f.chooseMix(&o, given, bad)
	// The workload's size goes the same way as one that was given, so it is
	// checked, too.
	size := f.valueSize
	if size == "" {
		size = fmt.Sprint(w.Value)
	}
	if o.Values, err = load.ParseSizes(size); err != nil {
		bad("--value-size: %s", strings.TrimPrefix(err.Error(), load.ErrOptions.Error()+": "))
	} else if o.Values.Max() > layout.MaxValueLen {
		bad("--value-size is up to %d, want at most %d", o.Values.Max(), layout.MaxValueLen)
	}
	if f.distribution != "" {
		if o.Choice, ok = load.ChoiceByName(f.distribution); !ok {
			bad("--distribution is %q, want zipf, uniform or latest", f.distribution)
		}
	}
	if f.records < 1 || f.records > load.MaxRecords {
		bad("--records (--keys) is %d, want 1 to %d", f.records, load.MaxRecords)
	}
	between("clients", f.clients, 1, load.MaxWorkers)
	between("connections", f.connections, 1, maxConnections)
	between("batch", f.batch, 1, load.MaxBatch)
	between("scan-length", f.scanLength, 1, load.MaxScan)
	// It is written so that NaN, which a flag may be, does not pass.
	if !(f.theta > 0 && f.theta < 1) {
		bad("--theta is %v, want above 0 and below 1", f.theta)
	}
	if !(f.rate >= 0 && f.rate <= load.MaxRate) {
		bad("--rate is %v, want 0 (as fast as possible) to %.0f", f.rate, float64(load.MaxRate))
	}
	if f.operations < 0 {
		bad("--operations is %d, want 0 or more", f.operations)
	}
	if len(f.prefix) > maxPrefix {
		bad("--prefix has %d bytes, want at most %d", len(f.prefix), maxPrefix)
	}
	if f.skipLoad && f.loadOnly {
		bad("--skip-load and --load-only leave nothing to do")
	}
	if f.registered && f.batch > 1 {
		bad("--registered is for single calls, and --batch is %d", f.batch)
	}
	if f.bounded < 0 || f.bounded > 0 && f.registered {
		bad("--bounded is %v: more than 0, and without --registered", f.bounded)
	}
	f.checkReports(bad)
	if len(errs) > 0 {
		return o, errors.Join(errs...)
	}
	// Whichever of the two ends first ends the run, so the default of the one must
	// not cut short the other that was asked for.
	if f.operations > 0 && !given("duration") {
		o.Duration = 0
	}
	// Connections, caches and the processor's clock settle in the first moments,
	// which are no part of what is measured.
	if !given("warmup") {
		o.Warmup = min(o.Duration/10, 5*time.Second)
	}
	o.FillWorkers, o.FillBatch = loadWorkers*f.connections, 1
	o.FillWorkers = min(o.FillWorkers, load.MaxWorkers) // also with a thousand connections
	o.Open = noStore                                    // there is none yet, and Validate needs one
	if err := o.Validate(); err != nil {
		return o, &cli.UsageError{Err: err}
	}
	return o, nil
}

// loadWorkers is how many puts the loading has in flight on one connection: enough
// for the server to make many durable with one sync.
const loadWorkers = 128

// chooseMix takes the mix from --workload, --mix or --read-share, of which one
// may be given.
func (f *flags) chooseMix(o *load.Options, given func(string) bool, bad func(string, ...any)) {
	var names []string
	for _, name := range []string{"workload", "mix", "read-share"} {
		if given(name) {
			names = append(names, "--"+name)
		}
	}
	if len(names) > 1 {
		bad("%s exclude each other", strings.Join(names, " and "))
	}
	// --read-share is older than --mix, and shorter for the common case.
	if given("read-share") {
		if !(f.readShare >= 0 && f.readShare <= 1) {
			bad("--read-share is %v, want 0 to 1", f.readShare)
			return
		}
		o.Mix = load.Mix{load.OpGet: f.readShare, load.OpPut: 1 - f.readShare}
	}
	if given("mix") {
		var err error
		if o.Mix, err = load.ParseMix(f.mix); err != nil {
			bad("--mix: %w", err)
		}
	}
	// MultiGet and MultiPut are the calls for many keys; there is none of the
	// others.
	if f.batch > 1 && (o.Mix[load.OpScan] > 0 || o.Mix[load.OpRMW] > 0 || o.Mix[load.OpDelete] > 0) {
		bad("--batch is %d, and there are calls for many keys only of get, put and insert", f.batch)
	}
}

// checkReports looks at the names of files before anything is measured: a result
// that cannot be written at the end is lost.
func (f *flags) checkReports(bad func(string, ...any)) {
	if len(f.reports) > maxReports {
		bad("--report is there %d times, at most %d", len(f.reports), maxReports)
	}
	for _, path := range f.reports {
		if filepath.Ext(path) == ".png" {
			bad("--report %s: png is gone: .svg", cli.Quote([]byte(path)))
		} else if reportForm(path) == "" {
			bad("--report %s: want a name that ends in .json, .csv, .html, .svg or .txt", cli.Quote([]byte(path)))
		} else if info, err := os.Stat(filepath.Dir(path)); err != nil || !info.IsDir() {
			bad("--report %s: there is no such directory", cli.Quote([]byte(path)))
		}
	}
}

// reportForm is the form that the name of a file asks for.
func reportForm(path string) string {
	// "text" is the name of a form and no extension in use.
	form := strings.TrimPrefix(filepath.Ext(path), ".")
	if form == "txt" {
		return "text"
	}
	if form != "text" && slices.Contains(benchOutputs, form) {
		return form
	}
	return ""
}
