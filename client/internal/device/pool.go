package device

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/mem"
)

// A Pool hands out pieces of registered memory. There are two per
// client: one that gets land in (no remote right at all) and one that large
// puts wait in (REMOTE_READ, for the server alone: the PD is not shared).
//
// Buffers come in classes, powers of two, cut from blocks that are registered
// once. A block all of whose buffers are free may be given back when another
// class needs the room, so the bound on the total is kept whatever the mix of
// sizes. The rule that matters is about time, not space: a buffer belongs to
// the fabric from the post until its completion or flush has been polled.
// A caller that gives up waiting earlier calls Quarantine instead of Put, and the
// completion's clean-up calls Release.
//
// Registering takes a NIC from microseconds to many milliseconds, so it is done
// by a goroutine of its own: mu is not held meanwhile, because the poller's
// clean-up takes it too, and a call waits for the memory only as long as it may.
//
// Safe for concurrent use. No lock is taken while mu is held.
type Pool struct {
	pd       rdma.PD
	access   rdma.Access
	kind     mem.Kind
	shared   bool // the blocks are memfds, which the peer may map
	tag      string
	minShift int   // smallest class is 1<<minShift bytes
	limit    int64 // bytes of all blocks

	quarantined atomic.Int64 // bytes given up on, still owned by the fabric

	mu      sync.Mutex
	total   int64             // bytes of all blocks, and of those being registered
	classes [][]*registration // per class: blocks with at least one free buffer
	blocks  map[*registration]struct{}
	growing []*growth     // per class: the registration under way
	working int           // goroutines that register or deregister
	freed   chan struct{} // closed and replaced when something comes back; nil: no call waits
	out     int           // buffers handed out
	closed  error         // why nothing is handed out any more
}

// A registration is one registration, cut into buffers of one class.
type registration struct {
	mem   *mem.Block
	mr    rdma.MR
	owner *Owned // nil: the pool
	class int
	all   []Buffer
	free  []*Buffer // a stack: the warmest buffer is handed out first
}

// A Buffer is one piece. Its owner may use mem[:n] freely until it posts it.
type Buffer struct {
	block *registration
	off   uint64 // within the MR
	Mem   []byte // length is the class size
}

// errNoBuffer: no buffer is free and the caller would have to wait.
var ErrNoMemory = errors.New("no registered memory is free")

// minBlock is the smallest registration in bytes: small buffers share one.
const minBlock = 256 << 10

func newPool(pd rdma.PD, access rdma.Access, kind mem.Kind, tag string, smallest, largest int, limit int64) *Pool {
	minShift := bits.Len(uint(smallest - 1))
	maxShift := bits.Len(uint(largest - 1))
	return &Pool{
		pd: pd, access: access, kind: kind, tag: tag, minShift: minShift, limit: limit,
		classes: make([][]*registration, maxShift-minShift+1),
		growing: make([]*growth, maxShift-minShift+1),
		blocks:  make(map[*registration]struct{}),
	}
}

// largest is the size in bytes of the largest buffer that get can return.
func (p *Pool) largest() int { return 1 << (p.minShift + len(p.classes) - 1) }

// get returns a buffer of at least n bytes, waiting for one if the limit is
// reached, or for its registration. It fails with ctx's error, the reason the
// pool was closed, or the fabric's refusal to register.
func (p *Pool) get(ctx context.Context, n int) (*Buffer, error) {
	for {
		b, wait, err := p.try(n)
		if b != nil || err != nil {
			return b, err
		}
		select {
		case <-wait.freed:
		case <-ctx.Done():
			return nil, base.Because(ErrNoMemory, ctx.Err())
		}
		if err := p.failed(wait.growth); err != nil {
			return nil, err
		}
	}
}

// Take is get for a call: only one that has to wait pays for a timer.
func (p *Pool) Take(l *base.Limit, n int) (*Buffer, error) {
	b, _, err := p.try(n)
	if b != nil || err != nil {
		return b, err
	}
	ctx, cancel := l.Bounded()
	defer cancel()
	return p.get(ctx, n)
}

// TakeNow is take for a call that must not wait; nil if no buffer is free.
func (p *Pool) TakeNow(n int) *Buffer {
	b, _, _ := p.try(n)
	return b
}

