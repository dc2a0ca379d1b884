package simcluster

import (
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/teeth"
)

var mutantSeeds = flag.Int("mutant.seeds", 200, "how many seeds a broken rule may take to be found")

// finds plays runs of a scenario until one shows what must not be, and fails with it. In a program without a broken rule it plays few, which pass:
// TestSeeds plays such runs all the time. So the simulation is held to finding what it is for.
func finds(t *testing.T, name string) {
	t.Helper()
	seeds := 2
	if teeth.Mutant != "" {
		seeds = *mutantSeeds
	}
	began := time.Now()
	for _, sc := range Scenarios() {
		if sc.Name != name {
			continue
		}
		for i := range seeds {
			seed := uint64(1000 + i)
			if out := Run(t, seed, sc, nil); out.Err != nil {
				t.Errorf("found by run %d (%s, seed %d) after %v: %v", i+1, sc.Name, seed, time.Since(began).Round(time.Millisecond), out.Err)
				fmt.Printf("simcluster: %s: found by run %d (%s, seed %d)\n", teeth.Mutant, i+1, sc.Name, seed)
				return
			}
		}
		return
	}
	t.Fatalf("no scenario %q", name)
}

// Other mutants are tried by hand: go run ./internal/teeth/mutants -with NAME -- test ./test/simcluster -run TestSeeds -scenario NAME -seconds N.

func TestFindsWords(t *testing.T)   { finds(t, "eclipse") }
func TestFindsRetries(t *testing.T) { finds(t, "kill") }
