package base

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// A limit that ends during a rest is over, although the coarse clock, which is a tick old,
// does not show it yet: a call that rests between its tries must not make another one.
func TestLimitEndsDuringARest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Clock
		c.Start(func() int64 { return 0 }, 100*time.Millisecond, nil)
		l := c.Limit(t.Context(), time.Second)
		for tries := 0; l.Over() == nil; tries++ {
			if tries == 100 {
				t.Fatal("100 tries, and the rests between them are over")
			}
			l.Rest(200 * time.Millisecond)
		}
		if at := time.Since(c.start); at != time.Second+c.Every() || !errors.Is(l.Over(), ErrTimeout) {
			t.Errorf("after %v: %v", at, l.Over())
		}
	})
}
