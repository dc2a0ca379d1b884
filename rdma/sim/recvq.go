package sim

import (
	"fmt"
	"slices"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/internal/soft"
)

// An sge is a piece of a registered region, as posted. It is checked when it is
// used.
type sge struct {
	mr  *mr
	off uint64
	len uint32
}

// An sgl is a scatter/gather list.
type sgl struct {
	list  []sge
	total uint64
}

// makeSGL takes over the entries of a work request. It refuses only what can
// never be right; the rest shows when the request is carried out.
func makeSGL(list []rdma.SGE, limit int) (sgl, error) {
	if len(list) > limit {
		return sgl{}, fmt.Errorf("%w: %d scatter/gather entries, the limit is %d", rdma.ErrInvalid, len(list), limit)
	}
	l := sgl{list: make([]sge, len(list))}
	for i, e := range list {
		m, ok := e.MR.(*mr)
		if !ok || m == nil {
			return sgl{}, fmt.Errorf("%w: scatter/gather entry %d names no memory region of this fabric", rdma.ErrInvalid, i)
		}
		l.list[i] = sge{m, e.Off, e.Len}
		l.total += uint64(e.Len)
	}
	return l, nil
}

// good reports whether every entry may be used by owner with the right need.
func (l *sgl) good(owner *pd, need rdma.Access) bool {
	for _, e := range l.list {
		if e.mr.pd != owner || e.mr.access&need != need || !e.mr.within(e.off, e.len) || e.mr.closed {
			return false
		}
	}
	return true
}

// scatter copies src to the bytes from off of the list.
func (l *sgl) scatter(off uint64, src []byte) {
	for _, e := range l.list {
		if len(src) == 0 {
			return
		}
		if off >= uint64(e.len) {
			off -= uint64(e.len)
			continue
		}
		k := copy(e.mr.buf[e.off+off:e.off+uint64(e.len)], src)
		src, off = src[k:], 0
	}
}

// gather returns all bytes of the list.
func (l *sgl) gather() []byte {
	b := make([]byte, 0, l.total)
	for _, e := range l.list {
		b = append(b, e.mr.buf[e.off:e.off+uint64(e.len)]...)
	}
	return b
}

// A recvWQE is a posted receive.
type recvWQE struct {
	id  uint64
	sgl sgl
}

// A recvQueue holds posted receives in order: of one QP or shared by many.
type recvQueue struct {
	limit int
	list  []recvWQE
}

func (r *recvQueue) post(wrs []rdma.RecvWR, sges int) (int, error) {
	for i := range wrs {
		if len(r.list) >= r.limit {
			return i, fmt.Errorf("%w: %d receives posted", rdma.ErrQueueFull, r.limit)
		}
		l, err := makeSGL(wrs[i].SGL, sges)
		if err != nil {
			return i, err
		}
		r.list = append(r.list, recvWQE{wrs[i].ID, l})
	}
	return len(wrs), nil
}

func (r *recvQueue) take() (recvWQE, bool) {
	if len(r.list) == 0 {
		return recvWQE{}, false
	}
	e := r.list[0]
	r.list = r.list[:copy(r.list, r.list[1:])]
	return e, true
}

// An srq is a receive queue shared by QPs of one PD.
type srq struct {
	pd     *pd
	q      recvQueue
	users  []*qp
	closed bool
}

// CreateSRQ creates a shared receive queue.
func (p *pd) CreateSRQ(maxWR int) (rdma.SRQ, error) {
	d := p.dev
	if !d.attr.Caps.Has(rdma.CapSRQ) {
		return nil, fmt.Errorf("%w: shared receive queues", rdma.ErrNotSupported)
	}
	if maxWR < 1 || maxWR > soft.MaxSRQWR {
		return nil, fmt.Errorf("%w: %d receives in an SRQ are not within 1 and %d", rdma.ErrInvalid, maxWR, soft.MaxSRQWR)
	}
	d.net.mu.Lock()
	defer d.net.mu.Unlock()
	if d.srqs >= soft.MaxSRQs {
		return nil, fmt.Errorf("%w: %d shared receive queues", rdma.ErrLimit, d.srqs)
	}
	if err := p.use(); err != nil {
		return nil, err
	}
	d.srqs++
	return &srq{pd: p, q: recvQueue{limit: maxWR}}, nil
}

func (s *srq) PD() rdma.PD { return s.pd }

// PostRecv appends receives; SENDs that wait for one are delivered.
func (s *srq) PostRecv(wrs []rdma.RecvWR) (int, error) {
	n := s.pd.dev.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if s.closed {
		return 0, fmt.Errorf("%w: shared receive queue", rdma.ErrClosed)
	}
	k, err := s.q.post(wrs, soft.MaxSGE)
	for _, q := range slices.Clone(s.users) {
		q.serve()
	}
	n.turn()
	return k, err
}

// Close fails with ErrBusy while a QP uses it.
func (s *srq) Close() error {
	n := s.pd.dev.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if s.closed {
		return nil
	}
	if len(s.users) > 0 {
		return fmt.Errorf("%w: shared receive queue has %d QPs", rdma.ErrBusy, len(s.users))
	}
	s.closed = true
	s.q.list = nil
	s.pd.users--
	s.pd.dev.srqs--
	return nil
}
