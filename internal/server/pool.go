package server

import "sync"

// A pool runs the requests that may wait for the disk on a fixed number of
// goroutines. Its queue is bounded by the credits of all sessions: a request
// in it holds the receive that it came in.
type pool struct {
	mu      sync.Mutex
	some    *sync.Cond
	queue   []*request // ring would do; a slice with a head is simpler
	head    int
	closed  bool
	running int
	wg      sync.WaitGroup
}

// newPool starts n workers.
func newPool(n int) *pool {
	p := &pool{}
	p.some = sync.NewCond(&p.mu)
	p.wg.Add(n)
	for range n {
		go p.run()
	}
	return p
}

// submit queues a request. After close it is dropped.
func (p *pool) submit(r *request) {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		r.drop()
		return
	}
	p.queue = append(p.queue, r)
	p.mu.Unlock()
	p.some.Signal()
}

func (p *pool) run() {
	defer p.wg.Done()
	for {
		r := p.next()
		if r == nil {
			return
		}
		s := r.s // r belongs to the next message once it is answered
		r.work()
		s.flush()
		p.mu.Lock()
		p.running--
		p.mu.Unlock()
	}
}

// next waits for a request; nil after close.
func (p *pool) next() *request {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.head == len(p.queue) {
		if p.closed {
			return nil
		}
		p.some.Wait()
	}
	r := p.queue[p.head]
	p.queue[p.head] = nil
	if p.head++; p.head == len(p.queue) {
		p.queue, p.head = p.queue[:0], 0
	}
	p.running++
	return r
}

// close ends the workers once the queue is empty.
func (p *pool) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.some.Broadcast()
	p.wg.Wait()
}

// load returns how many requests wait and how many run.
func (p *pool) load() (waiting, running int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.queue) - p.head, p.running
}
