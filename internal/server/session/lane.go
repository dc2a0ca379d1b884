package session

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/wait"
)

// A Lane is a completion queue with the goroutine that polls it and the
// buffers of the sessions that live on it. Sessions are spread over as many
// lanes as the machine has processors.
//
// The lane's goroutine runs every handler that cannot wait; whatever may wait
// is handed on. After each batch of completions it posts the replies that the
// batch produced, with one doorbell per session.
type Lane struct {
	rail  *Rail
	group *Group
	cq    rdma.CQ
	srq   rdma.SRQ // nil unless rail.shared

	recvs   *bufPool                 // requests; access local write
	replies [len(workReply)]*bufPool // by class, smallest first

	sessions atomic.Int32 // places taken
	depth    int          // of the CQ
	capacity int          // places that the CQ's depth allows

	// pollMu serialises polling: the lane's goroutine, and the end of a
	// session, which must know that no completion of its QP is left.
	pollMu sync.Mutex
	rounds atomic.Uint64 // of polling, begun and ended: odd during one (Pulse)
	wcs    []rdma.WC
	dirty  []*Session // with replies to post after this batch

	spinner rdma.Spinner     // the CQ, if it can look for a while by itself
	budget  *wait.SpinBudget // of the goroutine of the lane

	fetchMu   sync.Mutex
	fetches   []*fetch // by index in the work request's ID
	freeFetch []uint32

	sharedMu sync.Mutex
	byQPN    map[uint32]*Session // rail.shared only
	promised int                 // receives that sessions own
	existing int                 // receives that were ever posted
	recvSGE  [1]rdma.SGE         // scratch of a post
	recvWR   [1]rdma.RecvWR
}

const pollBatch = 64

// Replies come in three sizes: most are a header and a few words, most values
// are below a page, and the rest takes a whole reply of Config.ReplySize. The
// first two have no bound of their own: every one answers a request that held
// a credit.
const (
	SmallReply = 256
	midReply   = 4 << 10
	bigClass   = 2
)

// workReply is the kind of work by class of reply.
var workReply = [...]uint64{workSmall, workMid, workBig}

// perSession is how many completions one session may have outstanding.
func (d *Rail) perSession() int {
	n := d.sendDepth + d.readDepth
	if !d.Shared {
		n += d.group.cfg.Credits + 1
	}
	return n
}

// newLane makes one of n lanes. Any rail may have all sessions, but the memory of
// buffers is bounded for all rails together.
func newLane(d *Rail, n, rails int) (*Lane, error) {
	cfg := &d.group.cfg
	all := n * max(1, rails)
	want := (cfg.MaxSessions + n - 1) / n
	receives := max(2, int(cfg.ReceiveBytes)/all/cfg.RequestSize)
	depth := want * d.perSession()
	if d.Shared {
		receives = clampLimit(receives, d.Attr.MaxSRQWR)
		depth += receives
	}
	depth = clampLimit(depth, d.Attr.MaxCQE)
	l := &Lane{rail: d, group: d.group, depth: depth, wcs: make([]rdma.WC, pollBatch)}
	l.capacity = depth / d.perSession()
	if d.Shared {
		l.capacity = (depth - receives) / d.perSession()
		l.byQPN = make(map[uint32]*Session)
	}
	l.capacity = min(l.capacity, want)
	var err error
	if l.cq, err = d.Dev.CreateCQ(depth); err != nil {
		return nil, err
	}
	l.spinner, _ = l.cq.(rdma.Spinner)
	l.budget = wait.NewSpinBudget(cfg.Wait, wait.SpinTime(l.cq, cfg.Wait, cfg.Spin))
	if d.Shared {
		if l.srq, err = d.PD.CreateSRQ(receives); err != nil {
			return nil, errors.Join(err, l.cq.Close())
		}
	}
	kind := cfg.MemoryKind
	l.recvs = newBufPool(d.PD, rdma.AccessLocalWrite, kind, "receives", cfg.RequestSize, min(16, receives), receives)
	bigs := max(1, int(cfg.ReplyBytes)/all/cfg.ReplySize)
	l.replies[0] = newBufPool(d.PD, 0, kind, "replies", SmallReply, 256, 1<<24)
	l.replies[1] = newBufPool(d.PD, 0, kind, "replies", midReply, 16, 1<<24)
	l.replies[bigClass] = newBufPool(d.PD, 0, kind, "replies", cfg.ReplySize, min(8, bigs), bigs)
	for i, p := range l.replies {
		p.class = i
	}
	return l, nil
}

