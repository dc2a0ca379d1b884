package verbs

import (
	"time"

	"github.com/rdmakv/rdmakv/rdma"
)

// PostSendSpin posts and polls in one call into C. Cases that are not simple (a batch
// of more than one doorbell, a request that is refused, completions that wait in
// software, a QP that is not in RTS) take the way of PostSend and poll nothing.
func (q *qp) PostSendSpin(wrs []rdma.SendWR, on rdma.CQ, wcs []rdma.WC, d time.Duration) (posted, polled int, err error) {
	c, ok := on.(*cq)
	if !ok || c != q.sendCQ || len(wrs) == 0 || len(wrs) > postBatch || len(wcs) == 0 ||
		q.State() != rdma.QPRTS || !c.pollMu.TryLock() {
		posted, err = q.PostSend(wrs)
		return posted, 0, err
	}
	posted, polled, err = q.sends.postSpin(wrs, c, wcs, d)
	c.pollMu.Unlock()
	if posted < 0 {
		posted, err = q.PostSend(wrs)
	}
	return posted, polled, err
}

// postSpin is PostSendSpin with c.pollMu held; posted is -1 if it did nothing.
// It only tries for s.mu, because its holder may be in a long post, and all QPs of the
// CQ need pollMu.
func (s *sendQueue) postSpin(wrs []rdma.SendWR, c *cq, wcs []rdma.WC, d time.Duration) (posted, polled int, err error) {
	if c.down.Load() != nil || len(c.soft) > c.head || !s.mu.TryLock() {
		return -1, 0, nil
	}
	if s.shut || !s.prepareAll(wrs) {
		s.mu.Unlock()
		return -1, 0, nil // PostSend says why
	}
	s.posted = true
	raw := c.raw[:min(len(wcs), pollBatch)]
	posted, got, err := s.q.hw.PostSendSpin(s.scratch[:len(wrs)], c.hw, raw, d)
	s.q.kickDead()
	s.mu.Unlock()
	for i := range raw[:got] {
		if c.cook(&raw[i], &wcs[polled]) {
			polled++
		}
	}
	switch {
	case posted == len(wrs):
		err = nil // of the poll, if any: the next poll finds it again
	case err != nil:
		err = postError(err)
	}
	return posted, polled, err
}

// prepareAll writes at most postBatch requests in the device's words. It returns false
// if one of them cannot be written. The caller holds mu.
func (s *sendQueue) prepareAll(wrs []rdma.SendWR) bool {
	scratch := s.room(len(wrs))
	for i := range wrs {
		if i >= smallBatch && wrs[i].Flags&rdma.SendInline != 0 {
			return false
		}
		if s.prepare(&wrs[i], &scratch[i], i) != nil {
			return false
		}
	}
	return true
}

var _ rdma.SpinPoster = (*qp)(nil)
var _ rdma.Spinner = (*cq)(nil)
