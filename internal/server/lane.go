package server

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/rdmakv/rdmakv/rdma"
)

// A lane is a completion queue with the goroutine that polls it and the
// buffers of the sessions that live on it. Sessions are spread over as many
// lanes as the machine has processors.
//
// The lane's goroutine runs every handler that cannot wait; whatever may wait
// is handed on. After each batch of completions it posts the replies that the
// batch produced, with one doorbell per session.
type lane struct {
	dev *device
	srv *Server
	cq  rdma.CQ
	srq rdma.SRQ // nil unless device.shared

	recvs *bufPool // requests; access local write
	small *bufPool // replies of up to smallReply bytes
	big   *bufPool // replies of up to Config.ReplySize bytes

	sessions atomic.Int32 // places taken
	capacity int          // places that the CQ's depth allows

	// pollMu serialises polling: the lane's goroutine, and the end of a
	// session, which must know that no completion of its QP is left.
	pollMu sync.Mutex
	wcs    []rdma.WC
	dirty  []*session // with replies to post after this batch

	fetchMu   sync.Mutex
	fetches   []*fetch // by index in the work request's ID
	freeFetch []uint32

	sharedMu sync.Mutex
	byQPN    map[uint32]*session // device.shared only
	promised int                 // receives that sessions own
	existing int                 // receives that were ever posted
	recvSGE  [1]rdma.SGE         // scratch of a post
	recvWR   [1]rdma.RecvWR
}

const (
	pollBatch  = 64
	smallReply = 256 // bytes; most replies are a header and a few words
)

// perSession is how many completions one session may have outstanding.
func (d *device) perSession() int {
	n := d.sendDepth + d.readDepth
	if !d.shared {
		n += d.srv.cfg.Credits + 1
	}
	return n
}

// newLane makes lane i of n.
func newLane(d *device, i, n int) (*lane, error) {
	cfg := &d.srv.cfg
	want := (cfg.MaxSessions + n - 1) / n
	receives := max(2, int(cfg.ReceiveBytes)/n/cfg.RequestSize)
	depth := want * d.perSession()
	if d.shared {
		receives = clampLimit(receives, d.attr.MaxSRQWR)
		depth += receives
	}
	depth = clampLimit(depth, d.attr.MaxCQE)
	l := &lane{dev: d, srv: d.srv, wcs: make([]rdma.WC, pollBatch)}
	l.capacity = depth / d.perSession()
	if d.shared {
		l.capacity = (depth - receives) / d.perSession()
		l.byQPN = make(map[uint32]*session)
	}
	l.capacity = min(l.capacity, want)
	var err error
	if l.cq, err = d.dev.CreateCQ(depth); err != nil {
		return nil, err
	}
	if d.shared {
		if l.srq, err = d.pd.CreateSRQ(receives); err != nil {
			return nil, errors.Join(err, l.cq.Close())
		}
	}
	kind := cfg.MemoryKind
	l.recvs = newBufPool(d.pd, rdma.AccessLocalWrite, kind, "receives", cfg.RequestSize, min(16, receives), receives)
	l.small = newBufPool(d.pd, 0, kind, "replies", smallReply, 256, 1<<24)
	l.big = newBufPool(d.pd, 0, kind, "replies", cfg.ReplySize, min(8, max(1, int(cfg.ReplyBytes)/n/cfg.ReplySize)), int(cfg.ReplyBytes)/n/cfg.ReplySize)
	return l, nil
}

// close frees everything. No QP uses the lane any more.
func (l *lane) close() error {
	var errs []error
	if l.srq != nil {
		errs = append(errs, l.srq.Close())
	}
	errs = append(errs, l.cq.Close())
	l.recvs.close()
	l.small.close()
	l.big.close()
	return errors.Join(errs...)
}

// run polls until ctx ends. An overrun of the CQ cannot happen while places
// are reserved; if it does, the lane's sessions are dead and the node says so.
func (l *lane) run(ctx context.Context) {
	for {
		n, err := l.poll()
		if err == nil && n == 0 {
			if err = l.cq.Arm(); err == nil {
				if n, err = l.poll(); err == nil && n == 0 {
					err = l.cq.Wait(ctx)
				}
			}
		}
		switch {
		case ctx.Err() != nil || errors.Is(err, rdma.ErrClosed):
			return
		case err != nil:
			l.srv.fatal(err)
			return
		}
	}
}

// poll handles one batch of completions and returns how many there were.
func (l *lane) poll() (int, error) {
	l.pollMu.Lock()
	defer l.pollMu.Unlock()
	n, err := l.cq.Poll(l.wcs)
	for i := range n {
		l.complete(&l.wcs[i])
	}
	for i, s := range l.dirty {
		s.dirty = false
		s.flush()
		l.dirty[i] = nil
	}
	l.dirty = l.dirty[:0]
	return n, err
}

// drain handles completions until there is none. After a QP's Close has
// returned, drain leaves none of its completions behind.
func (l *lane) drain() {
	for {
		if n, err := l.poll(); n == 0 || err != nil {
			return
		}
	}
}

// touch has s flushed at the end of this batch. Only for code that runs
// inside poll.
func (l *lane) touch(s *session) {
	if !s.dirty {
		s.dirty = true
		l.dirty = append(l.dirty, s)
	}
}

// complete handles one completion. With an error status only ID, Status and
// QPN count.
func (l *lane) complete(wc *rdma.WC) {
	kind, idx := splitID(wc.ID)
	switch kind {
	case workRecv:
		b := l.recvs.at(idx)
		if wc.Status != rdma.StatusSuccess {
			l.receiveFailed(b)
			return
		}
		b.n = int(wc.ByteLen)
		if l.srq != nil {
			b.sess = l.sessionOf(wc.QPN)
		}
		if b.sess == nil { // its session has ended between arrival and now
			l.repostShared(b)
			return
		}
		l.receive(b.sess, b)
	case workSend:
		l.sendDone(l.small.at(idx), wc.Status)
	case workBig:
		l.sendDone(l.big.at(idx), wc.Status)
	case workRead:
		l.fetchMu.Lock()
		f := l.fetches[idx]
		l.fetchMu.Unlock()
		f.done <- wc.Status // room for every READ in flight
	}
}

// receiveFailed: the QP is dying and the receive was flushed.
func (l *lane) receiveFailed(b *buf) {
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
func (l *lane) sendDone(b *buf, st rdma.Status) {
	if st == rdma.StatusSuccess && b.sess != nil {
		b.sess.sendDone(b)
	}
}

// putReply returns a reply's buffer to its pool.
func (l *lane) putReply(b *buf) { b.pool.put(b) }

// sendID is the work request ID of a reply's buffer.
func (l *lane) sendID(b *buf) uint64 {
	if b.pool == l.small {
		return workID(workSend, b.idx)
	}
	return workID(workBig, b.idx)
}

// newReply returns a buffer for a message of n bytes; errPoolFull if there is
// none. Small ones have no bound of their own: every one answers a request
// that held a credit.
func (l *lane) newReply(n int) (*buf, error) {
	if n <= smallReply {
		return l.small.get()
	}
	return l.big.get()
}

// addFetch gives a fetch its place in the table.
func (l *lane) addFetch(f *fetch) {
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
func (l *lane) dropFetch(f *fetch) {
	l.fetchMu.Lock()
	defer l.fetchMu.Unlock()
	l.fetches[f.idx] = nil
	l.freeFetch = append(l.freeFetch, f.idx)
}
