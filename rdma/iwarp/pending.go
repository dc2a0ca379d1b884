package iwarp

import "sync"

// A pendingSet bounds the connections that are being set up: accepted by TCP,
// not yet accepted by the program. When it is full it drops the oldest
// connection that has not even sent its request: an honest peer sends the
// request at once, so the peer that has been silent longest is the most likely
// attacker. If all have sent theirs, the newcomer is dropped.
type pendingSet struct {
	limit int

	mu    sync.Mutex
	clock uint64
	set   map[*connRequest]struct{}
}

// add enters r. If the set is full it drops one: see pendingSet.
func (p *pendingSet) add(r *connRequest) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.set == nil {
		p.set = make(map[*connRequest]struct{})
	}
	p.clock++
	r.since, r.silent = p.clock, true
	p.set[r] = struct{}{}
	if len(p.set) <= p.limit {
		return
	}
	victim := r
	for o := range p.set {
		if o.silent && o.since < victim.since {
			victim = o
		}
	}
	delete(p.set, victim)
	_ = victim.conn.Close() // its goroutine sees that and ends
}

// heard marks that r has sent its request. It returns false if r was dropped
// before.
func (p *pendingSet) heard(r *connRequest) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, ok := p.set[r]
	r.silent = false
	return ok
}

func (p *pendingSet) remove(r *connRequest) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.set, r)
}

// dropSilent closes the sockets of l's peers that have not sent a request.
func (p *pendingSet) dropSilent(l *listener) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for r := range p.set {
		if r.l == l && r.silent {
			delete(p.set, r)
			_ = r.conn.Close()
		}
	}
}
