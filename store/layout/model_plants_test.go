//go:build !race

package layout

import (
	"slices"
	"testing"
)

// rare are the bugs that take the model seconds to find.
var rare = []bug{bugReuseAtOnce, bugShownAtOnce, bugVersionTwice}

// TestModelFindsPlantedBugs: the model finds every one of them. It has one
// goroutine, so there is nothing for the race detector to see.
func TestModelFindsPlantedBugs(t *testing.T) {
	for b := bugNone + 1; b < numBugs; b++ {
		if testing.Short() && slices.Contains(rare, b) {
			continue
		}
		t.Run(b.String(), func(t *testing.T) {
			var sum tally
			err := error(nil)
			for seed := uint64(1); err == nil; seed += 100 {
				if seed > 20000 {
					t.Fatalf("not found in %d gets", sum.gets)
				}
				err = runModel(seed, 100, b, &sum)
			}
			t.Logf("after %d gets: %v", sum.gets, err)
		})
	}
}
