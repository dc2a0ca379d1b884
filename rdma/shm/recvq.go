//go:build linux

package shm

import (
	"fmt"
	"sync"

	"github.com/rdmakv/rdmakv/rdma"
)

// An sge is a piece of a registered region, as posted: checked when used.
type sge struct {
	mr  *mr
	off uint64
	len uint32
}

// An sgl is a scatter/gather list. Up to two entries need no allocation.
type sgl struct {
	n     int
	total uint64 // bytes; at most maxSGE × 4 GiB, so no overflow
	first [2]sge
	more  []sge // entries from the third on; its array is reused
}

func (l *sgl) at(i int) *sge {
	if i < len(l.first) {
		return &l.first[i]
	}
	return &l.more[i-len(l.first)]
}

// set takes over the entries of a work request. Only what a program cannot
// mean is refused here; closed regions, other PDs and bounds show when the
// request is carried out, as in hardware.
func (l *sgl) set(list []rdma.SGE, limit int) error {
	if len(list) > limit {
		return fmt.Errorf("%w: %d scatter/gather entries, the limit is %d", rdma.ErrInvalid, len(list), limit)
	}
	l.n, l.total, l.more = 0, 0, l.more[:0]
	for i := range list {
		m, ok := list[i].MR.(*mr)
		if !ok || m == nil {
			return fmt.Errorf("%w: scatter/gather entry %d names no memory region of this fabric", rdma.ErrInvalid, i)
		}
		e := sge{mr: m, off: list[i].Off, len: list[i].Len}
		if i < len(l.first) {
			l.first[i] = e
		} else {
			l.more = append(l.more, e)
		}
		l.n++
		l.total += uint64(e.len)
	}
	return nil
}

// clear drops references so that a pooled request keeps no region alive.
func (l *sgl) clear() {
	l.first = [2]sge{}
	clear(l.more[:cap(l.more)])
	l.more = l.more[:0]
	l.n, l.total = 0, 0
}

// check reports whether every entry may be used by owner with the right need.
func (l *sgl) check(owner *pd, need rdma.Access) bool {
	for i := range l.n {
		e := l.at(i)
		if e.mr.pd != owner || e.mr.access&need != need ||
			!e.mr.within(e.off, e.len) || e.mr.state.Load()&mrClosed != 0 {
			return false
		}
	}
	return true
}

// scatter copies src to the bytes from off of the list. False: a region was
// closed, or an entry is out of bounds.
func (l *sgl) scatter(off uint64, src []byte) bool {
	for i := 0; i < l.n && len(src) > 0; i++ {
		e := l.at(i)
		if off >= uint64(e.len) {
			off -= uint64(e.len)
			continue
		}
		n := min(uint64(e.len)-off, uint64(len(src)))
		if !e.mr.within(e.off, e.len) || !e.mr.acquire() {
			return false
		}
		copy(e.mr.buf[e.off+off:e.off+uint64(e.len)], src[:n])
		e.mr.release()
		src, off = src[n:], 0
	}
	return len(src) == 0
}

// gather fills dst with the bytes from off of the list.
func (l *sgl) gather(dst []byte, off uint64) bool {
	for i := 0; i < l.n && len(dst) > 0; i++ {
		e := l.at(i)
		if off >= uint64(e.len) {
			off -= uint64(e.len)
			continue
		}
		if !e.mr.within(e.off, e.len) || !e.mr.acquire() {
			return false
		}
		n := copy(dst, e.mr.buf[e.off+off:e.off+uint64(e.len)])
		e.mr.release()
		dst, off = dst[n:], 0
	}
	return len(dst) == 0
}

// A recvWQE is a posted receive.
type recvWQE struct {
	id  uint64
	sgl sgl
}

// A recvQueue holds posted receives in order: of one QP or shared by many.
// The ring grows up to its limit.
type recvQueue struct {
	limit  int // work requests
	maxSGE int

	mu     sync.Mutex
	ring   []recvWQE // length a power of two
	head   uint64
	tail   uint64
	closed bool // posts are refused: the SRQ was closed, or the QP is flushed
}

// post appends wrs and returns how many were taken.
func (r *recvQueue) post(wrs []rdma.RecvWR) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range wrs {
		if r.closed {
			return i, fmt.Errorf("%w: receive queue", rdma.ErrClosed)
		}
		if int(r.tail-r.head) >= r.limit {
			return i, fmt.Errorf("%w: %d receives posted", rdma.ErrQueueFull, r.limit)
		}
		if int(r.tail-r.head) == len(r.ring) {
			r.grow()
		}
		e := &r.ring[r.tail&uint64(len(r.ring)-1)]
		if err := e.sgl.set(wrs[i].SGL, r.maxSGE); err != nil {
			return i, err
		}
		e.id = wrs[i].ID
		r.tail++
	}
	return len(wrs), nil
}

func (r *recvQueue) grow() {
	old := r.ring
	r.ring = make([]recvWQE, max(8, 2*len(old)))
	for i := r.head; i != r.tail; i++ {
		r.ring[i&uint64(len(r.ring)-1)] = old[i&uint64(len(old)-1)]
	}
}

// take moves the oldest receive to dst, swapping arrays so that neither side
// allocates.
func (r *recvQueue) take(dst *recvWQE) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.head == r.tail {
		return false
	}
	e := &r.ring[r.head&uint64(len(r.ring)-1)]
	*dst, *e = *e, *dst
	e.sgl.clear()
	r.head++
	return true
}

// close refuses further posts and drops what is posted.
func (r *recvQueue) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	r.ring, r.head, r.tail = nil, 0, 0
}

// An srq is a receive queue shared by QPs of one PD.
type srq struct {
	pd *pd
	q  recvQueue

	mu     sync.Mutex
	users  int // QPs
	closed bool
}

// CreateSRQ creates a shared receive queue.
func (p *pd) CreateSRQ(maxWR int) (rdma.SRQ, error) {
	if maxWR < 1 || maxWR > maxSRQWR {
		return nil, fmt.Errorf("%w: %d receives in an SRQ are not within 1 and %d", rdma.ErrInvalid, maxWR, maxSRQWR)
	}
	if err := p.dev.numSRQ.add("shared receive queues"); err != nil {
		return nil, err
	}
	if err := p.use(); err != nil {
		p.dev.numSRQ.drop()
		return nil, err
	}
	return &srq{pd: p, q: recvQueue{limit: maxWR, maxSGE: maxSGE}}, nil
}

func (s *srq) PD() rdma.PD { return s.pd }

// PostRecv appends receives.
func (s *srq) PostRecv(wrs []rdma.RecvWR) (int, error) { return s.q.post(wrs) }

func (s *srq) attach() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fmt.Errorf("%w: shared receive queue", rdma.ErrClosed)
	}
	s.users++
	return nil
}

func (s *srq) detach() {
	s.mu.Lock()
	s.users--
	s.mu.Unlock()
}

// Close fails with ErrBusy while a QP uses it.
func (s *srq) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	if s.users > 0 {
		return fmt.Errorf("%w: shared receive queue has %d QPs", rdma.ErrBusy, s.users)
	}
	s.closed = true
	s.q.close()
	s.pd.unuse()
	s.pd.dev.numSRQ.drop()
	return nil
}
