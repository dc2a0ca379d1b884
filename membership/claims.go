package membership

import "sync"

// A claim is memberlist's report that a node is known at one address and claimed at
// another. If done is set it is no claim: done is closed when the claims before it
// are judged.
type claim struct {
	node, known, other string
	done               chan struct{}
}

// Judging a claim takes seconds if no node answers, and any holder of a gossip key
// can make any number of claims. So claims about nodes that have proved themselves
// (lives) have judges of their own, each node has at most one claim that waits and
// one that is judged, and nodes take turns. A claim for which there is no room comes
// again with the next push/pull.
const (
	judges     = 3 // of claims about nodes that have proved themselves
	maxUnknown = 8 // claims that wait about ids for which no node has given a proof
)

// A docket is the claims that wait, in order. newDocket makes it. It is safe for
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

// take returns the first claim whose node is not being judged already. The caller
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
func (r *referee) enter(c claim) {
	r.m.mu.Lock()
	proved := r.lives[c.node] != nil
	r.m.mu.Unlock()
	if proved {
		r.claims.add(c)
	} else {
		r.unknown.add(c)
	}
}

// judgeAll judges the claims of a docket. settings bounds how long one takes.
func (r *referee) judgeAll(d *docket) {
	for {
		select {
		case <-d.ready:
		case <-r.m.ctx.Done():
			return
		}
		for c, ok := d.take(); ok; c, ok = d.take() {
			r.judge(c)
			d.done(c)
			if r.m.ctx.Err() != nil {
				return
			}
		}
	}
}

// runOwnClaims judges claims about ourselves.
func (r *referee) runOwnClaims() {
	for {
		select {
		case c := <-r.twin:
			r.judgeOwn(c)
		case <-r.m.ctx.Done():
			return
		}
	}
}
