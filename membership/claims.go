package membership

import "sync"

// A claim is what memberlist said: a node is known at one address and claimed at
// another. With done it is none, and closes that when those before it are judged.
type claim struct {
	node, known, other string
	done               chan struct{}
}

// To judge a claim takes seconds where nobody answers, and whoever holds a gossip
// key can make any number of claims. So those about nodes that have proved
// themselves (lives) have judges of their own, each node has one claim that waits
// and is judged by one, and nodes take turns. What there is no room for comes again
// with the next push/pull.
const (
	judges     = 3 // of claims about nodes that have proved themselves
	maxUnknown = 8 // claims that wait about ids that nobody has proved
)

// A docket is the claims that wait, in order. Made by newDocket. Safe for
// concurrent use.
type docket struct {
	max   int
	ready chan struct{} // calls judges; room for max

	mu      sync.Mutex
	waiting []claim
	judged  map[string]bool // nodes whose claim is being judged
}

func newDocket(max int) *docket {
	return &docket{max: max, ready: make(chan struct{}, max), judged: map[string]bool{}}
}

// add enters a claim, unless one of that node waits or there is no room.
func (d *docket) add(c claim) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.waiting) >= d.max {
		return
	}
	for _, w := range d.waiting {
		if w.node == c.node {
			return
		}
	}
	d.waiting = append(d.waiting, c)
	d.wakeLocked()
}

// wakeLocked calls a judge.
func (d *docket) wakeLocked() {
	select {
	case d.ready <- struct{}{}:
	default:
	}
}

// take returns the first claim whose node is not being judged already; the caller
// calls done when it is judged.
func (d *docket) take() (claim, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, c := range d.waiting {
		if !d.judged[c.node] {
			d.waiting = append(d.waiting[:i], d.waiting[i+1:]...)
			d.judged[c.node] = true
			return c, true
		}
	}
	return claim{}, false
}

func (d *docket) done(c claim) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.judged, c.node)
	if len(d.waiting) > 0 {
		d.wakeLocked()
	}
}

// enter notes a claim about another node.
func (m *Members) enter(c claim) {
	m.mu.Lock()
	proved := m.lives[c.node] != nil
	m.mu.Unlock()
	if proved {
		m.claims.add(c)
	} else {
		m.unknown.add(c)
	}
}

// judgeAll judges the claims of a docket. How long one takes is bounded by settings.
func (m *Members) judgeAll(d *docket) {
	defer m.wg.Done()
	for {
		select {
		case <-d.ready:
		case <-m.ctx.Done():
			return
		}
		for c, ok := d.take(); ok; c, ok = d.take() {
			m.judge(c)
			d.done(c)
			if m.ctx.Err() != nil {
				return
			}
		}
	}
}

// referee judges claims about ourselves.
func (m *Members) referee() {
	defer m.wg.Done()
	for {
		select {
		case c := <-m.twin:
			m.judgeOwn(c)
		case <-m.ctx.Done():
			return
		}
	}
}
