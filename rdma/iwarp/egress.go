package iwarp

import (
	"runtime"
	"sync"

	"github.com/rdmakv/rdmakv/rdma"
)

// An egress shares out the processors among the protection domains of a device whose
// peers READ in bulk. Where a domain is a tenant, a tenant with many connections and
// large READs would otherwise have any number of goroutines at work, all of them always
// ready to run: answers to others wait behind them, and with every processor busy the
// runtime looks for news from the network once in 10 ms.
//
// So a writer goroutine, which carries on when a peer asked for more than one buffer,
// frames its next buffer in a turn. There is one turn less than processors, and turns go
// around the domains that wait for one, whatever the number of their connections. A
// response that fits the first buffer needs no turn; a device with one domain has no
// turns.
type egress struct {
	mu   sync.Mutex
	free int   // turns not taken
	ring []*pd // domains with a transmitter that waits; the next one first
}

// A turnWaiter is a transmitter in line for a turn.
type turnWaiter struct{ ready chan struct{} } // closed when it has one

func newEgress() *egress { return &egress{free: max(1, runtime.GOMAXPROCS(0)-1)} }

// take waits for a turn. It returns false if the connection died first.
func (g *egress) take(p *pd, dead <-chan struct{}) bool {
	g.mu.Lock()
	if g.free > 0 {
		g.free--
		g.mu.Unlock()
		return true
	}
	w := &turnWaiter{make(chan struct{})}
	if len(p.turns) == 0 {
		g.ring = append(g.ring, p)
	}
	p.turns = append(p.turns, w)
	g.mu.Unlock()
	select {
	case <-w.ready:
		return true
	case <-dead:
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, o := range p.turns {
		if o != w {
			continue
		}
		p.turns = append(p.turns[:i], p.turns[i+1:]...)
		if len(p.turns) == 0 {
			g.drop(p)
		}
		return false
	}
	g.passOn() // it came at the same moment
	return false
}

// give ends a turn: the next domain in the ring has it.
func (g *egress) give() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.passOn()
}

// passOn gives a turn to the next domain. The caller holds mu.
func (g *egress) passOn() {
	if len(g.ring) == 0 {
		g.free++
		return
	}
	p := g.ring[0]
	g.ring = g.ring[1:]
	w := p.turns[0]
	p.turns = p.turns[1:]
	if len(p.turns) > 0 {
		g.ring = append(g.ring, p)
	}
	close(w.ready)
}

// drop takes a domain for which no transmitter waits any more out of the ring. The
// caller holds mu.
func (g *egress) drop(p *pd) {
	for i, o := range g.ring {
		if o == p {
			g.ring = append(g.ring[:i], g.ring[i+1:]...)
			return
		}
	}
}

// inlineBudget is how many bytes the goroutine that began to transmit writes by itself.
// For READ responses it is one buffer, if other domains may have to wait for them. The
// caller holds QP.Mu.
func (tx *transmitter) inlineBudget() int {
	if tx.q.resp.ready() && tx.q.pd.dev.PDs.N() >= 2 {
		return 1 // what has been framed is written in any case
	}
	return txInlineBudget
}

// takeTurn takes a turn for what the writer is about to frame, if it needs one. The
// caller holds QP.Mu; takeTurn releases it while it waits.
func (tx *transmitter) takeTurn() bool {
	q := tx.q
	d := q.pd.dev
	if !q.resp.ready() || q.StateLocked() == rdma.QPError || d.PDs.N() < 2 {
		return false
	}
	q.Mu.Unlock()
	defer q.Mu.Lock()
	return d.egress.take(q.pd, q.Done())
}
