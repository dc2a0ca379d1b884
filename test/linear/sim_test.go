package linear_test

import (
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/test/linear"
	"github.com/rdmakv/rdmakv/test/sim"
)

// TestSim plays runs of the simulation, in which an adapter serves READs in any
// order and goes on when its program stands still, until they have done their
// operations. Each run has a seed of its own, and all scenarios have their turn.
func TestSim(t *testing.T) {
	seed, ops, seconds, dir := linear.Flags()
	if testing.Short() {
		ops = 4000
	}
	t.Logf("seed %d", seed)
	var sum linear.Summary
	end := time.Now().Add(time.Duration(seconds) * time.Second)
	scenarios := sim.Scenarios()
	runs, failed := 0, 0
	for ; (seconds == 0 && sum.Ops < ops || seconds > 0 && time.Now().Before(end)) && failed < 3; runs++ {
		sc, seed := scenarios[runs%len(scenarios)], seed+uint64(runs)
		out := sim.Run(t, seed, sc, nil)
		sum.Ops += out.Ops
		sum.Unknown += out.Unknown
		if out.Err == nil {
			continue
		}
		failed++
		t.Errorf("scenario %s, seed %d: %v\n  play it again: go test ./test/sim -run TestSeeds -scenario %s -seed %d -times 5 -v", sc.Name, seed, out.Err, sc.Name, seed)
		if out.Failed != nil {
			path, err := linear.Save(dir, "sim-"+sc.Name, seed, linear.Slack{}, out.Failed)
			t.Errorf("history %s (%v)", path, err)
		}
	}
	sum.Failures = failed
	t.Logf("%d runs, %d operations", runs, sum.Ops)
	linear.AddTotal("sim", sum, linear.FaultCounts{}, 0)
}
