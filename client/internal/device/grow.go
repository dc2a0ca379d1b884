package device

import (
	"errors"
	"fmt"
	"slices"

	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/mem"
)

// How a Pool gets its memory and gives it back. Everything that talks to
// the device runs without the pool's lock.

// A growth is the registration of one more block, under way.
type growth struct {
	class int
	err   error // why it failed; guarded by Pool.mu
}

// growLocked begins to register one more block for class, unless that is under
// way already or the limit forbids it even after every idle block of other
// classes has been given back.
func (p *Pool) growLocked(class int) error {
	size := p.blockSize(class)
	if size > p.limit {
		return fmt.Errorf("%w: a block of %d bytes is more than the limit of %d", ErrNoMemory, size, p.limit)
	}
	if p.growing[class] != nil {
		return nil
	}
	idle, ok := p.makeRoomLocked(size)
	if !ok {
		return nil
	}
	g := &growth{class: class}
	p.growing[class] = g
	p.total += size
	p.working++
	go p.grow(g, idle)
	return nil
}

// grow gives the idle blocks back and registers one for g.
func (p *Pool) grow(g *growth, idle []*registration) {
	for _, block := range idle {
		_ = block.drop() // its memory is leaked then
	}
	block, err := p.register(g.class)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil {
		p.blocks[block] = struct{}{}
		p.classes[g.class] = append(p.classes[g.class], block)
	} else {
		p.total -= p.blockSize(g.class)
		g.err = growthError(err)
	}
	p.growing[g.class] = nil
	p.working--
	p.wakeLocked()
}

// growthError is what a registration that failed means to the calls that wait
// for it: a device that has gone takes their connection with it; else a bound was
// reached, that of locked memory for example.
func growthError(err error) error {
	for _, gone := range []error{rdma.ErrNoDevice, rdma.ErrClosed, rdma.ErrPeerGone} {
		if errors.Is(err, gone) {
			return base.Because(base.ErrLost, err)
		}
	}
	return base.Because(base.ErrOverloaded, err)
}

// register makes a block. It holds no lock.
func (p *Pool) register(class int) (*registration, error) {
	size, blockSize := 1<<(p.minShift+class), int(p.blockSize(class))
	pages, err := mem.Alloc(blockSize, mem.Options{
		Kind: p.kind, Shared: p.shared, Tag: p.tag,
		// A server maps what it is to READ only if all pages are there (rdma/shm).
		Prefault: p.shared && p.access&rdma.AccessRemoteRead != 0,
	})
	if err != nil {
		return nil, err
	}
	mr, err := p.pd.RegMR(pages.Bytes()[:blockSize], p.access)
	if err != nil {
		return nil, errors.Join(err, pages.Free())
	}
	block := &registration{mem: pages, mr: mr, class: class, all: make([]Buffer, blockSize/size)}
	bytes := pages.Bytes()
	for i := range block.all {
		b := &block.all[i]
		*b = Buffer{block: block, off: uint64(i * size), Mem: bytes[i*size : (i+1)*size : (i+1)*size]}
		block.free = append(block.free, b)
	}
	return block, nil
}

// blockSize is the size in bytes of one registration for class.
func (p *Pool) blockSize(class int) int64 { return max(int64(1)<<(p.minShift+class), minBlock) }

// failed returns why a growth has failed, if it has.
func (p *Pool) failed(g *growth) error {
	if g == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return g.err
}

// makeRoomLocked takes idle blocks of whatever class out of the pool until size
// more bytes fit under the limit; the caller drops them. It is false, and takes
// none, if that would not be enough.
func (p *Pool) makeRoomLocked(size int64) (idle []*registration, ok bool) {
	room := p.limit - p.total
	for block := range p.blocks {
		if room >= size {
			break
		}
		if block.idle() {
			idle = append(idle, block)
			room += p.blockSize(block.class)
		}
	}
	if room < size {
		return nil, false
	}
	for _, block := range idle {
		p.unlinkLocked(block)
	}
	return idle, true
}

func (p *Pool) unlinkLocked(block *registration) {
	list := p.classes[block.class]
	i := slices.Index(list, block)
	p.classes[block.class] = slices.Delete(list, i, i+1)
	delete(p.blocks, block)
	p.total -= p.blockSize(block.class)
}

// Trim gives all idle blocks back: no call is expected to want them soon.
func (p *Pool) Trim() {
	p.mu.Lock()
	var idle []*registration
	for block := range p.blocks {
		if block.idle() {
			idle = append(idle, block)
			p.unlinkLocked(block)
		}
	}
	p.working++
	p.mu.Unlock()
	for _, block := range idle {
		_ = block.drop()
	}
	p.mu.Lock()
	p.working--
	p.wakeLocked()
	p.mu.Unlock()
}

// idle reports whether all of a block's buffers are free.
func (b *registration) idle() bool { return len(b.free) == len(b.all) }

// drop deregisters a block. An MR that cannot be closed may still be written
// to: its memory is then leaked on purpose rather than unmapped under a NIC.
func (b *registration) drop() error {
	if err := b.mr.Close(); err != nil {
		return err
	}
	return b.mem.Free()
}
