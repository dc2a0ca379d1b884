package client

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/rdmakv/rdmakv/internal/memory"
	"github.com/rdmakv/rdmakv/rdma"
)

// A bufferPool hands out pieces of registered memory. There are two per
// client: one that gets land in (no remote right at all) and one that large
// puts wait in (REMOTE_READ, for the server alone: the PD is not shared).
//
// Buffers come in classes, powers of two, cut from blocks that are registered
// once. A block all of whose buffers are free may be given back when another
// class needs the room, so the bound on the total is kept whatever the mix of
// sizes. The rule that matters is about time, not space: a buffer belongs to
// the fabric from the post until its completion or flush has been polled.
// Whoever gives up waiting earlier calls quarantine instead of put, and the
// completion's clean-up calls release.
//
// Registering takes a NIC from microseconds to many milliseconds, so it is done
// by a goroutine of its own: nobody holds mu meanwhile, which the poller's
// clean-up takes too, and who waits for the memory waits as long as he may.
//
// Safe for concurrent use. No lock is taken while mu is held.
type bufferPool struct {
	pd       rdma.PD
	access   rdma.Access
	kind     memory.Kind
	shared   bool // the blocks are memfds, which the peer may map
	tag      string
	minShift int   // smallest class is 1<<minShift bytes
	limit    int64 // bytes of all blocks

	quarantined atomic.Int64 // bytes given up on, still owned by the fabric

	mu      sync.Mutex
	total   int64            // bytes of all blocks, and of those being registered
	classes [][]*bufferBlock // per class: blocks with at least one free buffer
	blocks  map[*bufferBlock]struct{}
	growing []*growth     // per class: the registration under way
	working int           // goroutines that register or deregister
	freed   chan struct{} // closed and replaced when something comes back; nil: nobody waits
	out     int           // buffers handed out
	closed  error         // why nothing is handed out any more
}

// A bufferBlock is one registration, cut into buffers of one class.
type bufferBlock struct {
	mem   *memory.Block
	mr    rdma.MR
	owner *Buffer // nil: the pool
	class int
	all   []buffer
	free  []*buffer // a stack: the warmest buffer is handed out first
}

// A buffer is one piece. Its owner may use mem[:n] freely until it posts it.
type buffer struct {
	block *bufferBlock
	off   uint64 // within the MR
	mem   []byte // length is the class size
}

// errNoBuffer: no buffer is free and the caller would have to wait.
var errNoBuffer = errors.New("no registered memory is free")

// minBlock is the smallest registration in bytes: small buffers share one.
const minBlock = 256 << 10

func newBufferPool(pd rdma.PD, access rdma.Access, kind memory.Kind, tag string, smallest, largest int, limit int64) *bufferPool {
	minShift := bits.Len(uint(smallest - 1))
	maxShift := bits.Len(uint(largest - 1))
	return &bufferPool{
		pd: pd, access: access, kind: kind, tag: tag, minShift: minShift, limit: limit,
		classes: make([][]*bufferBlock, maxShift-minShift+1),
		growing: make([]*growth, maxShift-minShift+1),
		blocks:  make(map[*bufferBlock]struct{}),
	}
}

// largest is the size in bytes of the largest buffer that get can return.
func (p *bufferPool) largest() int { return 1 << (p.minShift + len(p.classes) - 1) }

// get returns a buffer of at least n bytes, waiting for one if the limit is
// reached, or for its registration. It fails with ctx's error, the reason the
// pool was closed, or the fabric's refusal to register.
func (p *bufferPool) get(ctx context.Context, n int) (*buffer, error) {
	for {
		b, wait, err := p.try(n)
		if b != nil || err != nil {
			return b, err
		}
		select {
		case <-wait.freed:
		case <-ctx.Done():
			return nil, because(errNoBuffer, ctx.Err())
		}
		if err := p.failed(wait.growth); err != nil {
			return nil, err
		}
	}
}

// A bufferWait is what to wait for: freed says look again; growth, if there is
// one, that it may have failed.
type bufferWait struct {
	freed  <-chan struct{}
	growth *growth
}

// try is one attempt. With neither buffer nor error there is something to wait
// for.
func (p *bufferPool) try(n int) (*buffer, bufferWait, error) {
	class := max(bits.Len(uint(max(n, 1)-1))-p.minShift, 0)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed != nil {
		return nil, bufferWait{}, p.closed
	}
	if class >= len(p.classes) {
		return nil, bufferWait{}, fmt.Errorf("%w: %d bytes in one piece, the largest is %d", errNoBuffer, n, p.largest())
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

// wakeLocked lets everybody who waits look again.
func (p *bufferPool) wakeLocked() {
	if p.freed != nil {
		close(p.freed)
		p.freed = nil
	}
}

// put takes a buffer back. It must not be owned by the fabric any more.
func (p *bufferPool) put(b *buffer) {
	switch {
	case b == nil:
		return
	case b.block.owner != nil:
		b.block.owner.unuse()
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

// quarantine counts a buffer whose caller gave up while the fabric still owns
// it, and returns the bytes in quarantine now.
func (p *bufferPool) quarantine(b *buffer) int64 {
	if o := b.block.owner; o != nil {
		o.abandoned.Add(1)
		return p.quarantined.Load() // its size is the caller's choice, and bounded
	}
	return p.quarantined.Add(int64(len(b.mem)))
}

// release ends a quarantine: the completion, or the flush, has come.
func (p *bufferPool) release(b *buffer) {
	if b.block.owner != nil {
		p.put(b)
		return
	}
	p.quarantined.Add(-int64(len(b.mem)))
	p.put(b)
}

// close deregisters everything; who comes later fails with why. The QPs that
// used the memory must be closed: then every buffer comes back, and close waits
// for the callers that are still copying out of theirs.
func (p *bufferPool) close(why error) error {
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

// usage returns the bytes registered and those that the fabric still owns
// although nobody waits for them.
func (p *bufferPool) usage() (total, quarantined int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.total, p.quarantined.Load()
}

// remote names the buffer for the peer.
func (b *buffer) remote() rdma.RemoteAddr {
	return rdma.RemoteAddr{Addr: b.block.mr.Addr() + b.off, RKey: b.block.mr.RKey()}
}
