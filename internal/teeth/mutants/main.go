// Command mutants breaks the rules of the design one at a time and runs, for
// each, the test that has to notice. A rule whose break no test finds is not
// guarded. It prints a table, and at its end one line
//
//	PASS mutants: 34/34 caught
//
// or FAIL with what was missed. Run it from the root of the repository.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

func main() {
	seconds := flag.Int("seconds", 0, "go through the table again and again for so many `seconds`; 0: once")
	only := flag.String("run", "", "only lines whose rule or test contains this `text`")
	doc := flag.Bool("doc", false, "put the table into docs/correctness.md and run nothing")
	flag.Parse()
	if *doc {
		if err := writeTable(document); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *only, time.Duration(*seconds)*time.Second); err != nil {
		fmt.Printf("FAIL mutants: %v\n", err)
		os.Exit(1)
	}
}

// run goes through the table at least once and until length has passed.
func run(ctx context.Context, only string, length time.Duration) error {
	var lines []mutant
	for _, m := range sorted() {
		if slow[m.name] && length == 0 && only == "" {
			continue
		}
		if strings.Contains(m.rule.String(), only) || strings.Contains(m.name, only) {
			lines = append(lines, m)
		}
	}
	tmp, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	start := time.Now()
	bins, err := compile(ctx, tmp, lines)
	if err != nil {
		return err
	}
	fmt.Printf("%d test binaries, %.0f s\n", len(bins), time.Since(start).Seconds())

	caught, rules, missed := 0, map[string]bool{}, []string{}
	for round := 0; round == 0 || time.Since(start) < length; round++ {
		for i, r := range tryAll(ctx, bins, lines) {
			o := <-r
			if ctx.Err() != nil {
				return ctx.Err()
			}
			m := lines[i]
			if o.verdict == "" {
				o.verdict = "caught"
				caught++
			} else {
				missed = append(missed, fmt.Sprintf("%s: %s", m.name, o.verdict))
			}
			rules[m.rule.String()] = true
			fmt.Printf("  %-52s %-14s %-36s %5.1fs  %s\n", m.rule, m.dir, m.name, o.took.Seconds(), o.verdict)
			if o.verdict != "caught" {
				fmt.Println(tail(o.log, 40))
			}
		}
	}
	if len(missed) > 0 {
		return fmt.Errorf("%d caught, %d not: %s", caught, len(missed), strings.Join(missed, "; "))
	}
	fmt.Printf("PASS mutants: %d/%d caught, of %d rules, in %.0f s\n", caught, caught, len(rules), time.Since(start).Seconds())
	return nil
}

// An outcome is what try said of a line, and how long that took.
type outcome struct {
	verdict, log string
	took         time.Duration
}

// tryAll tries the lines in the background, in their order and two at a time: many
// tests wait more than they compute. Each line's outcome comes from its channel.
func tryAll(ctx context.Context, bins map[string]string, lines []mutant) []<-chan outcome {
	outcomes := make([]<-chan outcome, len(lines))
	work := make(chan func(), len(lines))
	for i, m := range lines {
		c := make(chan outcome, 1)
		outcomes[i] = c
		work <- func() {
			var o outcome
			from := time.Now()
			if ctx.Err() == nil {
				o.verdict, o.log = try(ctx, bins[m.dir], m)
			}
			o.took = time.Since(from)
			c <- o
		}
	}
	close(work)
	for range 2 {
		go func() {
			for do := range work {
				do()
			}
		}()
	}
	return outcomes
}

// compile builds the test binary of each package once, two at a time, and
// returns their paths by directory.
func compile(ctx context.Context, tmp string, lines []mutant) (map[string]string, error) {
	bins := map[string]string{}
	for _, m := range lines {
		if bins[m.dir] == "" {
			path := filepath.Join(tmp, strings.ReplaceAll(m.dir, "/", "-")+".test")
			bins[m.dir] = path
		}
	}
	var dirs []string
	for dir := range bins {
		dirs = append(dirs, dir)
	}
	slices.Sort(dirs)
	errs := make([]error, len(dirs))
	slots := make(chan bool, 2)
	var wg sync.WaitGroup
	for i, dir := range dirs {
		wg.Go(func() {
			slots <- true
			defer func() { <-slots }()
			if out, err := command(ctx, ".", nil, "go", "test", "-tags", "teeth", "-c", "-o", bins[dir], "./"+dir); err != nil {
				errs[i] = fmt.Errorf("%s does not compile: %v\n%s", dir, err, out)
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return bins, nil
}
