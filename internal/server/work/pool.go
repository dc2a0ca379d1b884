package work

import "sync"

// A Pool runs jobs that may wait on a fixed number of goroutines, its workers, and
// shares the workers out among the owners of the jobs. Owners (logins) take turns, and
// within an owner its lines (sessions) do, so that an owner who asks for little waits
// behind one job of each other, not behind all that somebody has sent. An owner holds a
// share of the workers at most, which is less than all of them where owners share a pool;
// so a worker comes free for the others as soon as a job of theirs, or of the rest, is
// done.
//
// Jobs end with their line: what waits when a session ends is taken out (Take).
// All methods are safe for concurrent use.
type Pool struct {
	kind         Kind
	main, tenant int  // how many workers an owner may hold at a time
	bound        bool // Turns.MaxQueued counts

	mu      sync.Mutex
	some    *sync.Cond
	ready   fifo[*Turns] // owners that have jobs and are below their share, in turn
	waiting int
	running int
	closed  bool
	wg      sync.WaitGroup
}

// A Kind is what the jobs of a pool have in common. Gets and scans are of a space, the
// other two of the node: nothing that a tenant does with keys can keep a new client from
// learning of the cluster, or the operator from what it asks.
type Kind uint8

const (
	Gets    Kind = iota // gets, and writes that ask the disk
	Scans               // scans, watches, statistics
	Cluster             // what a client has to know before it can begin
	Admin               // the operator's requests
	Kinds
)

var kindNames = [Kinds]string{"gets", "scans", "cluster", "admin"}

func (k Kind) String() string { return kindNames[k] }

// A Job is a request that may wait. A job that was submitted ends with exactly one call
// of Run, Drop or Refuse, and is nobody's afterwards.
type Job interface {
	// Run does the job, on a worker.
	Run()
	// Drop ends it undone: its session has ended, or the pool has.
	Drop()
	// Refuse ends it undone because its owner has too many in the queue. Its credit is
	// not given back with the answer: a later job of the line gives it (AddGrant).
	Refuse()
	// Again reports whether the job was let in before and has only come back to look
	// again, as a watch does. It is not refused.
	Again() bool
	// AddGrant has the answer of the job give n credits more.
	AddGrant(n int)
}

// A Source is the session that a Line is of.
type Source interface {
	// Ended reports whether nothing more is to be done for the session.
	Ended() bool
	// Flush sends what the jobs have answered.
	Flush()
}

// Turns is what one owner, a login, has in the pools: a turn in each. The zero value
// with its two settings is ready.
type Turns struct {
	MaxQueued int  // jobs that wait in each pool but that of gets; not changed once jobs come
	Main      bool // the main login, whose holder is the operator, has a larger share

	turns [Kinds]turn // each guarded by its pool's mu
}

// A turn is what an owner has in one pool.
type turn struct {
	lines   fifo[*Line] // those with jobs, in turn
	waiting int         // jobs of all of them
	running int
	listed  bool // in Pool.ready
}

// A Line is what one session has in the pools: a queue in each. Init comes first.
type Line struct {
	owner  *Turns
	source Source
	queues [Kinds]queue // each guarded by its pool's mu
}

// Init says whose line it is. Called once, before the first job.
func (l *Line) Init(owner *Turns, source Source) { l.owner, l.source = owner, source }

// A queue is what a line has in one pool.
//
// A job that is refused because the queue is full is answered at once, and without its
// credit: that comes with the reply to a job which waits, of which there is one (Submit).
// Otherwise a client that floods would send the next one as soon as it is refused one,
// and its refusals would cost more than its scans.
type queue struct {
	fifo[Job]
	owed int // credits of refused jobs
}

// New starts the workers of a pool: n of them, of which the main login holds main at a
// time at most and each other owner tenant. Close ends them.
func New(kind Kind, n, main, tenant int) *Pool {
	p := &Pool{kind: kind, main: main, tenant: tenant, bound: kind != Gets}
	p.some = sync.NewCond(&p.mu)
	p.wg.Add(n)
	for range n {
		go p.run()
	}
	return p
}

