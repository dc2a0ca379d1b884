package session

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/mem"
)

// A bufPool hands out registered buffers of one size. It grows by blocks, each
// one allocation and one registration, up to a bound, and shrinks only when it
// is closed: a buffer's index is what travels in a work request's ID, and must
// lead back to the buffer for as long as completions may come.
type bufPool struct {
	pd     rdma.PD
	access rdma.Access
	kind   mem.Kind
	tag    string
	size   int // bytes of a buffer
	perBlk int // buffers of a block
	limit  int // buffers in all
	class  int // of replies: index in lane.replies

	// all is read by pollers without the lock: it only grows, and a poller
	// asks only for indices that it has been given.
	all atomic.Pointer[[]*Buffer]

	mu     sync.Mutex
	free   []*Buffer // stack; the warmest on top
	blocks []block
	closed bool
}

// A block is one registered piece of memory.
type block struct {
	mem *mem.Block
	mr  rdma.MR
}

// A Buffer is one registered buffer. The function that hands it on says what owns it then.
type Buffer struct {
	idx  uint32
	mr   rdma.MR
	off  uint64 // within mr
	Mem  []byte // the whole buffer
	N    int    // bytes of the message in it
	pool *bufPool

	sess *Session     // whose receive or send it is, while it is one
	req  Request      // of a receive: the request that arrived in it, or the first of a pack
	open atomic.Int32 // of a receive: requests that arrived in it and are not answered

	// Of a reply: what posting it does to the session's credits.
	grant    int  // credits it gives
	wantMore bool // the client had to wait: give more if there is room
	isPing   bool // it answers the one Ping under way
}

// newBufPool makes an empty pool.
func newBufPool(pd rdma.PD, access rdma.Access, kind mem.Kind, tag string, size, perBlk, limit int) *bufPool {
	p := &bufPool{pd: pd, access: access, kind: kind, tag: tag, size: size, perBlk: perBlk, limit: max(limit, perBlk)}
	p.all.Store(new([]*Buffer))
	return p
}

// errPoolFull: the pool's bound is reached.
var ErrNoBuffer = fmt.Errorf("server: out of buffers")

// get hands out one buffer. errPoolFull at the bound, else what allocating or
// registering said.
func (p *bufPool) get() (*Buffer, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.free) == 0 {
		if err := p.growLocked(); err != nil {
			return nil, err
		}
	}
	b := p.free[len(p.free)-1]
	p.free = p.free[:len(p.free)-1]
	return b, nil
}

// put takes a buffer back. Nothing may refer to its memory any more.
func (p *bufPool) put(b *Buffer) {
	b.sess, b.N = nil, 0
	b.grant, b.wantMore, b.isPing = 0, false, false
	p.mu.Lock()
	p.free = append(p.free, b)
	p.mu.Unlock()
}

// at returns the buffer of an index that a work request carried.
func (p *bufPool) at(idx uint32) *Buffer { return (*p.all.Load())[idx] }

// count returns how many buffers exist and how many of them are handed out.
func (p *bufPool) count() (total, used int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(*p.all.Load())
	return n, n - len(p.free)
}

func (p *bufPool) growLocked() error {
	old := *p.all.Load()
	if p.closed || len(old)+p.perBlk > p.limit {
		return ErrNoBuffer
	}
	pages, err := mem.Alloc(p.size*p.perBlk, mem.Options{Kind: p.kind, Tag: p.tag})
	if err != nil {
		return err
	}
	mr, err := p.pd.RegMR(pages.Bytes(), p.access)
	if err != nil {
		pages.Free()
		return err
	}
	p.blocks = append(p.blocks, block{pages, mr})
	bytes := pages.Bytes()
	all := old
	for i := range p.perBlk {
		off := i * p.size
		b := &Buffer{
			idx: uint32(len(all)), mr: mr, off: uint64(off), pool: p,
			Mem: bytes[off : off+p.size : off+p.size],
		}
		all = append(all, b)
		p.free = append(p.free, b)
	}
	p.all.Store(&all)
	return nil
}

// close deregisters and frees all memory. No work request may be outstanding.
func (p *bufPool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, b := range p.blocks {
		b.mr.Close()
		b.mem.Free()
	}
	p.blocks, p.free = nil, nil
}

// Free returns the buffer of a reply, which is not sent or has been, to its pool.
func (b *Buffer) Free() {
	if b.pool.class == bigClass {
		b.sess.bigHeld.Add(-1)
	}
	b.pool.put(b)
}

// sge names the first n bytes of the buffer.
func (b *Buffer) sge(n int) rdma.SGE {
	return rdma.SGE{MR: b.mr, Off: b.off, Len: uint32(n)}
}

// Work request IDs: what kind of work it was in the top byte, an index below.
const (
	workRecv  uint64 = iota + 1 // index of a buf in the lane's receive pool
	workSmall                   // index of a buf in the lane's pool of small replies
	workMid                     // … of middle ones
	workBig                     // … of large ones
	workRead                    // index of a fetch in the lane's table

	workShift = 56
)

func workID(kind uint64, idx uint32) uint64 { return kind<<workShift | uint64(idx) }

func splitID(id uint64) (kind uint64, idx uint32) { return id >> workShift, uint32(id) }
