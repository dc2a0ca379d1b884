package ibv

// An SRQ is a shared receive queue, struct ibv_srq.
type SRQ struct {
	object
	pd *PD
	// MaxWR and MaxSGE are what the device gave, at least what was asked for.
	MaxWR, MaxSGE int
}

// CreateSRQ is ibv_create_srq(3): a queue of maxWR receives of maxSGE pieces
// each. A limit other than 0 is armed at once; see ArmLimit.
func (p *PD) CreateSRQ(maxWR, maxSGE, limit int) (*SRQ, error) {
	if err := p.use(); err != nil {
		return nil, err
	}
	defer p.mu.RUnlock()
	s := &SRQ{object: object{key: newKey()}, pd: p}
	h, wr, sge, errno := sysCreateSRQ(p.h, s.key, maxWR, maxSGE)
	if errno != 0 {
		return nil, callError("ibv_create_srq", errno)
	}
	// The manual page calls srq_limit irrelevant for ibv_create_srq.
	if limit != 0 {
		if errno := sysArmSRQ(h, limit); errno != 0 {
			sysDestroySRQ(h)
			return nil, callError("ibv_modify_srq", errno)
		}
	}
	s.h, s.MaxWR, s.MaxSGE = h, wr, sge
	p.kids.add("SRQ")
	liveSRQs.put(s.key, s)
	return s, nil
}

// PostRecv is ibv_post_srq_recv(3) for a batch, in one call into C. It returns
// how many were posted; if fewer than len(wrs), the error is that of the first
// which was not, and none after it was.
func (s *SRQ) PostRecv(wrs []RecvWR) (int, error) {
	if len(wrs) == 0 {
		return 0, nil
	}
	if err := s.use(); err != nil {
		return 0, err
	}
	n, errno := sysPostSRQ(s.h, wrs)
	s.mu.RUnlock()
	if errno != 0 {
		return n, callError("ibv_post_srq_recv", errno)
	}
	return n, nil
}

// ArmLimit asks for one AsyncSRQLimitReached when fewer than n receives are
// left (ibv_modify_srq(3)).
func (s *SRQ) ArmLimit(n int) error {
	if err := s.use(); err != nil {
		return err
	}
	defer s.mu.RUnlock()
	return callError("ibv_modify_srq", sysArmSRQ(s.h, n))
}

// Close is ibv_destroy_srq(3). It fails with EBUSY while a QP uses the queue.
func (s *SRQ) Close() error {
	done, err := s.destroy("ibv_destroy_srq", sysDestroySRQ)
	if done {
		liveSRQs.drop(s.key)
		s.pd.kids.done("SRQ")
	}
	return err
}
