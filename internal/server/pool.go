package server

import (
	"fmt"
	"sync"

	"github.com/rdmakv/rdmakv/internal/wire"
)

// A pool runs requests that may wait on a fixed number of goroutines, and shares
// them out among those who ask. Logins take turns, and within a login its
// sessions do, so that who asks for little waits behind one request of each other,
// not behind all that somebody has sent. Where tenants share a pool a login has a
// share of the workers, which is less than all of them; so a worker comes free for the
// others as soon as one of theirs, or of the rest, is done. The main login, whose
// holder is the operator, may have all workers of the gets.
//
// Requests that wait hold the receives that they came in. They end with their
// session: whoever hangs up takes with him what he has asked for.
type pool struct {
	kind  poolKind
	share func(*login) int // how many workers a login may hold at a time
	bound bool             // login.maxQueued counts

	mu      sync.Mutex
	some    *sync.Cond
	ready   fifo[*login] // those that have requests and are below their share, in turn
	waiting int
	running int
	closed  bool
	wg      sync.WaitGroup
}

// The pools. Gets and scans are of a space, the other two of the node: nothing that
// a tenant does with keys can keep a new client from learning of the cluster, or
// the operator from what he wants.
type poolKind uint8

const (
	poolGets    poolKind = iota // gets, and writes that ask the disk
	poolScans                   // scans, watches, statistics
	poolCluster                 // what a client has to know before it can begin
	poolAdmin                   // the operator's requests
	poolKinds
)

var poolNames = [poolKinds]string{"gets", "scans", "cluster", "admin"}

// A turn is what a login has in a pool. Guarded by pool.mu.
type turn struct {
	sessions fifo[*session] // those with requests, in turn
	waiting  int            // requests of all of them
	running  int
	listed   bool // in pool.ready
}

// A queue is what a session has in a pool. Guarded by pool.mu.
//
// A request that is refused because the queue is full is answered at once, and
// without its credit: that comes with the reply to one which waits, of which there
// is one (submit). Else who floods would send the next one as soon as he is refused
// one, and his refusals would cost more than his scans.
type queue struct {
	fifo[*request]
	owed int // credits of refused requests
}

// newPool starts n workers.
func newPool(kind poolKind, n int, share func(*login) int) *pool {
	p := &pool{kind: kind, share: share, bound: kind != poolGets}
	p.some = sync.NewCond(&p.mu)
	p.wg.Add(n)
	for range n {
		go p.run()
	}
	return p
}

// submit queues a request, refuses it if its login has too many in the queue, or
// drops it if its session has ended or the pool has.
func (p *pool) submit(r *request) {
	s, l := r.s, r.s.login
	t, q := &l.turns[p.kind], &s.queues[p.kind]
	p.mu.Lock()
	switch {
	case p.closed || s.ended():
		p.mu.Unlock()
		r.drop()
		return
	// A session that has nothing here is let in all the same, or one program of a
	// tenant could keep his others out. A watch that wakes was let in when it came.
	case p.bound && t.waiting >= l.maxQueued && q.len() > 0 && !r.poll.begun:
		q.owed++
		p.mu.Unlock()
		r.grant = 0
		r.overloaded(limitLoginQueue, fmt.Sprintf("tenant %s has %d requests of this kind in the queue", l.label(), l.maxQueued))
		return
	}
	if q.push(r); q.len() == 1 {
		t.sessions.push(s)
	}
	t.waiting++
	p.waiting++
	p.list(l)
	p.mu.Unlock()
}

// list gives a login its place among those that have a turn, if it may run more.
// mu is held.
func (p *pool) list(l *login) {
	t := &l.turns[p.kind]
	if !t.listed && t.waiting > 0 && t.running < p.share(l) {
		t.listed = true
		p.ready.push(l)
		p.some.Signal()
	}
}

func (p *pool) run() {
	defer p.wg.Done()
	for {
		r, late := p.next()
		if r == nil {
			return
		}
		s := r.s // r belongs to the next message once it is answered
		if late || s.ended() {
			r.drop()
		} else {
			r.work()
		}
		s.flush()
		p.done(s.login)
	}
}

// next waits for a request; nil after close, when there is none left. late: it came
// before close, and there is no time for it.
func (p *pool) next() (r *request, late bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.ready.len() == 0 {
		if p.closed {
			return nil, true // what is left is taken by whoever holds its login's share
		}
		p.some.Wait()
	}
	l := p.ready.pop()
	t := &l.turns[p.kind]
	t.listed = false
	s := t.sessions.pop()
	q := &s.queues[p.kind]
	r = q.pop()
	if q.len() > 0 {
		t.sessions.push(s)
		r.grant += min(q.owed, 1)
		q.owed -= min(q.owed, 1)
	} else {
		r.grant += q.owed
		q.owed = 0
	}
	t.waiting--
	p.waiting--
	t.running++
	p.running++
	p.list(l)
	return r, p.closed
}

