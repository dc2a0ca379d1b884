package write

import (
	"context"
	"errors"
	"hash/maphash"
	"slices"
	"sync"

	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/client/internal/peer"
	"github.com/rdmakv/rdmakv/client/internal/route"
	"github.com/rdmakv/rdmakv/internal/turnstile"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// An Asyncs is the puts of one client that nobody waits for yet:
//
//	Put ──window──▶ copy ──┬─ first of its key ──▶ lane of its node ──▶ posted in bursts ──┐
//	                       └─ behind the put of the same key that came before ◀── next ────┴─▶ ended
//
// The window bounds the puts that have not ended, and the bytes of their keys and values,
// which are copies. Of one key one put at a time is at a server: a put that was lost or
// refused is sent again, and if a later one of its key were under way beside it, the older
// value could be the one that stays. Keys are told apart by a hash; two keys with the same
// hash wait for each other, and nothing else follows.
//
// A put that cannot go by its lane (it is large, its node is away, its answer was lost)
// becomes a goroutine that carries it out as Do does. The window bounds these, too.
//
// Lock order: mu is a leaf, but for the flushes' channels.
type Asyncs struct {
	f     *route.Router
	seed  maphash.Seed
	most  int                  // bytes
	puts  *turnstile.Turnstile // places in the window
	bytes *turnstile.Turnstile

	mu     sync.Mutex
	last   map[uint64]*Pending // by hash of the key: the put that came last and has not ended
	lanes  map[*peer.Peer]*lane
	now    *flush   // of the puts that come now
	before []*flush // that have been closed to new puts, and in which some have not ended
}

// A flush is the puts between two calls of Flush.
type flush struct {
	left int
	over chan struct{} // closed when it takes no more puts and all have ended
}

// A Pending is one such put. It is the caller's to keep or to drop.
type Pending struct {
	w      Write
	limit  base.Limit
	cancel context.CancelFunc // of limit.Ctx, if it is not the caller's; or nil
	owner  *peer.Peer         // that limit counts by; nil: there was no map
	try    attempted          // in its lane
	hash   uint64
	size   int
	in     *flush
	next   *Pending // of the same key, Asyncs.mu

	mu      sync.Mutex
	ended   bool
	done    chan struct{} // made when one asks for it
	version uint64
	err     error
}

// Done returns a channel that is closed when the put has ended.
func (p *Pending) Done() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done == nil {
		p.done = make(chan struct{})
		if p.ended {
			close(p.done)
		}
	}
	return p.done
}

// Wait waits until the put has ended, and returns the version that the key then had, or why the
// put has failed, as Client.Put says it. It may be called by many goroutines, and more than once.
func (p *Pending) Wait() (version uint64, err error) {
	p.mu.Lock()
	if !p.ended {
		p.mu.Unlock()
		<-p.Done()
		p.mu.Lock()
	}
	defer p.mu.Unlock()
	return p.version, p.err
}

// Async is the asynchronous puts of a client, of which there is one such window.
func Async(f *route.Router) *Asyncs {
	return route.Beside(f, func() any {
		cfg := f.Config()
		return &Asyncs{
			f: f, seed: maphash.MakeSeed(), most: int(cfg.AsyncBytes),
			puts:  turnstile.New(cfg.AsyncWindow, cfg.MaxWaiting, base.ErrOverloaded),
			bytes: turnstile.New(int(cfg.AsyncBytes), cfg.MaxWaiting, base.ErrOverloaded),
			last:  make(map[uint64]*Pending), lanes: make(map[*peer.Peer]*lane), now: newFlush(),
		}
	}).(*Asyncs)
}

func newFlush() *flush { return &flush{over: make(chan struct{})} }

// Put takes a put into the window, waiting for room, and returns before it is carried out.
// An error means that it was not taken and nothing was changed.
func (a *Asyncs) Put(ctx context.Context, key, value []byte) (*Pending, error) {
	w, err := NewPut(key, value, wire.Terms{})
	if err == nil {
		err = ctx.Err()
	}
	// A put of more bytes than the window has waits until it is alone in it.
	size := min(len(key)+len(value), a.most)
	if err == nil {
		err = a.enter(ctx, size)
	}
	if err != nil {
		return nil, a.f.Fail("put", key, err)
	}
	own := append(append(make([]byte, 0, len(key)+len(value)), key...), value...)
	w.Key, w.Data = own[:len(key):len(key)], own[len(key):]
	p := &Pending{w: w, size: size, hash: maphash.Bytes(a.seed, key)}
	if p.owner, err = a.owner(p); err == nil {
		p.limit = p.owner.Begin(ctx)
	} else { // no peer's clock counts its time
		p.limit.Ctx, p.cancel = a.bounded(ctx)
	}
	a.mu.Lock()
	p.in = a.now
	p.in.left++
	before := a.last[p.hash]
	a.last[p.hash] = p
	if before != nil {
		before.next = p
	}
	a.mu.Unlock()
	if before == nil {
		a.ready(p)
	}
	return p, nil
}