// close frees everything. No QP uses the lane any more.
func (l *Lane) close() error {
	var errs []error
	if l.srq != nil {
		errs = append(errs, l.srq.Close())
	}
	errs = append(errs, l.cq.Close())
	l.recvs.close()
	for _, p := range l.replies {
		p.close()
	}
	return errors.Join(errs...)
}

// run polls until ctx ends. An overrun of the CQ cannot happen while places
// are reserved; if it does, the lane's sessions are dead and the node says so.
func (l *Lane) run(ctx context.Context) {
	for busy := false; ; {
		n, err := l.poll()
		begun := time.Time{}
		if err == nil && n == 0 && busy {
			begun = time.Now()
			n, err = l.spin(ctx, begun)
		}
		busy = n > 0
		if err == nil && n == 0 {
			if err = l.cq.Arm(); err == nil {
				if n, err = l.poll(); err == nil && n == 0 {
					err = l.cq.Wait(ctx)
					if !begun.IsZero() {
						l.budget.Slept(time.Since(begun))
					}
				}
				busy = true // whatever it was, something has come
			}
		}
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, rdma.ErrPeerGone), errors.Is(err, rdma.ErrNoDevice), errors.Is(err, rdma.ErrClosed): // of a CQ: its device is gone
			l.rail.Lose(err)
			return
		case err != nil:
			l.group.Fatal(err)
			return
		}
	}
}

// spinSlice is for how long a lane looks without letting others in.
const spinSlice = 5 * time.Microsecond

// spin looks for the next completions for a while and handles them. After work
// has come, a lane does so before it sleeps: to be woken costs more than the
// answer to a request, and a client that has one answer often sends its next
// request at once. A lane to which nothing comes (clients that only READ) never
// spins.
func (l *Lane) spin(ctx context.Context, begun time.Time) (n int, err error) {
	longest := l.budget.Next()
	if longest == 0 {
		return 0, nil
	}
	for spent := time.Duration(0); ; {
		n, err = l.pollFor(min(longest-spent, spinSlice))
		runtime.Gosched() // to the goroutine that makes the answer
		spent = time.Since(begun)
		switch {
		case n > 0:
			l.budget.Got(spent)
			return n, err
		case err != nil || ctx.Err() != nil:
			l.budget.Quit()
			return n, err
		case spent >= longest:
			l.budget.Vain(spent)
			return n, err
		}
	}
}

// poll handles one batch of completions and returns how many there were.
func (l *Lane) poll() (int, error) { return l.pollFor(0) }

// pollFor is poll that looks for up to d while there are none.
func (l *Lane) pollFor(d time.Duration) (n int, err error) {
	l.pollMu.Lock()
	l.rounds.Add(1)
	defer l.endRound()
	if d > 0 && l.spinner != nil {
		n, err = l.spinner.Spin(l.wcs, d)
	} else {
		n, err = l.cq.Poll(l.wcs)
	}
	for i := range n {
		l.complete(&l.wcs[i])
	}
	for i, s := range l.dirty {
		s.dirty = false
		s.Flush()
		l.dirty[i] = nil
	}
	l.dirty = l.dirty[:0]
	return n, err
}

// endRound ends a round of polling.
func (l *Lane) endRound() {
	l.rounds.Add(1)
	l.pollMu.Unlock()
}

// drain handles every completion that is there when it is called. After a QP's
// Close has returned, drain leaves none of its completions behind. It ends
// although others go on completing: the CQ holds no more than its depth.
func (l *Lane) drain() {
	for seen := 0; seen <= l.depth; {
		n, err := l.poll()
		if n == 0 || err != nil {
			return
		}
		seen += n
	}
}

