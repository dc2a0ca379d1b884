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
//	Append   the committer: queued writes -> one commit, in the order of the queue
//	Sync     the publisher: until the commit may be published
//	Publish  one commit after the other
//	Done     the writes of the commit are answered
//
// The committer does not wait for the disk. While one sync runs the next commits
// fill up, so the commits grow with the load and nobody sets a timer.
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
// order of the versions, and so are Sync, Publish and Done; but Append of a commit
// may run beside Sync, Publish and Done of those before it.
//
// An error of Append or Sync fences the store: that commit and all behind it are
// neither published nor answered.
type Env struct {
	// Append gives a commit its place in the log. It does not wait for the disk.
	Append func(c *Commit) error
	// Sync returns when a commit, and all before it, may be published.
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
	// Inline has the committer sync, publish and end a commit itself if there is
	// none before it that is not published yet and nothing more is queued. With no
	// sync to wait for, waking the publisher would cost more than doing its work.
	Inline bool
}

// Ahead bounds the commits between committer and publisher, besides one in the hands
// of each. Two keep a sync always under way, with the next commit in the log's queue
// behind it; what is beyond that gathers in the queue and makes the commits large.
// With 64 blocking writers this gives 12 puts per commit instead of 3 with a depth of
// 16, and costs a tenth less CPU per put.
const Ahead = 2

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
	// appended is closed when the committer has ended.
	appended chan *Commit
	// ahead counts the commits that the publisher has or will get.
	ahead atomic.Int32
	pool  sync.Pool // *Commit
}

// New returns a pipeline that gives out the versions from first on, below limit. It
// ends when fence is down, and takes it down when a function of env fails.
func New(env Env, limits Limits, fence *base.Fence, first, limit layout.Version) *Pipeline {
	p := &Pipeline{env: env, limits: limits, fence: fence, appended: make(chan *Commit, Ahead)}
	p.queue.next, p.queue.limit = first, limit
	p.queue.wake = make(chan struct{}, 1)
	p.pool.New = func() any { return &Commit{} }
	return p
}

// Start starts the committer and the publisher in life. They end behind Close, when all
// that was pushed is done, or when the fence is down; not with life.End, or writes that
// were pushed would never be answered. A function of the env that never returns keeps them.
func (p *Pipeline) Start(life *base.Life) {
	life.Go(func() {
		defer close(p.appended)
		p.runCommitter()
	})
	life.Go(p.runPublisher)
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

// Unpublished returns how many commits the publisher has or will get.
func (p *Pipeline) Unpublished() int { return int(p.ahead.Load()) }

// runCommitter commits until the queue is closed and empty, or the fence is down.
func (p *Pipeline) runCommitter() {
	var spare []*flight.Flight
	for {
		writes, closed := p.queue.take(spare)
		for rest := writes; len(rest) > 0; {
			c := p.cut(rest)
			rest = rest[len(c.Flights):] // before commit: then c may be another's
			if !p.commit(c) {
				return
			}
		}
		clear(writes)
		spare = writes
		if len(writes) > 0 {
			continue
		}
		if closed {
			return
		}
		select {
		case <-p.queue.wake:
		case <-p.fence.Down:
			return
		}
	}
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

// commit appends a commit and hands it to the publisher. false: the store is fenced.
func (p *Pipeline) commit(c *Commit) bool {
	if err := p.env.Append(c); err != nil {
		p.fence.Fail(fmt.Errorf("commit: %w", err))
		return false
	}
	if p.limits.Inline && p.ahead.Load() == 0 && p.queue.idle() {
		return p.finish(c)
	}
	p.ahead.Add(1)
	select {
	case p.appended <- c: // it belongs to the publisher from here
		return true
	case <-p.fence.Down:
		return false
	}
}

// runPublisher finishes commits until the committer has ended and none is left, or
// the fence is down. It is the only one that changes what readers see, but for the
// committer where there is nothing to do for it (Limits.Inline).
func (p *Pipeline) runPublisher() {
	for c := range p.appended {
		if !p.finish(c) {
			return
		}
		p.ahead.Add(-1)
	}
}

// finish publishes a commit once that may be, and ends it. false: the store is
// fenced.
func (p *Pipeline) finish(c *Commit) bool {
	if err := p.env.Sync(c); err != nil {
		p.fence.Fail(fmt.Errorf("commit: %w", err))
		return false
	}
	p.env.Publish(c)
	p.env.Done(c)
	clear(c.Flights)
	*c = Commit{Flights: c.Flights[:0]}
	p.pool.Put(c)
	return true
}
