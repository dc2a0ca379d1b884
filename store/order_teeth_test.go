//go:build teeth

package store

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/teeth"
)

// TestOrderEnds: between a touch's look at the value and its place in the order
// somebody else puts a value of another length, each time. The touch is refused
// after a bounded number of rounds, with an error that says to try again, and the
// store goes on.
func TestOrderEnds(t *testing.T) {
	bites(t, teeth.D5OrderEnds, func(t *testing.T, found *violations) {
		n := open(t, testConfig(memFS()))
		n.fill()
		n.put(0, "k", "v")
		rounds, enough := 0, 20*maxRounds
		putting := false
		hook(t, func(point string, args ...uint64) {
			if point != "order.unsettled" || putting || rounds == enough {
				return
			}
			rounds++
			putting = true
			n.put(0, "k", pattern(rounds%50*8, "v"))
			putting = false
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := n.Do(ctx, &Write{Key: []byte("k"), Op: OpTouch, TTL: time.Hour})
		switch {
		case rounds == enough:
			found.add("a touch was judged %d times", rounds)
		case !errors.Is(err, ErrOverloaded):
			t.Errorf("after %d rounds: %v", rounds, err)
		case n.Stats().Unsettled != 1:
			t.Errorf("%d counted", n.Stats().Unsettled)
		}
		rounds = enough
		n.put(0, "k", "end")
		n.want(0, "k", "end")
		if w := n.do(Write{Key: []byte("k"), Op: OpTouch, TTL: time.Hour}); w.Err != nil {
			t.Errorf("afterwards: %v", w.Err)
		}
	})
}
