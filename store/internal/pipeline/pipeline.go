// Package pipeline takes writes through their stages. An Orderer judges a write on the
// ordered state of its keys and gives it its place; a Pipeline takes ordered writes to
// the disk and to the readers, in their order: it numbers them, gathers them into
// commits, and has each commit appended to the log, synced, published and answered.
// What these four are is given to it (Env), and where memory comes from and what the
// disk knows of a key is given to the Orderer (OrderEnv), so that neither knows a disk.
//
//	Order    the caller of Submit: memory is reserved, the shard locked, the write
//	         judged; then, under the same hold of the lock, Push
//	Push     the write gets its versions, and its place in the one queue of all shards
//	Append   a worker, one at a time: queued writes -> one commit, in the order of the queue
//	Sync     the same worker: until the commit is durable, beside the syncs of others
//	Publish  the same worker, one commit after the other, in the order of Append
//	Done     the writes of the commit are answered
//
// A worker takes its commit all the way, so a write is handed from one goroutine to another
// once: by Push. While the workers sync the next commit fills up in the queue, so the commits
// grow with the load and nobody sets a timer.
package pipeline

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/flight"
	"github.com/rdmakv/rdmakv/store/layout"
)

// Env is what a Pipeline does with commits. The calls for one commit come in the
// order of the fields. Append is called for one commit after the other, in the
// order of the versions, and so are Publish and Done, each for a commit when all before it
// have ended. Sync of a commit runs beside all calls for others.
//
// An error of Append or Sync fences the store: that commit and all behind it are
// neither published nor answered.
type Env struct {
	// Append gives a commit its place in the log. It does not wait for the disk.
	Append func(c *Commit) error
	// Sync returns when a commit may be published, as soon as all before it are.
	Sync func(c *Commit) error
	// Publish makes all writes of a commit visible, in order.
	Publish func(c *Commit)
	// Done ends a commit: it answers the writes. The commit is the pipeline's again
	// when it returns.
	Done func(c *Commit)
}

// Limits shape the commits.
type Limits struct {
	// Bytes is where a commit is cut; one write alone may exceed it.
	Bytes int64
	// Overhead is what a write takes of Bytes besides its charge; nil: nothing.
	Overhead func(f *flight.Flight) int64
	// Writes bounds the number of writes of a commit. 0: no bound.
	Writes int
	// Workers is how many commits are on their way at once; 0: one. With syncs two keep one
	// under way while the other is published and answered, and the disk does two at a time
	// where it can. More would cut what many writers have queued into smaller commits.
	// Without syncs there is nothing to wait for, and one saves the hand-over.
	Workers int
}

// A Commit is the writes that one append makes durable together, in order.
type Commit struct {
	Flights []*flight.Flight
	Bytes   int64 // admitted
	Log     any   // a pointer that Append leaves for Sync and Done; nil: none
}

// A Pipeline is one stream of writes. Safe for concurrent use.
type Pipeline struct {
	env    Env
	limits Limits
	fence  *base.Fence

	queue queue
	// unpublished counts the commits that are appended and not done.
	unpublished atomic.Int32
	pool        sync.Pool // *Commit

	// appending has a token while a worker takes a commit and appends it. It is no mutex,
	// because an append may wait for the log's next segment, and in virtual time, as tests
	// have it, no time passes while a goroutine waits for a mutex.
	appending chan struct{}
	taken     []*flight.Flight // off the queue; what is left of it is behind cut
	left      []*flight.Flight // the part of taken that is in no commit yet
	turn      int              // of the next commit, modulo len(turns)
	// turns have what says that a commit may be published: one token, which the worker that has
	// ended a commit puts where the next one looks. A turn has a place of its own until it is
	// over, because there are no more commits on their way than workers.
	turns []chan struct{}
}

// New returns a pipeline that gives out the versions from first on, below limit. It
// ends when fence is down, and takes it down when a function of env fails.
func New(env Env, limits Limits, fence *base.Fence, first, limit layout.Version) *Pipeline {
	p := &Pipeline{
		env: env, limits: limits, fence: fence,
		appending: make(chan struct{}, 1), turns: make([]chan struct{}, max(1, limits.Workers)),
	}
	for i := range p.turns {
		p.turns[i] = make(chan struct{}, 1)
	}
	p.turns[0] <- struct{}{}
	p.queue.next, p.queue.limit = first, limit
	p.queue.wake = make(chan struct{}, 1)
	p.pool.New = func() any { return &Commit{} }
	return p
}

