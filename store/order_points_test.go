//go:build points

package store

import (
	"context"
	"errors"
	"testing"
	"time"
)

// TestOrderEnds: between a touch's look at the value and its place in the order
// somebody else puts a value of another length, each time. The touch is refused
// after a bounded number of rounds, with an error that says to try again, and the
// store goes on.
func TestOrderEnds(t *testing.T) {
	n := open(t, testConfig(memFS()))
	n.fill()
	n.put(0, "k", "v")
	rounds, enough := 0, 20*100
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
	err := n.Do(ctx, &Write{Op: Op{Key: []byte("k"), Kind: OpTouch, TTL: time.Hour}})
	switch {
	case rounds == enough:
		t.Errorf("a touch was judged %d times", rounds)
	case !errors.Is(err, ErrOverloaded):
		t.Errorf("after %d rounds: %v", rounds, err)
	case n.Stats().Unsettled != 1:
		t.Errorf("%d counted", n.Stats().Unsettled)
	}
	rounds = enough
	n.put(0, "k", "end")
	n.want(0, "k", "end")
	if w := n.do(Write{Op: Op{Key: []byte("k"), Kind: OpTouch, TTL: time.Hour}}); w.Err != nil {
		t.Errorf("afterwards: %v", w.Err)
	}
}
