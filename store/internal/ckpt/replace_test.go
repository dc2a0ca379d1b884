package ckpt

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/consensus"
	groupentry "github.com/rdmakv/rdmakv/store/internal/entry"
)

// TestReplaceKeepsPlace: Replace tells keepers of requests of the place that it has read, behind the end of its turn: a round that
// ends between reading and telling has its place taken back, and the log has been told the later one by then.
func TestReplaceKeepsPlace(t *testing.T) {
	r := newRig(t, nil)
	g := r.team(1, 0, 1)
	other := groupentry.State{State: consensus.State{Applied: 40, Term: 2}, Turn: groupentry.Turn{Reign: 2, Next: 900}}
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			for ctx.Err() == nil {
				_ = r.Replace(ctx, g.id, other, func() error { return nil })
			}
		})
		all.Go(func() { // readers: they contend for mu
			for ctx.Err() == nil {
				if release, err := r.Hold(); err != nil {
					t.Errorf("a reader: %v", err)
					return
				} else {
					release()
				}
			}
		})
	}
	last, back, rounds := r.Place().At, 0, 0
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end) && back == 0 && !t.Failed(); rounds++ {
		r.write(10, write{shard: 1, key: "k"})
		if _, err := r.round(t.Context(), false); err != nil {
			t.Errorf("round %d: %v", rounds, err)
			break
		}
		for range 20 {
			if at := r.Place().At; at < last {
				back++
			} else {
				last = at
			}
		}
	}
	cancel()
	all.Wait()
	if back > 0 {
		t.Errorf("the base's place went back in round %d, to %v from %v; the base says %v", rounds, r.Place().At, last, r.inBase().At)
	}
	t.Logf("%d rounds", rounds)
}
