package clock

import "github.com/rdmakv/rdmakv/store/internal/base"

// Keep has the clock make its bounds durable by write, which waits for the disk.
// Before it is called the clock has no bound of its own. write is never called
// twice at a time.
func (c *Clock) Keep(write func(bound uint64) error) { c.write = write }

// Need makes sure that there is a durable bound before anything is ordered that
// can expire. It waits for the disk once in the life of a store, or fails with
// ErrMustAsk where wait is not set. A clock that nobody keeps needs none.
func (c *Clock) Need(wait bool) error {
	if c.write == nil || c.Bounded() {
		return nil
	}
	if !wait {
		return base.ErrMustAsk
	}
	c.raising.Lock()
	defer c.raising.Unlock()
	if c.Bounded() {
		return nil
	}
	return c.writeBound(c.first())
}

// Renew makes a higher bound durable if the one in force is near. It may wait
// for the disk.
func (c *Clock) Renew() error {
	c.raising.Lock()
	defer c.raising.Unlock()
	if bound, ok := c.raise(); ok && c.write != nil {
		return c.writeBound(bound)
	}
	return nil
}

// Tick draws the clock and keeps its bound ahead. It is to be called every
// clockEvery, and may wait for the disk.
func (c *Clock) Tick() error {
	c.draw(Every)
	return c.Renew()
}

// writeBound makes a bound durable and takes it into use. Caller holds raising.
func (c *Clock) writeBound(bound uint64) error {
	if err := c.write(bound); err != nil {
		return err
	}
	c.SetBound(bound)
	return nil
}

// A turn is a mutex for what waits for a disk or a network. It is a channel, so
// that in a simulation (testing/synctest) time passes while somebody waits.
type turn chan struct{}

func (t turn) Lock()   { t <- struct{}{} }
func (t turn) Unlock() { <-t }