// touch has s flushed at the end of this batch. Only for code that runs
// inside poll.
func (l *Lane) touch(s *Session) {
	if !s.dirty {
		s.dirty = true
		l.dirty = append(l.dirty, s)
	}
}

// complete handles one completion. With an error status only ID, Status and
// QPN count.
func (l *Lane) complete(wc *rdma.WC) {
	kind, idx := splitID(wc.ID)
	switch kind {
	case workRecv:
		b := l.recvs.at(idx)
		if wc.Status != rdma.StatusSuccess {
			l.receiveFailed(b)
			return
		}
		b.N = int(wc.ByteLen)
		if l.srq != nil {
			b.sess = l.sessionOf(wc.QPN)
		}
		if b.sess == nil { // its session has ended between arrival and now
			l.repostShared(b)
			return
		}
		l.receive(b.sess, b)
	case workSmall, workMid, workBig:
		l.sendDone(l.replies[kind-workSmall].at(idx), wc.Status)
	case workRead:
		l.fetchMu.Lock()
		f := l.fetches[idx]
		l.fetchMu.Unlock()
		f.done <- wc.Status // room for every READ in flight
	}
}

// receiveFailed: the QP is dying and the receive was flushed.
func (l *Lane) receiveFailed(b *Buffer) {
	if l.srq != nil {
		l.repostShared(b)
		return
	}
	s := b.sess
	s.mu.Lock()
	s.posted--
	s.mu.Unlock()
	l.recvs.put(b)
}

// sendDone: b was sent, and with it everything posted before it. With an
// error the session is dying; its end returns the buffers.
func (l *Lane) sendDone(b *Buffer, st rdma.Status) {
	if st == rdma.StatusSuccess && b.sess != nil {
		b.sess.sendDone(b)
	}
}

// newReply returns a buffer for a message of n bytes to s; errPoolFull if
// there is none, or if s has more than its part of the large ones: a client
// that takes no replies must not have them all.
func (l *Lane) newReply(s *Session, n int) (*Buffer, error) {
	switch {
	case n <= SmallReply:
		return l.replies[0].get()
	case n <= midReply:
		return l.replies[1].get()
	}
	p := l.replies[bigClass]
	if int(s.bigHeld.Add(1)) > max(2, p.limit/8) {
		s.bigHeld.Add(-1)
		return nil, ErrNoBuffer
	}
	b, err := p.get()
	if err != nil {
		s.bigHeld.Add(-1)
		return nil, err
	}
	b.sess = s
	return b, nil
}

// sendID is the work request ID of a reply's buffer.
func (l *Lane) sendID(b *Buffer) uint64 { return workID(workReply[b.pool.class], b.idx) }

// scarce says whether receives are to be kept for sessions that have none: more
// than a half of all is in use.
func (l *Lane) scarce() bool {
	if l.srq != nil {
		l.sharedMu.Lock()
		defer l.sharedMu.Unlock()
		return 2*l.promised > l.recvs.limit
	}
	_, used := l.recvs.count()
	return 2*used > l.recvs.limit
}

// addFetch gives a fetch its place in the table.
func (l *Lane) addFetch(f *fetch) {
	l.fetchMu.Lock()
	defer l.fetchMu.Unlock()
	if n := len(l.freeFetch); n > 0 {
		f.idx = l.freeFetch[n-1]
		l.freeFetch = l.freeFetch[:n-1]
		l.fetches[f.idx] = f
		return
	}
	f.idx = uint32(len(l.fetches))
	l.fetches = append(l.fetches, f)
}

// dropFetch takes it back. None of its READs is outstanding.
func (l *Lane) dropFetch(f *fetch) {
	l.fetchMu.Lock()
	defer l.fetchMu.Unlock()
	l.fetches[f.idx] = nil
	l.freeFetch = append(l.freeFetch, f.idx)
}
