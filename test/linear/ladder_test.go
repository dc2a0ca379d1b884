package linear

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestLadder: what a store with a fault shows is found, and what one without shows is not.
func TestLadder(t *testing.T) {
	type step struct {
		n  uint64
		at time.Time
	}
	for name, c := range map[string]struct {
		lag  func(get int) time.Duration // how old the answer to a get is
		over uint64                      // what is added to it
		lost int                         // each put so often is unknown
		want string
	}{
		"nothing is late":           {func(int) time.Duration { return 0 }, 0, 0, ""},
		"late, within the bound":    {func(int) time.Duration { return 90 * time.Millisecond }, 0, 0, ""},
		"puts that are not known":   {func(int) time.Duration { return 90 * time.Millisecond }, 0, 7, ""},
		"later than the bound":      {func(int) time.Duration { return 120 * time.Millisecond }, 0, 0, "had been acknowledged for longer"},
		"back within the bound":     {func(i int) time.Duration { return time.Duration(i%2) * 50 * time.Millisecond }, 0, 0, "has seen"},
		"more than anybody has put": {func(int) time.Duration { return 0 }, 1 << 32, 0, "was put last"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				steps := map[string][]step{}
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				l := &Ladder{Key: func(round int) []byte { return fmt.Append(nil, "k", round) }, Bound: 100 * time.Millisecond, Pause: 3 * time.Millisecond}
				var wg sync.WaitGroup
				wg.Go(func() {
					puts := 0
					l.Climb(ctx, func(_ context.Context, key, value []byte) (bool, error) {
						mu.Lock()
						defer mu.Unlock()
						steps[string(key)] = append(steps[string(key)], step{binary.BigEndian.Uint64(value), time.Now()})
						if puts++; c.lost > 0 && puts%c.lost == 0 {
							return false, errors.New("nobody knows")
						}
						return true, nil
					})
				})
				wg.Go(func() {
					gets := 0
					l.Watch(ctx, func(_ context.Context, key []byte) ([]byte, error) {
						mu.Lock()
						defer mu.Unlock()
						gets++
						before := time.Now().Add(-c.lag(gets))
						var value []byte
						for _, s := range steps[string(key)] {
							if !s.at.After(before) {
								value = binary.BigEndian.AppendUint64(nil, s.n+c.over)
							}
						}
						return value, nil
					})
				})
				wg.Wait()
				gets, stale, err := l.Result()
				if gets < 1000 || (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
					t.Errorf("%d gets, %d late: %v; want %q", gets, stale, err, c.want)
				}
				if late := c.lag(1) > 0; c.want == "" && (stale > 0) != late {
					t.Errorf("%d of %d gets were late", stale, gets)
				}
			})
		})
	}
}
