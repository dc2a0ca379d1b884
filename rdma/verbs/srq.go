package verbs

import (
	"fmt"
	"sync"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/verbs/ibv"
)

// An srq is a receive queue shared by QPs of one PD.
type srq struct {
	pd     *pd
	hw     *ibv.SRQ
	maxSGE int

	mu     sync.Mutex
	closed bool
	users  int // QPs
}

// CreateSRQ creates a shared receive queue.
func (p *pd) CreateSRQ(maxWR int) (rdma.SRQ, error) {
	a := p.dev.attr
	if !a.Caps.Has(rdma.CapSRQ) {
		return nil, fmt.Errorf("%w: shared receive queues", rdma.ErrNotSupported)
	}
	if maxWR < 1 || maxWR > a.MaxSRQWR {
		return nil, fmt.Errorf("%w: SRQ of %d receives is not within 1 and %d", rdma.ErrInvalid, maxWR, a.MaxSRQWR)
	}
	if err := p.use(); err != nil {
		return nil, err
	}
	sge := min(defaultSGE, a.MaxSGE)
	hw, err := p.hw.CreateSRQ(maxWR, sge, 0)
	if err != nil {
		p.unuse()
		return nil, classify(err)
	}
	return &srq{pd: p, hw: hw, maxSGE: sge}, nil
}

// PD returns the parent.
func (s *srq) PD() rdma.PD { return s.pd }

// PostRecv posts receives for whichever QP needs one next.
func (s *srq) PostRecv(wrs []rdma.RecvWR) (int, error) {
	return postRecv(s.pd, s.maxSGE, wrs, s.hw.PostRecv)
}

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
	if err := s.hw.Close(); err != nil {
		return classify(err)
	}
	s.closed = true
	s.pd.unuse()
	return nil
}