// enter waits for room in the window, no longer than a call may take.
func (a *Asyncs) enter(ctx context.Context, size int) error {
	if a.puts.TryEnter(1) {
		if a.bytes.TryEnter(size) {
			return nil
		}
	} else {
		bounded, cancel := a.bounded(ctx)
		defer cancel()
		if err := a.puts.Enter(bounded, 1); err != nil {
			return err
		}
	}
	bounded, cancel := a.bounded(ctx)
	defer cancel()
	err := a.bytes.Enter(bounded, size)
	if err != nil {
		a.puts.Leave(1)
	}
	return err
}

// bounded is ctx with Config.Timeout, if it has no deadline.
func (a *Asyncs) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, a.f.Config().Timeout)
}

// owner is the peer that a put goes to.
func (a *Asyncs) owner(p *Pending) (*peer.Peer, error) {
	if only := a.f.Only(); only != nil {
		return only, nil
	}
	return a.f.Owner(p.w.Key)
}

// ready hands on a put that no other put of its key is before.
func (a *Asyncs) ready(p *Pending) {
	if p.owner == nil {
		go a.alone(p)
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	l := a.lanes[p.owner]
	if l == nil {
		l = &lane{a: a, c: p.owner}
		a.lanes[p.owner] = l
		go l.run()
	}
	l.ready = append(l.ready, p)
}

// alone carries out a put as Do does, within the limit that it has.
func (a *Asyncs) alone(p *Pending) {
	ctx, cancel := p.limit.Bounded()
	defer cancel()
	a.end(p, Do(ctx, a.f, "put", &p.w))
}

// again sends a put again of which a copy was lost or refused, under the name that it has.
func (a *Asyncs) again(c *peer.Peer, p *Pending) {
	ctx, cancel := p.limit.Bounded()
	defer cancel()
	a.moved(ctx, p, c, finishWrite(ctx, c, "put", &p.w))
}

// onward carries out a put at the replicas of its group of which a try has failed with err.
func (a *Asyncs) onward(c *peer.Peer, p *Pending, server string, err error) {
	ctx, cancel := p.limit.Bounded()
	defer cancel()
	a.moved(ctx, p, c, c.Replica.Fail("put", p.w.Key, server, p.w.tried(err)))
}

// moved ends a put that has failed with err at a peer, or carries it out at another node that the map
// leads to.
func (a *Asyncs) moved(ctx context.Context, p *Pending, c *peer.Peer, err error) {
	if err != nil {
		err = elsewhere(ctx, a.f, "put", &p.w, c, err)
	}
	a.end(p, err)
}

// end tells the outcome of a put, once, and lets the next one of its key go. The room in the
// window is free before the outcome is told, so that a caller who knows of it finds the room.
func (a *Asyncs) end(p *Pending, err error) {
	if p.cancel != nil {
		p.cancel()
	}
	version := p.w.Reply.Version
	if err != nil {
		version = 0
	}
	p.w = Write{} // the bytes are not the caller's to keep alive
	a.puts.Leave(1)
	a.bytes.Leave(p.size)

	p.mu.Lock()
	if p.ended {
		panic("client: a put has ended twice")
	}
	p.ended, p.version, p.err = true, version, err
	if p.done != nil {
		close(p.done)
	}
	p.mu.Unlock()

	a.mu.Lock()
	next := p.next
	if p.next = nil; next == nil {
		delete(a.last, p.hash)
	}
	if p.in.left--; p.in.left == 0 && p.in != a.now {
		a.before = slices.DeleteFunc(a.before, func(f *flush) bool { return f == p.in })
		close(p.in.over)
	}
	a.mu.Unlock()
	if next != nil {
		a.ready(next)
	}
}

// Flush waits until every put has ended that was taken before. It fails with ctx's error alone.
func (a *Asyncs) Flush(ctx context.Context) error {
	a.mu.Lock()
	if a.now.left > 0 {
		a.before = append(a.before, a.now)
		a.now = newFlush()
	}
	waits := slices.Clone(a.before)
	a.mu.Unlock()
	for _, f := range waits {
		select {
		case <-f.over:
		case <-ctx.Done():
			return a.f.Fail("flush", nil, ctx.Err())
		}
	}
	return nil
}

// leads reports whether a put that has failed with err may have a better place to go to.
func (a *Asyncs) leads(err error) bool {
	return err != nil && a.f.Only() == nil && !errors.Is(err, base.ErrOutcomeUnknown)
}
