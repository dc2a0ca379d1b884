package index

import (
	"math/rand/v2"
	"testing"

	"github.com/rdmakv/rdmakv/store/layout"
)

// fill puts random keys into a lone image until one finds no room, and returns
// the load at that moment.
func fill(rng *rand.Rand, step uint8) float64 {
	groups := layout.SegmentGroups(step)
	used := make([]int, 3*groups)
	for n := 0; ; n++ {
		a, b := layout.Hash{Hi: rng.Uint64(), Lo: rng.Uint64()}.Mains(groups)
		bkt, ok := choose(a, b, func(b int) int { return used[b] })
		if !ok {
			return float64(n) / float64(3*groups*layout.BucketSlots)
		}
		used[bkt]++
	}
}

// The choice of buckets decides how dense the index is: 0.93 of all slots are
// taken on average when the first key finds its four buckets full.
func TestLoadAtFirstFull(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for step := range uint8(layout.SegmentSteps) {
		const runs = 400
		sum, least := 0.0, 1.0
		for range runs {
			l := fill(rng, step)
			sum, least = sum+l, min(least, l)
		}
		t.Logf("step %d: load at first full: mean %.3f, least %.3f", step, sum/runs, least)
		if mean := sum / runs; mean < 0.925 {
			t.Errorf("step %d: mean load at first full is %.3f, want 0.925", step, mean)
		}
	}
}