func (p *pool) done(l *login) {
	p.mu.Lock()
	p.running--
	l.turns[p.kind].running--
	p.list(l)
	p.mu.Unlock()
}

// take takes the waiting requests of a session out; they are the caller's.
func (p *pool) take(s *session) (mine []*request) {
	l, q := s.login, &s.queues[p.kind]
	p.mu.Lock()
	defer p.mu.Unlock()
	if q.len() == 0 {
		return nil
	}
	t := &l.turns[p.kind]
	t.sessions.remove(s)
	for q.len() > 0 {
		mine = append(mine, q.pop())
	}
	t.waiting -= len(mine)
	p.waiting -= len(mine)
	if t.waiting == 0 && t.listed {
		t.listed = false
		p.ready.remove(l)
	}
	return mine
}

// dropQueued ends all that a session has waiting for workers.
func (s *session) dropQueued() {
	root := s.srv.root
	for _, p := range [...]*pool{s.srv.pool, s.srv.scans, root.clusters, root.admins} {
		for _, r := range p.take(s) {
			r.drop()
		}
	}
	if r, _ := s.takeHeld(); r != nil {
		r.drop()
	}
}

// backlog is how many requests of a login wait, and how many of others.
func (p *pool) backlog(l *login) (mine, others int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	mine = l.turns[p.kind].waiting
	return mine, p.waiting - mine
}

// refuseScans answers what waits for the workers that scan: the server is closing,
// and a queue of scans may take longer than it has.
func (srv *Server) refuseScans() {
	for _, s := range srv.sessionList() {
		for _, r := range srv.scans.take(s) {
			r.fail(wire.StatusClosing, "")
		}
		s.flush()
	}
}

// openPools starts the workers of the node, or of a space.
func (srv *Server) openPools() {
	// The main login is the operator's, or everybody's on a node without tenants:
	// it may use all processors, and all workers of the gets. Of the others it may not.
	shares := func(main, tenant int) func(*login) int {
		return func(l *login) int {
			if l.Name == "" {
				return main
			}
			return tenant
		}
	}
	n := srv.cfg.Workers
	srv.pool = newPool(poolGets, n, shares(n, max(1, n-n/4)))
	// Scans take the time of processors more than that of disks. So that puts and
	// gets of others have some, one tenant scans on half of the processors at most.
	n = max(2, n/4)
	srv.scans = newPool(poolScans, n, shares(max(1, n/2), max(1, n/4)))
	if srv.root == srv {
		srv.clusters = newPool(poolCluster, clusterWorkers, shares(clusterWorkers, clusterWorkers-1))
		srv.admins = newPool(poolAdmin, adminWorkers, shares(adminWorkers-1, adminWorkers/2))
	}
}

// closePools ends the workers.
func (srv *Server) closePools() {
	for _, p := range [...]*pool{srv.pool, srv.scans, srv.clusters, srv.admins} {
		if p != nil {
			p.close()
		}
	}
}

const (
	clusterWorkers = 2 // what they answer lies ready
	adminWorkers   = 4 // a revocation may wait for sessions, a promise for the disk
)

// close drops what waits, and returns when what runs is done.
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
	return p.waiting, p.running
}

// queued returns how many requests of a login wait for workers.
func (srv *Server) queued(l *login) (n int) {
	pools := []*pool{srv.root.clusters, srv.root.admins}
	if sp := srv.spaceOf(l.Space); sp != nil {
		pools = append(pools, sp.pool, sp.scans)
	}
	for _, p := range pools {
		if p != nil { // else it is starting
			p.mu.Lock()
			n += l.turns[p.kind].waiting
			p.mu.Unlock()
		}
	}
	return n
}

// A fifo is a queue that uses its memory again. The zero value is empty.
type fifo[T comparable] struct {
	items []T
	head  int // of those that are in it
}

func (f *fifo[T]) len() int { return len(f.items) - f.head }

func (f *fifo[T]) push(v T) {
	if f.head > 0 && len(f.items) == cap(f.items) && f.head >= len(f.items)/2 {
		n := copy(f.items, f.items[f.head:])
		clear(f.items[n:])
		f.items, f.head = f.items[:n], 0
	}
	f.items = append(f.items, v)
}

// pop takes the oldest out; there is one.
func (f *fifo[T]) pop() T {
	var none T
	v := f.items[f.head]
	f.items[f.head] = none
	if f.head++; f.head == len(f.items) {
		f.items, f.head = f.items[:0], 0
	}
	return v
}

// remove takes v out, if it is there.
func (f *fifo[T]) remove(v T) {
	for i := f.head; i < len(f.items); i++ {
		if f.items[i] == v {
			var none T
			last := len(f.items) - 1
			copy(f.items[i:], f.items[i+1:])
			f.items[last] = none
			f.items = f.items[:last]
			return
		}
	}
}