// Start starts the workers in life. They end behind Close, when all
// that was pushed is done, or when the fence is down; not with life.End, or writes that
// were pushed would never be answered. A function of the env that never returns keeps them.
func (p *Pipeline) Start(life *base.Life) {
	for range p.turns {
		life.Go(p.work)
	}
}

// Push numbers a write and queues it. The write is the pipeline's from here on. The
// caller holds the shard's lock, so that a shard's writes are queued in the order of
// its versions. It fails with ErrClosed, and ErrEpochs if no version is left.
func (p *Pipeline) Push(f *flight.Flight) error { return p.queue.push(f) }

// Close refuses further writes. Those that were pushed are finished.
func (p *Pipeline) Close() { p.queue.close() }

// Versions returns the next version to be given out, and the first that may not be.
func (p *Pipeline) Versions() (next, limit layout.Version) {
	p.queue.mu.Lock()
	defer p.queue.mu.Unlock()
	return p.queue.next, p.queue.limit
}

// Extend has versions below limit given out.
func (p *Pipeline) Extend(limit layout.Version) {
	p.queue.mu.Lock()
	defer p.queue.mu.Unlock()
	p.queue.limit = limit
}

// Skip has no version below next given out any more.
func (p *Pipeline) Skip(next layout.Version) {
	p.queue.mu.Lock()
	defer p.queue.mu.Unlock()
	p.queue.next = max(p.queue.next, next)
}

// Unpublished returns how many commits are appended and not done.
func (p *Pipeline) Unpublished() int { return int(p.unpublished.Load()) }

// work takes commits all the way until the queue is closed and empty, or the fence is down.
func (p *Pipeline) work() {
	for {
		c, turn, closed, err := p.next()
		switch {
		case err != nil:
			p.fence.Fail(fmt.Errorf("commit: %w", err))
			return
		case c != nil:
			if !p.finish(c, turn) {
				return
			}
			continue
		case closed:
			p.queue.signal() // to the other workers, which are to end, too
			return
		}
		select {
		case <-p.queue.wake:
		case <-p.fence.Down:
			return
		}
	}
}

// next takes what is queued as the next commit, and appends it; nil: nothing is queued, and
// if closed nothing will be.
func (p *Pipeline) next() (c *Commit, turn int, closed bool, err error) {
	p.appending <- struct{}{}
	defer func() { <-p.appending }()
	if len(p.left) == 0 {
		clear(p.taken)
		p.taken, closed = p.queue.take(p.taken)
		p.left = p.taken
	}
	if len(p.left) == 0 {
		return nil, 0, closed, nil
	}
	c = p.cut(p.left)
	if p.left = p.left[len(c.Flights):]; len(p.left) > 0 {
		p.queue.signal() // to another worker
	}
	turn, p.turn = p.turn, (p.turn+1)%len(p.turns)
	p.unpublished.Add(1)
	return c, turn, false, p.env.Append(c)
}

// cut returns a commit of the first of these writes.
func (p *Pipeline) cut(writes []*flight.Flight) *Commit {
	if p.limits.Writes > 0 && len(writes) > p.limits.Writes {
		writes = writes[:p.limits.Writes]
	}
	c := p.pool.Get().(*Commit)
	n, sum := 0, int64(0)
	for n < len(writes) {
		size := writes[n].Charge
		if p.limits.Overhead != nil {
			size += p.limits.Overhead(writes[n])
		}
		if sum += size; n > 0 && sum > p.limits.Bytes {
			break
		}
		c.Bytes += writes[n].Charge
		n++
	}
	c.Flights = append(c.Flights, writes[:n]...)
	return c
}

// finish publishes a commit once that may be, and ends it. false: the store is
// fenced.
func (p *Pipeline) finish(c *Commit, turn int) bool {
	if err := p.env.Sync(c); err != nil {
		p.fence.Fail(fmt.Errorf("commit: %w", err))
		return false
	}
	select {
	case <-p.turns[turn]:
	case <-p.fence.Down:
		return false
	}
	p.env.Publish(c)
	p.env.Done(c)
	p.unpublished.Add(-1)
	p.turns[(turn+1)%len(p.turns)] <- struct{}{}
	clear(c.Flights)
	*c = Commit{Flights: c.Flights[:0]}
	p.pool.Put(c)
	return true
}
