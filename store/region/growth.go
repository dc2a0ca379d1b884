package region

import (
	"errors"
	"sync"
	"time"
)

// A Growth adds regions for one allocator, one at a time and on a goroutine of
// its own, so that a caller may wait for that without a lock, for a while, or
// not at all. The zero value is ready. It is safe for concurrent use.
type Growth struct {
	mu      sync.Mutex
	current *growing
	failed  error // why the last one failed; nil when it did not
	until   time.Time
}

// growing is one region that is being registered.
type growing struct {
	done chan struct{} // closed when err is set
	err  error
	slow bool // a caller has waited for it without success: no other waits again
}

// growPause is for how long no growth is tried after the system refused memory:
// a device that cannot pin any more takes a while to say so.
const growPause = time.Second

// Forever is the patience of a caller that waits until the growth is over.
const Forever = time.Duration(1<<63 - 1)

// Run calls add, unless a region is being added already, and waits for the end
// of either. It returns nil when a region came, which is the moment to look for
// room again: it may be the wrong size, or taken by others.
//
// With less patience than Forever it returns ErrGrowing once that is used up.
// Only the first caller that has to wait in vain for a region waits for it, so
// that a caller that holds a lock holds it for one patience in all.
//
// After add has failed for lack of memory it is not called again for a second;
// until then Run returns its error. add runs on a goroutine of its own, with no
// lock.
func (g *Growth) Run(patience time.Duration, add func() error) error {
	g.mu.Lock()
	c := g.current
	if c == nil {
		if g.failed != nil && time.Now().Before(g.until) {
			defer g.mu.Unlock()
			return g.failed
		}
		c = &growing{done: make(chan struct{})}
		g.current = c
		go g.run(c, add)
	}
	slow := c.slow
	g.mu.Unlock()
	switch {
	case patience == Forever:
		<-c.done
		return c.err
	case slow || patience <= 0:
		return ErrGrowing
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-c.done:
		return c.err
	case <-timer.C:
		g.mu.Lock()
		c.slow = true
		g.mu.Unlock()
		return ErrGrowing
	}
}

// run calls add and wakes those that wait for it. A refusal by the system is
// remembered for growPause.
func (g *Growth) run(c *growing, add func() error) {
	c.err = add()
	g.mu.Lock()
	g.current, g.failed = nil, nil
	// Below the limit, but the system refused: that lasts.
	var refused *NoMemoryError
	if errors.As(c.err, &refused) && refused.Cause != nil {
		g.failed, g.until = c.err, time.Now().Add(growPause)
	}
	g.mu.Unlock()
	close(c.done)
}

// Running reports whether a region is being added. Until that is over, the
// region that add made may be counted and not yet be found.
func (g *Growth) Running() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.current != nil
}

// Done returns a channel that is closed when no region is being added: at once
// if none is.
func (g *Growth) Done() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.current != nil {
		return g.current.done
	}
	done := make(chan struct{})
	close(done)
	return done
}
