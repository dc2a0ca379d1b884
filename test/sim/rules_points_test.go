//go:build points

package sim

import (
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/teeth"
)

var mutantSeeds = flag.Int("mutant.seeds", 400, "how many seeds a broken rule may take to be found")

// finds plays runs of a scenario until one shows what must not be, and fails with
// it. In a program without a broken rule it plays few, which pass: TestSeeds plays
// such runs all the time.
func finds(t *testing.T, name string) {
	t.Helper()
	if !teeth.Points {
		t.Fatal("this build passes no points: go run ./internal/teeth/mutants -with points -- test ./test/sim")
	}
	sc, seeds := named(t, name), 3
	if teeth.Mutant != "" {
		seeds = *mutantSeeds
	}
	began := time.Now()
	for i := range seeds {
		seed := uint64(1000 + i)
		out := Run(t, seed, sc, nil)
		if out.Err == nil {
			continue
		}
		t.Errorf("found by run %d (%s, seed %d) after %v: %v", i+1, sc.Name, seed, time.Since(began).Round(time.Millisecond), out.Err)
		// And again: a seed that found something finds it when it is played again.
		again := 0
		for range 3 {
			if Run(t, seed, sc, nil).Err != nil {
				again++
			}
		}
		fmt.Printf("sim: %s: found by run %3d (%s, seed %d); played again 3 times it was found %d times\n", teeth.Mutant, i+1, sc.Name, seed, again)
		return
	}
}

func named(t *testing.T, name string) Scenario {
	for _, sc := range Scenarios() {
		if sc.Name == name {
			return sc
		}
	}
	t.Fatalf("no scenario %q", name)
	return Scenario{}
}

// Those that need luck, or hours, stand in no line: go run ./internal/teeth/mutants
// -with NAME,points -- test ./test/sim -run TestSeeds -scenario NAME -seconds N
// tries any mutant.

func TestFindsPutOrder(t *testing.T) { finds(t, "race") }
func TestFindsMismatch(t *testing.T) { finds(t, "one-size") }
func TestFindsOldKeys(t *testing.T)  { finds(t, "turnover") }
func TestFindsSlotless(t *testing.T) { finds(t, "full") }