// A bufferWait is what to wait for: freed says look again; growth, if there is
// one, that it may have failed.
type bufferWait struct {
	freed  <-chan struct{}
	growth *growth
}

// try is one attempt. With neither buffer nor error there is something to wait
// for.
func (p *Pool) try(n int) (*Buffer, bufferWait, error) {
	class := max(bits.Len(uint(max(n, 1)-1))-p.minShift, 0)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed != nil {
		return nil, bufferWait{}, p.closed
	}
	if class >= len(p.classes) {
		return nil, bufferWait{}, fmt.Errorf("%w: %d bytes in one piece, the largest is %d", ErrNoMemory, n, p.largest())
	}
	list := p.classes[class]
	if len(list) == 0 {
		if err := p.growLocked(class); err != nil {
			return nil, bufferWait{}, err
		}
		if p.freed == nil {
			p.freed = make(chan struct{})
		}
		return nil, bufferWait{p.freed, p.growing[class]}, nil
	}
	block := list[len(list)-1]
	b := block.free[len(block.free)-1]
	block.free = block.free[:len(block.free)-1]
	p.out++
	if len(block.free) == 0 {
		p.classes[class] = list[:len(list)-1]
	}
	return b, bufferWait{}, nil
}

// wakeLocked lets all calls that wait look again.
func (p *Pool) wakeLocked() {
	if p.freed != nil {
		close(p.freed)
		p.freed = nil
	}
}

// Put takes a buffer back. It must not be owned by the fabric any more.
func (p *Pool) Put(b *Buffer) {
	switch {
	case b == nil:
		return
	case b.block.owner != nil:
		b.block.owner.Unuse()
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	block := b.block
	p.out--
	block.free = append(block.free, b)
	if len(block.free) == 1 {
		p.classes[block.class] = append(p.classes[block.class], block)
	}
	p.wakeLocked()
}

// Quarantine counts a buffer whose caller gave up while the fabric still owns
// it, and returns the bytes in quarantine now.
func (p *Pool) Quarantine(b *Buffer) int64 {
	if o := b.block.owner; o != nil {
		o.abandoned.Add(1)
		return p.quarantined.Load() // its size is the caller's choice, and bounded
	}
	return p.quarantined.Add(int64(len(b.Mem)))
}

// Release ends a quarantine: the completion, or the flush, has come.
func (p *Pool) Release(b *Buffer) {
	if b.block.owner != nil {
		p.Put(b)
		return
	}
	p.quarantined.Add(-int64(len(b.Mem)))
	p.Put(b)
}

// close deregisters everything; a call that comes later fails with why. The QPs that
// used the memory must be closed: then every buffer comes back, and close waits
// for the callers that are still copying out of theirs.
func (p *Pool) close(why error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = why
	p.wakeLocked()
	for p.out > 0 || p.working > 0 {
		if p.freed == nil {
			p.freed = make(chan struct{})
		}
		freed := p.freed
		p.mu.Unlock()
		<-freed
		p.mu.Lock()
	}
	var errs []error
	for block := range p.blocks {
		errs = append(errs, block.drop())
	}
	clear(p.blocks)
	clear(p.classes)
	p.total = 0
	return errors.Join(errs...)
}

// A Usage is how things stand with a pool.
type Usage struct {
	Bytes       int64 // registered
	Quarantined int64 // of these, the fabric still owns, although no call waits for them
	Blocks      int   // registrations that stand
	Working     int   // goroutines that register or deregister
	Out         int   // buffers handed out
}

// Usage is how things stand now.
func (p *Pool) Usage() Usage {
	p.mu.Lock()
	defer p.mu.Unlock()
	return Usage{Bytes: p.total, Quarantined: p.quarantined.Load(), Blocks: len(p.blocks), Working: p.working, Out: p.out}
}

// SGE is n bytes of the buffer from offset at on.
func (b *Buffer) SGE(at int, n uint32) rdma.SGE {
	return rdma.SGE{MR: b.block.mr, Off: b.off + uint64(at), Len: n}
}

// IsOwned reports whether the buffer is a program's own, and not of a pool.
func (b *Buffer) IsOwned() bool { return b.block.owner != nil }

// Remote names the buffer for the peer.
func (b *Buffer) Remote() rdma.RemoteAddr {
	return rdma.RemoteAddr{Addr: b.block.mr.Addr() + b.off, RKey: b.block.mr.RKey()}
}
