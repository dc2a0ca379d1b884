package admit

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdmakv/rdmakv/store/internal/base"
)

// TestGate: the bound on what is in flight.
func TestGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(100, 3)
		down := make(chan struct{})
		ok := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		ok(g.tryEnter(500)) // alone it may exceed
		if err := g.tryEnter(1); err != base.ErrOverloaded {
			t.Fatal(err)
		}
		entered := make(chan int, 8)
		for i, n := range []int64{60, 60, 1} {
			go func() {
				if g.enter(t.Context(), down, n) == nil {
					entered <- i
				}
			}()
			synctest.Wait() // they queue up in this order
		}
		g.Leave(500, 1)
		synctest.Wait()
		if len(entered) != 1 || <-entered != 0 {
			t.Fatal("the first goes in, and no one overtakes the second")
		}
		if err := g.tryEnter(1); err != base.ErrOverloaded {
			t.Fatal("those who wait go first")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := g.enter(ctx, down, 90); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		idle := g.Close()
		if err := g.tryEnter(1); err != base.ErrClosed {
			t.Fatal(err)
		}
		g.Leave(60, 1)
		synctest.Wait()
		if len(entered) != 2 {
			t.Fatal("those who waited before the close go in")
		}
		select {
		case <-idle:
			t.Fatal("idle with two inside")
		default:
		}
		g.Leave(61, 2)
		<-idle
		if b, w := g.Inside(); b != 0 || w != 0 {
			t.Errorf("%d bytes, %d writes left", b, w)
		}
	})
}

// TestPutRate: a gate tells what puts are slowed down to by what is left of the log.
func TestPutRate(t *testing.T) {
	g, left := NewGate(1<<20, 100), int64(0)
	if r := g.PutRate(); r != 0 {
		t.Errorf("without a log: %d", r)
	}
	g.With(Log{Bytes: 256 << 20, Left: func() int64 { return left }, Rate: func() int64 { return 20 << 20 }})
	for _, c := range []struct {
		left     int64
		from, to uint64
	}{
		{-1, 1, 1},
		{0, 1, 1},
		{1, 1, 2},
		{32 << 20, 10 << 20, 11 << 20},
		{64<<20 - 1, 20 << 20, 1 << 62},
		{64 << 20, 0, 0},
		{256 << 20, 0, 0},
	} {
		left = c.left
		if r := g.PutRate(); r < c.from || r > c.to {
			t.Errorf("%d left: %d, want %d to %d", c.left, r, c.from, c.to)
		}
	}
}
