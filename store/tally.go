package store

import "errors"

// tally counts what the writes of a published group came to. It is called by
// the publisher alone, before the writers are answered.
func (s *Store) tally(g *group) {
	c := &s.counts
	c.published.Add(uint64(len(g.writes)))
	for _, w := range g.writes {
		switch {
		case w.again:
			c.retries.Add(1)
			continue
		case errors.Is(w.Err, ErrCondition):
			c.conditions.Add(1)
		case w.Op == OpBatch && w.Err == nil:
			c.batchWrites.Add(1)
		}
		if w.due != 0 && !w.noop {
			c.expired.Add(1)
		}
	}
}

// count returns how many results of requests are remembered.
func (d *dedup) count() (n int) {
	for i := range d.stripes {
		st := &d.stripes[i]
		st.mu.Lock()
		n += len(st.entries)
		st.mu.Unlock()
	}
	return n
}
