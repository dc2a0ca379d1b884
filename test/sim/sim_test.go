package sim

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/teeth"
)

var (
	seedFlag = flag.Uint64("seed", 0, "seed of the one run to play; 0: many")
	scenario = flag.String("scenario", "", "the scenario to play; empty: all")
	seconds  = flag.Float64("seconds", 20, "for how long TestSeeds tries seeds")
	wanted   = flag.Int("ops", 0, "until how many operations are checked TestSeeds tries seeds; 0: for -seconds")
	times    = flag.Int("times", 1, "how often to play the run of -seed")
	schedule = flag.Bool("schedule", false, "print the schedule of the run of -seed")
	saveDir  = flag.String("save", "", "directory for histories that do not fit")
)

func chosen(t *testing.T) []Scenario {
	var list []Scenario
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
	budget := time.Duration(*seconds * float64(time.Second))
	if testing.Short() {
		budget = min(budget, 5*time.Second)
	}
	first := rand.Uint64N(1 << 40)
	t.Logf("seeds from %d", first)
	var sum Outcome
	var runs int
	end := time.Now().Add(budget)
	more := func() bool {
		if *wanted > 0 {
			return sum.Ops < *wanted
		}
		return runs < len(list) || time.Now().Before(end)
	}
	for ; !t.Failed() && more(); runs++ {
		sc, seed := list[runs%len(list)], first+uint64(runs)
		out := Run(t, seed, sc, nil)
		report(t, seed, sc, out, testing.Verbose() && runs < len(list))
		sum.Ops, sum.Unknown, sum.Virtual = sum.Ops+out.Ops, sum.Unknown+out.Unknown, sum.Virtual+out.Virtual
		sum.Histories, sum.Keys = sum.Histories+out.Histories, sum.Keys+out.Keys
		sum.Kills, sum.Pauses, sum.Cuts = sum.Kills+out.Kills, sum.Pauses+out.Pauses, sum.Cuts+out.Cuts
	}
	verdict := "PASS"
	if t.Failed() {
		verdict = "FAIL"
	}
	fmt.Printf("%s sim: %d runs of %d scenarios, %d checked operations, %v of virtual time, first seed %d\n",
		verdict, runs, len(list), sum.Ops, sum.Virtual.Round(time.Second), first)
	fmt.Printf("linear sim: ops=%d histories=%d keys=%d kills=%d pauses=%d cuts=%d unknown=%d\n",
		sum.Ops, sum.Histories, sum.Keys, sum.Kills, sum.Pauses, sum.Cuts, sum.Unknown)
}

// report prints what a run showed, and how to play it again if it failed.
func report(t *testing.T, seed uint64, sc Scenario, out Outcome, verbose bool) {
	t.Helper()
	if verbose {
		t.Logf("%-12s seed %d: %d operations, %d unknown, %v virtual, %v real\n  network %+v\n  client 0 %+v",
			sc.Name, seed, out.Ops, out.Unknown, out.Virtual.Round(time.Millisecond), out.Real.Round(time.Millisecond), out.Network, out.Clients)
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
	return fmt.Sprintf("play it again: %s test ./test/sim -run TestSeeds -scenario %s -seed %d -times 20 -v", program, sc.Name, seed)
}

// saved writes the history that does not fit.
func saved(seed uint64, sc Scenario, out Outcome) string {
	if out.Failed == nil {
		return ""
	}
	why := "\n" + out.Failed.Explain(out.Slack)
	if *saveDir == "" {
		return why
	}
	path := filepath.Join(*saveDir, fmt.Sprintf("sim-%s-%d.json", sc.Name, seed))
	data, err := json.Marshal(out.Failed)
	if err == nil {
		err = os.WriteFile(path, data, 0o644)
	}
	return fmt.Sprintf("\n  history %s (%v)%s", path, err, why)
}
