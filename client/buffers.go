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
// Safe for concurrent use. No lock is taken while mu is held.
type bufferPool struct {
	pd       rdma.PD
	access   rdma.Access
	kind     memory.Kind
	tag      string
	minShift int   // smallest class is 1<<minShift bytes
	limit    int64 // bytes of all blocks

	quarantined atomic.Int64 // bytes given up on, still owned by the fabric

	mu      sync.Mutex
	total   int64            // bytes of all blocks
	classes [][]*bufferBlock // per class: blocks with at least one free buffer
	blocks  map[*bufferBlock]struct{}
	freed   chan struct{} // closed and replaced when something comes back; nil: nobody waits
	out     int           // buffers handed out
	closed  bool
}

// A bufferBlock is one registration, cut into buffers of one class.
type bufferBlock struct {
	mem   *memory.Block
	mr    rdma.MR
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

// errNoBuffer: the pool's limit is reached and the caller would have to wait.
var errNoBuffer = errors.New("registered memory is used up")

// minBlock is the smallest registration in bytes: small buffers share one.
const minBlock = 256 << 10

func newBufferPool(pd rdma.PD, access rdma.Access, kind memory.Kind, tag string, smallest, largest int, limit int64) *bufferPool {
	minShift := bits.Len(uint(smallest - 1))
	maxShift := bits.Len(uint(largest - 1))
	return &bufferPool{
		pd: pd, access: access, kind: kind, tag: tag, minShift: minShift, limit: limit,
		classes: make([][]*bufferBlock, maxShift-minShift+1),
		blocks:  make(map[*bufferBlock]struct{}),
	}
}

// largest is the size in bytes of the largest buffer that get can return.
func (p *bufferPool) largest() int { return 1 << (p.minShift + len(p.classes) - 1) }

// get returns a buffer of at least n bytes, waiting for one if the limit is
// reached. It fails with ctx's error, ErrClosed or the fabric's refusal to
// register.
func (p *bufferPool) get(ctx context.Context, n int) (*buffer, error) {
	for {
		b, freed, err := p.try(n)
		if b != nil || err != nil {
			return b, err
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return nil, because(errNoBuffer, ctx.Err())
		}
	}
}

// try is one attempt. With neither buffer nor error the caller waits for freed.
func (p *bufferPool) try(n int) (*buffer, <-chan struct{}, error) {
	class := max(bits.Len(uint(max(n, 1)-1))-p.minShift, 0)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, nil, ErrClosed
	}
	if class >= len(p.classes) {
		return nil, nil, fmt.Errorf("%w: %d bytes in one piece, the largest is %d", errNoBuffer, n, p.largest())
	}
	if len(p.classes[class]) == 0 {
		if ok, err := p.growLocked(class); err != nil {
			return nil, nil, err
		} else if !ok {
			if p.freed == nil {
				p.freed = make(chan struct{})
			}
			return nil, p.freed, nil
		}
	}
	list := p.classes[class]
	block := list[len(list)-1]
	b := block.free[len(block.free)-1]
	block.free = block.free[:len(block.free)-1]
	p.out++
	if len(block.free) == 0 {
		p.classes[class] = list[:len(list)-1]
	}
	return b, nil, nil
}

// growLocked registers one more block for class. False means that the limit
// forbids it even after every idle block of other classes has been given back.
func (p *bufferPool) growLocked(class int) (bool, error) {
	size := 1 << (p.minShift + class)
	blockSize := max(size, minBlock)
	if int64(blockSize) > p.limit {
		return false, fmt.Errorf("%w: a block of %d bytes is more than the limit of %d", errNoBuffer, blockSize, p.limit)
	}
	for p.total+int64(blockSize) > p.limit {
		if !p.shrinkLocked() {
			return false, nil
		}
	}
	mem, err := memory.Alloc(blockSize, memory.Options{Kind: p.kind, Tag: p.tag})
	if err != nil {
		return false, err
	}
	mr, err := p.pd.RegMR(mem.Bytes()[:blockSize], p.access)
	if err != nil {
		return false, errors.Join(err, mem.Free())
	}
	block := &bufferBlock{mem: mem, mr: mr, class: class, all: make([]buffer, blockSize/size)}
	bytes := mem.Bytes()
	for i := range block.all {
		b := &block.all[i]
		*b = buffer{block: block, off: uint64(i * size), mem: bytes[i*size : (i+1)*size : (i+1)*size]}
		block.free = append(block.free, b)
	}
	p.total += int64(blockSize)
	p.blocks[block] = struct{}{}
	p.classes[class] = append(p.classes[class], block)
	return true, nil
}

// shrinkLocked gives one idle block back, of whatever class.
func (p *bufferPool) shrinkLocked() bool {
	for class, list := range p.classes {
		for i, block := range list {
			if len(block.free) != len(block.all) {
				continue
			}
			p.classes[class] = append(list[:i:i], list[i+1:]...)
			p.dropLocked(block)
			return true
		}
	}
	return false
}

func (p *bufferPool) dropLocked(block *bufferBlock) error {
	delete(p.blocks, block)
	p.total -= int64(len(block.all)) << (p.minShift + block.class)
	// An MR that cannot be closed may still be written to: its memory is then
	// leaked on purpose rather than unmapped under a NIC.
	if err := block.mr.Close(); err != nil {
		return err
	}
	return block.mem.Free()
}

// put takes a buffer back. It must not be owned by the fabric any more.
func (p *bufferPool) put(b *buffer) {
	if b == nil {
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
	if p.freed != nil {
		close(p.freed)
		p.freed = nil
	}
}

// quarantine counts a buffer whose caller gave up while the fabric still owns
// it, and returns the bytes in quarantine now.
func (p *bufferPool) quarantine(b *buffer) int64 {
	return p.quarantined.Add(int64(len(b.mem)))
}

// release ends a quarantine: the completion, or the flush, has come.
func (p *bufferPool) release(b *buffer) {
	p.quarantined.Add(-int64(len(b.mem)))
	p.put(b)
}

// close deregisters everything. The QPs that used the memory must be closed:
// then every buffer comes back, and close waits for the callers that are still
// copying out of theirs.
func (p *bufferPool) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	if p.freed != nil {
		close(p.freed)
		p.freed = nil
	}
	for p.out > 0 {
		freed := make(chan struct{})
		p.freed = freed
		p.mu.Unlock()
		<-freed
		p.mu.Lock()
	}
	var errs []error
	for block := range p.blocks {
		errs = append(errs, p.dropLocked(block))
	}
	clear(p.classes)
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
