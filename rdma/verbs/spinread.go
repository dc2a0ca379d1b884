package verbs

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/verbs/ibv"
)

// sinks are where the prepared READs of a QP land. The work requests stand in C, filled
// in; ReadSpin writes what differs from READ to READ, and posts and polls in one call.
type sinks struct {
	hw    *ibv.Reader
	mrs   []*mr
	used  atomic.Bool // something was posted; set before
	wc    ibv.WC      // of the call under way; guarded by the CQ's pollMu
	limit uint32      // bytes of the longest READ
}

// PrepareSinks fills in a READ for each sink.
func (q *qp) PrepareSinks(list []rdma.SGE) error {
	s := &sinks{limit: q.pd.dev.attr.MaxMsgSize}
	prepared := make([]ibv.SGE, len(list))
	for i := range list {
		var one [ibv.MaxSGE]ibv.SGE
		n, err := fillSGL(q.pd, 1, list[i:i+1], &one, rdma.AccessLocalWrite)
		if err == nil && n == 0 {
			err = fmt.Errorf("%w: it has no bytes", rdma.ErrInvalid)
		}
		if err != nil {
			return fmt.Errorf("sink %d: %w", i, err)
		}
		prepared[i] = one[0]
		s.mrs = append(s.mrs, list[i].MR.(*mr))
	}
	if len(list) == 0 || len(list) > ibv.MaxSinks {
		return fmt.Errorf("%w: %d sinks, it is 1 to %d", rdma.ErrInvalid, len(list), ibv.MaxSinks)
	}
	q.sends.mu.Lock() // against Close
	defer q.sends.mu.Unlock()
	switch {
	case q.sends.shut:
		return fmt.Errorf("%w: the queue pair was closed", rdma.ErrNotConnected)
	case q.sinks.Load() != nil:
		return fmt.Errorf("%w: the queue pair has sinks", rdma.ErrInvalid)
	}
	var err error
	if s.hw, err = q.hw.NewReader(prepared); err != nil {
		return classify(err)
	}
	q.sinks.Store(s)
	return nil
}

// ReadSpin posts a READ into a sink and polls for it.
//
// It takes no lock of the send queue: a request of another goroutine may be posted while
// it polls, and the provider keeps the two apart. Close ends the reader before it posts
// its last request, so nothing comes behind that.
func (q *qp) ReadSpin(sink int, id uint64, remote rdma.RemoteAddr, n uint32, wcs []rdma.WC, d time.Duration) rdma.SpinResult {
	s, c := q.sinks.Load(), q.sendCQ
	if s == nil || uint(sink) >= uint(len(s.mrs)) || s.mrs[sink].closed.Load() || n > s.limit || id == 0 || len(wcs) == 0 ||
		q.State() != rdma.QPRTS || q.sends.ord.Load() == 0 || !c.pollMu.TryLock() {
		return rdma.SpinResult{}
	}
	if c.down.Load() != nil || len(c.soft) > c.head {
		c.pollMu.Unlock()
		return rdma.SpinResult{}
	}
	if !s.used.Load() {
		s.used.Store(true)
	}
	got, err := s.hw.Read(sink, id, remote.Addr, remote.RKey, n, d, &s.wc)
	r := rdma.SpinResult{}
	if err == nil {
		q.kickDead()
		r = q.spun(s, id, got, wcs)
	}
	c.pollMu.Unlock()
	return r
}

// AwaitSpin polls for a READ that is pending.
func (q *qp) AwaitSpin(_ int, id uint64, wcs []rdma.WC, d time.Duration) rdma.SpinResult {
	s, c := q.sinks.Load(), q.sendCQ
	if s == nil || len(wcs) == 0 || !c.pollMu.TryLock() {
		return rdma.SpinResult{State: rdma.SpinPending}
	}
	defer c.pollMu.Unlock()
	if len(c.soft) > c.head { // Close, or who looks for the cause of an end, has polled
		return c.softSpin(id, wcs)
	}
	if c.down.Load() != nil {
		return rdma.SpinResult{State: rdma.SpinPending}
	}
	got, err := s.hw.Await(d, &s.wc)
	if err != nil {
		got = 0 // the next poll says so
	}
	return q.spun(s, id, got, wcs)
}

// spun turns what a call of the reader has polled into words of package rdma. The caller
// holds pollMu.
func (q *qp) spun(s *sinks, id uint64, got int, wcs []rdma.WC) (r rdma.SpinResult) {
	r.State = rdma.SpinPending
	if got == 0 {
		return r
	}
	if s.wc.ID != id {
		if q.sendCQ.cook(&s.wc, &wcs[0]) {
			r.Others = 1
		}
		return r
	}
	r.State, r.Status, r.Polled = rdma.SpinDone, rdma.Status(s.wc.Status), s.wc.Polled
	if s.wc.Status != ibv.StatusSuccess {
		var wc rdma.WC
		q.sendCQ.cook(&s.wc, &wc) // which fails the QP
	}
	return r
}

// softSpin looks for the completion of a READ among those that wait in software, and
// takes those before it along. The caller holds pollMu.
func (c *cq) softSpin(id uint64, wcs []rdma.WC) rdma.SpinResult {
	r := rdma.SpinResult{State: rdma.SpinPending}
	for c.head < len(c.soft) && r.Others < len(wcs) {
		wc := c.soft[c.head]
		if c.head++; c.head == len(c.soft) {
			c.soft, c.head = c.soft[:0], 0
		}
		if wc.ID == id {
			r.State, r.Status, r.Polled = rdma.SpinDone, wc.Status, wc.Polled
			break
		}
		wcs[r.Others] = wc
		r.Others++
	}
	return r
}

// endSinks ends prepared READs for good, when none is being posted, and reports whether
// any was posted. The caller holds sends.mu.
func (q *qp) endSinks() (posted bool) {
	s := q.sinks.Load()
	if s == nil {
		return false
	}
	_ = s.hw.Close()
	return s.used.Load()
}

var _ rdma.SpinReader = (*qp)(nil)
