package simcluster

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/teeth"
	"github.com/rdmakv/rdmakv/test/linear"
)

var (
	seedFlag = flag.Uint64("seed", 0, "seed of the one run to play; 0: many")
	scenario = flag.String("scenario", "", "the scenario to play; empty: all")
	seconds  = flag.Float64("seconds", 20, "for how long TestSeeds tries seeds")
	wanted   = flag.Int("seeds", 0, "how many seeds TestSeeds tries; 0: for -seconds")
	times    = flag.Int("times", 1, "how often to play the run of -seed")
	schedule = flag.Bool("schedule", false, "print the schedule of the run of -seed")
	saveDir  = flag.String("save", "", "directory for histories that do not fit")
)

func chosen(t *testing.T) (list []Scenario) {
	var names []string
	for _, sc := range Scenarios() {
		names = append(names, sc.Name)
		if *scenario == "" || *scenario == sc.Name {
			list = append(list, sc)
		}
	}
	if len(list) == 0 {
		t.Fatalf("no scenario %q; there are: %s", *scenario, strings.Join(names, " "))
	}
	return list
}

// TestSeeds plays runs with new seeds, or the one of -seed and -scenario.
func TestSeeds(t *testing.T) {
	list := chosen(t)
	var log func(string)
	if *schedule {
		log = func(line string) { fmt.Println(line) }
	}
	if *seedFlag != 0 {
		for range *times {
			for _, sc := range list {
				report(t, *seedFlag, sc, Run(t, *seedFlag, sc, log), true)
			}
		}
		return
	}
	first := rand.Uint64N(1 << 40)
	t.Logf("seeds from %d", first)
	var sum Outcome
	var runs int
	if testing.Short() {
		*seconds = min(*seconds, 5)
	}
	end := time.Now().Add(time.Duration(*seconds * float64(time.Second)))
	more := func() bool {
		if *wanted > 0 {
			return runs < *wanted
		}
		return runs < len(list) || time.Now().Before(end)
	}
	for ; !t.Failed() && more(); runs++ {
		sc, seed := list[runs%len(list)], first+uint64(runs/len(list))
		out := Run(t, seed, sc, nil)
		report(t, seed, sc, out, testing.Verbose() && runs < len(list))
		sum.add(&out)
	}
	verdict := "PASS"
	if t.Failed() {
		verdict = "FAIL"
	}
	fmt.Printf("%s simcluster: %d runs of %d scenarios, %d checked operations (%d unknown), %v of virtual time, first seed %d\n",
		verdict, runs, len(list), sum.Ops, sum.Unknown, sum.Virtual.Round(time.Second), first)
	fmt.Printf("simcluster: %s\n", sum.Text())
}

// report prints what a run showed, and how to play it again if it failed.
func report(t *testing.T, seed uint64, sc Scenario, out Outcome, verbose bool) {
	t.Helper()
	if verbose {
		t.Logf("%-10s seed %d: %d operations, %d unknown, %v virtual, %v real: %s\n  network %+v",
			sc.Name, seed, out.Ops, out.Unknown, out.Virtual.Round(time.Millisecond), out.Real.Round(time.Millisecond), out.Text(), out.Network)
	}
	if out.Err != nil {
		t.Errorf("scenario %s, seed %d: %v%s\n  %s", sc.Name, seed, out.Err, saved(seed, sc, out), Replay(seed, sc))
	}
}

// Replay is the command that plays a run again.
func Replay(seed uint64, sc Scenario) string {
	program := "go"
	if teeth.Points {
		program = "go run ./internal/teeth/mutants -with points --"
	}
	return fmt.Sprintf("play it again: %s test ./test/simcluster -run TestSeeds -scenario %s -seed %d -times 20 -v", program, sc.Name, seed)
}

// saved writes the history that does not fit, and explains it.
func saved(seed uint64, sc Scenario, out Outcome) string {
	if out.Failed == nil {
		return ""
	}
	why := "\n" + out.Failed.Explain(out.Slack)
	if *saveDir == "" {
		return why
	}
	path, err := linear.Save(*saveDir, "simcluster-"+sc.Name, seed, out.Slack, out.Failed)
	return fmt.Sprintf("\n  history %s (%v)%s", path, err, why)
}
