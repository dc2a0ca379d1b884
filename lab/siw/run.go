package siw

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rdmakv/rdmakv/lab"
)

// VariantEnv is the environment variable that tells the tests in a guest which
// variant of the driver is loaded: Variant.String.
const VariantEnv = "RDMAKV_SIW"

// A round is one guest of the matrix: a driver and the tests that run on it.
type round struct {
	variant Variant
	tests   []test
}

// A test is a test binary of the guest.
type test struct {
	pkg  string // the package that it is compiled from, below the root of the module
	only string // for -test.run; empty means all
	// skip is where the driver is known to differ from what the tests ask of
	// a fabric, each with the reason.
	skip []deviation
}

// A deviation is a test that siw cannot pass.
type deviation struct{ test, why string }

// here is the package whose tests need a guest.
const here = "./lab/siw"

// matrix is what Run runs. A variant of the driver differs in how it begins a
// connection, so only what depends on that runs again.
func matrix() []round {
	return []round{
		{Variant{}, []test{{pkg: here}, {"./rdma/verbs", "^TestConformanceCM$", deviations()}}},
		{Variant{Revision1: true}, []test{{pkg: here, only: setUp}}},
		{Variant{RequireCRC: true}, []test{{pkg: here, only: setUp}}},
		{Variant{PeerToPeer: true}, []test{{pkg: here, only: setUp}}},
	}
}

// deviations are the tests of the conformance suite in which a kernel siw at
// both ends does not do what package rdma asks. The tests of this package show
// what it does instead.
func deviations() []deviation {
	const suite = "TestConformanceCM/"
	return []deviation{
		{suite + "faults", "siw looks at no rights of a QP, nor at that to READ of a region, and does not say why a request was refused"},
		{suite + "ops/order_of_completions", "a SEND behind a READ completes before it"},
		{suite + "queues/receiver_not_ready", "who has sent a SEND that met no receive learns only that the peer is gone"},
		{suite + "queues/shared_receive_queue", "likewise, in its last step"},
		{suite + "queues/send_queue_full", "the kernel takes work from the queue before it is done, so the queue is never full"},
		{suite + "queues/flush_of_sends_under_way", "work is flushed as by a fatal error of the queue pair"},
		{suite + "teardown/region_closed_under_reads", "a refused READ is a lost peer"},
		{suite + "teardown/sink_closed_under_reads", "READs whose sink has gone are never completed"},
		{suite + "crash/server_killed_under_(reads|sends)", "what is posted after the kernel has noticed the end, and before the program has, is never completed"},
		{suite + "connect/read_depths", "an acceptor serves as many READs as it is asked to"},
	}
}

// setUp are the tests that depend on how connections are set up.
const setUp = "^TestRping"

// Run is the command "lab siw": it builds the driver, boots a guest for each
// round of the matrix and runs the tests in it. It returns the exit code of
// the command, 0 if all went well.
func Run(ctx context.Context, args []string) (code int, err error) {
	fs := flag.NewFlagSet("siw", flag.ContinueOnError)
	only := fs.String("run", "", "tests to run (a regular expression), instead of all")
	pkg := fs.String("pkg", "", "only the tests of this package, as ./rdma/verbs")
	first := fs.Bool("first", false, "only the driver as it is, not its variants")
	verbose := fs.Bool("v", false, "print every test")
	limit := fs.Duration("timeout", 20*time.Minute, "for everything")
	if err := fs.Parse(args); err != nil {
		return 2, err
	}
	if fs.NArg() > 0 {
		return 2, fmt.Errorf("siw: what is %q?", fs.Arg(0))
	}
	ctx, cancel := context.WithTimeoutCause(ctx, *limit, fmt.Errorf("not finished after %v (-timeout)", *limit))
	defer cancel()
	root, err := lab.Root()
	if err != nil {
		return 1, err
	}
	r := runner{root: root, cache: filepath.Join(root, ".cache", "lab"), verbose: *verbose, only: *only}
	rounds := matrix()
	if *first {
		rounds = rounds[:1]
	}
	for i := range rounds {
		rounds[i].tests = slices.DeleteFunc(rounds[i].tests, func(t test) bool { return *pkg != "" && t.pkg != *pkg })
	}
	if err := r.compile(ctx, rounds); err != nil {
		return 1, err
	}
	for _, round := range rounds {
		ok, err := r.guest(ctx, round)
		if err != nil {
			if ctx.Err() != nil {
				err = errors.Join(context.Cause(ctx), err)
			}
			return 1, err
		}
		if !ok {
			code = 1
		}
	}
	return code, nil
}

// A runner runs rounds.
type runner struct {
	root, cache string
	verbose     bool
	only        string
}

// share is the directory that is /mnt in the guests.
func (r *runner) share() string { return filepath.Join(r.cache, "share", "siw") }

// binary names the test binary of a package within share.
func binary(pkg string) string { return filepath.Base(pkg) + ".test" }

// compile makes the test binaries, each once.
func (r *runner) compile(ctx context.Context, rounds []round) error {
	if err := os.MkdirAll(r.share(), 0o755); err != nil {
		return err
	}
	made := map[string]bool{}
	for _, round := range rounds {
		for _, t := range round.tests {
			if made[t.pkg] {
				continue
			}
			made[t.pkg] = true
			cmd := exec.CommandContext(ctx, "go", "test", "-c", "-o", filepath.Join(r.share(), binary(t.pkg)), t.pkg)
			cmd.Dir = r.root
			if out, err := cmd.CombinedOutput(); err != nil {
				return fmt.Errorf("compile the tests of %s: %w\n%s", t.pkg, err, out)
			}
		}
	}
	return nil
}

// guest boots one guest with one variant of the driver and runs its tests.
func (r *runner) guest(ctx context.Context, round round) (ok bool, err error) {
	say := lab.PrintTo(os.Stdout)
	module, err := Build(ctx, r.cache, round.variant, say)
	if err != nil {
		return false, err
	}
	say("siw: the driver " + round.variant.String())
	g, err := lab.Boot(ctx, lab.Config{
		Name: "siw", CPUs: 1, Dir: r.share(), RDMA: lab.SIW, Modules: Modules(), Extra: []string{module}, Cache: r.cache,
		Progress: say,
	})
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, g.Close()) }()
	ok = true
	for _, t := range round.tests {
		// Tests that hang say where before the guest goes.
		end, _ := ctx.Deadline()
		limit := max(time.Second, time.Until(end)-20*time.Second).Round(time.Second)
		args := []string{"env", VariantEnv + "=" + round.variant.String(), "/mnt/" + binary(t.pkg), "-test.timeout=" + limit.String()}
		if r.verbose {
			args = append(args, "-test.v")
		}
		switch {
		case r.only != "":
			args = append(args, "-test.run", r.only)
		case t.only != "":
			args = append(args, "-test.run", t.only)
		}
		var skip []string
		for _, d := range t.skip {
			say("siw: not run: " + d.test + ": " + d.why)
			skip = append(skip, "^"+strings.ReplaceAll(d.test, "/", "$/^")+"$")
		}
		if skip != nil {
			args = append(args, "-test.skip", strings.Join(skip, "|"))
		}
		code, err := g.Run(ctx, os.Stdout, os.Stderr, args...)
		if err != nil {
			return false, err
		}
		if code != 0 {
			ok = false
			// The kernel repeats for each query that the device has no speed.
			log, _ := g.Output(ctx, "sh", "-c", "dmesg | grep -v 'speed is unknown' | tail -25")
			fmt.Printf("siw: %s failed with code %d; the kernel's last words:\n%s\n", t.pkg, code, log)
		}
	}
	return ok, nil
}
