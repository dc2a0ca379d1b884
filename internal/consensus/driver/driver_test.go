package driver_test

import (
	"flag"
	"log/slog"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/consensus/consensustest"
	"github.com/rdmakv/rdmakv/internal/consensus/driver"
)

var (
	seed    = flag.Uint64("seed", 0, "the seed of the one storm to play; 0: new ones for -seconds")
	seconds = flag.Float64("seconds", 4, "for how long TestStorm tries seeds")
	verbose = flag.Bool("log", false, "print what the nodes log")
)

func engine(c consensustest.NodeConfig) consensustest.Engine {
	dc := driver.Config{Name: c.Name, Log: c.Log, Link: c.Link, Fenced: c.Fenced, Full: c.Full, Absent: c.Absent, Logger: c.Logger}
	if *verbose {
		dc.Logger = slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{Level: slog.LevelDebug})).With("node", c.Name)
	}
	return driver.New(dc)
}

func TestScenes(t *testing.T) { consensustest.Run(t, engine) }

// TestStorm plays storms with new seeds, or the one of -seed.
func TestStorm(t *testing.T) {
	if *seed != 0 {
		t.Logf("%+v", consensustest.Storm(t, *seed, engine))
		return
	}
	first := rand.Uint64N(1 << 40)
	end := time.Now().Add(time.Duration(*seconds * float64(time.Second)))
	var sum consensustest.Outcome
	runs := 0
	for ; runs == 0 || time.Now().Before(end); runs++ {
		out := consensustest.Storm(t, first+uint64(runs), engine)
		if t.Failed() {
			t.Fatalf("seed %d: go test ./internal/consensus/driver -run TestStorm -seed %[1]d", first+uint64(runs))
		}
		sum.Acked, sum.Barriers, sum.Elections = sum.Acked+out.Acked, sum.Barriers+out.Barriers, sum.Elections+out.Elections
		sum.Crashes, sum.Changes, sum.Virtual = sum.Crashes+out.Crashes, sum.Changes+out.Changes, sum.Virtual+out.Virtual
	}
	t.Logf("%d seeds from %d: %+v", runs, first, sum)
}
