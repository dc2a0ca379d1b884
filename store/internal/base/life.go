package base

import (
	"context"
	"sync"
	"time"
)

// A Life is how long the goroutines of a store work. It ends twice over: with End,
// when Close has drained the writes, or at once, when the store is fenced. A goroutine
// that is started by Go looks at both, by Over or in a select. Safe for concurrent use.
type Life struct {
	Stop  <-chan struct{} // closed by End
	Ctx   context.Context // ends with Stop
	Fence *Fence          // its Down ends the goroutines at once

	cancel  context.CancelFunc
	workers sync.WaitGroup
}

// NewLife returns the life of a store that serves.
func NewLife(fence *Fence) *Life {
	l := &Life{Fence: fence}
	l.Ctx, l.cancel = context.WithCancel(context.Background())
	l.Stop = l.Ctx.Done()
	return l
}

// Go runs f on a goroutine of the life. It is called before Done, or by such a
// goroutine.
func (l *Life) Go(f func()) { l.workers.Go(f) }

// Every calls f after each period until the life is over. It is the whole of a
// goroutine that does what is due by the clock.
func (l *Life) Every(period time.Duration, f func()) {
	tick := time.NewTicker(period)
	defer tick.Stop()
	for {
		select {
		case <-l.Stop:
			return
		case <-l.Fence.Down:
			return
		case <-tick.C:
			f()
		}
	}
}

// Over says whether background work is to end.
func (l *Life) Over() bool {
	select {
	case <-l.Stop:
		return true
	case <-l.Fence.Down:
		return true
	default:
		return false
	}
}

// End tells the goroutines to end.
func (l *Life) End() { l.cancel() }

// Done returns a channel that is closed when all goroutines have ended. That is never
// if one of them is parked in Pebble's Fatalf: wait for it by Unfenced.
func (l *Life) Done() <-chan struct{} {
	done := make(chan struct{})
	go func() {
		l.workers.Wait()
		close(done)
	}()
	return done
}

// Unfenced waits for c, and returns whether the store is not fenced by then.
func (l *Life) Unfenced(c <-chan struct{}) bool {
	select {
	case <-c:
	case <-l.Fence.Down:
	}
	return l.Fence.Failed() == nil
}
