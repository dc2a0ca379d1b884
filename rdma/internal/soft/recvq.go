package soft

import (
	"fmt"
	"sync"

	"github.com/rdmakv/rdmakv/rdma"
)

// A RecvWQE is a posted receive.
type RecvWQE struct {
	ID  uint64
	SGL SGL
}

// A RecvQueue holds posted receives in order, of one QP or shared by many. The
// ring grows up to its limit. It is safe for concurrent use.
type RecvQueue struct {
	limit  int // work requests
	maxSGE int
	kind   *Kind

	mu     sync.Mutex
	ring   []RecvWQE // length a power of two
	head   uint64
	tail   uint64
	closed bool // posts are refused: the SRQ was closed
}

// post appends wrs and returns how many were taken.
func (r *RecvQueue) post(wrs []rdma.RecvWR) (int, error) {
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
		if err := e.SGL.set(wrs[i].SGL, r.maxSGE, r.kind); err != nil {
			return i, err
		}
		e.ID = wrs[i].ID
		r.tail++
	}
	return len(wrs), nil
}

func (r *RecvQueue) grow() {
	old := r.ring
	r.ring = make([]RecvWQE, max(8, 2*len(old)))
	for i := r.head; i != r.tail; i++ {
		r.ring[i&uint64(len(r.ring)-1)] = old[i&uint64(len(old)-1)]
	}
}

// Take moves the oldest receive to dst, swapping arrays so that neither side
// allocates. It returns false if there is none.
func (r *RecvQueue) Take(dst *RecvWQE) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.head == r.tail {
		return false
	}
	e := &r.ring[r.head&uint64(len(r.ring)-1)]
	*dst, *e = *e, *dst
	e.SGL.clear()
	r.head++
	return true
}

// close refuses further posts and drops what is posted.
func (r *RecvQueue) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	r.ring, r.head, r.tail = nil, 0, 0
}

// An SRQ is a receive queue shared by QPs of one PD.
type SRQ struct {
	pd    *PD
	queue RecvQueue

	mu     sync.Mutex
	users  int // QPs
	closed bool
}

// CreateSRQ creates a shared receive queue.
func (p *PD) CreateSRQ(maxWR int) (rdma.SRQ, error) {
	if maxWR < 1 || maxWR > MaxSRQWR {
		return nil, fmt.Errorf("%w: %d receives in an SRQ are not within 1 and %d", rdma.ErrInvalid, maxWR, MaxSRQWR)
	}
	if err := p.dev.srqs.Add("shared receive queues"); err != nil {
		return nil, err
	}
	if err := p.use(); err != nil {
		p.dev.srqs.Drop()
		return nil, err
	}
	return &SRQ{pd: p, queue: RecvQueue{limit: maxWR, maxSGE: MaxSGE, kind: p.dev.kind}}, nil
}

// PD returns the parent.
func (s *SRQ) PD() rdma.PD { return s.pd.outer }

// PostRecv appends receives.
func (s *SRQ) PostRecv(wrs []rdma.RecvWR) (int, error) { return s.queue.post(wrs) }

// attach counts a QP in; detach counts it out.
func (s *SRQ) attach() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fmt.Errorf("%w: shared receive queue", rdma.ErrClosed)
	}
	s.users++
	return nil
}

func (s *SRQ) detach() {
	s.mu.Lock()
	s.users--
	s.mu.Unlock()
}

// Close drops what is posted, without completions. It fails with ErrBusy while a
// QP uses the queue.
func (s *SRQ) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	if s.users > 0 {
		return fmt.Errorf("%w: shared receive queue has %d QPs", rdma.ErrBusy, s.users)
	}
	s.closed = true
	s.queue.close()
	s.pd.unuse()
	s.pd.dev.srqs.Drop()
	return nil
}

var _ rdma.SRQ = (*SRQ)(nil)
