// Command mutants breaks the rules of the design one at a time and runs, for each,
// the tests that have to notice. A rule whose break no test finds is not guarded.
// Each break is a patch, NAME.patch beside this file, which says what the rule is,
// what is broken, and which tests notice; it is built by go test -overlay, and the
// program itself knows nothing of it. The command prints a table, and at its end
// one line
//
//	PASS mutants: 34/34 caught
//
// or FAIL with what was missed. A line that was caught before and has not changed
// since is not run again (.cache/mutants), except with CI set, -run or -seconds.
//
// To make or to look at a patch:
//
//	mutants -check                         compile every mutant
//	mutants -run NAME                      run the lines of one patch, or of a test
//	mutants -take NAME                     make it from what is changed in the work tree and not in git's index
//	mutants -apply NAME                    put it into the work tree
//	mutants -with NAME -- test ./store     run the go command on the program with it
//	mutants -why NAME                      say which of its lines the tests run
//
// "points" is a name too: that of the points at which a test can come in between
// two steps of the program (points.patch), and "NAME,points" is both.
//
// patch.go reads and applies patches, tree.go makes overlays of them, joint.go puts
// many into one program, try.go runs tests on them, line.go is the table, cache.go
// stores verdicts, author.go and cover.go help to write patches.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

func main() {
	seconds := flag.Int("seconds", 0, "go through the table again and again for so many `seconds`; 0: once")
	only := flag.String("run", "", "only lines whose patch or test contains this `text`, or one of several with commas between them")
	doc := flag.Bool("doc", false, "put the table into docs/correctness.md and run nothing")
	take := flag.String("take", "", "make the patch of this `name` from the work tree")
	put := flag.String("apply", "", "put the patches of these `names` into the work tree")
	with := flag.String("with", "", "run the go command with the patches of these `names`: the arguments are its own")
	points := flag.String("points", "", "make this `file` an overlay with points.patch, for go build -overlay")
	check := flag.Bool("check", false, "compile all mutants and run none")
	why := flag.String("why", "", "say which lines of the patch of this `name` its tests come upon")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	t, err := openTree()
	if err == nil {
		switch {
		case *doc:
			err = t.writeTable()
		case *check:
			err = t.compile(ctx)
		case *take != "":
			err = t.take(ctx, *take)
		case *put != "":
			err = t.put(*put)
		case *points != "":
			err = t.writePoints(*points)
		case *why != "":
			err = t.why(ctx, *why)
		case *with != "":
			err = t.with(ctx, *with, flag.Args())
			var exit *exec.ExitError
			if errors.As(err, &exit) {
				os.Exit(max(1, exit.ExitCode())) // it has said why
			}
		default:
			if err = t.run(ctx, *only, time.Duration(*seconds)*time.Second); err != nil {
				fmt.Printf("FAIL mutants: %v\n", err)
				os.Exit(1)
			}
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run goes through the table at least once and until length has passed.
func (t *tree) run(ctx context.Context, only string, length time.Duration) error {
	lines := t.lines(only, length > 0)
	if len(lines) == 0 {
		return fmt.Errorf("no line of the table has %q", only)
	}
	tmp, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	b, err := newBench(t, tmp, newCache(t, only == "" && length == 0 && os.Getenv("CI") == ""), lines)
	if err != nil {
		return err
	}
	start := time.Now()
	n, rules, missed := 0, map[string]bool{}, []string{}
	for round := 0; round == 0 || time.Since(start) < length; round++ {
		for i, c := range b.tryAll(ctx, lines) {
			o := <-c
			if ctx.Err() != nil {
				return ctx.Err()
			}
			l := lines[i]
			rules[l.patch.name] = true
			fmt.Printf("  %-40s %-16s %-36s %5.1fs  %s\n", l.patch.name, l.test.dir, l.test.name, o.took.Seconds(), o.says)
			if o.says == caught || o.says == asBefore {
				n++
				continue
			}
			missed = append(missed, fmt.Sprintf("%s under %s: %s", l.test.name, l.patch.name, o.says))
			fmt.Println(tail(o.log, 40))
		}
	}
	if len(missed) > 0 {
		return fmt.Errorf("%d caught, %d not: %s", n, len(missed), strings.Join(missed, "; "))
	}
	fmt.Printf("PASS mutants: %d/%d caught, of %d rules, in %.0f s\n", n, n, len(rules), time.Since(start).Seconds())
	return nil
}

// An outcome is what try said of a line, and how long that took.
type outcome struct {
	says, log string
	took      time.Duration
}

// workers is how many lines are tried at a time. On two cores two of them kept 0.9 of a core
// busy, because many tests wait more than they compute.
const workers = 4

// tryAll tries the lines in the background, in their order and some at a time. Each line's
// outcome comes from its channel.
func (b *bench) tryAll(ctx context.Context, lines []line) []<-chan outcome {
	outcomes := make([]<-chan outcome, len(lines))
	work := make(chan func(), len(lines))
	for i, l := range lines {
		c := make(chan outcome, 1)
		outcomes[i] = c
		work <- func() {
			var o outcome
			from := time.Now()
			if ctx.Err() == nil {
				o.says, o.log = b.try(ctx, l)
			}
			o.took = time.Since(from)
			c <- o
		}
	}
	close(work)
	for range workers {
		go func() {
			for do := range work {
				do()
			}
		}()
	}
	return outcomes
}
