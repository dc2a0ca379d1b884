//go:build teeth

package sim

import (
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/teeth"
)

var teethSeeds = flag.Int("teeth.seeds", 400, "how many seeds a pulled rule may take to be found")

// found plays runs of the scenarios with a rule pulled until one shows what must
// not be, and returns how many it took. Without the rule pulled the same seeds
// pass: TestSeeds plays such runs all the time.
func found(t *testing.T, rule teeth.Rule, names ...string) {
	t.Helper()
	var list []Scenario
	for _, name := range names {
		list = append(list, named(t, name))
	}
	restore := teeth.Pull(rule)
	defer restore()
	began := time.Now()
	for i := range *teethSeeds {
		seed, sc := uint64(1000+i), list[i%len(list)]
		out := Run(t, seed, sc, nil)
		if out.Err == nil {
			continue
		}
		t.Logf("%v: found by run %d (%s, seed %d) after %v: %v", rule, i+1, sc.Name, seed, time.Since(began).Round(time.Millisecond), out.Err)
		// And again: a seed that found something finds it when it is played again.
		again := 0
		for range 3 {
			if Run(t, seed, sc, nil).Err != nil {
				again++
			}
		}
		fmt.Printf("sim teeth: %-45v found by run %3d (%s, seed %d); played again 3 times it was found %d times\n", rule, i+1, sc.Name, seed, again)
		return
	}
	t.Errorf("%v: pulled, and %d runs found nothing in %v", rule, *teethSeeds, time.Since(began).Round(time.Second))
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

// Those that need luck, or hours, stand in no line: TEETH_PULL="RULE" go test
// -tags teeth ./test/sim -run TestSeeds -scenario NAME -seconds N tries any rule.

func TestFindsPutOrder(t *testing.T) { found(t, teeth.F1PutOrder, "race") }
func TestFindsMismatch(t *testing.T) { found(t, teeth.F3MismatchNotAbsent, "one-size") }
func TestFindsOldKeys(t *testing.T)  { found(t, teeth.D6SessionsSpeak, "turnover") }
func TestFindsSlotless(t *testing.T) { found(t, teeth.F7CountSlotless, "full") }