// Kind is the kind of the pool's jobs.
func (p *Pool) Kind() Kind { return p.kind }

// Share is how many workers an owner may hold at a time.
func (p *Pool) Share(o *Turns) int {
	if o.Main {
		return p.main
	}
	return p.tenant
}

// Submit queues a job, refuses it if its owner has too many in the queue, or drops it if
// its session has ended or the pool has. It does not wait.
func (p *Pool) Submit(l *Line, j Job) {
	o := l.owner
	t, q := &o.turns[p.kind], &l.queues[p.kind]
	p.mu.Lock()
	switch {
	case p.closed || l.source.Ended():
		p.mu.Unlock()
		j.Drop()
		return
	// A line that has nothing here is let in all the same, or one program of a tenant
	// could keep the tenant's others out.
	case p.bound && t.waiting >= o.MaxQueued && q.len() > 0 && !j.Again():
		q.owed++
		p.mu.Unlock()
		j.Refuse()
		return
	}
	if q.push(j); q.len() == 1 {
		t.lines.push(l)
	}
	t.waiting++
	p.waiting++
	p.list(o)
	p.mu.Unlock()
}

// list gives an owner its place among those that have a turn, if it may run more.
// mu is held.
func (p *Pool) list(o *Turns) {
	t := &o.turns[p.kind]
	if !t.listed && t.waiting > 0 && t.running < p.Share(o) {
		t.listed = true
		p.ready.push(o)
		p.some.Signal()
	}
}

func (p *Pool) run() {
	defer p.wg.Done()
	for {
		j, l, late := p.next()
		if j == nil {
			return
		}
		if late || l.source.Ended() {
			j.Drop()
		} else {
			j.Run()
		}
		l.source.Flush()
		p.done(l.owner)
	}
}

// next waits for a job; nil after Close, when there is none left. late: it came before
// Close, and there is no time for it.
func (p *Pool) next() (j Job, l *Line, late bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.ready.len() == 0 {
		if p.closed {
			return nil, nil, true // what is left is taken by the worker that holds its owner's share
		}
		p.some.Wait()
	}
	o := p.ready.pop()
	t := &o.turns[p.kind]
	t.listed = false
	l = t.lines.pop()
	q := &l.queues[p.kind]
	j = q.pop()
	owed := q.owed
	if q.len() > 0 {
		t.lines.push(l)
		owed = min(owed, 1)
	}
	if owed > 0 {
		j.AddGrant(owed)
		q.owed -= owed
	}
	t.waiting--
	p.waiting--
	t.running++
	p.running++
	p.list(o)
	return j, l, p.closed
}

func (p *Pool) done(o *Turns) {
	p.mu.Lock()
	p.running--
	o.turns[p.kind].running--
	p.list(o)
	p.mu.Unlock()
}

// Take takes the waiting jobs of a line out; they are the caller's, who ends them.
func (p *Pool) Take(l *Line) (mine []Job) {
	o, q := l.owner, &l.queues[p.kind]
	p.mu.Lock()
	defer p.mu.Unlock()
	if q.len() == 0 {
		return nil
	}
	t := &o.turns[p.kind]
	t.lines.remove(l)
	for q.len() > 0 {
		mine = append(mine, q.pop())
	}
	t.waiting -= len(mine)
	p.waiting -= len(mine)
	if t.waiting == 0 && t.listed {
		t.listed = false
		p.ready.remove(o)
	}
	return mine
}

// Backlog is how many jobs of an owner wait, and how many of others.
func (p *Pool) Backlog(o *Turns) (mine, others int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	mine = o.turns[p.kind].waiting
	return mine, p.waiting - mine
}

// Load returns how many jobs wait and how many run.
func (p *Pool) Load() (waiting, running int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.waiting, p.running
}

// Close drops what waits, and returns when what runs is done.
func (p *Pool) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.some.Broadcast()
	p.wg.Wait()
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
